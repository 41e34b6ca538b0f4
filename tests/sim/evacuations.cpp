// SPDX-License-Identifier: GPL-2.0-or-later
// Frozen jobs of the simulated nodes: how many wake at one time, and images that leave for their
// homes, as the owners of nodes want them gone; and guests that stand whose memory they want. See
// cluster.hpp.
#include "agentd/core/home_evacuations.hpp"
#include "agentd/core/home_moves.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {
constexpr Nanos evacuation_time = Nanos::from_s(300);  // of a few tries
}  // namespace

// A home's owner has said how many of its frozen jobs wake at one time.
void Cluster::check_wakes(const Node& n) {
    int waking = 0;
    for (const auto& [seq, job] : n.home->jobs()) {
        if (job.phase != JobPhase::thawing || !HomeMoves::is_undecided(job)) continue;
        if (job.cut == CutStep::held) continue;  // it has woken, and waits for its gang
        if (++waking > 1 && limits_.wake == WakeRule::one)
            world_.fail(job.id, "wakes beside another, and its home wakes one at a time");
    }
}

// No more than a few images come to a home at one time, and only of what is frozen elsewhere.
void Cluster::check_evacuations(const Node& n) {
    size_t coming = 0;
    for (const auto& [seq, job] : n.home->jobs()) {
        if (job.evacuation.epoch.n == 0) continue;
        if (job.phase != JobPhase::frozen || job.in_place || job.at.node == n.name)
            world_.fail(job.id, "its image comes home, and it is not frozen elsewhere");
        if (++coming > HomeEvacuations::at_once)
            world_.fail(job.id, "its image comes home beside too many others");
    }
}

void Cluster::note_evacuated(const Node& n, const HomeJob& job) {
    const auto& steps = job.story.steps();
    const bool is_new = !steps.empty() && steps.back().what == StoryStep::What::evacuated;
    const auto before = is_new ? home_record(n, job.id) : std::nullopt;
    counts_.evacuated += before && before->at.node != n.name && job.at.node == n.name;
}

// A deliberate bug: what is frozen there is dropped when it is asked for.
void Cluster::drop_too_early(Node& n, const GuestCommand& command) {
    const HomeJob* job = n.home->find(command.id);
    if (!job || !HomeEvacuations::is_coming(*job, command.dest, command.new_epoch)) return;
    GuestCommand drop = command;
    drop.verb = GuestVerb::drop;
    command_leaves(n, job->at, drop);
}

// Each is back, and nothing is ordered: within the time of a few tries no image of another home is
// on any node.
bool Cluster::owners_take_all_back() {
    say("all owners take their nodes back");
    const Nanos end = now_ + evacuation_time;
    for (const Nanos each = Nanos::from_s(5); now_ < end;) {
        for (const NodeName& name : names_) {
            Node& n = node(name);
            if (n.up && n.provider->record().on_market)
                provider_step(
                    n, [&](Provider& p, provider::Outputs& out) { p.market(false, wall(), out); });
        }
        if (!run_until(now_ + each)) return false;
    }
    for (const auto& [at, image] : world_.images) {
        const Node& n = node(at.first);
        if (!image.complete || at.second.id.home == n.name || !n.up) continue;
        // He may say that it is larger than its home has room for, and keeps it then.
        if (is_liar(n.name)) continue;
        const GuestJob* job = n.guest->find(at.second);
        if (job && job->state != GuestState::frozen) continue;  // it stands, and cannot be dumped
        world_.fail(at.second.id, "has an image on " + n.name + ", whose owner is back");
    }
    return world_.failure.empty();
}

// His machine has less memory free than he wants, however much guests hold of it.
void Cluster::owner_wants_memory(Node& n) {
    const MemoryWish wish{wishes_.between(0, 2'000), 2'000};
    const auto leave = wish.who_leaves(n.guest->standing());
    if (leave.empty()) return;
    counts_.memory_wanted += leave.size();
    for (const GuestKey& key : leave)
        say("the owner of ", n.name, " wants the memory of ", key.text());
    for (const GuestKey& key : leave) leave_watch_.wants(n.name, key, now_);
    if (mutation_ == Mutation::memory_not_wanted) return;
    guest_step(n, [&](Guest& g, guest::Outputs& out) { g.want_memory(leave, out); });
}

}  // namespace souk::sim
