// SPDX-License-Identifier: GPL-2.0-or-later
// Method: processes that burn a stated amount of their own CPU time (by getrusage) in a cgroup of
// the test's own; what the probe counted is compared with what they and the kernel's cpu.stat say.
// No test depends on how fast it goes.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bpf/load.hpp"
#include "kernel/sys/loop/backoff.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using souk::unit::CgroupFixture;
using souk::unit::need_root;

namespace {

constexpr Nanos wait_max = Nanos::from_s(30);

Nanos own_cpu_time() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000 + t.tv_usec * 1'000; };
    return {ns(usage.ru_utime) + ns(usage.ru_stime)};
}

void burn(Nanos cpu_time) {
    while (own_cpu_time() < cpu_time) {
    }
}

void pin_to_cpu_0() {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

void end(const Pidfd& process) {
    ck_assert(*process.exited_within(wait_max));
    const int status = *process.reap();
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Runs a process that burns `cpu_time` in the group to its end; how long it was there at most.
Nanos burn_in(const CgroupFixture& cgroups, const Cgroup& group, Nanos cpu_time) {
    const Nanos begin = monotonic_now();
    end(cgroups.spawn(group, [cpu_time] { burn(cpu_time); }));
    return monotonic_now() - begin;
}

// The figure must be at least the intended time and at most the time that passed. A stretch that
// goes on is counted with the time that a hypervisor steals of it, which may be any share, until it
// ends. A processor that the hypervisor has taken away in the middle of an update leaves its last
// stretch out of a read. So the figure is read again until the stretch is in it, and Check's limit
// bounds that.
template <class Read>
void assert_between(Read read, Nanos meant, Nanos passed) {
    Nanos actual = read()->run;
    while (static_cast<double>(actual.ns) < 0.85 * static_cast<double>(meant.ns)) {
        ::sched_yield();
        actual = read()->run;
    }
    // The kernel's two clocks differ by little.
    ck_assert_msg(static_cast<double>(actual.ns) < 1.01 * static_cast<double>(passed.ns),
                  "%.1f ms counted within %.1f ms, %.1f ms meant", actual.ms(), passed.ms(),
                  meant.ms());
}

void run_time_is_counted_per_job_and_node(bool allow_bpf) {
    CgroupFixture cgroups;
    const Cgroup one = std::move(*cgroups->create("n1/jobs/n1.1"));
    const Cgroup two = std::move(*cgroups->create("n1/jobs/n1.2"));
    const Cgroup nested = std::move(*cgroups->create("n1/jobs/n1.2/its-own/group"));
    const Cgroup foreign = std::move(*cgroups->create("n2/jobs/n1.1"));
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.allow_bpf = allow_bpf}));
    ck_assert_msg(allow_bpf == (std::string(probe.source()) == "bpf"), "%s",
                  probe.why_not_bpf().c_str());
    ck_assert(probe.add("n1/jobs/n1.1"));
    ck_assert(probe.add("n1/jobs/n1.2"));
    const Nanos first = burn_in(cgroups, one, Nanos::from_ms(200));
    const Nanos second = burn_in(cgroups, nested, Nanos::from_ms(100));
    burn_in(cgroups, foreign, Nanos::from_ms(100));
    assert_between([&] { return probe.read("n1/jobs/n1.1"); }, *one.cpu_time(), first);
    assert_between([&] { return probe.read("n1/jobs/n1.1"); }, Nanos::from_ms(200), first);
    assert_between([&] { return probe.read("n1/jobs/n1.2"); }, Nanos::from_ms(100), second);
    assert_between([&] { return probe.read_node(); }, Nanos::from_ms(300), first + second);
    // A slot that is used again begins at nothing.
    ck_assert(probe.remove("n1/jobs/n1.1"));
    ck_assert_int_eq(probe.read("n1/jobs/n1.1").error().code, ENOENT);
    // A group that was there before this probe counts with the time that it had run.
    ck_assert(probe.add("n1/jobs/n1.1", true));
    assert_between([&] { return probe.read("n1/jobs/n1.1"); }, Nanos::from_ms(200), first);
    // Other jobs had used the group before this one.
    ck_assert(probe.remove("n1/jobs/n1.1"));
    const Nanos all = *one.cpu_time();
    ck_assert(probe.add("n1/jobs/n1.1", true, one.id(), all - Nanos::from_ms(50)));
    const Nanos own = probe.read("n1/jobs/n1.1")->run;
    ck_assert_int_ge(own.ns, Nanos::from_ms(50).ns);
    ck_assert_int_le(own.ns, (*one.cpu_time() - all).ns + Nanos::from_ms(50).ns);
    ck_assert(probe.add("n1/jobs/n1.3"));
    ck_assert_int_eq(probe.read("n1/jobs/n1.3")->run.ns, 0);
    ck_assert_int_eq(probe.add("n1/jobs/n1.3").error().code, EEXIST);
}

// Two hogs that share CPU 0 wait for each other; a read before they end sees what they have run so
// far.
void hogs_on_one_cpu_wait(bool allow_bpf) {
    CgroupFixture cgroups;
    const Cgroup job = std::move(*cgroups->create("n1/jobs/n1.1"));
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.allow_bpf = allow_bpf}));
    ck_assert(probe.add("n1/jobs/n1.1"));
    const auto hog = [] {
        pin_to_cpu_0();
        while (true) {
        }
    };
    const Pidfd first = cgroups.spawn(job, hog), second = cgroups.spawn(job, hog);
    LoadSample before{};
    // Check's limit bounds this
    while (before.run < Nanos::from_ms(200) || before.wait < Nanos::from_ms(100)) {
        const LoadSample now = *probe.read("n1/jobs/n1.1");
        ck_assert(now.run >= before.run && now.wait >= before.wait);
        before = now;
        ::sched_yield();
    }
    ck_assert(job.kill_all(wait_max));
    ck_assert(first.reap() && second.reap());
}

// The resources that processes of a job have used, as they report them themselves at their end.
struct Account {
    int64_t run_ns, wait_ns, gave_up, preempted, major_faults, read_bytes;
};

int64_t own_number(const char* path, const char* key) {
    const auto text = read_file(AT_FDCWD, path);
    const size_t at = text ? text->find(key) : std::string::npos;
    return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + std::strlen(key));
}

Account own_account() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    Account a{own_cpu_time().ns, 0, usage.ru_nvcsw, usage.ru_nivcsw, usage.ru_majflt, 0};
    const auto text = read_file(AT_FDCWD, "/proc/self/schedstat");
    std::sscanf(text->c_str(), "%*d %" SCNd64, &a.wait_ns);
    a.read_bytes = own_number("/proc/self/io", "\nread_bytes: ");
    return a;
}

// Runs them in the group, each to its end; what they said of themselves, together.
Account account_of(const CgroupFixture& cgroups, const Cgroup& group,
                   const std::vector<std::function<void()>>& works) {
    Pipe pipe = std::move(*make_pipe());
    std::vector<Pidfd> all;
    all.reserve(works.size());
    for (const auto& work : works)
        all.push_back(cgroups.spawn(group, [&] {
            work();
            const Account a = own_account();
            if (::write(pipe.write_end.get(), &a, sizeof a) != sizeof a) ::_exit(1);
        }));
    for (const Pidfd& process : all) end(process);
    Account total{}, one{};
    for (size_t i = 0; i < works.size(); ++i) {
        ck_assert_int_eq(::read(pipe.read_end.get(), &one, sizeof one), sizeof one);
        total.run_ns += one.run_ns;
        total.wait_ns += one.wait_ns;
        total.gave_up += one.gave_up;
        total.preempted += one.preempted;
        total.major_faults += one.major_faults;
        total.read_bytes += one.read_bytes;
    }
    return total;
}

// Gives the CPU up a thousand times a second while it burns.
void burn_by_bits(Nanos cpu_time) {
    while (own_cpu_time() < cpu_time) {
        burn(own_cpu_time() + Nanos::from_us(300));
        ::usleep(100);
    }
}

void close_to(const char* what, int64_t actual, int64_t expected, double share, int64_t free) {
    const auto off = static_cast<double>(std::abs(actual - expected));
    ck_assert_msg(off <= share * static_cast<double>(expected) + static_cast<double>(free),
                  "%s: %" PRId64 " counted, %" PRId64 " by its own account", what, actual,
                  expected);
}

// More processes than CPUs, which the kernel moves between them while they wait.
void the_kernels_own_account_of_mixed_load_is_the_same() {
    CgroupFixture cgroups;
    const Cgroup job = std::move(*cgroups->create("n1/jobs/n1.1"));
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1"));
    ck_assert_str_eq(probe.source(), "bpf");
    ck_assert(probe.add("n1/jobs/n1.1"));
    std::vector<std::function<void()>> works;
    for (int i = 0; i < 4; ++i) {
        works.emplace_back([] { burn(Nanos::from_ms(700)); });
        works.emplace_back([] { burn_by_bits(Nanos::from_ms(200)); });
    }
    const Account own = account_of(cgroups, job, works);
    const LoadSample sample = *probe.read("n1/jobs/n1.1");
    const auto processes = static_cast<int64_t>(works.size());
    // The processes do not see their own start and end, which cost 3 ms each where page tables are
    // dear.
    const int64_t ms = 1'000'000;
    close_to("CPU time and cpu.stat", sample.run.ns, job.cpu_time()->ns, 0.005, 0);
    close_to("CPU time", sample.run.ns, own.run_ns, 0.005, 5 * processes * ms);
    close_to("wait", sample.wait.ns, own.wait_ns, 0.02, processes * ms);
    close_to("given up", static_cast<int64_t>(sample.gave_up), own.gave_up, 0.01, 4 * processes);
    close_to("preempted", static_cast<int64_t>(sample.preempted), own.preempted, 0.01,
             4 * processes);
    ck_assert_uint_eq(sample.births, works.size());
    ck_assert_uint_eq(sample.deaths, works.size());
    uint64_t waits = 0;
    for (const uint64_t n : sample.waits) waits += n;
    ck_assert_uint_ge(waits, static_cast<uint64_t>(own.gave_up));
    ck_assert_int_ge(sample.wait_quantile({}, 1000).ns, sample.wait_quantile({}, 500).ns);
    // The node is its only job.
    const LoadSample node = *probe.read_node();
    ck_assert_int_eq(node.run.ns, sample.run.ns);
    ck_assert_uint_eq(node.births, sample.births);
}

void the_births_of_those_who_hide_and_what_storage_gave_are_counted() {
    CgroupFixture cgroups;
    const Cgroup job = std::move(*cgroups->create("n1/jobs/n1.1"));
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1"));
    ck_assert(probe.add("n1/jobs/n1.1"));
    const auto hide = [] {  // a child that leaves its parent and its session
        for (int i = 0; i < 50; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                ::setsid();
                if (::fork() != 0) ::_exit(0);
                burn(Nanos::from_ms(1));
                ::_exit(0);
            }
            ::waitpid(child, nullptr, 0);
        }
    };
    const souk::unit::TempDir dir;
    const std::string path = dir.path + "/file";
    const std::string megabyte(1 << 20, 'x');
    const Fd file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    for (int i = 0; i < 8; ++i)
        ck_assert_int_eq(::write(file.get(), megabyte.data(), megabyte.size()), 1 << 20);
    ::fsync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    const auto look_at_it = [&] {
        auto* const at = static_cast<const volatile char*>(
            ::mmap(nullptr, 8 << 20, PROT_READ, MAP_SHARED, file.get(), 0));
        char sum = 0;
        for (int i = 0; i < 8 << 20; i += 4096) sum = static_cast<char>(sum + at[i]);
        (void)sum;
    };
    const Account own = account_of(cgroups, job, {hide, look_at_it});
    ck_assert(job.kill_all(wait_max));
    const LoadSample sample = *probe.read("n1/jobs/n1.1");
    ck_assert_uint_eq(sample.births, 102);
    ck_assert_uint_eq(sample.deaths, 102);
    ck_assert_int_ge(sample.major_faults, own.major_faults);
    ck_assert_int_ge(sample.read_bytes, own.read_bytes);
}

// One process sleeps, and one computes. Each says how long it was there in all, and how much of
// that it ran.
void time_off_the_cpus_is_counted_of_those_who_wait_for_something() {
    constexpr int sleeps = 20;
    constexpr Nanos each = Nanos::from_ms(10);
    CgroupFixture cgroups;
    const Cgroup one = std::move(*cgroups->create("n1/jobs/n1.1"));
    const Cgroup two = std::move(*cgroups->create("n1/jobs/n1.2"));
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1"));
    ck_assert_str_eq(probe.source(), "bpf");
    ck_assert(probe.add("n1/jobs/n1.1"));
    ck_assert(probe.add("n1/jobs/n1.2"));
    const Nanos begin = monotonic_now();
    (void)account_of(cgroups, one, {[] {
                         for (int i = 0; i < sleeps; ++i) ::usleep(each.ns / 1'000);
                     }});
    const LoadSample sleeper = *probe.read("n1/jobs/n1.1");
    const int64_t passed = (monotonic_now() - begin).ns;
    // Another process may have run between the start of the clock and the switch.
    ck_assert_int_ge(sleeper.off_cpu.ns, sleeps * each.ns / 2);
    ck_assert_int_le((sleeper.off_cpu + sleeper.wait + sleeper.run).ns, passed * 101 / 100);
    const Nanos before = monotonic_now();
    (void)account_of(cgroups, two, {[] { burn(Nanos::from_ms(100)); }});
    const LoadSample worker = *probe.read("n1/jobs/n1.2");
    ck_assert_int_le((worker.off_cpu + worker.run).ns, (monotonic_now() - before).ns * 101 / 100);
    ck_assert_int_eq(probe.read_node()->off_cpu.ns, (sleeper.off_cpu + worker.off_cpu).ns);
}

// A process that is neither the probe's child nor in its node.
void what_the_owner_runs_is_told_apart() {
    CgroupFixture cgroups;
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1"));
    const LoadSample owner = *probe.read_owner(), system = probe.read_system();
    const Nanos begin = monotonic_now();
    const pid_t child = ::fork();
    if (child == 0) {
        burn(Nanos::from_ms(100));  // as the daemon's
        const pid_t grandchild = ::fork();
        if (grandchild != 0) ::_exit(0);
        while (::getppid() == child) ::sched_yield();
        burn(Nanos::from_ms(300));
        ::_exit(0);
    }
    ck_assert_int_eq(::waitpid(child, nullptr, 0), child);
    // Other programs that run here count as well, so only the time bounds this from above.
    while (probe.read_owner()->run - owner.run < Nanos::from_ms(300)) ::sched_yield();
    ck_assert_int_ge((probe.read_system().run - system.run).ns, Nanos::from_ms(90).ns);
    const int64_t cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
    const Nanos passed = monotonic_now() - begin;
    ck_assert_int_le((probe.read_owner()->run - owner.run).ns, passed.ns * cpus * 101 / 100);
    ck_assert_int_eq(probe.read_node()->run.ns, 0);
}

// Two processes want one CPU, so both run, and each waits for the other. They are no children of a
// daemon, so they count as the owner's.
void the_owners_use_is_noticed_at_once(Nanos run, Nanos wait) {
    CgroupFixture cgroups;
    LoadProbe probe = std::move(
        *LoadProbe::open(*cgroups, "n1", 2, {.daemon = 0, .notice_run = run, .notice_wait = wait}));
    ck_assert_str_eq(probe.source(), "bpf");
    std::vector<pid_t> hogs;
    for (int i = 0; i < 2; ++i) {
        hogs.push_back(::fork());
        if (hogs.back() != 0) continue;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin_to_cpu_0();
        while (true) {
        }
    }
    // Other programs that run here count as the owner's as well.
    bool ours = false;
    while (!ours) {
        pollfd ready{probe.notices_fd(), POLLIN, 0};
        ck_assert_int_eq(::poll(&ready, 1, static_cast<int>(wait_max.ns / 1'000'000)), 1);
        probe.take_notices([&](const LoadNotice& n) {
            ck_assert(n.waited == (wait.ns > 0));
            ck_assert_int_ge(n.span.ns, std::max(run, wait).ns);
            ours = ours || std::find(hogs.begin(), hogs.end(), n.pid) != hogs.end();
        });
    }
    for (const pid_t hog : hogs) {
        ::kill(hog, SIGKILL);
        ::waitpid(hog, nullptr, 0);
    }
}

// A process that computes on CPU 0 from a signal on. It has a real-time priority, so that no other
// process takes the CPU away.
struct Hog {
    Pipe go = std::move(*make_pipe()), ready = std::move(*make_pipe());
    pid_t pid = ::fork();

    Hog() {
        char byte = 0;
        if (pid != 0) {
            ck_assert_int_eq(::read(ready.read_end.get(), &byte, 1), 1);
            return;
        }
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const sched_param real_time{50};
        pin_to_cpu_0();
        if (::sched_setscheduler(0, SCHED_FIFO, &real_time) != 0 ||
            ::write(ready.write_end.get(), &byte, 1) != 1 ||
            ::read(go.read_end.get(), &byte, 1) != 1)
            ::_exit(1);
        while (true) {
        }
    }
    ~Hog() {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    int64_t switched_out() const {
        return own_number(("/proc/" + std::to_string(pid) + "/status").c_str(),
                          "\nnonvoluntary_ctxt_switches:");
    }
};

// How long after its start the hog was noticed. Without a value it had been switched out by then:
// other programs are noticed as well, once a second.
std::optional<Nanos> notice_of_a_hog(Nanos run) {
    CgroupFixture cgroups;
    const Hog hog;
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.daemon = 0}));
    const int64_t before = hog.switched_out();
    probe.notice(run, {});
    const Nanos began = monotonic_now();
    ck_assert_int_eq(::write(hog.go.write_end.get(), "x", 1), 1);
    std::optional<Nanos> after;
    while (!after) {
        pollfd ready{probe.notices_fd(), POLLIN, 0};
        ck_assert_int_eq(::poll(&ready, 1, static_cast<int>(wait_max.ns / 1'000'000)), 1);
        probe.take_notices([&](const LoadNotice& n) {
            if (n.pid != hog.pid || n.waited) return;
            ck_assert_int_ge(n.span.ns, run.ns);
            after = monotonic_now() - began;
        });
    }
    if (hog.switched_out() > before) return std::nullopt;
    return after;
}

// Whose switch out tells nothing, as there is none.
void who_is_never_switched_out_is_noticed_while_it_runs() {
    CgroupFixture cgroups;
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.daemon = 0}));
    ck_assert_str_eq(probe.source(), "bpf");
    ck_assert_int_eq(probe.look_every().ns, 0);
    probe.notice(Nanos::from_ms(40), {});
    UNIT_SKIP_IF(probe.why_no_look().empty() ? nullptr : "no clock of the CPUs");
    ck_assert_int_eq(probe.look_every().ns, Nanos::from_ms(5).ns);
    probe.notice(Nanos::from_ms(10), {});
    ck_assert_int_eq(probe.look_every().ns, Nanos::from_ms(25).ns);
    probe.notice({}, {});
    ck_assert_int_eq(probe.look_every().ns, 0);
    std::optional<Nanos> after;
    while (!after) after = notice_of_a_hog(Nanos::from_ms(10));  // Check's limit bounds this
    std::printf("noticed %.1f ms after it began\n", after->ms());
}

}  // namespace

START_TEST(that_the_owners_tasks_run_is_told_at_once) {
    if (need_root("loading BPF programs"))
        the_owners_use_is_noticed_at_once(Nanos::from_ms(10), {});
}
END_TEST

START_TEST(a_task_of_the_owners_that_nobody_contends_for_its_cpu_is_noticed_while_it_runs) {
    if (need_root("loading BPF programs")) who_is_never_switched_out_is_noticed_while_it_runs();
}
END_TEST

START_TEST(that_the_owners_tasks_wait_is_told_at_once) {
    if (need_root("loading BPF programs")) the_owners_use_is_noticed_at_once({}, Nanos::from_ms(1));
}
END_TEST

START_TEST(the_kernels_account_of_mixed_load_is_ours_within_half_a_percent) {
    if (need_root("loading BPF programs")) the_kernels_own_account_of_mixed_load_is_the_same();
}
END_TEST

START_TEST(no_process_of_a_job_escapes_its_account) {
    if (need_root("loading BPF programs"))
        the_births_of_those_who_hide_and_what_storage_gave_are_counted();
}
END_TEST

START_TEST(time_that_a_jobs_threads_wait_for_something_else_than_a_cpu_is_counted) {
    if (need_root("loading BPF programs"))
        time_off_the_cpus_is_counted_of_those_who_wait_for_something();
}
END_TEST

START_TEST(the_owners_load_is_told_from_the_guests_and_the_daemons) {
    if (need_root("loading BPF programs")) what_the_owner_runs_is_told_apart();
}
END_TEST

START_TEST(the_kernel_counts_the_run_time_of_jobs_nested_groups_and_the_node) {
    if (need_root("loading BPF programs")) run_time_is_counted_per_job_and_node(true);
}
END_TEST

START_TEST(without_bpf_the_same_run_time_comes_from_cgroup_files) {
    if (need_root("making cgroups")) run_time_is_counted_per_job_and_node(false);
}
END_TEST

START_TEST(wait_grows_when_two_hogs_share_a_cpu) {
    if (need_root("loading BPF programs")) hogs_on_one_cpu_wait(true);
}
END_TEST

START_TEST(without_bpf_wait_grows_as_well) {
    if (need_root("making cgroups")) hogs_on_one_cpu_wait(false);
}
END_TEST

UNIT_SUITE(load, the_kernel_counts_the_run_time_of_jobs_nested_groups_and_the_node,
           without_bpf_the_same_run_time_comes_from_cgroup_files,
           wait_grows_when_two_hogs_share_a_cpu, without_bpf_wait_grows_as_well,
           the_kernels_account_of_mixed_load_is_ours_within_half_a_percent,
           no_process_of_a_job_escapes_its_account,
           time_that_a_jobs_threads_wait_for_something_else_than_a_cpu_is_counted,
           the_owners_load_is_told_from_the_guests_and_the_daemons,
           a_task_of_the_owners_that_nobody_contends_for_its_cpu_is_noticed_while_it_runs,
           that_the_owners_tasks_run_is_told_at_once, that_the_owners_tasks_wait_is_told_at_once);
