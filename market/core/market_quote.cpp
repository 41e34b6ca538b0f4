// SPDX-License-Identifier: GPL-2.0-or-later
// Market, eighth part: the history of prices, and quotes. See market.hpp.
//
// A quote is the market's own decision on a copy of its solver with one more job: so it says what a
// submission in the same instant would bring, by the same code, and changes nothing. The copy costs
// about as much as a walk over all jobs.
#include <algorithm>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"
#include "market/core/pace.hpp"

namespace souk::market {
namespace {
using Wide = __int128;
constexpr int64_t day_minutes = 1'440;
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

// The market's decision with one more job: where the trial has it, or why nowhere.
Quote Market::try_out(const QuoteRequest& q, Money bid, Nanos now) const {
    const User nobody{{q.uid, {}, {}, -1}, {}, {}, 0, {}, 0};
    const auto known = users_.find(q.uid);
    User user = known == users_.end() ? nobody : known->second;
    Job guest;
    guest.record.report.id = {q.home, UINT64_MAX >> 4};
    guest.record.report.terms = q.terms;
    guest.record.report.uid = q.uid;
    guest.record.report.submitted = now + calendar_;
    guest.key = {next_key_};
    guest.user = &user;
    guest.reported = true;
    guest.bid = bid;
    guest.listed = Rank::of(bid, guest.record.report.submitted, guest.key);
    Solver trial = solver_.copy();
    MUST(trial.add_job(guest.key, spec_of(guest, wish(guest))));
    Decision d = work_out(trial, &guest, now, {q.uid});
    Quote quote;
    quote.bid = bid;
    for (const Change& change : d.changes)
        quote.displaced += change.kind == ChangeKind::freeze && change.other == guest.key;
    const auto spec = trial.job(guest.key);
    const Node* const at = spec ? node_by_key_.find(spec->place.n) : nullptr;
    quote.runs = spec && spec->state == JobState::running && at;
    if (quote.runs) {
        const Node& node = *at;
        quote.node = node.id();
        quote.speed = node.record.report.speed;
        quote.price = trial.price(guest.key).value_or(node.record.report.reserve);
        quote.others_first =
            !fits(guest, node) || !user.lets(user.claiming.size(), user.cpus, q.terms.cpus);
    } else {
        quote.why = limit_comment(user, guest, d.held_of(guest));
        if (quote.why.empty()) quote.why = why_waiting(guest, trial);
    }
    const auto within = bid_within_limits(user, q.terms.cpus, trial);
    const auto best = solver_.winning_bid(spec_of(guest, wish(guest, Job::Held::none)));
    if (within && best) quote.winning_bid = std::max(*within, *best);
    return quote;
}

Result<Quote> Market::quote(const QuoteRequest& q, Nanos now) const {
    if (jobs_.size() >= options_.jobs_max)
        return fail("the market has " + std::to_string(options_.jobs_max) + " jobs already");
    const Node* home = find_node(q.home);
    if (!home || !home->connected)
        return fail("node " + q.home + " is not connected to the market");
    if (settling())
        return fail(
            "the market has just started and waits for its nodes: ask again in a few seconds");
    Quote quote = try_out(q, paced_bid(q.terms, {}, q.terms.finish), now);
    if (quote.runs) quote.winning_bid = std::min(quote.bid, quote.winning_bid.value_or(quote.bid));
    if (quote.winning_bid && *quote.winning_bid != quote.bid &&
        !try_out(q, *quote.winning_bid, now).runs)
        quote.winning_bid = quote.runs ? std::optional(quote.bid) : std::nullopt;
    const Wide rate = Wide{quote.price.micro} * q.terms.cpus;
    if (quote.runs && q.runtime.ns > 0) {
        quote.span = Nanos{static_cast<int64_t>(Wide{q.runtime.ns} * 100 / quote.speed)};
        quote.cost = Money{static_cast<int64_t>(rate * quote.span->ns / hour_ns)};
    }
    if (quote.runs && q.terms.budget.micro > 0) {
        const Nanos lasts = Account{}.left(quote.price, q.terms.cpus, q.terms.budget);
        if (lasts != Nanos::never()) quote.budget_lasts = lasts;
    }
    // The prices are those of one CPU: of a size that no machine has they say nothing.
    const bool none_holds =
        !supply().empty() && !supply().least_reserve(q.terms.cpus, q.terms.memory_mb);
    const Money bid = none_holds ? Money{-1} : quote.bid;
    quote.day = outlook(price_history().rows(), minute_of(now + calendar_) - day_minutes, bid,
                        q.terms.cpus, q.runtime, q.terms.finish, !quote.runs);
    return quote;
}

}  // namespace souk::market
