// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures the cost of counting each switch between processes (bpf/load.bpf.c). Two
// processes on one CPU hand a byte to and fro through pipes: with no program at the switch, with an
// empty one, and with Souk's, as processes of the owner's and of a job's. They take turns, so that
// all meet the same machine. The kernel's own account of each program (BPF run-time statistics) is
// taken in rounds of its own, because taking it costs time too; the time that it shows for the
// empty program is that cost. JSON on stdout, a table on stderr. Usage: bench_switch [ROUNDS [ROUND
// TRIPS of each]]; needs root.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "bpf/load.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tests/unit/cgroup_fixture.hpp"

using namespace souk;
using souk::unit::CgroupFixture;

namespace {

// `no_guest`: of a job's group, as the groups cost too.
enum class With : uint8_t { nothing, empty, owner, no_guest, guest };
constexpr With all[] = {With::nothing, With::empty, With::owner, With::no_guest, With::guest};
constexpr const char* names[] = {"no program", "an empty program", "Souk, of the owner",
                                 "no program, of a job", "Souk, of a job"};
bool of_a_job(With with) { return with == With::guest || with == With::no_guest; }
bool has_program(With with) { return with != With::nothing && with != With::no_guest; }
const char* name_of(With with) { return names[static_cast<size_t>(with)]; }

[[noreturn]] void give_up(const std::string& why) {
    std::fprintf(stderr, "bench_switch: %s\n", why.c_str());
    std::exit(1);
}

Fd empty_program() {
    const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0},
                             {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    LIBBPF_OPTS(bpf_prog_load_opts, how);
    const int id = libbpf_find_vmlinux_btf_id("sched_switch", BPF_TRACE_RAW_TP);
    if (id < 0) give_up("this kernel has no BTF of sched_switch");
    how.expected_attach_type = BPF_TRACE_RAW_TP;
    how.attach_btf_id = static_cast<uint32_t>(id);
    Fd program(bpf_prog_load(BPF_PROG_TYPE_TRACING, "nothing", "GPL", code, std::size(code), &how));
    if (program.get() < 0) give_up("the empty program does not load");
    return program;
}

// The newest program of that name in the kernel.
Fd program_named(std::string_view name) {
    Fd newest;
    for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
        Fd program(bpf_prog_get_fd_by_id(id));
        bpf_prog_info info{};
        uint32_t size = sizeof info;
        if (program.get() < 0 || bpf_obj_get_info_by_fd(program.get(), &info, &size) != 0) continue;
        if (name == info.name) newest = std::move(program);
    }
    return newest;
}

struct Runs {
    uint64_t ns = 0, count = 0;
};
Runs runs_of(const Fd& program) {
    bpf_prog_info info{};
    uint32_t size = sizeof info;
    if (bpf_obj_get_info_by_fd(program.get(), &info, &size) != 0)
        give_up("no account of a program");
    return {info.run_time_ns, info.run_cnt};
}

void pin() {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) give_up("no CPU 0");
}

void hand_on(const Fd& from, const Fd& to, int trips, bool first) {
    char byte = 0;
    for (int i = 0; i < trips; ++i) {
        if (first && ::write(to.get(), &byte, 1) != 1) ::_exit(1);
        if (::read(from.get(), &byte, 1) != 1) ::_exit(1);
        if (!first && ::write(to.get(), &byte, 1) != 1) ::_exit(1);
    }
}

// ns a switch.
double measure(const CgroupFixture& groups, const Cgroup* group, int trips) {
    Pipe there = std::move(*make_pipe()), back = std::move(*make_pipe()),
         said = std::move(*make_pipe());
    const auto other = [&] {
        pin();
        hand_on(there.read_end, back.write_end, trips, false);
    };
    const auto one = [&] {
        pin();
        hand_on(back.read_end, there.write_end, trips / 10, true);  // warm
        const Nanos begin = monotonic_now();
        hand_on(back.read_end, there.write_end, trips - trips / 10, true);
        const int64_t took = (monotonic_now() - begin).ns;
        if (::write(said.write_end.get(), &took, sizeof took) != sizeof took) ::_exit(1);
    };
    const auto start = [&](const auto& work) -> Pidfd {
        if (group) return groups.spawn(*group, work);
        const pid_t pid = ::fork();
        if (pid == 0) {
            work();
            ::_exit(0);
        }
        return std::move(*Pidfd::open(pid));
    };
    Pidfd second = start(other), first = start(one);
    int64_t took = 0;
    if (::read(said.read_end.get(), &took, sizeof took) != sizeof took) give_up("no answer");
    for (Pidfd* one_of : {&first, &second}) {
        (void)one_of->exited_within(Nanos::from_s(60));
        (void)one_of->reap();
    }
    return static_cast<double>(took) / (2.0 * (trips - trips / 10));
}

struct Bench {
    CgroupFixture groups;
    Cgroup job = std::move(*groups->create("n1/jobs/c1/job"));
    std::map<With, std::vector<double>> pipe, account;

    void round(With with, int trips, bool accounts) {
        std::optional<LoadProbe> probe;
        Fd program, link;
        if (with == With::owner || with == With::guest) {
            probe = std::move(*LoadProbe::open(*groups, "n1", 2, {}));
            if (std::string(probe->source()) != "bpf") give_up("Souk's programs do not load");
            if (!probe->add("n1/jobs/c1")) give_up("the job is not followed");
            program = program_named("on_switch");
        } else if (with == With::empty) {
            program = empty_program();
            link = Fd(bpf_raw_tracepoint_open(nullptr, program.get()));
            if (link.get() < 0) give_up("the empty program is not attached");
        }
        const Fd stats(accounts ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1);
        const Runs before = accounts && program ? runs_of(program) : Runs{};
        const double ns = measure(groups, of_a_job(with) ? &job : nullptr, trips);
        if (!accounts) return pipe[with].push_back(ns);
        if (!program) return;
        const Runs after = runs_of(program);
        account[with].push_back(
            static_cast<double>(after.ns - before.ns) /
            static_cast<double>(std::max<uint64_t>(1, after.count - before.count)));
    }
};

int64_t own_cpu_ns() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000 + t.tv_usec * 1'000; };
    return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// Measures how exact the counts are. Some processes compute, and others sleep after each 0.3 ms.
// There are more of them than CPUs, and they use about so much CPU time in all.
void write_accuracy(JsonWriter& j, Nanos in_all) {
    CgroupFixture groups;
    Cgroup job = std::move(*groups->create("n1/jobs/c1/job"));
    const Cgroup capsule = std::move(*groups->create("n1/jobs/c1"));
    LoadProbe probe = std::move(*LoadProbe::open(*groups, "n1", 2, {}));
    if (!probe.add("n1/jobs/c1")) give_up("the job is not followed");
    const int64_t stat_before = capsule.cpu_time()->ns;  // the switches before ran in that group
    Pipe said = std::move(*make_pipe());
    constexpr int64_t processes = 8;
    std::vector<Pidfd> spawned;
    for (int64_t i = 0; i < processes; ++i)
        spawned.push_back(groups.spawn(job, [&] {
            int64_t next = 0;
            while (own_cpu_ns() < in_all.ns / processes) {
                if (i % 2 == 0 || own_cpu_ns() < next) continue;
                const timespec a_moment{0, 100'000};
                ::nanosleep(&a_moment, nullptr);
                next = own_cpu_ns() + 300'000;
            }
            const int64_t used = own_cpu_ns();
            if (::write(said.write_end.get(), &used, sizeof used) != sizeof used) ::_exit(1);
        }));
    int64_t by_rusage = 0, one = 0;
    for (int64_t i = 0; i < processes; ++i) {
        if (::read(said.read_end.get(), &one, sizeof one) != sizeof one) give_up("no answer");
        by_rusage += one;
    }
    for (Pidfd& process : spawned) {
        (void)process.exited_within(Nanos::from_s(60));
        (void)process.reap();
    }
    const int64_t ours = probe.read("n1/jobs/c1")->run.ns,
                  by_stat = capsule.cpu_time()->ns - stat_before;
    std::fprintf(stderr, "\n%-20s %14s %14s\n", "CPU time", "ms", "Souk's is off by");
    j.key("accuracy").begin_array();
    const std::pair<const char*, int64_t> accounts[] = {
        {"Souk", ours}, {"cpu.stat", by_stat}, {"getrusage", by_rusage}};
    for (const auto& [who, ns] : accounts) {
        const double off = 100.0 * static_cast<double>(ours - ns) / static_cast<double>(ns);
        std::fprintf(stderr, "%-20s %14.1f %13.3f %%\n", who, static_cast<double>(ns) / 1e6, off);
        j.begin_object().field("account", who).field("cpu_ns", ns).field("off_percent", off);
        j.end_object();
    }
    j.end_array();
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

// ms from the start of a process of the owner's that computes, at a real-time priority, until it is
// noticed; nothing: it had been switched out by then, as what others run is noticed as well.
std::optional<double> notice_once(const CgroupFixture& groups) {
    Pipe go = std::move(*make_pipe()), parked = std::move(*make_pipe());
    char byte = 0;
    const pid_t hog = ::fork();
    if (hog == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const sched_param real_time{50};
        pin();
        if (::sched_setscheduler(0, SCHED_FIFO, &real_time) != 0 ||
            ::write(parked.write_end.get(), &byte, 1) != 1 ||
            ::read(go.read_end.get(), &byte, 1) != 1)
            ::_exit(1);
        while (true) {
        }
    }
    parked.write_end.reset();
    if (::read(parked.read_end.get(), &byte, 1) != 1) give_up("no real-time priority");
    const auto switches = [&] {
        const auto text = read_file(AT_FDCWD, "/proc/" + std::to_string(hog) + "/status");
        constexpr std::string_view key = "\nnonvoluntary_ctxt_switches:";
        const size_t at = text ? text->find(key) : std::string::npos;
        return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + key.size());
    };
    LoadProbe probe = std::move(*LoadProbe::open(*groups, "n1", 2, {.daemon = 0}));
    const auto before = switches();
    probe.notice(Nanos::from_ms(10), {});
    if (probe.look_every().ns == 0) give_up("no look at the task that runs");
    const Nanos began = monotonic_now();
    if (::write(go.write_end.get(), &byte, 1) != 1) give_up("it does not begin");
    std::optional<double> after;
    while (!after) {
        pollfd ready{probe.notices_fd(), POLLIN, 0};
        if (::poll(&ready, 1, 10'000) != 1) give_up("it is not noticed");
        probe.take_notices([&](const LoadNotice& n) {
            if (n.pid == hog && !n.waited) after = (monotonic_now() - began).ms();
        });
    }
    if (switches() > before) after.reset();
    ::kill(hog, SIGKILL);
    ::waitpid(hog, nullptr, 0);
    return after;
}

void write_notices(JsonWriter& j, int rounds) {
    CgroupFixture groups;
    std::vector<double> took;
    for (int i = 0; i < 5 * rounds && static_cast<int>(took.size()) < rounds; ++i)
        if (const auto after = notice_once(groups)) took.push_back(*after);
    if (took.empty()) give_up("nothing is noticed before it is switched out");
    const double worst = *std::max_element(took.begin(), took.end());
    std::fprintf(stderr, "\nnoticed after its start: median %.1f ms, worst of %zu %.1f ms\n",
                 median(took), took.size(), worst);
    j.key("noticed").begin_object().field("rounds", static_cast<int64_t>(took.size()));
    j.field("median_ms", median(took)).field("worst_ms", worst).end_object();
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
    constexpr int64_t accuracy_s = 10;
    constexpr int noticed = 20;
    const int trips = argc > 2 ? std::atoi(argv[2]) : 200'000;
    if (!unit::need_root("bench_switch") || rounds < 1 || trips < 100) return 2;
    Bench bench;
    for (int i = 0; i < rounds; ++i)
        for (const bool accounts : {false, true})
            for (const With with : all) bench.round(with, trips, accounts);
    JsonWriter j;
    j.begin_object().field("rounds", rounds).field("round_trips", trips);
    std::fprintf(stderr, "%-20s %14s %14s %18s\n", "", "ns a switch", "more", "a run, ns");
    j.key("switches").begin_array();
    for (const With with : all) {
        const double ns = median(bench.pipe[with]);
        const bool runs = has_program(with);
        const double none = median(bench.pipe[of_a_job(with) ? With::no_guest : With::nothing]);
        const double run = runs ? median(bench.account[with]) : 0;
        std::fprintf(stderr, "%-20s %14.0f %14.0f %18.0f\n", name_of(with), ns, ns - none, run);
        j.begin_object().field("with", name_of(with)).field("switch_ns", ns);
        j.field("more_ns", ns - none);
        if (runs) j.field("run_ns", run);
        j.end_object();
    }
    j.end_array();
    write_accuracy(j, Nanos::from_s(accuracy_s));
    write_notices(j, noticed);
    j.end_object();
    std::printf("%s\n", j.take().c_str());
    return 0;
}
