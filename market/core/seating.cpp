// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/seating.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {

void Seating::set_rules(const Rules& rules) {
    ranks_.flush(all_);
    costs_ = MoveCosts(rules);
    look_from_all();
    agenda_.add_all();
    ++version_;
}

void Seating::begin(Nanos now) {
    now_ = now;
    all_.machine_order().begin_pass();
    while (!stays_.empty() && stays_.front().at <= now) {
        const uint32_t j = all_.find_job(stays_.front().job);
        stays_.pop_front();
        if (j == none || !all_.jobs()[j].held || all_.details(j).stay_until > now) continue;
        const uint32_t m = all_.jobs()[j].slot;
        unhold(j);
        trim(m);  // somebody may have been pinned there who found no room
        ++version_;
    }
    ranks_.flush(all_);
    if (fastest_ == all_.machine_order().fastest()) return;
    fastest_ = all_.machine_order().fastest();
    if (rules().horizon.ns == 0) return;
    look_from_all();
    agenda_.add_all();
}

Nanos Seating::next_wake() const {
    for (const Expiry& e : stays_) {
        const uint32_t j = all_.find_job(e.job);
        if (j != none && all_.jobs()[j].held) return e.at;
    }
    return Nanos::never();
}

void Seating::touch(uint32_t j) {
    Job& job = all_.job(j);
    carried_ |= job.state != JobState::waiting;
    if (job.touched) return;
    job.touched = true;
    touched_.push_back(j);
}

void Seating::set_bound(uint32_t j, ClassKey bound) {
    Job& job = all_.job(j);
    if (job.bound == bound) return;
    job.bound = bound;
    if (job.competing && !job.staged && !agenda_.paused())
        ranks_.order().set_bound(job.rank, bound);
}

// It is on m: what it would leave for.
void Seating::look_from(uint32_t j, const Machine& m) {
    if (all_.required(j)) return;  // a matter of its gang: GangTurns
    set_bound(j, bound_at(j, m));
    if (minds_files(j)) all_.details(j).files->bound = home_bound_at(j, m);
}

void Seating::look_from_all() {
    for (uint32_t j = 0; j < all_.jobs().size(); ++j) {
        const Job& job = all_.jobs()[j];
        if (job.key().n != 0 && job.slot != none && job.competing)
            look_from(j, all_.machines()[job.slot]);
    }
}

void Seating::explain(uint32_t j, Cause cause, JobKey by, Money by_value) {
    all_.job(j).cause = cause;
    all_.details(j).by = by;
    all_.details(j).by_value = by_value;
}

void Seating::open(uint32_t m, const Rank& cursor) {
    const Machine& mc = all_.machines()[m];
    if (!mc.spec.accepting || agenda_.paused()) return;
    if (all_.gangs().count() > 0) reconsider_unlike(mc, cursor);
    agenda_.open(m, cursor);
}

void Seating::unseat(uint32_t j) {
    const Rank rank = all_.guest_rank(j);
    const uint32_t machine = all_.take_off(j);
    if (all_.jobs()[j].named) wake_for_licences(j, rank);
    if (!all_.required(j)) {
        open(machine, rank);
    } else {
        const Gang& g = all_.gang_of(j);
        note_turn(g, false);
        note_waiting(g, true);
        open(machine, rank.is_top() ? rank : all_.last_required(g));
    }
    touch(j);
}

// Jobs that wait for licences of the one that has lost its place have a turn.
void Seating::wake_for_licences(uint32_t j, const Rank& rank) {
    const NamedAmounts& amounts = all_.takes_licences(j);
    if (amounts.empty() || agenda_.paused()) return;
    for (const auto& [after, waiting] : all_.licences().wanting(amounts, rank))
        if (waiting != j && all_.jobs()[waiting].slot == none) agenda_.queue(after, waiting);
}

void Seating::evict(uint32_t j, Cause cause, uint32_t by) {
    unseat(j);
    set_bound(j, class_none);
    const Job& job = all_.jobs()[j];
    if (by == none)
        explain(j, cause, {}, {});
    else
        explain(j, cause, all_.jobs()[by].key(),
                weighed(all_.jobs()[by].value, ranks_.weight_of(all_, by)));
    agenda_.queue(job.rank, j);
}

void Seating::seat(uint32_t j, uint32_t m, MachineOrder::Place place) {
    const Job& job = all_.jobs()[j];
    const Machine& mc = all_.machines()[m];
    const Rank rank = all_.guest_rank(j);
    while ((mc.free_cpus < job.cpus || mc.free_mb < job.memory_mb) && !mc.guests.empty() &&
           mc.guests.back().rank > rank)
        evict(mc.guests.back().job, ranks_.assigned() ? Cause::share : Cause::displaced, j);
    if (job.named) make_named_room(j, m);
    all_.put(j, m, place);
    look_from(j, mc);
    touch(j);
}

// Others lose what the job is to have of named resources.
void Seating::make_named_room(uint32_t j, uint32_t m) {
    const Cause cause = ranks_.assigned() ? Cause::share : Cause::displaced;
    const Machine& mc = all_.machines()[m];
    for (uint32_t g = all_.holder_in_the_way(mc, j); g != none; g = all_.holder_in_the_way(mc, j))
        evict(g, cause, j);
    for (uint32_t g = all_.licence_in_the_way(j); g != none; g = all_.licence_in_the_way(j))
        evict(g, cause, j);
}

void Seating::unhold(uint32_t j) {
    const uint32_t m = all_.jobs()[j].slot;
    unseat(j);
    all_.job(j).held = false;
    all_.details(j).stay_until = Nanos{INT64_MIN};
    compete(j);
    seat(j, m);
}

void Seating::hold(uint32_t j, Nanos until) {
    all_.details(j).stay_until = until;
    stays_.push_back({until, all_.jobs()[j].key()});
    const uint32_t m = all_.jobs()[j].slot;
    ranks_.leave(all_, j);
    unseat(j);
    all_.job(j).held = true;
    seat(j, m);
}

// A machine whose guests need more than it offers lets the weakest go.
void Seating::trim(uint32_t m) {
    const Machine& mc = all_.machines()[m];
    const auto goes = [&](uint32_t j) {
        evict(j, Cause::no_room, none);
        agenda_.add(j);
    };
    while (mc.crowded() && !mc.guests.empty() && !mc.guests.back().rank.is_top())
        goes(mc.guests.back().job);
    if (all_.named_jobs() == 0) return;
    for (uint32_t j = all_.named_beyond(mc); j != none; j = all_.named_beyond(mc)) goes(j);
    trim_licences();
}

void Seating::trim_licences() {
    const Licences& licences = all_.licences();
    for (uint32_t j = licences.beyond(); j != none; j = licences.beyond()) {
        evict(j, Cause::no_room, none);
        agenda_.add(j);
    }
}

void Seating::describe(uint32_t j, JobKey key, const JobDemand& spec) {
    all_.describe(j, key, spec);
    ranks_.weigh(all_, j, spec.weight);
    all_.job(j).rank = ranks_.rank_of(all_, j);
}

void Seating::compete(uint32_t j) {
    ranks_.enter(all_, j);
    agenda_.add(j);
}

// Enters a job with the attributes it has: on its machine if it may be there, and into the order
// unless pinned.
void Seating::attach(uint32_t j) {
    Job& job = all_.job(j);
    const bool placed = job.state == JobState::running || job.pin == Pin::stay;
    const uint32_t named = placed ? all_.find_machine(all_.details(j).place) : none;
    job.at = job.state == JobState::running ? named : none;
    job.bound = class_none;
    job.cause = Cause::placed;
    if (job.state == JobState::running) touch(j);
    if (job.pin == Pin::frozen) {
        job.cause = Cause::pinned;
        if (job.component) agenda_.add(j);
        return;
    }
    const uint32_t m = job.pin == Pin::stay ? named : job.at;
    if (job.pin == Pin::stay) {
        if (m != none) seat(j, m);
    } else {
        const bool may_stay = m != none && all_.eligible(all_.machines()[m], j);
        job.held = all_.details(j).stay_until > now_ && may_stay;
        if (!job.held) compete(j);
        if (may_stay) {
            seat(j, m);
        } else if (m != none) {
            const Machine& mc = all_.machines()[m];
            job.cause = !mc.spec.accepting                   ? Cause::provider_gone
                        : all_.reserve_at(mc, j) > job.value ? Cause::below_reserve
                                                             : Cause::barred;
        }
    }
    if (m != none) trim(m);
    if (all_.orphan(j)) orphans_.push_back(j);
    if (job.component) agenda_.add(j);
}

void Seating::detach(uint32_t j) {
    ranks_.leave(all_, j);
    if (all_.jobs()[j].slot != none) unseat(j);
    all_.job(j).held = false;
}

void Seating::enter(uint32_t j, JobKey key, const JobDemand& spec) {
    describe(j, key, spec);
    attach(j);
    ++version_;
}

void Seating::change_job(uint32_t j, const JobDemand& spec) {
    detach(j);
    if (spec.state != JobState::running || spec.place != all_.place_of(j))
        all_.details(j).stay_until = Nanos{INT64_MIN};
    describe(j, all_.jobs()[j].key(), spec);
    attach(j);
    ++version_;
}

void Seating::change_value(uint32_t j, Money value, int32_t weight) {
    Job& job = all_.job(j);
    ++version_;
    if (job.component) return change_gang_value(all_.details(j).gang, value, weight);
    const uint32_t m = job.slot;
    const Machine* const mc = m == none ? nullptr : &all_.machines()[m];
    if (mc && !job.held && job.pin == Pin::free && all_.reserve_at(*mc, j) > value)
        evict(j, Cause::below_reserve, none);
    detach(j);
    job.value = value;
    ranks_.weigh(all_, j, weight);
    job.rank = ranks_.rank_of(all_, j);
    if (job.pin == Pin::free) {
        job.held = mc && all_.details(j).stay_until > now_ && all_.eligible(*mc, j);
        if (!job.held) compete(j);
    }
    if (mc && (job.pin == Pin::stay || all_.eligible(*mc, j)))
        seat(j, m);
    else
        job.bound = class_none;
}

void Seating::remove_job(uint32_t j) {
    detach(j);
    if (all_.jobs()[j].component) leave_gang(j);
    ranks_.weigh(all_, j, weight_plain);
    all_.forget_job(j);
    ++version_;
}

void Seating::add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                       const GangLayout& layout) {
    const JobDemand& one = components[0];
    const uint32_t g = all_.gangs().add(
        first.n, components.size(), Rank::of(one.value, one.arrival, first, one.weight), layout);
    for (size_t i = 0; i < components.size(); ++i) {
        const uint32_t j = all_.new_job();
        all_.job(j).component = true;
        all_.details(j).gang = g;
        all_.details(j).optional = i >= required;
        all_.gangs().add_component(g, j, i >= required);
        enter(j, {first.n + i}, components[i]);
    }
}

// It has been detached.
void Seating::leave_gang(uint32_t j) {
    const uint32_t index = all_.details(j).gang;
    const Gang& g = all_.gangs()[index];
    all_.job(j).component = false;
    all_.details(j).gang = none;
    all_.gangs().remove_component(index, j);
    if (!g.required.empty()) agenda_.add(g.required.front());
    agenda_.add(g.optional);
    if (g.required.empty())  // they wait for nobody any more; a pass may end before their turn
        for (const uint32_t o : g.optional)
            if (all_.jobs()[o].slot == none) set_bound(o, class_none);
    if (g.required.empty() && g.optional.empty()) all_.gangs().remove(index);
}

void Seating::change_gang_value(uint32_t gang, Money value, int32_t weight) {
    const Gang& g = all_.gangs()[gang];
    std::vector<uint32_t> components = g.required, slots;
    components.insert(components.end(), g.optional.begin(), g.optional.end());
    for (const uint32_t j : components) {
        const Job& job = all_.jobs()[j];
        if (job.slot != none && job.pin == Pin::free &&
            all_.machines()[job.slot].spec.reserve > value)
            evict(j, Cause::below_reserve, none);
        slots.push_back(job.slot);
        detach(j);
    }
    all_.gangs().rerank(gang, -weighed(value, weight).micro);
    for (size_t i = 0; i < components.size(); ++i) {
        const uint32_t j = components[i];
        Job& job = all_.job(j);
        job.value = value;
        ranks_.weigh(all_, j, weight);
        job.rank = ranks_.rank_of(all_, j);
        job.bound = class_none;
        if (job.pin == Pin::free)
            compete(j);
        else
            agenda_.add(j);
        if (slots[i] != none) seat(j, slots[i]);
    }
}

// Which machines are near each other is not what it was.
void Seating::reconsider_near() {
    for (const Gang& g : all_.gangs().all()) {
        if (g.required.empty() || !g.layout.near) continue;
        note_turn(g, false);
        for (const uint32_t j : g.required) {
            set_bound(j, class_none);
            agenda_.add(j);
        }
    }
}

// There is more room on this machine. Unlike components may change places among themselves: one
// that is on it may make way for a larger one.
void Seating::reconsider_unlike(const Machine& m, const Rank& cursor) {
    for (size_t i = m.guests.size(); i > 0 && m.guests[i - 1].rank > cursor; --i) {
        const uint32_t j = m.guests[i - 1].job;
        if (!all_.required(j)) continue;
        const Gang& g = all_.gang_of(j);
        if (g.alike || all_.speed_of(g) >= m.spec.speed) continue;
        note_turn(g, false);
        agenda_.queue(all_.jobs()[j].rank, j);
    }
}

void Seating::add_provider(ProviderKey key, const ProviderSpec& spec) {
    open(all_.add_machine(key, spec), Rank::top());
    ++version_;
    for (const uint32_t j : std::exchange(orphans_, {})) {
        if (!all_.orphan(j)) continue;
        if (all_.details(j).place != key) {
            orphans_.push_back(j);
            continue;
        }
        ranks_.leave(all_, j);
        attach(j);
    }
}

// Every guest goes, pinned ones only if the machine itself goes.
void Seating::expel(uint32_t m, bool pinned_too, Cause cause) {
    const std::vector<Guest> guests = all_.machines()[m].guests;
    for (const Guest& g : guests) {
        const Job& job = all_.jobs()[g.job];
        if (job.pin == Pin::stay && !pinned_too) continue;
        if (job.held) unhold(g.job);
        if (job.slot == none) continue;
        if (job.pin == Pin::stay) {
            unseat(g.job);
            if (job.component) agenda_.add(g.job);  // its siblings do not run without it
        } else {
            evict(g.job, cause, none);
            agenda_.add(g.job);
        }
    }
}

void Seating::change_provider(uint32_t m, const ProviderSpec& spec) {
    const Machine& mc = all_.machines()[m];
    ++version_;
    if (!spec.accepting) expel(m, false, Cause::provider_gone);
    const std::vector<Guest> guests = mc.guests;
    const bool speed_changed = spec.speed != mc.spec.speed;
    const bool network_changed = spec.network != mc.spec.network ||
                                 spec.trip_us != mc.spec.trip_us || spec.mbit != mc.spec.mbit;
    all_.change_machine(m, spec);
    reconsider_guests(m, speed_changed, guests);
    // min_stay does not hold on a machine that shrinks
    for (trim(m);; trim(m)) {
        const bool crowded = mc.crowded();
        auto held = std::find_if(mc.guests.begin(), mc.guests.end(), [&](const Guest& g) {
            return all_.jobs()[g.job].held && (crowded || all_.holds_too_much(mc, g.job));
        });
        if (held == mc.guests.end()) break;
        unhold(held->job);
    }
    open(m, Rank::top());
    if (network_changed) reconsider_near();
}

// Those who were guests before the machine changed.
void Seating::reconsider_guests(uint32_t m, bool speed_changed, const std::vector<Guest>& guests) {
    const Machine& mc = all_.machines()[m];
    for (const Guest& g : guests) {
        const Job& job = all_.jobs()[g.job];
        if (job.pin == Pin::stay) {
            if (job.component) agenda_.add(g.job);  // a bound for its siblings' speed
            continue;
        }
        if (job.value < mc.spec.reserve || (job.named && !all_.eligible(mc, g.job))) {
            if (job.held) unhold(g.job);
            if (job.slot != none) evict(g.job, Cause::below_reserve, none);
        } else if (!job.held) {
            look_from(g.job, mc);
        }
        if (speed_changed) touch(g.job);
        agenda_.add(g.job);
    }
}

void Seating::remove_provider(uint32_t m) {
    expel(m, true, Cause::provider_gone);
    for (const uint32_t j : touched_) {
        Job& job = all_.job(j);
        if (job.at != m) continue;
        job.at = none;
        all_.details(j).place = all_.machines()[m].key;
        job.cause = Cause::provider_gone;
        if (all_.orphan(j)) orphans_.push_back(j);
    }
    all_.forget_machine(m);
    agenda_.close(m);
    ++version_;
}

void Seating::set_licences(const NamedOffers& all) {
    if (all_.licences().all() == all) return;
    all_.set_licences(all);
    ++version_;
    // Reserves count for those, too, that keep what they have.
    for (uint32_t j = 0; all_.named_jobs() > 0 && j < all_.jobs().size(); ++j) {
        const Job& job = all_.jobs()[j];
        if (!job.named || all_.details(j).named->licences.empty()) continue;
        const bool stays =
            job.pin == Pin::stay || job.slot == none || all_.eligible(all_.machines()[job.slot], j);
        if (!stays && job.held) unhold(j);
        if (!stays && job.slot != none) evict(j, Cause::below_reserve, none);
        agenda_.add(j);
    }
    // min_stay does not hold where there are fewer
    for (const uint32_t j : all_.licences().holders_beyond())
        if (all_.jobs()[j].held) unhold(j);
    trim_licences();
}

void Seating::rank_in_order(const std::vector<uint32_t>& jobs) {
    ranks_.assign(all_, jobs);
    look_from_all();
}

void Seating::rank_by_value(bool weights) {
    if (!ranks_.rank_by_value(all_, weights)) return;
    look_from_all();
    agenda_.add_all();
    ++version_;
}

bool Seating::take_change(uint32_t j, Change& c) {
    Job& job = all_.job(j);
    const bool voluntary = job.voluntary;
    const bool running = job.state == JobState::running;
    job.touched = job.voluntary = false;
    if (job.key().n == 0 || (job.slot == none && (!running || job.pin == Pin::stay))) return false;
    if (running && job.slot == job.at && job.slot != none) return false;
    const Machine* const to = job.slot == none ? nullptr : &all_.machines()[job.slot];
    c = {job.key(), ChangeKind::move, {}, to ? to->key : ProviderKey{}, job.cause, {}, {}};
    if (job.state != JobState::waiting) c.from = all_.place_of(j);
    if (!to) {
        c.kind = ChangeKind::freeze;
        all_.details(j).place = c.from;
    } else if (!running) {
        c.kind = job.state == JobState::frozen ? ChangeKind::thaw : ChangeKind::start;
        c.cause = job.pin == Pin::stay                                          ? Cause::pinned
                  : job.cause == Cause::adopted || job.cause == Cause::balanced ? job.cause
                                                                                : Cause::placed;
    }
    if (c.kind == ChangeKind::move && voluntary)
        c.cause = minds_files(j) && is_home(j, *to) ? Cause::near_files : Cause::faster;
    if (c.cause == Cause::displaced || c.cause == Cause::share) {
        c.other = all_.details(j).by;
        c.other_value = all_.details(j).by_value;
    }
    job.at = job.slot;
    job.state = job.slot == none ? JobState::frozen : JobState::running;
    return true;
}

void Seating::finish(bool any) {
    touched_.clear();
    carried_ = false;
    agenda_.forget_dirty();
    if (ranks_.assigned() || any) ++version_;  // a turn has an order of its own
    std::erase_if(orphans_, [&](uint32_t j) { return !all_.orphan(j); });
}

void Seating::forget_touched() {
    for (const uint32_t j : touched_) all_.job(j).touched = false;
    touched_.clear();
}

}  // namespace souk::market
