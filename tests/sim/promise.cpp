// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/promise.hpp"

#include <algorithm>

namespace souk::sim {
namespace {

// A node must write down within this time what it has missed.
constexpr Nanos slack = Nanos::from_us(1);
// A daemon must hear within this time that a job goes on whose dump has failed.
constexpr Nanos hears = Nanos::from_ms(2);

// Things of a node that guests still use. Each points to a job that uses it, or is null.
struct Used {
    const GuestKey* cpu = nullptr;  // its daemon has heard of it
    const GuestKey *memory = nullptr, *capsule = nullptr, *image = nullptr;
    int64_t memory_mb = 0;
};

Used used(const World& world, const NodeName& node, Nanos now, Nanos& again) {
    Used u;
    for (const auto& [at, c] : world.capsules.on(node)) {
        const bool heard = c.let_go.ns < 0 || now > c.let_go + hears;
        if (c.progressing() && heard) u.cpu = &at.second;
        if (!heard) again = std::min(again, c.let_go + hears + Nanos{1});
        if (c.alive && c.job) {
            u.memory = &at.second;
            u.memory_mb += world.truths.at(at.second.id).memory_mb;
        }
        if (c.alive || at.second.id.home != node) u.capsule = &at.second;
    }
    for (const auto& [at, image] : world.images.on(node))
        if (at.second.id.home != node) u.image = &at.second;
    return u;
}

}  // namespace

std::string PromiseWatch::look(const World& world, const NodeName& node, Nanos now, bool lowered,
                               const Promised& promised, const Said& said, Nanos& again) const {
    const auto since = since_.find(node);
    if (since == since_.end()) return {};
    Used u = used(world, node, now, again);
    if (said.stopped && u.cpu) return "says that none uses a CPU, and " + u.cpu->text() + " runs";
    if (lowered) u.cpu = nullptr;
    if (promised.memory_mb >= 0 && u.memory_mb <= promised.memory_mb) u.memory = nullptr;
    const struct {
        const char* what;
        Nanos promised;
        bool is_said;
        const std::string& missed;
        const GuestKey* by;
    } all[] = {
        {"CPUs", promised.cpu, said.has_cpu, said.cpu_missed, u.cpu},
        {"memory", promised.memory, said.has_memory, said.memory_missed, u.memory},
        {"disk", promised.empty, said.is_empty, said.empty_missed, u.image ? u.image : u.capsule}};
    for (const auto& p : all) {
        const Nanos late_at = since->second + p.promised + slack + Nanos{1};
        if (p.promised.ns > 0 && late_at > now) again = std::min(again, late_at);
        if (!p.by) continue;
        if (p.is_said)
            return std::string("says that its owner has its ") + p.what + ", and " + p.by->text() +
                   " is there";
        if (p.promised.ns > 0 && now >= late_at && p.missed.empty())
            return std::string("keeps its ") + p.what + " from its owner by " + p.by->text() +
                   " longer than promised, and has not written that down";
    }
    return {};
}

}  // namespace souk::sim
