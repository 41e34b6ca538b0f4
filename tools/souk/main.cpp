// SPDX-License-Identifier: GPL-2.0-or-later
// souk: a market on this host (up, down, status, demo), and what this machine can do (doctor).
#include <sys/sysinfo.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/version.hpp"
#include "market/core/solver.hpp"
#include "tools/common/cli_source.hpp"
#include "tools/common/cli_units.hpp"
#include "tools/souk/network.hpp"
#include "tools/souk/setup.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

struct UpArguments {
    std::optional<size_t> nodes;
    std::vector<int64_t> speeds;
    std::vector<std::string> prices;
    std::optional<int32_t> cpus;
    int64_t memory_mb = 0;
    bool check_precopy = false, private_files = false;
    std::string solver, pricing, agent_user;
};

int64_t host_memory_mb() {
    struct sysinfo info {};
    ::sysinfo(&info);
    return static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
}

Result<UpOptions> up_options(const UpArguments& a) {
    UpOptions o;
    o.run = run_dir();
    o.state = state_root(o.run);
    // A market that was kept is taken again as it was, but for what is said now.
    TRY_ASSIGN(const auto kept, load_shape(o.state));
    o.again = kept.has_value();
    if (kept) o.shape = *kept;
    const std::vector<NodeOptions> before = std::exchange(o.shape.nodes, {});
    const size_t nodes = a.nodes.value_or(kept ? before.size() : 3);
    if (nodes < before.size())
        return fail("--nodes " + std::to_string(nodes) + ": the market that is kept in " + o.state +
                    " has " + std::to_string(before.size()) + " (souk down --force removes it)");
    if (a.cpus) o.shape.cpus = *a.cpus;
    // Nodes on one host share its memory: what one offers, no other can.
    const int64_t equal_part =
        std::max<int64_t>(host_memory_mb() / static_cast<int64_t>(nodes), 16);
    if (a.memory_mb > 0)
        o.shape.memory_mb = a.memory_mb;
    else if (nodes != before.size())
        o.shape.memory_mb = equal_part;
    o.check_precopy = a.check_precopy;
    if (a.private_files) o.shape.private_files = true;
    if (!a.agent_user.empty()) o.shape.agent_user = a.agent_user;
    if (!a.solver.empty())
        if (const auto name = market::Solver::algorithm_named(a.solver); !name)
            return wrap("--solver", name.error());
    if (!a.pricing.empty())
        if (const auto name = market::Solver::pricing_named(a.pricing); !name)
            return wrap("--pricing", name.error());
    if (!a.solver.empty()) o.shape.solver = a.solver;
    if (!a.pricing.empty()) o.shape.pricing = a.pricing;
    if (!a.speeds.empty() && a.speeds.size() != nodes)
        return fail("--speeds needs one number per node");
    if (!a.prices.empty() && a.prices.size() != nodes)
        return fail("--prices needs one price per node");
    for (size_t i = 0; i < nodes; ++i) {
        NodeOptions n;
        if (i < before.size()) n = before[i];
        n.name = "n" + std::to_string(i + 1);
        if (!a.speeds.empty()) n.speed = a.speeds[i];
        if (!a.prices.empty()) n.price = a.prices[i];
        if (n.speed < 1 || n.speed > 10'000)
            return fail("--speeds: a speed is 1 to 10000 (100 is a standard machine)");
        if (auto price = parse_money(n.price); !price) return wrap("--prices", price.error());
        o.shape.nodes.push_back(n);
    }
    return o;
}

void add_up(CLI::App& app, UpArguments& a) {
    CLI::App* up = app.add_subcommand(
        "up", "start one marketd and N agentd, each node in its own network namespace");
    up->add_option("--nodes", a.nodes, "number of nodes (default 3)")
        ->check(CLI::Range(size_t{1}, nodes_max));
    up->add_option("--speeds", a.speeds, "speed of each node, 100 is standard: 100,80,60")
        ->delimiter(',');
    up->add_option("--prices", a.prices, "reservation price of each node per CPU-hour: 1,1,0.5")
        ->delimiter(',');
    up->add_option("--cpus", a.cpus, "CPUs that each node offers (default 1)")
        ->check(CLI::Range(1, 1024));
    up->add_option(
          "--memory", a.memory_mb,
          "memory that each node offers: MB, or 4G (default: an equal part of the machine's)")
        ->transform(tools::as_megabytes())
        ->check(CLI::Range(int64_t{16}, int64_t{1} << 30));
    up->add_option("--solver", a.solver, "the market's algorithm");
    up->add_option("--pricing", a.pricing, "the market's pricing rule");
    up->add_option("--agent-user", a.agent_user,
                   "who each agentd is: an account, a number, or root (default: _souk-agent, where "
                   "there is one)");
    up->add_flag("--private-files", a.private_files,
                 "all nodes but the first have directories of their own for people's files (/home, "
                 "/tmp and such), as machines that share nothing; jobs are --files=auto");
    up->add_flag("--check-ahead", a.check_precopy,
                 "compare memory sent ahead of a move with the frozen job's (slow; for tests)");
}

int run(int argc, char** argv) {
    if (version_asked("souk", argc, argv)) return 0;
    // The doctor reads its own arguments.
    if (argc > 1 && std::string_view(argv[1]) == "doctor") return cmd_doctor(argc - 1, argv + 1);
    if (argc > 1 && is_trust_verb(argv[1])) return cmd_trust(argc, argv);

    if (argc > 1 && argv[1][0] != '-' &&
        !std::set<std::string_view>{"up", "down", "status", "demo", "calibrate"}.contains(
            argv[1])) {
        std::fprintf(stderr,
                     "souk: '%s' is not a verb: up, down, status, demo, calibrate, doctor, setup, "
                     "token, node or operator (see souk --help)\n",
                     argv[1]);
        return 2;
    }

    CLI::App app{
        "souk: a market for running processes, on this host.\n"
        "$SOUK_RUN (default /run/souk) names its directory, $SOUK_STATE (default below "
        "/var/lib/souk) that of its state."};
    app.require_subcommand(1);
    UpArguments a;
    bool json = false;
    add_up(app, a);
    CLI::App* down = app.add_subcommand(
        "down", "end the market and everything that belongs to it, if all jobs are finished");
    DownOptions down_options;
    down->add_flag("--force", down_options.force, "also with jobs that are not finished: they end");
    down->add_flag("--keep", down_options.keep,
                   "freeze what runs and keep the state: souk up takes it again");
    CLI::App* status = app.add_subcommand("status", "show the daemons");
    status->add_flag("--json", json, "as JSON");
    CLI::App* demo = app.add_subcommand(
        "demo", "a market of three machines on this host plays a story; about a minute");
    CLI::App* calibrate =
        app.add_subcommand("calibrate", "measure how fast this machine is: 100 is the reference");
    calibrate->add_flag("--json", json, "as JSON, with the parts");
    app.add_subcommand("doctor", "what this machine lacks, and the command that mends it")
        ->prefix_command();
    app.add_subcommand("setup", "make this machine a market, or a node of one")->prefix_command();
    app.add_subcommand("token", "what lets a machine join a market, once")->prefix_command();
    app.add_subcommand("node", "who has a certificate: list, revoke, renew")->prefix_command();
    app.add_subcommand("operator", "who may operate the market from elsewhere")->prefix_command();
    if (tools::cli_source_asked(app, "souk", argc, argv)) return 0;
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& e) {
        return app.exit(e);
    } catch (const CLI::CallForAllHelp& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::string text = e.what();
        std::fprintf(stderr, "souk: %s (see souk --help)\n",
                     text.substr(0, text.find('\n')).c_str());
        return 2;
    }
    if (*down) return cmd_down(run_dir(), down_options);
    if (*status) return cmd_status(run_dir(), json);
    if (*demo) return cmd_demo();
    if (*calibrate) return cmd_calibrate(json);
    const auto options = up_options(a);
    if (!options) {
        std::fprintf(stderr, "souk: %s\n", options.error().message.c_str());
        return 2;
    }
    return cmd_up(*options);
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) {
    try {
        return souk::run(argc, argv);
    } catch (const std::exception& e) {  // of a library; our own code throws nothing
        std::fprintf(stderr, "souk: %s\n", e.what());
        return 1;
    }
}
