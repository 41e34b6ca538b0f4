// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/gang_checkpoints.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "agentd/core/home_clock.hpp"

namespace souk {

namespace {

constexpr Nanos try_again = Nanos::from_s(5);  // a component is on its way somewhere

}  // namespace

bool GangCheckpoints::Set::all(bool Member::*done) const {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& m) { return m.second.*done; });
}

GangCheckpoints::Set* GangCheckpoints::of_gang(uint64_t gang) {
    const auto it = sets_.find(gang);
    return it == sets_.end() ? nullptr : &it->second;
}

GangCheckpoints::Member* GangCheckpoints::member(const HomeJob& job) {
    if (job.saving.epoch.n == 0 || job.phase != JobPhase::running) return nullptr;
    Set* const set = of_gang(job.group.gang);
    if (!set) return nullptr;
    const auto it = set->members.find(job.id.seq);
    const bool known = it != set->members.end() && it->second.number == job.saving.epoch;
    return known ? &it->second : nullptr;
}

GangCheckpoints::Set GangCheckpoints::take(uint64_t gang) {
    auto entry = sets_.extract(gang);
    return entry ? std::move(entry.mapped()) : Set{};
}

Nanos GangCheckpoints::due(const HomeJob& job) const {
    const auto it = sets_.find(job.group.gang);
    if (it == sets_.end() || !it->second.members.contains(job.id.seq)) return Nanos::never();
    return it->second.due;
}

// prepare: CRIU is to stand ready; dump: the job is to be dumped, and to stand; send: it is to go
// on.
GuestCommand GangCheckpoints::command(const HomeJob& job, Step step) {
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = step == Step::prepare ? GuestVerb::prepare_dump : GuestVerb::checkpoint;
    c.cut = step == Step::send ? Cut::none : Cut::checkpoint;
    c.new_epoch = job.saving.epoch;
    if (step == Step::prepare) return c;
    c.dest = job.saving.peer.node;
    c.dest_address = job.saving.peer.address;
    return c;
}

void GangCheckpoints::tick(HomeJob& job, const HomeTurn& turn) {
    const Set* const set = of_gang(job.group.gang);
    if (set && set->due <= turn.now) {
        checkpoints_.failed(job, because(CauseCode::not_ready_in_time), turn);
        return go_on(job.group.gang, turn);
    }
    if (checkpoints_.due(job) <= turn.now) begin(job, turn);
}

// The set has all components that are required and have not ended. It begins when each of them
// runs.
void GangCheckpoints::begin(HomeJob& job, const HomeTurn& turn) {
    std::vector<HomeJob*> members;
    for (const uint64_t seq : gangs_.all_of(job)) {
        HomeJob* const one = records_.find(seq);
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
            const Reindexed indexed(steps_, one->id.seq);
            checkpoints_.arm(*one, turn.now);
        }
        return;
    }
    Set set;
    set.due = turn.now + limits_.step_patience;
    for (HomeJob* one : members) {
        const Reindexed indexed(steps_, one->id.seq);
        checkpoints_.keep(*one, turn);
        set.members[one->id.seq].number = one->saving.epoch;
        turn.send(one->at, command(*one, Step::prepare));
    }
    sets_.insert_or_assign(job.group.gang, std::move(set));
}

bool GangCheckpoints::hear(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    Member& m = *member(job);
    const Step step = of_gang(job.group.gang)->step;
    switch (e.state) {
        case GuestState::dump_ready:
            if (HomeClock::runs_on(job, e, turn)) turn.report(job);
            m.ready = true;
            if (step == Step::dump) turn.send(job.at, command(job, step));
            return true;
        case GuestState::running:
            if (step == Step::send) return false;
            // The component may have stood before, and does not now.
            m.stands = false;
            m.stood_at = Nanos::never();
            if (e.why.empty()) turn.send(job.at, command(job, step));  // the command was lost
            return false;
        case GuestState::dumping:
            if (!e.why.empty() && !e.in_place) checkpoints_.failed(job, e.why, turn);
            if (!e.why.empty() || e.in_place) return false;
            if (e.all_stand) m.stood_at = std::min(m.stood_at, turn.now);
            HomeClock::stop(job, turn.now);
            turn.report(job);
            return true;
        case GuestState::shipped:
            if (e.held_for != m.number) return false;  // it belongs to an earlier set
            HomeClock::stop(job, turn.now);
            m.stands = true;
            if (step == Step::send) turn.send(job.at, command(job, step));
            return true;
        default: return false;
    }
}

void GangCheckpoints::hear_keeper(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    Member* const m = e.epoch == job.saving.epoch ? member(job) : nullptr;
    if (m && e.state == GuestState::prepared) {
        m->place = true;
    } else if (m && e.state == GuestState::frozen) {
        m->whole = true;
        m->image = e;
    } else {
        const bool had = job.checkpoint.epoch.n > 0;
        checkpoints_.from_keeper(job, e, turn);
        if (had && job.checkpoint.epoch.n == 0) drop(job, turn);  // it is damaged
    }
    go_on(job.group.gang, turn);
}

void GangCheckpoints::go_on(uint64_t gang, const HomeTurn& turn) {
    Set* const set = of_gang(gang);
    if (!set) return;
    for (const auto& [seq, m] : set->members) {
        const HomeJob* const one = records_.find(seq);
        if (!one || !member(*one) || one->cancelled || one->going_back) return give_up(gang, turn);
    }
    const bool ready = set->all(&Member::place) && set->all(&Member::ready);
    if (set->step == Step::prepare && ready)
        enter(*set, Step::dump, turn);
    else if (set->step == Step::dump && set->all(&Member::stands))
        enter(*set, Step::send, turn);
    else if (set->step == Step::send && set->all(&Member::whole))
        is_whole(gang, turn);
}

void GangCheckpoints::enter(Set& set, Step step, const HomeTurn& turn) {
    set.step = step;
    set.due = turn.now + limits_.transfer_patience;
    for (const auto& [seq, m] : set.members) {
        const Reindexed indexed(steps_, seq);
        const HomeJob& one = records_.at(seq);
        if (step == Step::dump) checkpoints_.began(one, turn.unix_now);
        turn.send(one.at, command(one, step));
    }
}

// All records of one step are written at once.
void GangCheckpoints::is_whole(uint64_t gang, const HomeTurn& turn) {
    const Set set = take(gang);
    const CutTiming timing = CutTiming::of(set.members);
    for (const auto& [seq, m] : set.members) {
        const Reindexed indexed(steps_, seq);
        checkpoints_.whole(records_.at(seq), m.image, timing, turn);
    }
}

// A component that stands, or is ready to be dumped, goes on.
void GangCheckpoints::give_up(uint64_t gang, const HomeTurn& turn) {
    const Set set = take(gang);
    for (const auto& [seq, m] : set.members) {
        HomeJob* const one = records_.find(seq);
        if (!one || one->phase == JobPhase::finished) continue;
        const Reindexed indexed(steps_, seq);
        if (one->saving.epoch == m.number) {
            checkpoints_.end_saving(*one, turn);
            turn.persist(*one);
        }
        if (one->phase != JobPhase::running || one->going_back) continue;
        turn.send(one->at, one->id, one->epoch, GuestVerb::resume);
        checkpoints_.arm(*one, turn.now);
    }
}

void GangCheckpoints::drop(const HomeJob& job, const HomeTurn& turn) {
    for (const uint64_t seq : gangs_.others_of(job)) {
        HomeJob* const one = records_.find(seq);
        if (!one || one->phase == JobPhase::finished || one->checkpoint.epoch.n == 0) continue;
        const Reindexed indexed(steps_, seq);
        // While the component is frozen, that image is the component.
        if (HomeCheckpoints::is_whole(*one, one->at.node, one->epoch))
            one->checkpoint = {};
        else
            HomeCheckpoints::drop(*one, turn);
        turn.persist(*one);
        turn.report(*one);
    }
}

void GangCheckpoints::restarted(HomeJob& job, const HomeTurn& turn) {
    if (!HomeGangs::is_component(job) || job.saving.epoch.n == 0) return;
    checkpoints_.end_saving(job, turn);
    turn.persist(job);
    if (job.phase == JobPhase::running) turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
}

void GangCheckpoints::end_saving(HomeJob& job, const HomeTurn& turn) {
    evacuations_.end(job, turn);
    if (job.saving.epoch.n == 0) return;
    checkpoints_.end_saving(job, turn);
    if (HomeGangs::is_component(job)) go_on(job.group.gang, turn);
}

}  // namespace souk
