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

// The market was away when the job ended, and its home says that this was in time. Whoever says so
// gains nothing by it, because a promise that is kept pays nobody. Only the home that would have to
// give back itself is not asked.
bool says_in_time(const Job& job) {
    const Promised& p = *job.record.promised;
    const Nanos ended = job.record.report.ended;
    return ended.ns > 0 && ended < p.deadline + Promises::heard_within &&
           p.back_from != job.id().home;
}

bool is_limit(CauseCode why) {
    return why == CauseCode::time_limit || why == CauseCode::cpu_limit ||
           why == CauseCode::place_over;
}

// The component was ended since another one has ended, or is one that the others do without.
bool follows_another(const Job& job) {
    const JobReport& r = job.record.report;
    const CauseCode why = r.why.empty() ? CauseCode::none : (*r.why).code;
    if (r.phase != JobPhase::finished || why == CauseCode::none) return false;
    if (why == CauseCode::component_ended) return true;
    return !r.cancelled && !is_lost(why) && !is_limit(why) && why != CauseCode::home_forgot;
}

Nanos longest(const std::vector<PromiseNeed>& needs, int64_t speed) {
    Nanos most;
    for (const PromiseNeed& need : needs) most = std::max(most, need.on(speed));
    return most;
}

Money dearest(const PlacePicks& picks) {
    Money most;
    for (const PlacePick& pick : picks) most = std::max(most, pick.price);
    return most;
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
    if (!r.terms.booking->promise || r.terms.finish.ns <= 0 || is_optional(job)) return {};
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

std::vector<Promises::Way> Promises::ways(const std::vector<const Job*>& all) const {
    std::vector<Way> ways;
    if (!is_component(*all.front())) {
        for (const auto& [name, node] : book_.nodes())
            if (node.record.has_report) ways.push_back({&node, speed_of(node)});
        return ways;
    }
    std::set<int64_t> speeds;
    for (const auto& [name, node] : book_.nodes())
        if (node.record.has_report) speeds.insert(speed_of(node));
    for (auto speed = speeds.rbegin(); speed != speeds.rend(); ++speed)
        ways.push_back({nullptr, *speed});
    return ways;
}

PlacePicks Promises::picks_by(const Way& way, const std::vector<const Job*>& all,
                              BookedSpan span) const {
    if (!way.node) return ahead_.places_for(all, span, way.speed);
    const auto price = ahead_.price_at(*all.front(), *way.node, span, {});
    return price ? PlacePicks{{all.front(), way.node, *price}} : PlacePicks{};
}

PromiseOffer Promises::offer(const std::vector<const Job*>& all, int64_t link_bytes_per_s,
                             Nanos now) const {
    const Nanos unix = context_.unix(now);
    Nanos deadline = wanted(*all.front());
    for (const Job* const job : all) deadline = std::min(deadline, wanted(*job));
    PromiseOffer offer, dear;
    std::vector<PromiseNeed> needs;
    for (const Job* const job : all) {
        const auto need = need_of(*job, link_bytes_per_s, now);
        if (!need) {
            offer.why = ReasonCode::promise_unknown;
            return offer;
        }
        offer.learned = offer.learned || need->rest.learned;
        needs.push_back(*need);
    }
    // A user who owes no more than his budget for each component pays it.
    const auto is_paid = [&](const PlacePick& pick, Money price, Nanos span) {
        const JobTerms& t = pick.job->record.report.terms;
        return price <= t.max_price &&
               (t.budget.micro == 0 ||
                cost_of_place(price, t.cpus, span) <= t.budget - bill::cost(*pick.job, now));
    };
    ahead_.search_begins();
    for (const Way& way : ways(all)) {
        if (!way.node && !ahead_.search_goes_on()) break;
        const BookedSpan span{deadline - longest(needs, way.speed), deadline};
        if (span.start < unix) continue;
        PlacePicks picks = picks_by(way, all, span);
        if (picks.empty()) continue;
        const Money price = dearest(picks);
        Money cost;
        bool paid = true;
        for (const PlacePick& pick : picks) {
            cost += cost_of_place(price, pick.job->record.report.terms.cpus, span.end - span.start);
            paid = paid && is_paid(pick, price, span.end - span.start);
        }
        PromiseOffer& best = paid ? offer : dear;
        if (best.node && cost >= best.cost_most) continue;
        best.node = picks.front().node;
        best.picks = std::move(picks);
        best.span = span;
        best.price = price;
        best.cost_most = cost;
    }
    if (offer.node) return offer;
    offer.earliest = earliest(all, needs, unix);
    const JobTerms& t = all.front()->record.report.terms;
    if (dear.node) offer.price_for_it = dear.price;
    if (dear.node && dear.price > t.max_price) {
        offer.why = Reason(ReasonCode::place_dear)
                        .with(Figure::least, dear.price)
                        .with(Figure::own, t.max_price);
    } else if (dear.node) {
        Money budget;
        for (const Job* const job : all) budget += job->record.report.terms.budget;
        offer.why = Reason(ReasonCode::promise_budget)
                        .with(Figure::least, dear.cost_most)
                        .with(Figure::limit, budget);
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
std::optional<Nanos> Promises::earliest(const std::vector<const Job*>& all,
                                        const std::vector<PromiseNeed>& needs, Nanos unix) const {
    constexpr size_t tried_most = 64;
    std::vector<Nanos> moments = ahead_.moments_after(unix);
    moments.insert(moments.begin(), unix);
    if (moments.size() > tried_most) moments.resize(tried_most);
    std::optional<Nanos> best;
    const std::vector<Way> all_ways = ways(all);
    ahead_.search_begins();
    for (const Nanos at : moments)
        for (const Way& way : all_ways) {
            if (!ahead_.search_goes_on()) break;
            // A second more, so that it is still so when it is asked for.
            const Nanos end = at + longest(needs, way.speed) + Nanos::from_s(1);
            if (best && end >= *best) continue;
            const PlacePicks picks = picks_by(way, all, {at, end});
            const Money most = all.front()->record.report.terms.max_price;
            if (!picks.empty() && dearest(picks) <= most) best = end;
        }
    if (!best) return best;
    return Nanos::from_s(best->ns / 1'000'000'000 + 1);
}

void Promises::sold(const std::vector<Job*>& all, const PromiseOffer& offer, Nanos now) {
    for (Job* const job : all) {
        Promised p;
        p.deadline = offer.span.end;
        p.price = offer.price;
        if (const auto need = need_of(*job, 1, now); need && need->rest.work.ns >= 0) {
            const Node* const at = book_.find_node(job->record.report.where);
            p.work = need->rest.work + work_done(*job, at ? speed_of(*at) : 0, now);
        }
        p.learned = offer.learned;
        job->record.promised = p;
        book_.save(*job);
        list(*job);
    }
}

void Promises::list(const Job& job) {
    if (is_component(job) && is_open(job)) gangs_[gang_name(job)].insert(job.id());
}

// The job, or all components of its gang whose promises are open, also those that have ended.
std::vector<Job*> Promises::together(Job& job) const {
    std::vector<Job*> all;
    if (const auto gang = is_component(job) ? gangs_.find(gang_name(job)) : gangs_.end();
        gang != gangs_.end())
        for (const JobId& id : gang->second)
            if (Job* const one = book_.find(id); one && is_open(*one)) all.push_back(one);
    if (std::ranges::find(all, &job) == all.end()) all.push_back(&job);
    return all;
}

// A node that can have its place from its latest start there on, but no earlier than `from`, and
// asks no more.
const Node* Promises::other_place(const Job& job, const PromiseNeed& need, Nanos from,
                                  const PlacePicks& beside) const {
    const Contract& c = *job.record.contract;
    const Node* best = nullptr;
    for (const auto& [name, node] : book_.nodes()) {
        if (!node.record.has_report || name == c.node) continue;
        const BookedSpan span{c.end - need.on(speed_of(node)), c.end};
        const auto better = [&] {
            return !best ||
                   std::pair(-speed_of(node), name) < std::pair(-speed_of(*best), best->id());
        };
        if (span.start >= from && better() && ahead_.price_at(job, node, span, beside) &&
            ahead_.asked_at(job, node, span) <= c.price)
            best = &node;
    }
    return best;
}

bool Promises::see_place(Job& job, const PromiseNeed& need, PlacePick& pick,
                         const PlacePicks& beside, Nanos unix, bool& moved) {
    Contract& c = job.record.contract.edit();
    // The components of a gang begin together, when the others do.
    const Nanos from = beside.size() > 1 ? std::max(unix, c.start) : unix;
    const auto goes_to = [&](const Node& node) {
        pick.node = &node;
        ahead_.place_at(job, &node);
        moved = true;
        return true;
    };
    if (!pick.node || !ahead_.price_at(job, *pick.node, {c.start, c.end}, beside)) {
        const Node* const other = other_place(job, need, from, beside);
        if (!other) return false;
        if (!c.node.empty()) ++c.places_lost;
        return goes_to(*other);
    }
    const JobReport& r = job.record.report;
    const Node* const there =
        r.phase == JobPhase::running && r.where != c.node ? book_.find_node(r.where) : nullptr;
    if (!there || unix + near_start < c.start) return true;
    const Nanos start = c.end - need.on(speed_of(*there));
    const auto price = ahead_.price_at(job, *there, {std::max(unix, start), c.end}, beside);
    return price && *price <= c.price && start >= from ? goes_to(*there) : true;
}

void Promises::follow(const std::vector<Job*>& all, int64_t link_bytes_per_s, Nanos now) {
    const Nanos unix = context_.unix(now);
    std::vector<PromiseNeed> needs;
    PlacePicks beside;
    for (Job* const job : all) {
        const Contract& c = *job->record.contract;
        const Node* const node = book_.find_node(c.node);
        if (!node) ahead_.place_at(*job, nullptr);
        if (const auto need = need_of(*job, link_bytes_per_s, now)) needs.push_back(*need);
        beside.push_back({job, node, c.price});
    }
    if (needs.size() < all.size()) return;
    bool moved = false;
    Nanos start = Nanos::never();
    for (size_t i = 0; i < all.size(); ++i) {
        if (!see_place(*all[i], needs[i], beside[i], beside, unix, moved)) return;
        const Nanos end = all[i]->record.contract->end;
        start = std::min(start, std::max(unix, end - needs[i].on(speed_of(*beside[i].node))));
    }
    const Contract c = *all.front()->record.contract;
    const Nanos step = std::max(step_least, Nanos{(c.end - c.start).ns / 100});
    const bool later = start > c.start && (start - c.start >= step || start + step >= c.end);
    const auto has_room_earlier = [&](const PlacePick& pick) {
        return ahead_.price_at(*pick.job, *pick.node, {start, c.end}, beside).has_value();
    };
    const bool earlier = start < c.start && c.start - start >= Nanos::from_s(1) &&
                         std::ranges::all_of(beside, has_room_earlier);
    // A single job has room in its new place from the start that it needs there.
    if (!later && !earlier && !(moved && (start > c.start || all.size() == 1))) return;
    for (Job* const job : all) {
        job->record.contract.edit().start = start;
        book_.save(*job);
    }
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

// Says how its promise would end now.
PromiseEnd Promises::end_of(const Job& job, Nanos now) const {
    const Promised& p = *job.record.promised;
    const JobReport& r = job.record.report;
    const bool finished = r.phase == JobPhase::finished;
    const bool in_time = context_.unix(now) < p.deadline + (finished ? heard_within : Nanos{});
    const Node* const at = book_.find_node(r.where);
    const Node* const home = book_.home_of(job);
    const bool longer = p.work.ns > 0 && work_done(job, at ? speed_of(*at) : 0, now) >= p.work;
    const CauseCode why = r.why.empty() ? CauseCode::none : (*r.why).code;
    const bool gone = is_lost(why);
    const bool forgotten = why == CauseCode::home_forgot;
    const bool by_limit = is_limit(why);
    if (finished && why == CauseCode::none && !r.cancelled && (in_time || says_in_time(job)))
        return PromiseEnd::kept;
    if ((in_time && !gone && !by_limit && !forgotten) || job.record.cancel)
        return PromiseEnd::withdrawn;
    if (gone) return PromiseEnd::owner_left;
    if (forgotten) return PromiseEnd::home_away;
    if (longer || by_limit) return PromiseEnd::took_longer;
    if (p.keeps != PromiseEnd::none) return p.keeps;
    return home && home->connected ? PromiseEnd::late : PromiseEnd::home_away;
}

// A gang has ended in time when all have that did not end because of another one. What its user
// has done comes first of the causes, so that nobody gets money back for what he could have had.
PromiseEnd Promises::end_of_all(const std::vector<Job*>& all, Nanos now) const {
    if (all.size() == 1) return end_of(*all.front(), now);
    constexpr PromiseEnd first_to_last[] = {PromiseEnd::withdrawn,   PromiseEnd::took_longer,
                                            PromiseEnd::held_back,   PromiseEnd::owner_left,
                                            PromiseEnd::cannot_move, PromiseEnd::home_away,
                                            PromiseEnd::late,        PromiseEnd::kept};
    std::set<PromiseEnd> ends;
    for (const Job* const job : all)
        if (!follows_another(*job)) ends.insert(end_of(*job, now));
    const auto* const end =
        std::ranges::find_if(first_to_last, [&](PromiseEnd one) { return ends.contains(one); });
    return end == std::end(first_to_last) ? PromiseEnd::withdrawn : *end;
}

void Promises::ends(Job& job, Nanos now) {
    if (!is_open(job)) return;
    const std::vector<Job*> all = together(job);
    const bool is_over = context_.unix(now) >= job.record.promised->deadline + heard_within;
    if (!is_over && wanted(job).ns > 0 &&
        std::ranges::any_of(all, [](const Job* one) { return one->phase() != JobPhase::finished; }))
        return;
    const PromiseEnd end = end_of_all(all, now);
    for (Job* const one : all) {
        Promised& p = one->record.promised.edit();
        p.end = end;
        if (end != PromiseEnd::owner_left || p.keeps != PromiseEnd::owner_left)
            p.back = {}, p.back_from.clear();
        book_.save(*one);
        if (is_missed(end)) missed_.push_back(one->id());
    }
    if (is_component(job)) gangs_.erase(gang_name(job));
}

}  // namespace souk::market
