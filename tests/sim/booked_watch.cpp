// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/booked_watch.hpp"

#include <algorithm>
#include <utility>

namespace souk::sim {

using market::Contract;
using market::JobRecord;
using market::Receipt;

namespace {

// All that a simulated node has.
constexpr int64_t node_cpus = 4, node_mb = 8'000;

bool same_place(const Contract& a, const Contract& b) {
    return a.start == b.start && a.end == b.end && a.node == b.node && a.cpus == b.cpus &&
           a.memory_mb == b.memory_mb;
}

std::string seconds(Nanos at) { return std::to_string(at.seconds()) + " s"; }

}  // namespace

void BookedWatch::fail(const JobId& id, const std::string& what) {
    if (failure.empty()) failure = "job " + id.text() + ": " + what;
}

void BookedWatch::offers(const NodeName& node, const ProviderReport* offer, Nanos now) {
    Offer& known = offers_[node];
    const Offer before = known;
    known.takes = offer && offer->on_market && offer->cannot.empty();
    if (offer) known.cpus = offer->cpus, known.mb = offer->memory_mb;
    if (known.takes != before.takes || known.cpus != before.cpus || known.mb != before.mb ||
        !known.takes)
        known.changed = now;
}

Nanos BookedWatch::changed(const NodeName& node) const {
    const auto it = offers_.find(node);
    return it == offers_.end() || !it->second.takes ? Nanos::never() : it->second.changed;
}

void BookedWatch::decided(const JobRecord& record) {
    const JobId& id = record.report.id;
    const Contract& c = *record.contract;
    const auto had = decided_.find(id);
    if (!c.is_sold() || c.over || record.report.phase == JobPhase::finished) {
        if (had != decided_.end()) decided_.erase(had);
        moved_.erase(id);
        return;
    }
    if (had == decided_.end() || !same_place(had->second, c)) moved_.insert(id);
    decided_[id] = c;
}

void BookedWatch::all_decided(Nanos now) {
    for (const JobId& id : std::exchange(moved_, {})) check_room(id, decided_.at(id), now);
}

// Adds up what is sold on that node at each moment of the place. It changes where another one
// begins.
void BookedWatch::check_room(const JobId& id, const Contract& place, Nanos now) {
    if (place.node.empty() || place.end <= now) return;
    std::vector<Nanos> moments{std::max(now, place.start)};
    for (const auto& [other, c] : decided_)
        if (c.node == place.node && c.start > moments.front() && c.start < place.end)
            moments.push_back(c.start);
    const Offer& offer = offers_[place.node];
    for (const Nanos at : moments) {
        int64_t cpus = 0, mb = 0;
        for (const auto& [other, c] : decided_)
            if (c.node == place.node && c.start <= at && c.end > at)
                cpus += c.cpus, mb += c.memory_mb;
        if (cpus > std::min(offer.cpus, node_cpus) || mb > std::min(offer.mb, node_mb))
            fail(id, "was sold a place on " + place.node + " of which " + std::to_string(cpus) +
                         " CPUs and " + std::to_string(mb) + " MB are sold at " + seconds(at) +
                         ", and it has " + std::to_string(std::min(offer.cpus, node_cpus)) +
                         " and " + std::to_string(std::min(offer.mb, node_mb)));
    }
}

std::optional<Nanos> BookedWatch::stored(const JobRecord& record, Nanos now) {
    const JobId& id = record.report.id;
    const Contract& c = *record.contract;
    const market::Promised& p = *record.promised;
    if (p.deadline.ns > 0 && promises_[id].deadline != p.deadline) {
        Promise& made = promises_[id];
        made = {};
        made.deadline = p.deadline;
        made.made = now;
        const JobTerms& t = record.report.terms;
        // The promise goes by the shorter one of its limit and what its user states.
        made.needs = t.limits->run.ns > 0 ? t.limits->run : t.runtime;
        if (t.runtime.ns > 0) made.needs = std::min(made.needs, t.runtime);
        made.has_budget = t.budget.micro > 0;
    }
    if (const auto promise = promises_.find(id); promise != promises_.end() && !c.node.empty())
        promise->second.node = c.node;
    if (!c.is_sold() || c.over || record.report.phase == JobPhase::finished) {
        places_.erase(id);
        due_.erase(id);
        came_.erase(id);
        return std::nullopt;
    }
    const auto had = places_.find(id);
    const bool is_new = had == places_.end() || !same_place(had->second, c);
    if (had == places_.end()) ++counts_.sold;
    if (had == places_.end() || had->second.node != c.node) came_[id] = now;
    places_[id] = c;
    if (is_new) due_.erase(id);
    if (!is_new || c.node.empty()) return std::nullopt;
    // A place that has been moved is cleared from then on.
    const bool moved = had != places_.end() && had->second.node != c.node;
    return due_[id] = std::max({now, c.start, (moved ? now : c.sold) + clearing}) + late;
}

const Contract* BookedWatch::place_of(const JobId& id) const {
    const auto it = places_.find(id);
    return it == places_.end() ? nullptr : &it->second;
}

void BookedWatch::heard(const JobReport& report, Nanos now) {
    Heard& h = heard_[report.id];
    if (report.phase == JobPhase::finished) h.end = std::min(h.end, now);
    h.at_limit = h.at_limit || report.why->code == CauseCode::time_limit ||
                 report.why->code == CauseCode::place_over;
    if (report.cancelled) h.cancel = std::min(h.cancel, now);
    h.drop = report.terms.booking->promise ? Nanos::never() : std::min(h.drop, now);
}

void BookedWatch::posted(const Receipt& r, Nanos now) {
    if (r.kind == Receipt::Kind::use) {
        paid_[{r.job, r.node}] += r.paid;
        const Contract* const c = place_of(r.job);
        // Before its place came there it paid for its bid, on that node as well.
        const bool in_place = c && r.node == c->node && r.to <= c->end &&
                              r.from >= std::max(c->start, came_[r.job]) + late;
        if (in_place && r.run.ns > 0 && r.price > c->price)
            fail(r.job, "pays " + format_money(r.price) + " in a place that was sold for " +
                            format_money(c->price) + " from " + seconds(c->start) + " to " +
                            seconds(c->end) + ", of " + seconds(r.run) + " from " +
                            seconds(r.from) + " to " + seconds(r.to));
    }
    if (r.kind != Receipt::Kind::broken) return;
    const auto it = promises_.find(r.job);
    if (it == promises_.end()) return fail(r.job, "was promised nothing, and that is broken");
    Promise& p = it->second;
    constexpr std::string_view before = "deadline missed: ";
    p.cause = r.note.starts_with(before) ? r.note.substr(before.size()) : r.note;
    p.back_from = r.node;
    p.back = Money{} - r.paid;
    if (++p.times_broken > 1) fail(r.job, "has two receipts for one broken promise");
    if (p.back.micro < 0 || p.back > paid_[{r.job, r.node}])
        fail(r.job, "gets back " + format_money(p.back) + " and has paid " +
                        format_money(paid_[{r.job, r.node}]) + " there");
    if (now < p.deadline && heard_[r.job].end == Nanos::never())
        fail(r.job, "is said to miss its deadline, which has not come");
}

bool BookedWatch::is_due(const JobId& id, Nanos now) const {
    const auto due = due_.find(id);
    return due != due_.end() && due->second == now && places_.at(id).end > now;
}

void BookedWatch::look(const JobId& id, bool is_there, const std::string& excuse, bool hears) {
    const Contract& place = places_.at(id);
    counts_.begun += is_there;
    if (is_there) return;
    ++counts_.excused;
    const std::string where = "was sold a place on " + place.node + " from " +
                              seconds(place.start) + " on, and does not run there";
    if (excuse.empty()) fail(id, where);
    if (hears && told_[id] == "reserved_until") fail(id, where + ", and is told that it does");
}

void BookedWatch::judge(const World& world, Nanos calm) {
    for (const auto& [id, p] : promises_) {
        const Truth& truth = world.truths.at(id);
        const Heard& h = heard_[id];
        // An end that is heard of within a second counts as in time: its report was on its way.
        const bool in_time = truth.ended && truth.ended_at <= p.deadline + Nanos::from_s(1);
        const Nanos heard_by = p.deadline + Nanos::from_ms(900);
        const bool given_up = h.cancel <= heard_by && !truth.ended;
        if (p.times_broken > 0) {
            ++counts_.broken;
            // A user who gives it up after the deadline, before its end is heard of, has missed it.
            const bool dropped =
                h.drop >= p.deadline && h.drop <= h.end && h.drop != Nanos::never();
            if (in_time && h.end <= heard_by && !truth.cancelled && !h.at_limit && !dropped)
                fail(id, "has ended before its deadline, and that is called broken");
            if (!in_time && !truth.given_up) judge_broken(id, p, truth, calm);
        } else if (in_time) {
            ++counts_.kept;
        } else if (given_up || truth.given_up || h.cancel <= p.deadline + Nanos::from_s(60)) {
            ++counts_.given_up;
        } else {
            fail(id, "was to end by " + seconds(p.deadline) + (truth.ended ? ", ended at " : ", ") +
                         (truth.ended ? seconds(truth.ended_at) : "did not by itself") +
                         ", and no receipt says that the promise is broken");
        }
    }
}

// A cause that nothing in the world bears out is an untrue one.
void BookedWatch::judge_broken(const JobId& id, const Promise& p, const Truth& truth, Nanos calm) {
    const auto untrue = [&](const std::string& what) {
        fail(id,
             "missed its deadline of " + seconds(p.deadline) + " as " + p.cause + ", and " + what);
    };
    if (p.made < calm) return;
    const bool owners = std::ranges::any_of(
        offers_, [&](const auto& offer) { return offer.second.changed >= p.made; });
    if (p.cause == "late" && !owners) return untrue("nothing has failed");
    if (p.cause == "home_away") return untrue("its home was there");
    if (p.cause == "held_back" && !p.has_budget) return untrue("nobody held it back");
    // Its place is lost to a job that cannot leave another node, or is not executed there; or
    // orders came to nothing where an owner had left before the market heard of it.
    const bool is_fixed = truth.cannot_dump || !truth.lacking.empty();
    if (p.cause == "cannot_move" && !is_fixed && !owners) return untrue("it can");
    // A limit counts what was lost with a node as well (Cluster::ends_by_limit judges that).
    if (p.cause == "took_longer" && !heard_[id].at_limit &&
        Nanos{truth.frontier} + Nanos::from_s(5) < p.needs)
        return untrue("it has run for " + seconds(Nanos{truth.frontier}) + " of " +
                      seconds(p.needs));
    if (p.cause == "owner_left" && !owners && !truth.destroyed) return untrue("no owner has left");
}

}  // namespace souk::sim
