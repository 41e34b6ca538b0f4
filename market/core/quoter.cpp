// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/quoter.hpp"

#include <algorithm>
#include <map>

#include "kernel/base/check.hpp"
#include "market/core/account.hpp"
#include "market/core/strategy.hpp"

namespace souk::market {
namespace {
using Wide = __int128;
constexpr int64_t quote_day_minutes = 1'440;

// A job with these terms, submitted now, bids this.
Bid first_bid(const JobTerms& terms, const PriceRows& prices, int64_t minute) {
    Standing standing;
    standing.left = terms.finish;
    standing.minute = minute;
    standing.usual = usual_price(prices, minute - usual_minutes);
    return bid_of(terms, standing, prices);
}

// The terms with each strategy that can be had with them.
std::vector<JobTerms> by_strategies(JobTerms terms) {
    std::vector<JobTerms> all;
    for (const Strategy s :
         {Strategy::truthful, Strategy::pace, Strategy::deadline, Strategy::patient}) {
        terms.strategy = to_string(s);
        terms.pace = s == Strategy::pace;
        if (strategy_of(terms) == s) all.push_back(terms);
    }
    return all;
}

int64_t cpus_of(const QuoteRequest& q) {
    int64_t all = 0;
    for (const QuoteRequest::Component& one : q.components) all += one.cpus;
    return all;
}

// How many components come first, those that are not optional.
size_t required_of(const QuoteRequest& q) {
    return static_cast<size_t>(
        std::ranges::count_if(q.components, [](const auto& one) { return !one.optional; }));
}

// The terms of the job, or of its largest component.
JobTerms largest_of(const QuoteRequest& q) {
    JobTerms terms = q.terms;
    if (!q.components.empty()) terms.cpus = 1, terms.memory_mb = 0;
    for (const QuoteRequest::Component& one : q.components) {
        terms.cpus = std::max(terms.cpus, one.cpus);
        terms.memory_mb = std::max(terms.memory_mb, one.memory_mb);
    }
    return terms;
}

// Adds what the jobs, which all run, cost, and how long their budgets last.
void add_costs(const QuoteRequest& q, Quote& quote) {
    // All components of a job run as long as the one on the slowest node.
    int64_t slowest = INT64_MAX;
    for (const Quote::Place& place : quote.places) slowest = std::min(slowest, place.speed);
    for (const Quote::Place& place : quote.places) {
        const int64_t speed = q.components.empty() ? place.speed : slowest;
        if (q.terms.runtime.ns > 0) {
            const Nanos span{static_cast<int64_t>(Wide{q.terms.runtime.ns} * 100 / speed)};
            const Wide rate = Wide{place.price.micro} * place.cpus;
            quote.span = std::max(span, quote.span.value_or(span));
            quote.cost = quote.cost.value_or(Money{}) +
                         Money{static_cast<int64_t>(rate * span.ns / hour_ns)};
        }
        if (q.terms.budget.micro == 0) continue;
        // The budget of a gang is divided by CPUs, so that each part lasts as long.
        const auto cpus = q.components.empty() ? q.terms.cpus : static_cast<int32_t>(cpus_of(q));
        const Nanos lasts = Account{}.left(place.price, cpus, q.terms.budget);
        if (lasts != Nanos::never())
            quote.budget_lasts = std::min(lasts, quote.budget_lasts.value_or(lasts));
    }
}
}  // namespace

std::vector<Job> guests_of(const QuoteRequest& q, User& user, uint64_t first, Nanos unix) {
    std::vector<Job> guests(q.components.empty() ? static_cast<size_t>(q.jobs)
                                                 : q.components.size());
    const int64_t all = cpus_of(q);
    uint64_t n = 0;
    for (Job& guest : guests) {
        JobReport& r = guest.record.report;
        r.id = {q.home, first + n};
        r.terms = q.terms;
        r.uid = q.uid;
        r.command = q.command;
        r.submitted = guest.record.arrived = unix;
        guest.user = &user;
        guest.reported = true;
        if (!q.components.empty()) {
            const QuoteRequest::Component& one = q.components[n];
            r.gang = JobId{q.home, first}.text();
            r.component = static_cast<uint32_t>(n);
            r.components = static_cast<uint32_t>(guests.size());
            r.optional = one.optional;
            r.terms.cpus = one.cpus;
            r.terms.memory_mb = one.memory_mb;
            r.terms.budget =
                Money{static_cast<int64_t>(Wide{q.terms.budget.micro} * one.cpus / all)};
            if (!one.node.empty()) r.only_node = one.node;
            r.spread = q.layout.most_on_one;
            r.pack = q.layout.few;
            r.near = q.layout.near;
            r.near_trip_us = q.layout.trip_us_most;
            r.near_mbit = q.layout.mbit_least;
        }
        ++n;
    }
    return guests;
}

struct Quoter::Trial {
    Solver solver;
    User user;
    std::vector<Job> guests;  // in the order of their ranks
    Admission::Decision decision;

    // The node where the guest would run; null: nowhere.
    const Node* place_of(const Job& guest, const Book& book) const {
        const auto spec = solver.job(guest.key);
        return spec && spec->state == JobState::running ? book.node_of(spec->place) : nullptr;
    }
};

// The market's decision with the jobs asked about.
Status Quoter::try_out(const QuoteRequest& q, Money bid, Nanos now, Trial& trial) const {
    trial.user.record.uid = q.uid;
    const auto& users = view_.book.users();
    if (const auto known = users.find(q.uid); known != users.end()) trial.user = known->second;
    trial.guests = guests_of(q, trial.user, UINT64_MAX >> 4, now + view_.calendar);
    trial.solver = view_.solver.copy();
    uint64_t n = 0;
    std::vector<JobDemand> specs;
    for (Job& guest : trial.guests) {
        guest.key = {view_.book.free_key() + n++};
        guest.bid = bid;
        guest.listed = Rank::of(bid, guest.record.arrived, guest.key);
        specs.push_back(view_.jobs.spec_of(guest, guest.held));
        specs.back().arrival = specs.front().arrival;
        if (q.components.empty()) MUST(trial.solver.add_job(guest.key, specs.back()));
    }
    if (!q.components.empty())
        TRY(trial.solver.add_gang(trial.guests.front().key, specs, required_of(q), q.layout));
    trial.decision =
        view_.admission.work_out(view_.jobs, users, trial.solver, trial.guests, now, {q.uid});
    return {};
}

bool Quoter::all_run(const QuoteRequest& q, Money bid, Nanos now) const {
    Trial trial;
    return try_out(q, bid, now, trial) && std::ranges::all_of(trial.guests, [&](const Job& guest) {
               return is_optional(guest) || trial.place_of(guest, view_.book);
           });
}

// Says why all its components together find no place; empty: a higher bid might give them one.
Reason Quoter::why_waits(const std::vector<Job>& components) const {
    GangShape shape;
    for (const Job& one : components) {
        const JobReport& r = one.record.report;
        if (r.optional) continue;
        const Node* const only = r.only_node.empty() ? nullptr : view_.book.find_node(r.only_node);
        if (!r.only_node.empty() && !only)
            return Reason(ReasonCode::component_node_unknown)
                .with(Figure::count, std::to_string(r.component))
                .with(Figure::node, r.only_node);
        shape.needs.push_back({r.terms.cpus, r.terms.memory_mb, only ? only->key.n : 0});
        shape.layout = layout_of(r);
    }
    Reason never = view_.places.why_never(shape);
    return never.empty() ? Reason(ReasonCode::no_room) : never;
}

// Says where the trial has the jobs, or why nowhere.
Result<Quote> Quoter::quote_of(const QuoteRequest& q, Money bid, Nanos now) const {
    Trial trial;
    TRY(try_out(q, bid, now, trial));
    Quote quote;
    quote.bid = bid;
    for (const Change& change : trial.decision.changes)
        quote.displaced +=
            change.kind == ChangeKind::freeze && change.other.n >= view_.book.free_key();
    size_t jobs = trial.user.claiming.size();
    int64_t used = trial.user.cpus;
    std::map<const Node*, int32_t> taken;
    for (Job& guest : trial.guests) {
        const Node* const at = trial.place_of(guest, view_.book);
        if (!at) {
            if (!quote.why.empty() || is_optional(guest)) continue;
            Reason why = Admission::why(trial.user, guest, trial.decision.held_of(guest),
                                        view_.book.day_is_spent(trial.user));
            if (why.empty() && is_component(guest)) why = why_waits(trial.guests);
            if (why.empty()) why = view_.why_waiting(guest, trial.solver);
            quote.why = why.text();
            quote.code = to_string(why.code);
            continue;
        }
        const ProviderReport& there = at->record.report;
        const Money price = trial.solver.price(guest.key).value_or(there.reserve);
        const JobTerms& t = guest.record.report.terms;
        const bool fits_now = view_.places.fits(guest, *at, taken[at]++);
        quote.others_first =
            quote.others_first || !fits_now || !trial.user.lets(jobs, used, t.cpus);
        ++jobs;
        used += t.cpus;
        ++quote.running;
        quote.rate += Money{price.micro * t.cpus};
        const auto same = [&](const Quote::Place& p) {
            return p.node == at->id() && p.price == price;
        };
        auto place = std::find_if(quote.places.begin(), quote.places.end(), same);
        if (place == quote.places.end())
            place = quote.places.insert(place, {at->id(), there.speed, price, 0, 0});
        ++place->jobs;
        place->cpus += t.cpus;
    }
    std::stable_sort(
        quote.places.begin(), quote.places.end(),
        [](const Quote::Place& a, const Quote::Place& b) { return a.speed > b.speed; });
    quote.runs = std::ranges::all_of(trial.guests, [&](const Job& guest) {
        return is_optional(guest) || trial.place_of(guest, view_.book);
    });
    if (!q.components.empty()) return quote;
    const Job& last = trial.guests.back();
    const auto within = view_.book.may_not_run(trial.user)
                            ? std::nullopt
                            : Admission::bid_within(view_.jobs, trial.user, q.terms.cpus,
                                                    weight_plain, trial.solver);
    const auto best = view_.solver.winning_bid(view_.jobs.spec_of(last, Job::Held::none));
    if (within && best) quote.winning_bid = std::max(*within, *best);
    return quote;
}

// Searches by halves, because with a higher bid all that ran would still run.
std::optional<Money> Quoter::least_bid_for_all(const QuoteRequest& q, const Quote& quote,
                                               Nanos now) const {
    constexpr int64_t unit = 1'000'000;
    int64_t low = 0, high = quote.bid.micro / unit;  // low: not all run; in units
    if (!quote.runs) {
        low = high;
        for (const auto& [id, job] : view_.book.jobs())
            if (job.phase() != JobPhase::finished) high = std::max(high, job.bid.micro / unit + 1);
        for (const auto& [name, node] : view_.book.nodes())
            high = std::max(high, node.record.report.reserve.micro / unit + 1);
        if (high == low || !all_run(q, Money::units(high), now)) return {};
    }
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (all_run(q, Money::units(middle), now) ? high : low) = middle;
    }
    return high > 0 && (!quote.runs || all_run(q, Money::units(high), now)) ? Money::units(high)
                                                                            : quote.bid;
}

// Adds what components of one shape get, as many as would take all that is asked for.
void Quoter::add_rooms(const QuoteRequest& q, Nanos now, std::map<const Node*, Room>& rooms) const {
    Trial trial;
    if (!try_out(q, q.terms.max_price, now, trial)) return;
    std::map<const Node*, Room> found;
    std::map<const Node*, int32_t> taken;
    for (const Job& guest : trial.guests) {
        const Node* const at = trial.place_of(guest, view_.book);
        if (!at) continue;
        Room& room = found[at];
        room.node = at;
        room.cpus += guest.record.report.terms.cpus;
        room.memory_mb += guest.record.report.terms.memory_mb;
        room.price =
            std::max(room.price, trial.solver.price(guest.key).value_or(at->record.report.reserve));
        room.others_first = room.others_first || !view_.places.fits(guest, *at, taken[at]++);
    }
    for (const auto& [node, room] : found) {
        Room& all = rooms.try_emplace(node, room).first->second;
        all.cpus = std::max(all.cpus, room.cpus);
        all.memory_mb = std::max(all.memory_mb, room.memory_mb);
        all.price = std::max(all.price, room.price);
        all.others_first = all.others_first || room.others_first;
    }
}

// Each shape is tried by itself: a room for two of the one may be one for three of the other.
Result<std::vector<Quoter::Room>> Quoter::rooms(const QuoteRequest& q, Nanos now) const {
    constexpr size_t shapes_max = 4;
    constexpr int64_t copies_max = 128;
    TRY(may_quote(q));
    const int64_t cpus = cpus_of(q);
    std::map<std::pair<int32_t, int64_t>, size_t, std::greater<>> shapes;
    for (const auto& one : q.components) ++shapes[{one.cpus, one.memory_mb}];
    std::map<const Node*, Room> rooms;
    size_t tried = 0;
    for (const auto& [shape, count] : shapes) {
        if (++tried > shapes_max) break;
        const int64_t copies =
            std::clamp((cpus + shape.first - 1) / shape.first, int64_t{1},
                       std::min<int64_t>(copies_max, view_.book.room_for_jobs()));
        QuoteRequest one = q;
        one.terms.budget = {};
        one.components.assign(static_cast<size_t>(copies), {shape.first, shape.second, {}, true});
        one.components.front().optional = false;
        add_rooms(one, now, rooms);
    }
    std::vector<Room> all;
    for (const auto& [name, node] : view_.book.nodes())
        if (const auto it = rooms.find(&node); it != rooms.end()) all.push_back(it->second);
    return all;
}

// Errors: no quote can be given now, and why.
Status Quoter::may_quote(const QuoteRequest& q) const {
    if (view_.book.room_for_jobs() == 0) return tl::unexpected(view_.book.too_many_jobs());
    // A job of another site has its home there.
    const Node* home = view_.book.find_node(q.home);
    if (!q.home.empty() && (!home || !home->connected))
        return fail("node " + q.home + " is not connected to the market");
    if (view_.settling)
        return fail(
            "the market has just started and waits for its nodes: ask again in a few seconds");
    return {};
}

Result<Quote> Quoter::of(const QuoteRequest& q, Nanos now) const {
    const size_t left = view_.book.room_for_jobs();
    if (left == 0) return tl::unexpected(view_.book.too_many_jobs());
    if (q.components.size() > std::min(left, quote_components_max))
        return fail("a quote is for at most " +
                    std::to_string(std::min(left, quote_components_max)) + " components");
    if (!q.components.empty() && required_of(q) == 0)
        return fail("a quote is for a job with a component that is not optional");
    if (q.jobs < 1 || q.jobs > quote_jobs_max || static_cast<size_t>(q.jobs) > left)
        return fail("a quote is for 1 to " +
                    std::to_string(std::min<size_t>(left, quote_jobs_max)) + " jobs");
    TRY(may_quote(q));
    const PriceRows& prices = view_.prices.rows();
    const int64_t minute = minute_of(now + view_.calendar);
    TRY_ASSIGN(Quote quote, quote_of(q, first_bid(q.terms, prices, minute).price, now));
    if (q.jobs > 1 || !q.components.empty()) {
        quote.winning_bid = least_bid_for_all(q, quote, now);
    } else {
        if (quote.runs)
            quote.winning_bid = std::min(quote.bid, quote.winning_bid.value_or(quote.bid));
        if (quote.winning_bid && *quote.winning_bid != quote.bid &&
            !all_run(q, *quote.winning_bid, now))
            quote.winning_bid = quote.runs ? std::optional(quote.bid) : std::nullopt;
    }
    if (quote.runs) add_costs(q, quote);
    // The prices are those of one CPU: of a size that no machine has they say nothing.
    const JobTerms largest = largest_of(q);
    const bool none_holds = !view_.places.supply().empty() &&
                            !view_.places.supply().least_reserve(largest.cpus, largest.memory_mb);
    const auto day = [&](Money bid) {
        return outlook(prices, minute - quote_day_minutes, none_holds ? Money{-1} : bid,
                       q.terms.cpus, q.terms.runtime, q.terms.finish, !quote.runs);
    };
    quote.day = day(quote.bid);
    for (JobTerms& terms : q.compare ? by_strategies(q.terms) : std::vector<JobTerms>{}) {
        const Money bid = first_bid(terms, prices, minute).price;
        quote.strategies.push_back({std::move(terms.strategy), bid, day(bid)});
    }
    return quote;
}

}  // namespace souk::market
