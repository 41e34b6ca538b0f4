// SPDX-License-Identifier: GPL-2.0-or-later
// Market, eighth part: the history of prices, and quotes. See market.hpp.
//
// A quote is the market's own decision on a copy of its solver with the jobs asked about: so it
// says what a submission in the same instant would bring, by the same code, and changes nothing.
// The copy costs about as much as a walk over all jobs.
#include <algorithm>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"
#include "market/core/pace.hpp"

namespace souk::market {
namespace {
using Wide = __int128;
constexpr int64_t day_minutes = 1'440;

// What the jobs, which all run, cost, and how long their budgets last.
void add_costs(const QuoteRequest& q, Quote& quote) {
    for (const Quote::Place& place : quote.places) {
        if (q.runtime.ns > 0) {
            const Nanos span{static_cast<int64_t>(Wide{q.runtime.ns} * 100 / place.speed)};
            const Wide rate = Wide{place.price.micro} * q.terms.cpus;
            quote.span = std::max(span, quote.span.value_or(span));
            quote.cost = quote.cost.value_or(Money{}) +
                         Money{static_cast<int64_t>(rate * span.ns / hour_ns) * place.jobs};
        }
        if (q.terms.budget.micro == 0) continue;
        const Nanos lasts = Account{}.left(place.price, q.terms.cpus, q.terms.budget);
        if (lasts != Nanos::never())
            quote.budget_lasts = std::min(lasts, quote.budget_lasts.value_or(lasts));
    }
}
}  // namespace

void Market::sample_prices(Nanos now) {
    if (!prices_seen_.wants(now, calendar_) || settling()) return;
    const auto reported = [](const auto& entry) { return entry.second.record.has_report; };
    if (std::none_of(nodes_.begin(), nodes_.end(), reported)) return;
    std::vector<Offer> offers;
    for (const auto& [name, node] : nodes_)
        if (const auto spec = solver_.provider(node.key); spec && spec->accepting)
            offers.push_back({spec->speed, solver_.next_price(node.key)});
    prices_seen_.add(now, calendar_, std::move(offers));
}

// The least bid that gets a job past those of its own user that its limits would prefer; nullopt:
// none does.
std::optional<Money> Market::bid_within_limits(const User& user, int32_t cpus,
                                               const Solver& solver) const {
    size_t jobs = 0;
    int64_t used = 0;
    for (const JobId& id : user.claiming)
        if (const auto known = fact(jobs_.at(id)); known && known->state == JobState::running) {
            ++jobs;
            used += jobs_.at(id).record.report.terms.cpus;
        }
    if (!user.lets(jobs, used, cpus) || day_is_spent(user)) return {};
    for (const auto& [rank, job] : user.order) {
        const auto spec = solver.job(job->key);
        if (fact(*job) || !spec || spec->state != JobState::running) continue;
        ++jobs;
        used += spec->cpus;
        if (!user.lets(jobs, used, cpus)) return Money::units(job->bid.micro / 1'000'000 + 1);
    }
    return Money{};
}

struct Market::Trial {
    Solver solver;
    User user;
    std::vector<Job> guests;  // in the order of their ranks
    Decision decision;

    // Where it would run; null: nowhere.
    const Node* place_of(const Job& guest, const KeyTable<Node>& nodes) const {
        const auto spec = solver.job(guest.key);
        return spec && spec->state == JobState::running ? nodes.find(spec->place.n) : nullptr;
    }
};

// The market's decision with the jobs asked about.
void Market::try_out(const QuoteRequest& q, Money bid, Nanos now, Trial& trial) const {
    trial.user.record.uid = q.uid;
    if (const auto known = users_.find(q.uid); known != users_.end()) trial.user = known->second;
    trial.guests = std::vector<Job>(static_cast<size_t>(q.jobs));
    trial.solver = solver_.copy();
    uint64_t n = 0;
    for (Job& guest : trial.guests) {
        guest.record.report.id = {q.home, (UINT64_MAX >> 4) + n};
        guest.record.report.terms = q.terms;
        guest.record.report.uid = q.uid;
        guest.record.report.submitted = now + calendar_;
        guest.key = {next_key_ + n++};
        guest.user = &trial.user;
        guest.reported = true;
        guest.bid = bid;
        guest.listed = Rank::of(bid, guest.record.report.submitted, guest.key);
        MUST(trial.solver.add_job(guest.key, spec_of(guest, wish(guest))));
    }
    trial.decision = work_out(trial.solver, trial.guests, now, {q.uid});
}

bool Market::all_run(const QuoteRequest& q, Money bid, Nanos now) const {
    Trial trial;
    try_out(q, bid, now, trial);
    return std::all_of(trial.guests.begin(), trial.guests.end(),
                       [&](const Job& guest) { return trial.place_of(guest, node_by_key_); });
}

// Where the trial has the jobs, or why nowhere.
Quote Market::quote_of(const QuoteRequest& q, Money bid, Nanos now) const {
    Trial trial;
    try_out(q, bid, now, trial);
    Quote quote;
    quote.bid = bid;
    for (const Change& change : trial.decision.changes)
        quote.displaced += change.kind == ChangeKind::freeze && change.other.n >= next_key_;
    size_t jobs = trial.user.claiming.size();
    int64_t used = trial.user.cpus;
    std::map<const Node*, int32_t> taken;
    for (Job& guest : trial.guests) {
        const Node* const at = trial.place_of(guest, node_by_key_);
        if (!at) {
            if (!quote.why.empty()) continue;
            quote.why = limit_comment(trial.user, guest, trial.decision.held_of(guest));
            if (quote.why.empty()) quote.why = why_waiting(guest, trial.solver);
            continue;
        }
        const ProviderReport& there = at->record.report;
        const Money price = trial.solver.price(guest.key).value_or(there.reserve);
        const JobTerms& t = q.terms;
        const bool fits_now = fits(guest, *at, taken[at]++);
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
            place = quote.places.insert(place, {at->id(), there.speed, price, 0});
        ++place->jobs;
    }
    std::stable_sort(
        quote.places.begin(), quote.places.end(),
        [](const Quote::Place& a, const Quote::Place& b) { return a.speed > b.speed; });
    quote.runs = quote.running == q.jobs;
    const Job& last = trial.guests.back();
    const auto within = bid_within_limits(trial.user, q.terms.cpus, trial.solver);
    const auto best = solver_.winning_bid(spec_of(last, wish(last, Job::Held::none)));
    if (within && best) quote.winning_bid = std::max(*within, *best);
    return quote;
}

// By halves: with a higher bid all that ran would still run.
std::optional<Money> Market::least_bid_for_all(const QuoteRequest& q, const Quote& quote,
                                               Nanos now) const {
    constexpr int64_t unit = 1'000'000;
    int64_t low = 0, high = quote.bid.micro / unit;  // low: not all run; in units
    if (!quote.runs) {
        low = high;
        for (const auto& [id, job] : jobs_)
            if (job.phase() != JobPhase::finished) high = std::max(high, job.bid.micro / unit + 1);
        for (const auto& [name, node] : nodes_)
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

Result<Quote> Market::quote(const QuoteRequest& q, Nanos now) const {
    const auto left = options_.jobs_max - std::min(options_.jobs_max, jobs_.size());
    if (left == 0)
        return fail("the market has " + std::to_string(options_.jobs_max) + " jobs already");
    if (q.jobs < 1 || q.jobs > quote_jobs_max || static_cast<size_t>(q.jobs) > left)
        return fail("a quote is for 1 to " +
                    std::to_string(std::min<size_t>(left, quote_jobs_max)) + " jobs");
    const Node* home = find_node(q.home);
    if (!home || !home->connected)
        return fail("node " + q.home + " is not connected to the market");
    if (settling())
        return fail(
            "the market has just started and waits for its nodes: ask again in a few seconds");
    Quote quote = quote_of(q, paced_bid(q.terms, {}, q.terms.finish), now);
    if (q.jobs > 1) {
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
    const bool none_holds =
        !supply().empty() && !supply().least_reserve(q.terms.cpus, q.terms.memory_mb);
    const Money bid = none_holds ? Money{-1} : quote.bid;
    quote.day = outlook(price_history().rows(), minute_of(now + calendar_) - day_minutes, bid,
                        q.terms.cpus, q.runtime, q.terms.finish, !quote.runs);
    return quote;
}

}  // namespace souk::market
