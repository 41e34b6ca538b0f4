// SPDX-License-Identifier: GPL-2.0-or-later
// souk: a market on this host (up, down, status, demo), and what this machine can do (doctor).
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/units.hpp"
#include "market/core/solver.hpp"
#include "tools/common/typed_options.hpp"
#include "tools/souk/network.hpp"
#include "tools/souk/peer.hpp"
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
    std::string solver, pricing, agent_user, owner_return;
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
    if (!a.owner_return.empty())
        o.shape.owner_return = a.owner_return == "nothing" ? "" : a.owner_return;
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

std::vector<tools::Option> up_rows(UpArguments& a) {
    return {
        option(0, "nodes", a.nodes, tools::whole(1, nodes_max), "number of nodes (default 3)"),
        option(0, "speeds", a.speeds, tools::whole(INT64_MIN, INT64_MAX),
               "speed of each node, 100 is standard: 100,80,60"),
        option(0, "prices", a.prices, tools::any_text(),
               "reservation price of each node per CPU-hour: 1,1,0.5"),
        option(0, "cpus", a.cpus, tools::whole(1, 1024), "CPUs that each node offers (default 1)"),
        option(0, "memory", a.memory_mb, tools::megabytes(16, int64_t{1} << 30),
               "memory that each node offers: MB, or 4G (default: an equal part of the "
               "machine's)"),
        option(0, "solver", a.solver, tools::any_text(), "the market's algorithm"),
        option(0, "pricing", a.pricing, tools::any_text(), "the market's pricing rule"),
        option(0, "agent-user", a.agent_user, tools::any_text(),
               "who each agentd is: an account, a number, or root (default: _souk-agent, where "
               "there is one)"),
        {0, "owner-return", "WHAT",
         "what guests do while the owner of their node uses it (souk owner NODE): nothing (the "
         "default), lower, stop, leave",
         [&a](const char* text) -> Status {
             const std::string_view what = text;
             if (what != "nothing" && what != "lower" && what != "stop" && what != "leave")
                 return fail("'" + std::string(what) +
                             "' is none of nothing, lower, stop and leave");
             a.owner_return = what;
             return {};
         }},
        {0, "private-files", nullptr,
         "all nodes but the first have directories of their own for people's files (/home, "
         "/tmp and such), as machines that share nothing; jobs are --files=auto",
         tools::set_flag(a.private_files)},
        {0, "check-ahead", nullptr,
         "compare memory sent ahead of a move with the frozen job's (slow; for tests)",
         tools::set_flag(a.check_precopy)}};
}

int up(const UpArguments& a) {
    const auto options = up_options(a);
    if (options) return cmd_up(*options);
    return complain_usage(options.error().message);
}

int run(int argc, char** argv) {
    // These read their own arguments.
    if (argc > 1 && std::string_view(argv[1]) == "doctor") return cmd_doctor(argc - 1, argv + 1);
    if (argc > 1 && is_trust_verb(argv[1])) return cmd_trust(argc - 1, argv + 1);

    UpArguments a;
    DownOptions down;
    DemoOptions demo;
    PeerWords peer;
    bool json = false;
    std::string node;
    Nanos span = Nanos::from_s(30);
    const tools::CommandLine line{
        .tool = "souk",
        .summary =
            "souk: a market for running processes, on this host.\n"
            "$SOUK_RUN (default /run/souk) names its directory, $SOUK_STATE (default below "
            "/var/lib/souk) that of its state.",
        .commands = {
            {.tool = "souk up",
             .summary = "start one marketd and N agentd, each node in its own network namespace",
             .options = up_rows(a),
             .run = [&] { return up(a); }},
            {.tool = "souk down",
             .summary =
                 "end the market and everything that belongs to it, if all jobs are finished",
             .options = {{0, "force", nullptr, "also with jobs that are not finished: they end",
                          tools::set_flag(down.force)},
                         {0, "keep", nullptr,
                          "freeze what runs and keep the state: souk up takes it again",
                          tools::set_flag(down.keep)}},
             .run = [&] { return cmd_down(run_dir(), down); }},
            {.tool = "souk status",
             .summary = "show the daemons",
             .options = {{0, "json", nullptr, "as JSON", tools::set_flag(json)}},
             .run = [&] { return cmd_status(run_dir(), json); }},
            {.tool = "souk owner",
             .summary = "somebody uses a node of it for a while, as its owner would (souk up "
                        "--owner-return)",
             .options = {{0, "for", "TIME", "so long (default 30s; a number alone: seconds)",
                          [&span](const char* text) -> Status {
                              TRY_ASSIGN(span, parse_span(text, Nanos::from_s(1), Nanos::from_s(1),
                                                          Nanos::from_s(86'400)));
                              return {};
                          }}},
             .arguments = {{"NODE", "whose owner", tools::set_text(node)}},
             .run = [&] { return cmd_owner(run_dir(), node, span); }},
            {.tool = "souk demo",
             .summary = "a market of three machines on this host plays a story; about two minutes",
             .options = {{0, "fast", nullptr, "do not stop at each step",
                          tools::set_flag(demo.fast)},
                         {0, "pause", "TIME", "how long to stop at each step (default 4s)",
                          tools::set_span(demo.pause, Nanos::from_s(1), Nanos::from_s(60))}},
             .run = [&] { return cmd_demo(demo); }},
            {.tool = "souk calibrate",
             .summary = "measure how fast this machine is: 100 is the reference",
             .options = {{0, "json", nullptr, "as JSON, with the parts", tools::set_flag(json)}},
             .run = [&] { return cmd_calibrate(json); }},
            {.tool = "souk doctor",
             .summary = "what this machine lacks, and the command that mends it"},
            {.tool = "souk setup", .summary = "make this machine a market, or a node of one"},
            {.tool = "souk token", .summary = "what lets a machine join a market, once"},
            {.tool = "souk node", .summary = "who has a certificate: list, revoke, renew"},
            {.tool = "souk operator", .summary = "who may operate the market from elsewhere"},
            peer_line(peer)}};
    return run_command(line, argc, argv);
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) {
    try {
        return souk::run(argc, argv);
    } catch (const std::exception& e) {  // of a library; our own code throws nothing
        return souk::complain(e.what());
    }
}
