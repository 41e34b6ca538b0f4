// SPDX-License-Identifier: GPL-2.0-or-later
// souk doctor [--json]: every need of a node, whether it is met, and the command that mends it.
// Exit 1 if a required one is not met.
#include "checkpoint/doctor.hpp"

#include <cstdio>
#include <cstring>

#include "bpf/load.hpp"
#include "tools/common/args.hpp"
#include "tools/souk/doctor_trust.hpp"

namespace souk {
namespace {

// BTF that is there can still be refused (lockdown, an old layout of the kernel's types): load the
// programs once.
void try_load_programs(Need& need) {
    const std::string root = "souk-doctor-" + std::to_string(::getpid());
    const auto cgroups = Cgroups::open(root);
    if (!cgroups) return;
    {
        const auto probe = LoadProbe::open(*cgroups, "n");
        if (probe && std::string_view(probe->source()) == "bpf") {
            need.found += ", programs load";
        } else {
            need.met = false;
            need.found = probe ? probe->why_not_bpf() : probe.error().message;
            need.mend = "nothing to do; load figures come from /proc";
        }
    }
    if (const Status removed = cgroups->remove("", Nanos::from_s(5)); !removed)
        souk::complain("souk doctor", removed.error());
}

}  // namespace

int cmd_doctor(int argc, char** argv) {
    bool json = false;
    std::string agent = "/etc/souk/agentd.conf", market = "/etc/souk/marketd.conf",
                backups = "/var/backups/souk";
    const tools::CommandLine line{
        .tool = "souk doctor",
        .synopsis = "[--json] [--agentd FILE] [--marketd FILE] [--backups DIR]",
        .summary =
            "What this machine lacks to run jobs or to keep a market, and the command that "
            "mends it.",
        .options = {{0, "json", nullptr, "one JSON array on stdout",
                     [&](const char*) {
                         json = true;
                         return Status{};
                     }},
                    {0, "agentd", "FILE", "agentd's configuration (/etc/souk/agentd.conf)",
                     tools::set_text(agent)},
                    {0, "marketd", "FILE", "marketd's configuration (/etc/souk/marketd.conf)",
                     tools::set_text(market)},
                    {0, "backups", "DIR",
                     "where copies of the market's records are (/var/backups/souk)",
                     tools::set_text(backups)}},
    };
    std::span<char*> rest;
    switch (tools::parse(line, argc, argv, rest)) {
        case tools::Parsed::done: return 0;
        case tools::Parsed::failed: return 2;
        case tools::Parsed::go: break;
    }
    if (!rest.empty())
        return complain_usage("souk doctor", "unexpected argument '" + std::string(rest[0]) + "'");
    const bool market_alone = keeps_a_market(market) && !is_a_node(agent);
    std::vector<Need> needs;
    if (!market_alone) needs = examine(Examination::full, settled_criu_root(""));
    for (Need& need : needs)
        if (need.name == "BTF" && need.met) try_load_programs(need);
    for (Need& need : examine_trust(agent, market, backups)) needs.push_back(std::move(need));
    const std::string text = json ? needs_json(needs) + "\n" : needs_text(needs);
    std::fputs(text.c_str(), stdout);
    const Status fit = require(needs);
    if (!json && market_alone)
        std::puts("This machine keeps a market. It is no node, and need not be able to run one.");
    else if (!json)
        std::puts(fit ? "This machine can run a node." : "This machine cannot run a node yet.");
    return fit ? 0 : 1;
}

}  // namespace souk
