// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_evacuations.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_records.hpp"

namespace souk {

using namespace home;

namespace {
constexpr Nanos patience_max = Nanos::from_s(300);
constexpr int64_t room_left = int64_t{256} << 20;  // on this node's disk, beside the image
}  // namespace

bool HomeEvacuations::may_begin(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it != jobs_.end() && it->second.leaves == job.epoch && job.epoch.n > 0 &&
           job.phase == JobPhase::frozen && !job.in_place && !job.cancelled && !job.going_back &&
           job.evacuation.epoch.n == 0 && job.at.node != limits_.node;
}

void HomeEvacuations::heard(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    if (e.state != GuestState::frozen || e.epoch != job.epoch) return;
    // No other site keeps a frozen job for long.
    const bool must_leave = e.must_leave || !of_site(job.at.node).site.empty();
    if (!must_leave && !jobs_.contains(job.id.seq)) return;
    State& s = jobs_[job.id.seq];
    const Epoch leaves = must_leave ? e.epoch : Epoch{};
    if (s.leaves != leaves) {
        s.leaves = leaves;
        s.at = Nanos::never();
        s.tries = 0;
        const bool said = !s.trouble.empty();
        s.trouble.clear();
        if (said) turn.report(job);
        waiting_.erase(job.id.seq);
    }
    if (job.evacuation.epoch.n == 0) return arm(job, turn.now);
    if (!e.why.empty()) return failed(job, e.why, turn);
    // Did the word to send it arrive? If it is still expected here, that is said again.
    turn.send(job.evacuation.peer, job.id, job.evacuation.epoch, GuestVerb::query);
}

void HomeEvacuations::arm(const HomeJob& job, Nanos now) {
    if (!may_begin(job) || waiting_.contains(job.id.seq)) return;
    State& s = jobs_[job.id.seq];
    if (s.at != Nanos::never()) return;
    const Nanos longest = std::max(limits_.patience, patience_max);
    Nanos wait = limits_.patience;
    for (uint32_t i = 0; i < s.tries && wait < longest; ++i) wait += wait;
    s.at = now + std::min(wait, longest);
}

void HomeEvacuations::restarted(HomeJob& job, const HomeTurn& turn) {
    if (job.evacuation.epoch.n == 0) return;
    if (job.phase != JobPhase::frozen || job.in_place) {
        end(job, turn);
        return turn.persist(job);
    }
    jobs_[job.id.seq].limit = turn.now + limits_.transfer_patience;
    coming_.insert(job.id.seq);
}

Nanos HomeEvacuations::due(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos::never() : std::min(it->second.at, it->second.limit);
}

void HomeEvacuations::tick(HomeJob& job, const HomeTurn& turn) {
    State& s = jobs_[job.id.seq];
    if (s.limit <= turn.now) {
        s.limit = Nanos::never();
        if (job.evacuation.epoch.n > 0) failed(job, because(CauseCode::transfer_too_slow), turn);
    }
    if (s.at > turn.now) return;
    s.at = Nanos::never();
    if (may_begin(job)) waiting_.insert(job.id.seq);
}

std::optional<uint64_t> HomeEvacuations::next() {
    if (waiting_.empty() || coming_.size() >= at_once) return std::nullopt;
    return waiting_.extract(waiting_.begin()).value();
}

Trouble HomeEvacuations::lacks_room(const HomeJob& job) const {
    const int64_t needed = job.stats.image_bytes;
    if (!free_disk_ || *free_disk_ >= needed + room_left) return {};
    return because(CauseCode::image_has_no_room,
                   {{"text", "its home " + limits_.node + " has " +
                                 std::to_string(*free_disk_ >> 20) + " MB free on its disk, and " +
                                 std::to_string((needed + room_left) >> 20) + " MB are needed"}});
}

void HomeEvacuations::begin(HomeJob& job, const Peer& own, const Trouble& why_not,
                            const HomeTurn& turn) {
    if (!may_begin(job)) return;
    const Trouble why = why_not.empty() ? lacks_room(job) : why_not;
    if (!why.empty()) return refused(job, why, turn);
    job.last_epoch = job.last_epoch.next();
    job.evacuation = {own, job.last_epoch};
    jobs_[job.id.seq].limit = turn.now + limits_.transfer_patience;
    coming_.insert(job.id.seq);
    turn.persist(job);
    turn.send_with_spec(job, job.evacuation.peer, job.evacuation.epoch, GuestVerb::keep);
}

bool HomeEvacuations::end(HomeJob& job, const HomeTurn& turn) {
    coming_.erase(job.id.seq);
    waiting_.erase(job.id.seq);
    if (const auto it = jobs_.find(job.id.seq); it != jobs_.end())
        it->second.at = it->second.limit = Nanos::never();
    if (job.evacuation.epoch.n == 0) return false;
    const Orphan was = std::exchange(job.evacuation, {});
    HomeRecords::add_orphan(job, was.peer, was.epoch);
    turn.send(was.peer, job.id, was.epoch, GuestVerb::kill);
    return true;
}

void HomeEvacuations::failed(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    end(job, turn);
    refused(job, why, turn);
}

// It stays where it is for now, and is tried again.
void HomeEvacuations::refused(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    State& s = jobs_[job.id.seq];
    const Cause told = because(CauseCode::image_stays, {{"node", job.at.node}, {"text", why}});
    if (!(s.trouble == told)) turn.tell(job, Tell::What::comment, told);
    s.trouble = told;
    job.comment = told;
    ++s.tries;
    turn.persist(job);
    turn.report(job);
    arm(job, turn.now);
}

void HomeEvacuations::from_keeper(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    switch (e.state) {
        case GuestState::prepared: return turn.send_checkpoint(job, job.evacuation);
        case GuestState::frozen: return is_here(job, e, turn);
        case GuestState::unknown:
        case GuestState::failed:
        case GuestState::killed:
            return failed(job, e.why.empty() ? Trouble("its place is lost") : e.why, turn);
        default: return;
    }
}

// The decision: durable in this step, before the node where it was hears of it.
void HomeEvacuations::is_here(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const Peer old = std::exchange(job.at, job.evacuation.peer);
    const Epoch old_epoch = std::exchange(job.epoch, job.evacuation.epoch);
    job.evacuation = {};
    job.leased = false;
    job.cpu_here = {};
    job.stay_run = job.stats.run_time;
    job.stats.image_bytes = e.image_bytes;
    StoryStep step = turn.step(StoryStep::What::evacuated, job.at.node);
    step.from = old.node;
    step.bytes = static_cast<uint64_t>(std::max<int64_t>(0, e.image_bytes));
    job.story.add(std::move(step));
    if (job.comment.code == CauseCode::image_stays) job.comment.clear();
    HomeRecords::add_orphan(job, old, old_epoch);
    forget(job.id.seq);
    turn.persist(job);
    turn.send(old, job.id, old_epoch, GuestVerb::drop);
    turn.tell(job, Tell::What::comment, "its image came home from " + old.node);
    turn.report(job);
}

const Cause& HomeEvacuations::trouble(const HomeJob& job) const {
    static const Cause none;
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? none : it->second.trouble;
}

void HomeEvacuations::forget(uint64_t seq) {
    jobs_.erase(seq);
    waiting_.erase(seq);
    coming_.erase(seq);
}

}  // namespace souk
