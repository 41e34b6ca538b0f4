// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures how much slower other programs get because Souk counts each switch between
// processes (bpf/load.bpf.c). It runs hackbench (Debian's rt-tests) and `perf bench sched pipe`
// (linux-perf) with no program at the switch and with Souk's, as processes of the owner's and of a
// job's. They take turns, so that all meet the same machine. JSON on stdout, a table on stderr.
// Usage: bench_hackbench [ROUNDS [SIZE]]: 9, and 1 for runs of one or two seconds each; needs root.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

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

enum class With : uint8_t { nothing, owner, no_guest, guest };
constexpr With all[] = {With::nothing, With::owner, With::no_guest, With::guest};
constexpr const char* names[] = {"no program", "Souk, of the owner", "no program, of a job",
                                 "Souk, of a job"};
constexpr const char* name_of(With with) { return names[static_cast<size_t>(with)]; }
constexpr bool of_a_job(With with) { return with == With::guest || with == With::no_guest; }

struct Command {
    const char* name;
    std::vector<std::string> words;
    bool one_cpu;  // where each message is a switch
};

[[noreturn]] void give_up(const std::string& why) {
    std::fprintf(stderr, "bench_hackbench: %s\n", why.c_str());
    std::exit(1);
}

bool is_there(const std::string& program) {
    for (const char* directory : {"/usr/bin/", "/usr/local/bin/", "/bin/"})
        if (::access((directory + program).c_str(), X_OK) == 0) return true;
    return false;
}

[[noreturn]] void become(const Command& command) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (command.one_cpu && ::sched_setaffinity(0, sizeof set, &set) != 0) ::_exit(126);
    std::vector<char*> words;
    for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    if (!std::freopen("/dev/null", "w", stdout) || !std::freopen("/dev/null", "w", stderr))
        ::_exit(126);
    ::execvp(words[0], words.data());
    ::_exit(127);
}

double seconds_of(const CgroupFixture& groups, const Cgroup* group, const Command& command) {
    constexpr Nanos longest = Nanos::from_s(300);
    const Nanos begin = monotonic_now();
    Pidfd process;
    if (group) {
        process = groups.spawn(*group, [&] { become(command); });
    } else {
        const pid_t pid = ::fork();
        if (pid == 0) become(command);
        process = std::move(*Pidfd::open(pid));
    }
    const auto ended = process.exited_within(longest);
    if (!ended || !*ended) give_up(std::string(command.name) + " does not end");
    const Nanos took = monotonic_now() - begin;
    const auto status = process.reap();
    if (!status || *status != 0) give_up(std::string(command.name) + " fails");
    return static_cast<double>(took.ns) / 1e9;
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
    const int size = argc > 2 ? std::atoi(argv[2]) : 10;
    if (!unit::need_root("bench_hackbench") || rounds < 1 || size < 1) return 2;
    std::vector<Command> commands;
    if (is_there("hackbench"))
        commands.push_back(
            {"hackbench", {"hackbench", "-g", "2", "-l", std::to_string(size * 500)}, false});
    if (is_there("perf"))
        commands.push_back({"perf bench sched pipe",
                            {"perf", "bench", "sched", "pipe", "-l", std::to_string(size * 10'000)},
                            true});
    if (commands.empty()) give_up("neither hackbench (rt-tests) nor perf (linux-perf) is here");
    CgroupFixture groups;
    const Cgroup job = std::move(*groups->create("n1/jobs/c1/job"));
    std::map<std::pair<size_t, With>, std::vector<double>> took;
    for (int i = 0; i < rounds; ++i)
        for (const With with : all) {
            std::optional<LoadProbe> probe;
            if (with == With::owner || with == With::guest) {
                probe = std::move(*LoadProbe::open(*groups, "n1", 2, {}));
                if (std::string(probe->source()) != "bpf") give_up("Souk's programs do not load");
                if (!probe->add("n1/jobs/c1")) give_up("the job is not followed");
            }
            for (size_t c = 0; c < commands.size(); ++c)
                took[{c, with}].push_back(
                    seconds_of(groups, of_a_job(with) ? &job : nullptr, commands[c]));
        }
    JsonWriter j;
    j.begin_object().field("rounds", rounds).key("runs").begin_array();
    std::fprintf(stderr, "%-24s %-22s %10s %10s\n", "", "", "s", "ratio");
    for (size_t c = 0; c < commands.size(); ++c)
        for (const With with : all) {
            const double s = median(took[{c, with}]);
            const double none = median(took[{c, of_a_job(with) ? With::no_guest : With::nothing}]);
            std::fprintf(stderr, "%-24s %-22s %10.3f %10.3f\n", commands[c].name, name_of(with), s,
                         s / none);
            j.begin_object().field("command", commands[c].name).field("with", name_of(with));
            j.field("s", s).field("ratio", s / none).end_object();
        }
    j.end_array().end_object();
    std::printf("%s\n", j.take().c_str());
    return 0;
}
