// SPDX-License-Identifier: GPL-2.0-or-later
// Method: processes that burn a stated amount of their own CPU time (by getrusage) in a cgroup of
// the test's own; what the probe counted is compared with what they and the kernel's cpu.stat say.
// No test depends on how fast it goes.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>

#include "bpf/load.hpp"
#include "kernel/sys/loop/backoff.hpp"
#include "tests/unit/cgroup_fixture.hpp"
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

// What was meant bounds the figure from below, the time that passed bounds it from above: a stretch
// that goes on is counted with what a hypervisor steals of it, which may be any share, until it
// ends. A processor that the hypervisor has taken away in the middle of an update leaves its last
// stretch out of a read: so the figure is read until it is there, and Check's limit bounds that.
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
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, allow_bpf));
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
    ck_assert_uint_eq(probe.dropped(), 0);
    // A slot that is used again begins at nothing.
    ck_assert(probe.remove("n1/jobs/n1.1"));
    ck_assert_int_eq(probe.read("n1/jobs/n1.1").error().code, ENOENT);
    // One that was there before this probe counts with what it had run.
    ck_assert(probe.add("n1/jobs/n1.1", true));
    assert_between([&] { return probe.read("n1/jobs/n1.1"); }, Nanos::from_ms(200), first);
    // Others had used its group before it.
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
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, allow_bpf));
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

}  // namespace

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
           wait_grows_when_two_hogs_share_a_cpu, without_bpf_wait_grows_as_well);
