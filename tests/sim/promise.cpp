// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/promise.hpp"

namespace souk::sim {
namespace {

// Within it a node writes down what it has missed.
constexpr Nanos slack = Nanos::from_us(1);
// Within it a daemon hears that a job goes on whose dump has failed.
constexpr Nanos hears = Nanos::from_ms(2);

// What guests have of a node; each a job that shows it, or nothing.
struct Used {
    std::string cpu, known_cpu, memory, anything;  // known: its daemon has heard of it
    int64_t memory_mb = 0;
};

Used used(const World& world, const NodeName& node, Nanos now) {
    Used u;
    for (const auto& [at, c] : world.capsules) {
        if (at.first != node) continue;
        if (c.progressing()) u.cpu = at.second.text();
        const bool heard = c.let_go.ns < 0 || now > c.let_go + hears;
        if (c.progressing() && heard) u.known_cpu = at.second.text();
        if (c.alive && c.job) {
            u.memory = at.second.text();
            u.memory_mb += world.truths.at(at.second.id).memory_mb;
        }
        if (c.alive || at.second.id.home != node) u.anything = "the capsule of " + at.second.text();
    }
    for (const auto& [at, image] : world.images)
        if (at.first == node && at.second.id.home != node)
            u.anything = "an image of " + at.second.text();
    return u;
}

}  // namespace

std::string PromiseWatch::look(const World& world, const NodeName& node, Nanos now, bool lowered,
                               const Promised& promised, const Said& said) const {
    const auto since = since_.find(node);
    if (since == since_.end()) return {};
    Used u = used(world, node, now);
    if (said.stopped && !u.known_cpu.empty())
        return "says that none uses a CPU, and " + u.known_cpu + " runs";
    if (lowered) u.cpu.clear();
    if (promised.memory_mb >= 0 && u.memory_mb <= promised.memory_mb)
        u.memory.clear();
    else if (promised.memory_mb >= 0)
        u.memory += " (" + std::to_string(u.memory_mb) + " MB of " +
                    std::to_string(promised.memory_mb) + ")";
    const struct {
        const char* what;
        Nanos promised;
        bool is_said;
        const std::string &missed, &by;
    } all[] = {{"CPUs", promised.cpu, said.has_cpu, said.cpu_missed, u.cpu},
               {"memory", promised.memory, said.has_memory, said.memory_missed, u.memory},
               {"disk", promised.empty, said.is_empty, said.empty_missed, u.anything}};
    for (const auto& p : all) {
        if (p.by.empty()) continue;
        if (p.is_said)
            return std::string("says that its owner has its ") + p.what + ", and " + p.by +
                   " is there";
        const bool late = p.promised.ns > 0 && now > since->second + p.promised + slack;
        if (late && p.missed.empty())
            return std::string("keeps its ") + p.what + " from its owner by " + p.by +
                   " longer than promised, and has not written that down";
    }
    return {};
}

}  // namespace souk::sim
