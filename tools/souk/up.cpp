// SPDX-License-Identifier: GPL-2.0-or-later
// souk up, souk status.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernel/base/cause.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

std::string describe(const Daemon& d) {
    return alive(d.process) ? "pid " + std::to_string(d.process.pid)
                            : "down (" + (d.trouble.empty() ? "ended" : d.trouble) + ")";
}

// The child that becomes the supervisor: its own session, no terminal, its words in
// RUN/supervisor.log.
[[noreturn]] void become_supervisor(const UpOptions& options, Fd lock, Fd report) {
    ::setsid();
    const std::string log = options.run + "/supervisor.log";
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    ::dup2(null, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    if (::chdir("/") != 0) ::_exit(1);
    ::_exit(supervise(options, std::move(lock), std::move(report)));
}

// Brings back the nodes that `souk down --keep` took off the market.
Status back_to_market(const UpOptions& options) {
    if (options.shape.off.empty()) return {};
    for (const std::string& name : options.shape.off) {
        const auto agent = [&] {
            return Result<std::string>(options.run + "/" + name + "/agentd.sock");
        };
        if (auto done = tools::ask(agent, "provider-unset", {"market"}, Nanos{}); !done)
            return wrap("node " + name, done.error());
    }
    MarketShape shape = options.shape;
    shape.off.clear();
    return save_shape(options.state, shape);
}

}  // namespace

int complain(const Error& error) {
    souk::complain("souk", error);
    return 1;
}

int complain(const std::string& text) { return complain(Error{0, text}); }

int complain(CauseCode code, const std::string& text) { return complain(Error{0, text, code}); }

int complain_usage(std::string_view text) {
    souk::complain("souk", text, to_string(CauseCode::invalid));
    return 2;
}

int cmd_up(const UpOptions& options) {
    if (::geteuid() != 0)
        return complain(CauseCode::not_allowed,
                        "up makes network namespaces and control groups: run it as root");
    std::error_code error;
    std::filesystem::create_directories(options.run, error);
    if (error) return complain("cannot create " + options.run + ": " + error.message());
    auto lock = lock_instance(options.run);
    if (!lock) return complain(lock.error());
    if (!*lock)
        return complain(CauseCode::not_possible, "a market is up already in " + options.run +
                                                     "; souk status shows it, souk down ends it");
    auto old = load_instance(options.run);
    if (!old) return complain(old.error());
    if (*old)
        return complain(
            CauseCode::not_possible,
            "a market in " + options.run + " was left without its supervisor; run: souk down");

    auto pipe = make_pipe();
    if (!pipe) return complain(pipe.error());
    const pid_t child = ::fork();
    if (child < 0) return complain("cannot fork");
    if (child == 0) {
        pipe->read_end.reset();
        become_supervisor(options, std::move(*lock), std::move(pipe->write_end));
    }
    pipe->write_end.reset();
    std::string line;
    char buffer[1024];
    ssize_t n = 0;
    while ((n = ::read(pipe->read_end.get(), buffer, sizeof buffer)) > 0 ||
           (n < 0 && errno == EINTR))
        if (n > 0) line.append(buffer, static_cast<size_t>(n));
    if (line != "ok\n") {
        ::waitpid(child, nullptr, 0);
        if (!line.empty()) line.pop_back();
        return complain(
            line.empty() ? "the supervisor ended; see " + options.run + "/supervisor.log" : line);
    }
    if (options.again)
        std::printf("the market that was kept in %s is taken again\n", options.state.c_str());
    if (auto back = back_to_market(options); !back)
        complain("a node stays off the market: " + back.error().message);
    const int64_t here = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    if (options.shape.cpus > here)
        complain("--cpus " + std::to_string(options.shape.cpus) + ": this host has " +
                 std::to_string(here) + ", and no node offers more than that");
    return cmd_status(options.run, false);
}

int cmd_status(const std::string& run, bool json) {
    const auto instance = load_instance(run);
    if (!instance) return complain(instance.error());
    if (!*instance) {
        if (json) std::puts("{\"up\": false}");
        const auto kept = load_shape(state_root(run));
        const bool is_kept = kept && *kept;
        return json ? 1
                    : complain(CauseCode::not_found,
                               "no market is up in " + run + "; " +
                                   (is_kept ? "the one that is kept in " + state_root(run) +
                                                  " is taken again with: souk up"
                                            : "start one with: souk up"));
    }
    const Instance& i = **instance;
    if (!json) {
        std::printf("market  %-18s  %-12s  %s\n", i.market.address.c_str(),
                    describe(i.market).c_str(), i.market.state.c_str());
        for (const Daemon& d : i.nodes)
            std::printf("%-6s  %-18s  %-12s  %s\n", d.name.c_str(), d.address.c_str(),
                        describe(d).c_str(), d.state.c_str());
        if (!alive(i.supervisor))
            complain(
                "its supervisor is gone: daemons that end are not started again; run: souk down");
        return 0;
    }
    const auto of = [](const Daemon& d) {
        return nlohmann::ordered_json{
            {"name", d.name},
            {"address", d.address},
            {"pid", alive(d.process) ? d.process.pid : 0},
            {"state_dir", d.state},
            {"netns", d.netns},
            {"cgroup", d.cgroup},
            {"log", d.dir + "/log"},
            {"socket", d.dir + (d.cgroup.empty() ? "/marketd.sock" : "/agentd.sock")},
            {"restarts", d.restarts},
            {"trouble", alive(d.process) ? "" : d.trouble}};
    };
    nlohmann::ordered_json out{{"up", true},
                               {"run_dir", i.run},
                               {"state_dir", i.state},
                               {"supervisor", alive(i.supervisor) ? i.supervisor.pid : 0}};
    out["market"] = of(i.market);
    out["nodes"] = nlohmann::ordered_json::array();
    for (const Daemon& d : i.nodes) out["nodes"].push_back(of(d));
    std::puts(out.dump(2).c_str());
    return 0;
}

}  // namespace souk
