// SPDX-License-Identifier: GPL-2.0-or-later
// Home: a checkpoint of a whole gang is made at one cut. See home_sets.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;
using SetStep = HomeSets::Step;

namespace {

constexpr Nanos try_again = Nanos::from_s(5);  // one of them is on its way somewhere

// prepare: CRIU is to stand ready; dump: it is to be dumped, and to stand; send: it is to go on.
GuestCommand set_command(const HomeJob& job, SetStep step) {
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = step == SetStep::prepare ? GuestVerb::prepare_dump : GuestVerb::checkpoint;
    c.cut = step == SetStep::send ? Cut::none : Cut::checkpoint;
    c.new_epoch = job.saving.epoch;
    if (step == SetStep::prepare) return c;
    c.dest = job.saving.peer.node;
    c.dest_address = job.saving.peer.address;
    return c;
}

}  // namespace

// One of a gang is due to be saved, or the set that is being made has taken too long.
void Home::set_due(HomeJob& job, const HomeTurn& turn) {
    const HomeSets::Set* const set = sets_.of_gang(job.group.gang);
    if (set && set->due <= turn.now) {
        checkpoints_.failed(job, because(CauseCode::not_ready_in_time), turn);
        return go_on_with_set(job.group.gang, turn);
    }
    if (checkpoints_.due(job) <= turn.now) begin_set(job, turn);
}

// Of all that are required and have not ended, when each of them runs.
void Home::begin_set(HomeJob& job, const HomeTurn& turn) {
    std::vector<HomeJob*> members;
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || one->phase == JobPhase::finished || HomeGangs::is_optional(*one)) continue;
        if (!HomeCheckpoints::may_begin(*one) || one->going_back || one->splice.due ||
            doubts_.has(*one))
            return checkpoints_.again(job, turn.now + try_again);
        members.push_back(one);
    }
    Trouble why;
    for (const HomeJob* one : members) {
        checkpoints_.disarm(*one);
        if (why.empty()) why = checkpoints_.why_not(*one, turn);
    }
    if (!why.empty()) {
        checkpoints_.failed(job, why, turn);
        for (const HomeJob* one : members) {
            const Reindex indexed(*this, one->id.seq);
            checkpoints_.arm(*one, turn.now);
        }
        return;
    }
    HomeSets::Set set;
    set.due = turn.now + limits_.step_patience;
    for (HomeJob* one : members) {
        const Reindex indexed(*this, one->id.seq);
        checkpoints_.keep(*one, turn);
        set.members[one->id.seq].number = one->saving.epoch;
        turn.send(one->at, set_command(*one, SetStep::prepare));
    }
    sets_.begin(job.group.gang, std::move(set));
}

// What a node says of a component that runs, and of which an image is made with the others. True:
// that is all it means.
bool Home::hear_in_set(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    HomeSets::Member& m = *sets_.member(job);
    const SetStep step = sets_.of_gang(job.group.gang)->step;
    switch (e.state) {
        case GuestState::dump_ready:
            HomeClock::runs_on(job, e, turn);
            m.ready = true;
            if (step == SetStep::dump) turn.send(job.at, set_command(job, step));
            return true;
        case GuestState::running:
            if (step == SetStep::send) return false;
            // It may have stood before, and does not now.
            m.stands = false;
            m.stood_at = Nanos::never();
            if (e.why.empty()) turn.send(job.at, set_command(job, step));  // it never arrived
            return false;
        case GuestState::dumping:
            if (!e.why.empty() && !e.in_place) checkpoints_.failed(job, e.why, turn);
            if (!e.why.empty() || e.in_place) return false;
            if (e.all_stand) m.stood_at = std::min(m.stood_at, turn.now);
            HomeClock::stop(job, turn.now);
            turn.report(job);
            return true;
        case GuestState::shipped:
            if (e.held_for != m.number) return false;  // of an earlier one
            HomeClock::stop(job, turn.now);
            m.stands = true;
            if (step == SetStep::send) turn.send(job.at, set_command(job, step));
            return true;
        default: return false;
    }
}

// What this node says of the place of such an image.
void Home::keeper_in_set(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    HomeSets::Member* const m = e.epoch == job.saving.epoch ? sets_.member(job) : nullptr;
    if (m && e.state == GuestState::prepared) {
        m->place = true;
    } else if (m && e.state == GuestState::frozen) {
        m->whole = true;
        m->image = e;
    } else {
        const bool had = job.checkpoint.epoch.n > 0;
        checkpoints_.from_keeper(job, e, turn);
        if (had && job.checkpoint.epoch.n == 0) drop_set(job, turn);  // one is damaged
    }
    go_on_with_set(job.group.gang, turn);
}

// The next step, when all that it waits for is there; what lacks one of its members is given up.
void Home::go_on_with_set(uint64_t gang, const HomeTurn& turn) {
    HomeSets::Set* const set = sets_.of_gang(gang);
    if (!set) return;
    for (const auto& [seq, m] : set->members) {
        const HomeJob* const one = find({node_, seq});
        if (!one || !sets_.member(*one) || one->cancelled || one->going_back)
            return give_up_set(gang, turn);
    }
    using Member = HomeSets::Member;
    const bool ready = set->all(&Member::place) && set->all(&Member::ready);
    if (set->step == SetStep::prepare && ready)
        tell_set(*set, SetStep::dump, turn);
    else if (set->step == SetStep::dump && set->all(&Member::stands))
        tell_set(*set, SetStep::send, turn);
    else if (set->step == SetStep::send && set->all(&Member::whole))
        set_is_whole(gang, turn);
}

void Home::tell_set(HomeSets::Set& set, SetStep step, const HomeTurn& turn) {
    set.step = step;
    set.due = turn.now + limits_.transfer_patience;
    for (const auto& [seq, m] : set.members) {
        const Reindex indexed(*this, seq);
        const HomeJob& one = records_.at(seq);
        if (step == SetStep::dump) checkpoints_.began(one, turn.unix_now);
        turn.send(one.at, set_command(one, step));
    }
}

// All records of one step are written at once.
void Home::set_is_whole(uint64_t gang, const HomeTurn& turn) {
    const HomeSets::Set set = sets_.take(gang);
    const HomeCuts::Made made = HomeCuts::made_of(set.members);
    for (const auto& [seq, m] : set.members) {
        const Reindex indexed(*this, seq);
        checkpoints_.whole(records_.at(seq), m.image, made, turn);
    }
}

// Who stands, or is ready to be dumped, goes on.
void Home::give_up_set(uint64_t gang, const HomeTurn& turn) {
    const HomeSets::Set set = sets_.take(gang);
    for (const auto& [seq, m] : set.members) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || one->phase == JobPhase::finished) continue;
        const Reindex indexed(*this, seq);
        if (one->saving.epoch == m.number) {
            checkpoints_.end_saving(*one, turn);
            turn.persist(*one);
        }
        if (one->phase != JobPhase::running || one->going_back) continue;
        turn.send(one->at, one->id, one->epoch, GuestVerb::resume);
        checkpoints_.arm(*one, turn.now);
    }
}

// What there was to go back to is of no use without this one's.
void Home::drop_set(const HomeJob& job, const HomeTurn& turn) {
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const one = records_.find({node_, seq});
        if (!one || one->phase == JobPhase::finished || one->checkpoint.epoch.n == 0) continue;
        const Reindex indexed(*this, seq);
        // It is that image as long as it is frozen.
        if (HomeCheckpoints::is_whole(*one, one->at.node, one->epoch))
            one->checkpoint = {};
        else
            HomeCheckpoints::drop(*one, turn);
        turn.persist(*one);
        turn.report(*one);
    }
}

// The daemon was started again.
void Home::restarted_set(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || job.saving.epoch.n == 0) return;
    checkpoints_.end_saving(job, turn);
    turn.persist(job);
    if (job.phase == JobPhase::running) turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
}

// Something else is made of the job now.
void Home::end_saving(HomeJob& job, const HomeTurn& turn) {
    evacuations_.end(job, turn);
    if (job.saving.epoch.n == 0) return;
    checkpoints_.end_saving(job, turn);
    if (HomeGangs::is_component(job)) go_on_with_set(job.group.gang, turn);
}

}  // namespace souk
