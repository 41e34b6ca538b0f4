// SPDX-License-Identifier: GPL-2.0-or-later
// Home: what the step of one component of a gang means for the others. See home_gangs.hpp.
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;

// One word for all of them.
void Home::cancel_all(HomeJob& job, const HomeTurn& turn) {
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const other = records_.find({node_, seq});
        if (!other || other->phase == JobPhase::finished || other->cancelled) continue;
        const Reindex indexed(*this, seq);
        cancel(*other, turn);
    }
    if (job.phase != JobPhase::finished && !job.cancelled) cancel(job, turn);
}

// All records of one step are written at once, before the first word of it leaves: so either all
// are released, or none is.
void Home::release_if_all_held(HomeJob& job, const HomeTurn& turn) {
    if (job.cancelled) return end_by_cancel(job, turn);
    if (!gangs_.held(job, records_.all())) return;
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || !gangs_.is_held(*one)) continue;
        const Reindex indexed(*this, seq);
        HomeRuns::release(*one, turn);
        gangs_.step_ended(*one);
    }
}

// This one waits: nobody is held for its sake.
void Home::take_others_back(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_unreleased(job) || HomeGangs::is_optional(job)) return;
    const Trouble why = because(CauseCode::components_taken_back,
                                {{"component", std::to_string(job.group.component)}});
    if (job.comment.code == why.code) return;  // it was itself taken back
    HomeJob* const first = records_.find({node_, job.group.gang});
    if (!first || first->phase == JobPhase::finished) return;
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const known = records_.find({node_, seq});
        if (!known || !known->spec.hold || known->phase == JobPhase::finished) continue;
        HomeJob& other = *known;
        const Reindex indexed(*this, seq);
        const bool learns = HomeGangs::lacks_as_well(other, job);
        if (other.phase == JobPhase::starting) {
            HomeRuns::take_back(other, why, turn);
            steady(other, turn);
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
    finish(job, 1 << 8,
           because(CauseCode::components_not_started,
                   {{"count", std::to_string(most)}, {"text", last}}),
           turn);
}

void Home::not_in_time(HomeJob& job, const HomeTurn& turn) {
    gangs_.step_ended(job);
    if (job.phase != JobPhase::starting || !job.spec.hold) return;
    const int64_t seconds = gangs_.patience().ns / 1'000'000'000;
    HomeRuns::take_back(
        job, because(CauseCode::components_late, {{"seconds", std::to_string(seconds)}}), turn);
    steady(job, turn);
}

// They end as it did; if it has ended well, the market hears how many are left.
void Home::end_others(const HomeJob& ended, const HomeTurn& turn) {
    const bool go_on = gangs_.verdict(ended).empty();
    for (const uint64_t seq : gangs_.others_of(ended)) {
        HomeJob* const other = records_.find({node_, seq});
        if (!other || other->phase == JobPhase::finished || other->cancelled) continue;
        const Reindex indexed(*this, seq);
        if (go_on && gangs_.why_ended(*other, records_.all()).empty())
            turn.report(*other);
        else
            cancel(*other, turn);
    }
    // An interactive one that has ended is not waited for any more.
    for (const uint64_t seq : gangs_.others_of(ended)) {
        HomeJob* const other = records_.find({node_, seq});
        if (other && gangs_.is_held(*other)) return release_if_all_held(*other, turn);
    }
}

// What was on its way to be held goes on; what lacks components gets no more of them, and what is
// to end with another that has ended does.
void Home::restarted_gang(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || job.cancelled) return;
    if (job.phase == JobPhase::starting) gangs_.started(job, turn.now);
    if (!job.group.whole || !gangs_.why_ended(job, records_.all()).empty()) cancel(job, turn);
}

}  // namespace souk
