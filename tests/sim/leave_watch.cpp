// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/leave_watch.hpp"

#include <algorithm>
#include <set>

namespace souk::sim {
namespace {

constexpr Nanos window = Nanos::from_s(1);
// A daemon looks once a second how much is left, so its rate may be of a second ago.
constexpr Nanos looks = Nanos::from_s(1);
constexpr Nanos look_every = Nanos::from_ms(100);
// Without a promise, everything must have left by then, and it leaves sooner than it would have to
// with one.
constexpr Nanos longest = Nanos::from_s(300);
constexpr int64_t burst_part = 50;  // of a second's bytes: a timer may come late
// A daemon that has died is back within that, and hears of him.
constexpr Nanos back_after = Nanos::from_s(10);
// A node that comes back after a fault needs some time until all is as before.
constexpr Nanos settles = Nanos::from_s(2);

Nanos most_of(Nanos promised) { return Nanos{promised.ns / 4 * 3}; }

bool in_memory(const Capsule& c) { return c.alive && c.job; }

uint64_t bytes_there(const World& world, const NodeName& node) {
    std::set<GuestKey> keys;
    for (const auto& [at, c] : world.capsules.on(node))
        if (c.alive) keys.insert(at.second);
    for (const auto& [at, image] : world.images.on(node)) keys.insert(at.second);
    uint64_t bytes = 0;
    for (const GuestKey& key : keys)
        bytes += static_cast<uint64_t>(world.truths.at(key.id).memory_mb) << 20;
    return bytes;
}

}  // namespace

void LeaveWatch::came(const NodeName& node, Nanos now) {
    Node& n = nodes_[node];
    if (n.here) return;
    const bool back = n.stays_since.ns > 0 && now <= n.gone_at + rules_.away + back_after;
    const bool found = n.found_at <= now && now <= n.found_at + rules_.away + back_after;
    if (!back) n.stays_since = found ? n.found_at : now;
    n.here = true;
    n.came = now;
    const bool leave = rules_.empty.ns > 0 && rules_.all_leave != Nanos::never();
    n.empty_due = leave ? now + std::max(rules_.empty, rules_.all_leave) : Nanos::never();
}

void LeaveWatch::gone(const NodeName& node, Nanos now) {
    Node& n = nodes_[node];
    if (!n.here) return;
    n.here = false;
    n.gone_at = now;
    n.pieces.clear();
    n.there.clear();
    n.wishes.clear();
}

void LeaveWatch::wants(const NodeName& node, const GuestKey& key, Nanos now) {
    Node& n = nodes_[node];
    if (!n.here || rules_.memory.ns == 0) return;
    n.wishes.try_emplace(key, Wish{now, std::max(n.came + rules_.memory, now + rules_.leaves)});
}

void LeaveWatch::note_there(const World& world, const NodeName& name, Node& n, Nanos now) const {
    n.there.push_back({now, bytes_there(world, name)});
    while (n.there.front().at + window + looks < now) n.there.pop_front();
}

std::string LeaveWatch::left(const World& world, const NodeName& node, const GuestKey& key,
                             uint64_t bytes, Nanos now) {
    Node& n = nodes_[node];
    if (!n.here || rules_.bytes_per_s == 0) return {};
    note_there(world, node, n, now);
    n.pieces.push_back({now, bytes, key});
    while (n.pieces.front().at + window <= now) n.pieces.pop_front();
    uint64_t most_there = 0;
    for (const There& t : n.there) most_there = std::max(most_there, t.bytes);
    uint64_t rate = rules_.bytes_per_s;
    for (const Nanos span : {most_of(rules_.memory), most_of(rules_.empty), longest}) {
        if (span.ns == 0) continue;
        const Nanos time = n.stays_since + span - now;
        if (time <= looks) return {};  // it is late
        rate = std::max(
            rate, static_cast<uint64_t>(static_cast<double>(most_there) / time.seconds()) + 1);
    }
    uint64_t sum = 0;
    std::set<GuestKey> senders;
    for (const Piece& p : n.pieces) {
        sum += p.bytes;
        senders.insert(p.key);
    }
    if (sum <= rate + rate / burst_part + burst * senders.size()) return {};
    return "lets " + std::to_string(sum >> 20) + " MB leave within a second, of " +
           std::to_string(senders.size()) + " guests, and its owner leaves them " +
           std::to_string(rate >> 20) + " MB/s";
}

bool LeaveWatch::is_explained(const World& world, const World::At& at, Nanos since) const {
    const auto lasts = [&](const auto& all, const auto& key) {
        const auto found = all.find(key);
        return found != all.end() && found->second + settles >= since;
    };
    const JobId& id = at.second.id;
    // All components of a gang are frozen at one cut, or none is.
    const uint64_t gang = world.truths.at(id).gang;
    const bool failed = std::ranges::any_of(world.truths, [&](const auto& entry) {
        const auto& [one, truth] = entry;
        const bool of_it = one == id || (gang != 0 && one.home == id.home && truth.gang == gang);
        return of_it && (lasts(failed_, one) || truth.cannot_dump);
    });
    return failed || lasts(troubles_, at.first) || lasts(troubles_, id.home) ||
           lasts(to_stay_, std::pair{id, at.first});
}

// Names something that lies on the node though it should be empty; nothing if a fault explains it.
std::string LeaveWatch::not_empty(const World& world, const NodeName& name, Nanos since) {
    std::string what;
    bool explained = false;
    const auto see = [&](const World::At& at, const char* which) {
        explained |= is_explained(world, at, since);
        what = which + at.second.text();
    };
    for (const auto& [at, c] : world.capsules.on(name))
        if (c.alive || at.second.id.home != name) see(at, "the capsule of ");
    for (const auto& [at, image] : world.images.on(name))
        if (at.second.id.home != name) see(at, "an image of ");
    ++(explained ? counts_.explained : counts_.in_time);
    return explained ? std::string() : what;
}

std::string LeaveWatch::look(const World& world, const NodeName& node, Nanos now, Nanos& again) {
    const auto found = nodes_.find(node);
    if (found == nodes_.end() || !found->second.here) return {};
    Node& n = found->second;
    if (rules_.bytes_per_s > 0 && (n.there.empty() || n.there.back().at + look_every <= now))
        note_there(world, node, n, now);
    if (rules_.bytes_per_s > 0) again = std::min(again, n.there.back().at + look_every);
    for (auto wish = n.wishes.begin(); wish != n.wishes.end();) {
        const auto& [key, when] = *wish;
        const auto c = world.capsules.find({node, key});
        const bool holds = c != world.capsules.end() && in_memory(c->second);
        if (holds && now <= when.due) {
            again = std::min(again, when.due + Nanos{1});
            ++wish;
            continue;
        }
        if (holds && !is_explained(world, {node, key}, when.since))
            return "keeps the memory of " + key.text() +
                   " longer than promised, and nothing failed";
        ++(holds ? counts_.explained : counts_.in_time);
        wish = n.wishes.erase(wish);
    }
    if (now <= n.empty_due) {
        if (n.empty_due != Nanos::never()) again = std::min(again, n.empty_due + Nanos{1});
        return {};
    }
    n.empty_due = Nanos::never();
    const std::string what = not_empty(world, node, n.came);
    return what.empty() ? what
                        : "is not empty when promised, but has " + what + ", and nothing failed";
}

}  // namespace souk::sim
