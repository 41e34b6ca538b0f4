// SPDX-License-Identifier: GPL-2.0-or-later
// Guests leave a simulated node at a limited rate while its owner uses it (leave_mb_per_s of the
// configuration). Their bytes go in pieces, by the daemon's own LeavePace and RateLimit, on virtual
// time. An effect without a limit takes the time that it takes otherwise. See cluster.hpp.
#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {
constexpr Nanos leaving_look_every = Nanos::from_s(1);
constexpr uint64_t piece = 4 << 20;  // as the parts in which a daemon writes to the disk
}  // namespace

// Chooses by the seed one of three cases: no rate at all, a rate by which most guests have left
// when a promise ends, or a rate by which few have.
void Cluster::choose_rate() {
    Rng rng(seed_of_rate_);
    if (rng.chance(0.8)) leave_rate_ = static_cast<uint64_t>(5 << rng.below(7)) * 1'000'000;
    LeaveWatch::Rules rules;
    rules.bytes_per_s = leave_rate_;
    rules.memory = promise_.free_memory;
    rules.empty = promise_.empty;
    constexpr Nanos a_try = Nanos::from_s(3), more_tries = Nanos::from_s(10);
    rules.leaves = policy_.leave + a_try;
    const bool leave = presence_.on_return == OwnerUsePolicy::Return::leave;
    rules.all_leave = leave ? presence_.leave + policy_.leave + more_tries : Nanos::never();
    rules.away = presence_.away;
    leave_watch_.rules(rules);
}

// The bytes that are still to leave the node, without those that have left already
// (GuestHost::to_leave).
LeavePace::Left Cluster::to_leave(const Node& n) const {
    LeavePace::Left left;
    for (const auto& [key, entry] : n.guest->all()) {
        const auto send = n.sends.find(key);
        const bool goes = send != n.sends.end();
        if (!goes && !n.guest->is_to_leave(key, n.name)) continue;
        const bool frozen = entry.job.state == GuestState::frozen;
        // A daemon measures the memory of a capsule, and one without a job holds none.
        const auto capsule = world_.capsules.find({n.name, key});
        const bool holds = frozen || (capsule != world_.capsules.end() && capsule->second.alive &&
                                      (capsule->second.job || capsule->second.restored));
        const uint64_t all =
            holds ? static_cast<uint64_t>(world_.truths.at(key.id).memory_mb) << 20 : 0;
        (frozen ? left.images : left.memory) += goes ? send->second.left : all;
    }
    return left;
}

void Cluster::pace_leaving(Node& n) {
    std::erase_if(n.sends, [&](const auto& send) {
        const auto work = n.work.find(send.first);
        return work == n.work.end() || work->second != send.second.token;
    });
    std::optional<LeavePace::Owner> owner;
    if (n.rung != OwnerUse::Rung::none) owner = LeavePace::Owner{n.use->since(), promise_};
    uint64_t rate = n.pace.rate(now_, leave_rate_, owner, to_leave(n));
    if (mutation_ == Mutation::leaves_unpaced) rate = 0;
    if (mutation_ == Mutation::pace_never_raised && owner) rate = leave_rate_;
    if (rate != n.leave_rate.rate()) say(n.name, " lets leave bytes a second: ", rate);
    n.leave_rate.set(rate, now_);
    if (!owner || leave_rate_ == 0 || n.pace_at > now_) return;
    n.pace_at = now_ + leaving_look_every;
    after(leaving_look_every, [this, name = n.name, life = n.life] {
        Node& on = node(name);
        if (on.up && on.life == life) pace_leaving(on);
    });
}

// `bytes` of it leave, as fast as they may; then comes `whole`. So it does as soon as nobody takes
// them any more; and whatever is called off is not told.
void Cluster::leaves(const NodeName& name, const GuestKey& key, Leave leave) {
    Node& n = node(name);
    const auto work = n.work.find(key);
    const bool on =
        n.up && n.life == leave.life && work != n.work.end() && work->second == leave.token;
    if (!on || leave.bytes == 0 || !leave.is_taken()) return leave.whole();
    if (n.leave_rate.rate() == 0) {
        piece_left(n, key, leave.bytes);
        return leave.whole();
    }
    Send& send = n.sends[key];
    send = {leave.token, leave.bytes, RateShare(&n.leave_rate, piece)};
    send_on(name, key, std::make_shared<Leave>(std::move(leave)));
}

void Cluster::send_on(const NodeName& name, const GuestKey& key,
                      const std::shared_ptr<Leave>& leave) {
    Node& n = node(name);
    const auto found = n.sends.find(key);
    const auto work = n.work.find(key);
    if (found == n.sends.end() || found->second.token != leave->token) return;
    if (work == n.work.end() || work->second != leave->token) {
        n.sends.erase(found);
        return;
    }
    Send& send = found->second;
    while (send.left > 0 && leave->is_taken()) {
        const uint64_t room = send.share.room(send.left, now_);
        if (room == 0) {
            return after(std::max(send.share.wait(now_), Nanos{1}), [this, name, key, leave] {
                Node& on = node(name);
                if (on.up && on.life == leave->life) send_on(name, key, leave);
            });
        }
        send.share.went(room);
        send.left -= room;
        piece_left(n, key, room);
    }
    n.sends.erase(found);
    leave->whole();
}

void Cluster::piece_left(const Node& n, const GuestKey& key, uint64_t bytes) {
    const bool held_back = leave_rate_ > 0 && n.rung != OwnerUse::Rung::none;
    counts_.paced += held_back && n.leave_rate.rate() == leave_rate_;
    counts_.hurried += held_back && n.leave_rate.rate() != leave_rate_;
    const std::string wrong = leave_watch_.left(world_, n.name, key, bytes, now_);
    if (!wrong.empty() && world_.failure.empty()) world_.failure = n.name + " " + wrong;
}

}  // namespace souk::sim
