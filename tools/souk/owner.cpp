// SPDX-License-Identifier: GPL-2.0-or-later
// souk owner: somebody uses a node of the market on this host for a while, as its owner would. The
// node's agentd notices a program of his by its name, as it would notice any that owner_programs of
// its configuration names.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "kernel/base/cause.hpp"
#include "kernel/base/units.hpp"
#include "tools/souk/kept.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {

int cmd_owner(const std::string& run, const std::string& node, Nanos span) {
    const auto instance = load_instance(run);
    if (!instance) return complain(instance.error());
    if (!*instance)
        return complain(CauseCode::not_found, "no market is up in " + run +
                                                  "; start one with: souk up --owner-return "
                                                  "stop");
    const auto& nodes = (*instance)->nodes;
    const auto named =
        std::find_if(nodes.begin(), nodes.end(), [&](const Daemon& d) { return d.name == node; });
    if (named == nodes.end()) {
        std::string all;
        for (const Daemon& d : nodes) all += (all.empty() ? "" : ", ") + d.name;
        return complain(CauseCode::not_found,
                        "this market has no node '" + node + "'; it has " + all);
    }
    const auto shape = load_shape((*instance)->state);
    if (!shape) return complain(shape.error());
    if (!*shape || (*shape)->owner_return.empty())
        return complain(CauseCode::not_possible,
                        "guests of this market do nothing for an owner: bring it up with souk up "
                        "--owner-return lower, stop or leave (souk down --keep, and up again)");
    std::printf("the owner of %s uses it for %s; pvdctl --node %s status shows what guests do\n",
                node.c_str(), human_span(span).c_str(), node.c_str());
    std::fflush(stdout);
    const std::string program = owner_program(*named);
    const std::string seconds = std::to_string(span.ns / 1'000'000'000);
    ::execl(program.c_str(), owner_program_name(node).c_str(), seconds.c_str(), nullptr);
    return complain(fail_errno(program, errno).value());
}

}  // namespace souk
