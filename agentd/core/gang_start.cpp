// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/gang_start.hpp"

#include <algorithm>
#include <string>

#include "agentd/core/home_runs.hpp"

namespace souk {

// -------------------------------------------------------------------------------------------------
// held and released

void GangStart::started(const HomeJob& job, Nanos now) {
    if (HomeGangs::is_unreleased(job)) waits_[job.id.seq] = {{}, now + patience_};
}

bool GangStart::is_held(const HomeJob& job) const {
    const auto wait = waits_.find(job.id.seq);
    return job.phase == JobPhase::starting && job.spec.hold && !job.cancelled &&
           wait != waits_.end() && wait->second.held.n > 0 && wait->second.held == job.epoch;
}

// An interactive component that has ended is not waited for.
bool GangStart::all_are_held(const HomeJob& job) {
    if (!HomeGangs::is_unreleased(job)) return false;
    waits_[job.id.seq].held = job.epoch;
    const auto all = gangs_.all_of(job);
    return std::all_of(all.begin(), all.end(), [&](uint64_t seq) {
        const HomeJob* const one = records_.find(seq);
        if (!one) return true;  // it ended well long ago
        if (one->going_back) return false;
        if (HomeGangs::is_optional(*one) || is_held(*one)) return true;
        return !one->spec.hold ||
               (!HomeGangs::is_required(*one) && one->phase == JobPhase::finished);
    });
}

// All records of one step are written at once, before the first message of it leaves: so either all
// are released, or none is.
void GangStart::release_if_all_held(HomeJob& job, const HomeTurn& turn) {
    if (job.cancelled) return steps_.end_by_cancel(job, turn);
    if (!all_are_held(job)) return;
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one || !is_held(*one)) continue;
        const Reindexed indexed(steps_, seq);
        HomeRuns::release(*one, turn);
        step_ended(*one);
    }
}

void GangStart::take_others_back(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_unreleased(job) || HomeGangs::is_optional(job)) return;
    const Trouble why = because(CauseCode::components_taken_back,
                                {{"component", std::to_string(job.group.component)}});
    if (job.comment.code == why.code) return;  // it was itself taken back
    HomeJob* const first = records_.find(job.group.gang);
    if (!first || first->phase == JobPhase::finished) return;
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const known = records_.find(seq);
        if (!known || !known->spec.hold || known->phase == JobPhase::finished) continue;
        HomeJob& other = *known;
        const Reindexed indexed(steps_, seq);
        const bool learns = HomeGangs::lacks_as_well(other, job);
        if (other.phase == JobPhase::starting) {
            HomeRuns::take_back(other, why, turn);
            steps_.steady(other, turn);
        } else if (learns) {
            turn.persist(other);
            turn.report(other);
        }
    }
    const Cause last = job.comment;
    const bool required = HomeGangs::is_required(job);
    HomeJob& counts = required ? *first : job;
    const uint32_t most = required ? HomeGangs::tries_max : HomeGangs::interactive_tries_max;
    if (++counts.group.tries < most) return turn.persist(counts);
    steps_.finish(job, 1 << 8,
                  because(CauseCode::components_not_started,
                          {{"count", std::to_string(most)}, {"text", last}}),
                  turn);
}

Nanos GangStart::due(const HomeJob& job) const {
    const auto it = waits_.find(job.id.seq);
    return it == waits_.end() ? Nanos::never() : it->second.due;
}

void GangStart::overdue(HomeJob& job, const HomeTurn& turn) {
    step_ended(job);
    if (job.phase != JobPhase::starting || !job.spec.hold) return;
    const int64_t seconds = patience_.ns / 1'000'000'000;
    HomeRuns::take_back(
        job, because(CauseCode::components_late, {{"seconds", std::to_string(seconds)}}), turn);
    steps_.steady(job, turn);
}

// -------------------------------------------------------------------------------------------------
// ended

void GangStart::cancel_all(HomeJob& job, const HomeTurn& turn) {
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const other = records_.find(seq);
        if (!other || other->phase == JobPhase::finished || other->cancelled) continue;
        const Reindexed indexed(steps_, seq);
        steps_.cancel(*other, turn);
    }
    if (job.phase != JobPhase::finished && !job.cancelled) steps_.cancel(job, turn);
}

void GangStart::end_others(const HomeJob& ended, const HomeTurn& turn) {
    const bool go_on = gangs_.verdict(ended).empty();
    for (const uint64_t seq : gangs_.others_of(ended)) {
        HomeJob* const other = records_.find(seq);
        if (!other || other->phase == JobPhase::finished || other->cancelled) continue;
        const Reindexed indexed(steps_, seq);
        if (go_on && gangs_.why_ended(*other, records_.all()).empty())
            turn.report(*other);
        else
            steps_.cancel(*other, turn);
    }
    // An interactive component that has ended is not waited for any more.
    for (const uint64_t seq : gangs_.others_of(ended)) {
        HomeJob* const other = records_.find(seq);
        if (other && is_held(*other)) return release_if_all_held(*other, turn);
    }
}

void GangStart::restarted(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || job.cancelled) return;
    if (job.phase == JobPhase::starting) started(job, turn.now);
    if (!job.group.whole || !gangs_.why_ended(job, records_.all()).empty())
        steps_.cancel(job, turn);
}

}  // namespace souk
