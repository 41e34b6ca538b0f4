// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/promises.hpp"

#include <algorithm>

#include "market/core/places.hpp"
#include "market/core/submit_filter.hpp"

namespace souk::market {
namespace {

// For starts, stops and clocks; and a fiftieth of what it runs yet.
constexpr Nanos slack_least = Nanos::from_s(5);
constexpr int64_t slack_part = 50;
// A start that moves by less is as it was: each change is written down.
constexpr Nanos step_least = Nanos::from_s(10);
// So long before its place begins the job may still get it where it runs.
constexpr Nanos near_start = Nanos::from_s(300);

int64_t speed_of(const Node& node) { return std::max<int64_t>(1, node.record.report.speed); }

Money cost_of_place(Money price, int32_t cpus, Nanos span) {
    const __int128 cost = static_cast<__int128>(price.micro) * cpus * span.ns / hour_ns;
    return {static_cast<int64_t>(std::min<__int128>(cost, money_max.micro))};
}

// A job that ended so was lost where it was: neither its program nor its user has ended it.
bool is_lost(CauseCode why) {
    constexpr CauseCode all[] = {
        CauseCode::job_lost,       CauseCode::image_lost,     CauseCode::killed,
        CauseCode::given_up_node,  CauseCode::node_not_heard, CauseCode::capsule_ended,
        CauseCode::capsule_silent, CauseCode::memory_lost,    CauseCode::image_incomplete,
        CauseCode::image_refused,  CauseCode::restore_failed, CauseCode::owner_killed,
        CauseCode::agentd_ended,   CauseCode::lease_over};
    return std::ranges::find(all, why) != std::end(all);
}

bool is_kept_by_its_own(PromiseEnd keeps) {
    return keeps == PromiseEnd::held_back || keeps == PromiseEnd::home_away;
}

}  // namespace

const char* to_string(PromiseEnd end) {
    switch (end) {
        case PromiseEnd::none: return "open";
        case PromiseEnd::kept: return "kept";
        case PromiseEnd::owner_left: return "owner_left";
        case PromiseEnd::took_longer: return "took_longer";
        case PromiseEnd::held_back: return "held_back";
        case PromiseEnd::home_away: return "home_away";
        case PromiseEnd::late: return "late";
        case PromiseEnd::withdrawn: return "withdrawn";
        case PromiseEnd::cannot_move: return "cannot_move";
    }
    return "?";
}

const char* words_of(PromiseEnd end) {
    switch (end) {
        case PromiseEnd::owner_left: return "the owner of its place left, and there was no other";
        case PromiseEnd::took_longer: return "it needed longer than was stated or learned";
        case PromiseEnd::held_back:
            return "an operator, a limit of its user or its user held it back";
        case PromiseEnd::home_away: return "its home was away";
        case PromiseEnd::late: return "the market brought it to its place too late";
        case PromiseEnd::cannot_move: return "it could not go to its place from where it was";
        default: return to_string(end);
    }
}

bool is_missed(PromiseEnd end) {
    return end != PromiseEnd::none && end != PromiseEnd::kept && end != PromiseEnd::withdrawn;
}

Nanos PromiseNeed::on(int64_t speed) const {
    const Nanos run = rest.at(speed);
    if (run.ns > Nanos::never().ns / 4) return Nanos{Nanos::never().ns / 4};
    return run + Nanos{run.ns / slack_part} + slack_least + carry;
}

Nanos Promises::wanted(const Job& job) {
    const JobReport& r = job.record.report;
    if (!r.terms.booking->promise || r.terms.finish.ns <= 0 || !r.gang.empty()) return {};
    return r.submitted + r.terms.finish;
}

bool Promises::is_open(const Job& job) {
    const Promised& p = *job.record.promised;
    return p.deadline.ns > 0 && p.end == PromiseEnd::none;
}

std::optional<PromiseNeed> Promises::need_of(const Job& job, int64_t link_bytes_per_s,
                                             Nanos now) const {
    const JobReport& r = job.record.report;
    const Node* const at = book_.find_node(r.where);
    const int64_t speed = at ? speed_of(*at) : 0;
    PromiseNeed need;
    need.rest = rest_of(job, nullptr, RestBand::most, speed, now);
    if (!need.rest.is_known()) {
        // Its own promise goes by what was learned then.
        Nanos all = is_open(job) ? job.record.promised->work : Nanos{};
        if (all.ns == 0)
            if (const auto known = learned_.of(r.uid, r.command)) all = known->most;
        if (all.ns == 0) return std::nullopt;
        need.rest.work = std::max(Nanos{}, all - work_done(job, speed, now));
        need.rest.learned = true;
    }
    const __int128 bytes = static_cast<__int128>(r.terms.memory_mb) * 1'000'000 * 2;
    need.carry = Nanos::from_s(static_cast<int64_t>(
        std::min<__int128>(600, bytes / std::max<int64_t>(1, link_bytes_per_s))));
    return need;
}

PromiseOffer Promises::offer(const Job& job, int64_t link_bytes_per_s, Nanos now) const {
    const Nanos unix = context_.unix(now), deadline = wanted(job);
    const JobTerms& t = job.record.report.terms;
    PromiseOffer offer;
    const auto need = need_of(job, link_bytes_per_s, now);
    if (!need) {
        offer.why = ReasonCode::promise_unknown;
        return offer;
    }
    offer.learned = need->rest.learned;
    const Node* dear = nullptr;
    Money dear_price, dear_cost;
    for (const auto& [name, node] : book_.nodes()) {
        if (!node.record.has_report) continue;
        const BookedSpan span{deadline - need->on(speed_of(node)), deadline};
        if (span.start < unix) continue;
        const auto price = ahead_.price_at(job, node, span);
        if (!price) continue;
        const Money cost = cost_of_place(*price, t.cpus, span.end - span.start);
        const bool paid = *price <= t.max_price &&
                          (t.budget.micro == 0 || cost <= t.budget - bill::cost(job, now));
        if (paid && (!offer.node || cost < offer.cost_most)) {
            offer.node = &node;
            offer.span = span;
            offer.price = *price;
            offer.cost_most = cost;
        } else if (!paid && (!dear || cost < dear_cost)) {
            dear = &node;
            dear_price = *price;
            dear_cost = cost;
        }
    }
    if (offer.node) return offer;
    offer.earliest = earliest(job, *need, unix);
    if (dear) offer.price_for_it = dear_price;
    if (dear && dear_price > t.max_price) {
        offer.why = Reason(ReasonCode::place_dear)
                        .with(Figure::least, dear_price)
                        .with(Figure::own, t.max_price);
    } else if (dear) {
        offer.why = Reason(ReasonCode::promise_budget)
                        .with(Figure::least, dear_cost)
                        .with(Figure::limit, t.budget);
    } else {
        offer.why = ReasonCode::promise_late;
        if (offer.earliest)
            offer.why =
                std::move(offer.why).with(Figure::about, offer.earliest->ns / 1'000'000'000);
    }
    return offer;
}

// The earliest deadline that its price pays for. Room comes where other places end and where nodes
// open; at most so many of these moments are looked at, and at many nodes fewer.
std::optional<Nanos> Promises::earliest(const Job& job, const PromiseNeed& need, Nanos unix) const {
    constexpr size_t tried_most = 64;
    std::vector<Nanos> moments = ahead_.moments_after(unix);
    moments.insert(moments.begin(), unix);
    if (moments.size() > tried_most) moments.resize(tried_most);
    std::optional<Nanos> best;
    ahead_.search_begins();
    for (const Nanos at : moments)
        for (const auto& [name, node] : book_.nodes()) {
            if (!ahead_.search_goes_on()) break;
            if (!node.record.has_report) continue;
            // A second more, so that it is still so when it is asked for.
            const Nanos end = at + need.on(speed_of(node)) + Nanos::from_s(1);
            if (best && end >= *best) continue;
            const auto price = ahead_.price_at(job, node, {at, end});
            if (price && *price <= job.record.report.terms.max_price) best = end;
        }
    if (!best) return best;
    return Nanos::from_s(best->ns / 1'000'000'000 + 1);
}

void Promises::sold(Job& job, const PromiseOffer& offer, Nanos now) {
    Promised p;
    p.deadline = offer.span.end;
    p.price = offer.price;
    if (const auto need = need_of(job, 1, now); need && need->rest.work.ns >= 0) {
        const Node* const at = book_.find_node(job.record.report.where);
        p.work = need->rest.work + work_done(job, at ? speed_of(*at) : 0, now);
    }
    p.learned = offer.learned;
    job.record.promised = p;
    book_.save(job);
}

// A node that can have its place from its latest start there on, and asks no more.
const Node* Promises::other_place(const Job& job, const PromiseNeed& need, Nanos unix) const {
    const Contract& c = *job.record.contract;
    const Node* best = nullptr;
    for (const auto& [name, node] : book_.nodes()) {
        if (!node.record.has_report || name == c.node) continue;
        const BookedSpan span{c.end - need.on(speed_of(node)), c.end};
        const auto better = [&] {
            return !best ||
                   std::pair(-speed_of(node), name) < std::pair(-speed_of(*best), best->id());
        };
        if (span.start >= unix && better() && ahead_.price_at(job, node, span) &&
            ahead_.asked_at(job, node, span) <= c.price)
            best = &node;
    }
    return best;
}

const Node* Promises::follow(Job& job, int64_t link_bytes_per_s, Nanos now) {
    Contract& c = job.record.contract.edit();
    const Nanos unix = context_.unix(now);
    const Node* node = book_.find_node(c.node);
    const auto need = need_of(job, link_bytes_per_s, now);
    if (!need) return node;
    const auto start_on = [&](const Node& n) {
        return std::max(unix, c.end - need->on(speed_of(n)));
    };
    if (!node || !ahead_.price_at(job, *node, {c.start, c.end})) {
        if (const Node* const other = other_place(job, *need, unix)) {
            if (!c.node.empty()) ++c.places_lost;
            node = other;
            c.start = start_on(*other);
            book_.save(job);
        }
        return node;
    }
    const JobReport& r = job.record.report;
    const Node* const there =
        r.phase == JobPhase::running && r.where != c.node ? book_.find_node(r.where) : nullptr;
    if (there && unix + near_start >= c.start) {
        const BookedSpan span{start_on(*there), c.end};
        const auto price = ahead_.price_at(job, *there, span);
        if (price && *price <= c.price && c.end - need->on(speed_of(*there)) >= unix) {
            node = there;
            c.start = span.start;
            book_.save(job);
            return node;
        }
    }
    const Nanos start = start_on(*node);
    const Nanos step = std::max(step_least, Nanos{(c.end - c.start).ns / 100});
    const bool later = start > c.start && (start - c.start >= step || start + step >= c.end);
    const bool earlier = start < c.start && c.start - start >= Nanos::from_s(1) &&
                         ahead_.price_at(job, *node, {start, c.end}).has_value();
    if (later || earlier) {
        c.start = start;
        book_.save(job);
    }
    return node;
}

bool Promises::is_held_back(const Job& job) const {
    const JobRecord& r = job.record;
    const bool is_ordered = r.hold != Hold::none || (job.once && job.once->empty());
    return is_ordered || SubmitFilter::keeps(job) || r.cancel || r.out_of_budget ||
           job.held != Job::Held::none || book_.may_not_run(*job.user) || book_.lacks_project(job);
}

// Finds what keeps it from running where it is to be now.
PromiseEnd Promises::what_keeps(const Job& job) const {
    const Contract& c = *job.record.contract;
    const JobRecord& r = job.record;
    const JobPhase phase = job.phase();
    const Node* const home = book_.home_of(job);
    const PromiseEnd lost = r.promised->keeps;
    const bool by_its_own = lost == PromiseEnd::held_back || lost == PromiseEnd::cannot_move;
    if (c.node.empty()) return by_its_own ? lost : PromiseEnd::owner_left;
    const Node* const node = book_.find_node(c.node);
    if (!node || !node->connected || !node->record.report.on_market ||
        !node->record.report.cannot.empty() || !r.report.paused.empty())
        return PromiseEnd::owner_left;
    if (!home || !home->connected || !job.reported || !r.report.waits_for.empty())
        return PromiseEnd::home_away;
    if (phase == JobPhase::running && r.report.where == c.node && !r.report.stands)
        return PromiseEnd::none;
    return is_held_back(job) ? PromiseEnd::held_back : PromiseEnd::late;
}

void Promises::holds(Job& job, Nanos now) {
    Promised& p = job.record.promised.edit();
    const Contract& c = *job.record.contract;
    if (p.end != PromiseEnd::none) return;
    const Money cost = bill::cost(job, now);
    if (p.held_on != c.node && job.phase() == JobPhase::running &&
        job.record.report.where == c.node) {
        p.held_on = c.node;
        p.held_cost = cost;
        book_.save(job);
    }
    PromiseEnd keeps = what_keeps(job);
    // A home that was away for a moment does not undo what an owner has to give back.
    if (keeps == PromiseEnd::none && p.keeps == PromiseEnd::home_away && !p.back_from.empty())
        keeps = PromiseEnd::owner_left;
    if (keeps == PromiseEnd::none || keeps == p.keeps) return;
    // It has a moment to get there.
    const bool may_come = keeps == PromiseEnd::late || keeps == PromiseEnd::home_away;
    const bool patient = may_come && context_.unix(now) < c.start + slack_least;
    // An owner's leaving goes before what followed from it, until the job has its next place, or
    // is kept from that by others.
    const bool has_another = p.held_on == c.node || (!c.node.empty() && is_kept_by_its_own(keeps));
    if (patient || (p.keeps == PromiseEnd::owner_left && !has_another)) return;
    if (p.keeps != PromiseEnd::none && keeps == PromiseEnd::late) return;
    p.keeps = keeps;
    book_.save(job);
}

void Promises::lost(Job& job, PromiseEnd why, Nanos now) {
    Promised& p = job.record.promised.edit();
    if (p.end != PromiseEnd::none) return;
    const Contract& c = *job.record.contract;
    const Hold hold = job.record.hold;
    const bool held_back = holds_back(hold) || (hold == Hold::none && is_held_back(job));
    // An owner who has left before is still why the promise is missed, and gives back what he had.
    const bool before = p.keeps == PromiseEnd::owner_left && !p.back_from.empty();
    if (held_back)
        p.keeps = PromiseEnd::held_back;
    else if (!before || why != PromiseEnd::cannot_move)
        p.keeps = why;
    const bool by_owner = !held_back && why == PromiseEnd::owner_left;
    if (by_owner && !p.held_on.empty() && p.held_on == c.node) {
        p.back_from = p.held_on;
        p.back = std::max(Money{}, bill::cost(job, now) - p.held_cost);
    }
    p.held_on.clear();
}

void Promises::ends(Job& job, Nanos now) {
    if (!is_open(job)) return;
    Promised& p = job.record.promised.edit();
    const JobReport& r = job.record.report;
    const bool finished = r.phase == JobPhase::finished;
    const bool in_time = context_.unix(now) < p.deadline + (finished ? heard_within : Nanos{});
    const Node* const at = book_.find_node(r.where);
    const Node* const home = book_.home_of(job);
    const bool longer = p.work.ns > 0 && work_done(job, at ? speed_of(*at) : 0, now) >= p.work;
    const CauseCode why = r.why.empty() ? CauseCode::none : (*r.why).code;
    const bool gone = is_lost(why);
    const bool forgotten = why == CauseCode::home_forgot;
    const bool by_limit =
        why == CauseCode::time_limit || why == CauseCode::cpu_limit || why == CauseCode::place_over;
    if (finished && in_time && why == CauseCode::none && !r.cancelled)
        p.end = PromiseEnd::kept;
    else if ((in_time && !gone && !by_limit && !forgotten) || job.record.cancel)
        p.end = PromiseEnd::withdrawn;
    else if (gone)
        p.end = PromiseEnd::owner_left;
    else if (forgotten)
        p.end = PromiseEnd::home_away;
    else if (longer || by_limit)
        p.end = PromiseEnd::took_longer;
    else if (p.keeps != PromiseEnd::none)
        p.end = p.keeps;
    else
        p.end = home && home->connected ? PromiseEnd::late : PromiseEnd::home_away;
    if (p.end != PromiseEnd::owner_left || p.keeps != PromiseEnd::owner_left)
        p.back = {}, p.back_from.clear();
    book_.save(job);
    if (is_missed(p.end)) missed_.push_back(job.id());
}

}  // namespace souk::market
