// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/strategy.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "market/core/account.hpp"

namespace souk::market {
namespace {

using Wide = __int128;

constexpr std::array<const char*, 4> names{"truthful", "pace", "deadline", "patient"};
constexpr size_t candidates_max = 32;
constexpr Nanos price_step = Nanos::from_s(60);  // a new row comes so often
// A job that takes longer than was said is near its end, as far as is known.
constexpr int64_t rest_part = 20;

// All prices at which a place was to be had, up to `most`, and `most`: between two neighbours no
// bid makes a difference. Of many only some, evenly by rank.
std::vector<Money> candidates(const std::vector<const PriceRecord*>& rows, Money most) {
    std::vector<Money> all;
    for (const PriceRecord* row : rows)
        for (const PriceRecord::Speed& s : row->speeds)
            if (s.minutes > 0 && s.price.micro > 0 && s.price < most) all.push_back(s.price);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (all.size() > candidates_max) {
        std::vector<Money> some;
        for (size_t i = 0; i < candidates_max; ++i)
            some.push_back(all[i * (all.size() - 1) / (candidates_max - 1)]);
        all = std::move(some);
    }
    all.push_back(most);
    return all;
}

// The rows, one after the other and then again from the first one, as a bid sees them.
class Rounds {
  public:
    Rounds(const std::vector<const PriceRecord*>& rows, Money bid) : minutes_(rows.size()) {
        work_.reserve(2 * minutes_ + 1);
        work_.push_back(0);
        for (size_t i = 0; i < 2 * minutes_; ++i) {
            const auto [speed, price] = at(*rows[i % minutes_], bid);
            work_.push_back(work_.back() + speed);
            if (i < minutes_) paid_ += speed > 0 ? Wide{price.micro} : 0;
        }
    }
    // In speed x minutes.
    Wide work_of_round() const { return work_[minutes_]; }
    // The cost of an amount of work, per unit of work: micro-units per CPU-hour, by speed.
    double price_of_work() const {
        return static_cast<double>(paid_) / static_cast<double>(work_of_round());
    }
    // The share of all minutes to begin at from which so much work is done within `left`.
    double in_time(Wide work_ns, Nanos left) const {
        const int64_t whole = left.ns / minute_span.ns, rest = left.ns % minute_span.ns;
        const auto n = static_cast<int64_t>(minutes_);
        const Wide rounds = Wide{whole / n} * work_of_round();
        const auto some = static_cast<size_t>(whole % n);
        size_t good = 0;
        for (size_t start = 0; start < minutes_; ++start) {
            const size_t end = start + some;
            const Wide done = (rounds + work_[end] - work_[start]) * minute_span.ns +
                              Wide{work_[end + 1] - work_[end]} * rest;
            good += done >= work_ns;
        }
        return static_cast<double>(good) / static_cast<double>(minutes_);
    }

  private:
    static std::pair<int64_t, Money> at(const PriceRecord& row, Money bid) {
        for (const PriceRecord::Speed& s : row.speeds)
            if (s.minutes > 0 && s.price <= bid) return {s.speed, s.price};
        return {0, {}};
    }
    size_t minutes_;
    std::vector<int64_t> work_;  // before each minute of two rounds
    Wide paid_ = 0;
};

}  // namespace

const char* to_string(Strategy strategy) { return names[static_cast<size_t>(strategy)]; }

std::optional<Strategy> strategy_named(std::string_view name) {
    if (name.empty() || name == "fixed") return Strategy::truthful;
    for (size_t i = 0; i < names.size(); ++i)
        if (name == names[i]) return static_cast<Strategy>(i);
    return std::nullopt;
}

Strategy strategy_of(const JobTerms& terms) {
    const bool paces = terms.budget.micro > 0 && terms.finish.ns > 0;
    if (terms.pace && paces) return Strategy::pace;
    const Strategy named = strategy_named(terms.strategy).value_or(Strategy::truthful);
    switch (named) {
        case Strategy::pace: return Strategy::truthful;  // JobTerms::pace says it
        case Strategy::deadline:
            return terms.finish.ns > 0 && terms.runtime.ns > 0 ? named : Strategy::truthful;
        default: return named;
    }
}

Money paced_bid(const JobTerms& terms, Money spent, Nanos left) {
    if (left.ns <= 0) return terms.max_price;
    const Wide rest = std::max<int64_t>(0, terms.budget.micro - spent.micro);
    const Wide price = rest * hour_ns / (Wide{terms.cpus} * left.ns);
    return {static_cast<int64_t>(std::clamp<Wide>(price, 1, terms.max_price.micro))};
}

Nanos pace_step(Nanos left) {
    return std::clamp(Nanos{left.ns / 100}, Nanos::from_s(1), Nanos::from_s(60));
}

std::optional<Bid> deadline_bid(const JobTerms& terms, Nanos work, Nanos left,
                                const PriceRows& prices, int64_t from_minute) {
    std::vector<const PriceRecord*> rows;
    for (auto it = prices.lower_bound(from_minute); it != prices.end(); ++it)
        rows.push_back(&it->second);
    if (rows.empty()) return std::nullopt;
    const Wide work_ns = Wide{work.ns} * 100;  // on a machine of speed 1
    std::optional<Bid> best;
    double best_cost = 0;
    Bid surest{terms.max_price, {}, 0.0};
    for (const Money bid : candidates(rows, terms.max_price)) {
        const Rounds rounds(rows, bid);
        if (rounds.work_of_round() == 0) continue;
        const double in_time = rounds.in_time(work_ns, left), cost = rounds.price_of_work();
        if (bid == terms.max_price) surest.in_time = in_time;
        if (in_time < deadline_chance || (best && cost >= best_cost)) continue;
        best = Bid{bid, {}, in_time};
        best_cost = cost;
    }
    return best ? best : surest;
}

std::optional<Money> usual_price(const PriceRows& prices, int64_t from_minute) {
    std::vector<std::pair<Money, int64_t>> open;  // price, minutes
    int64_t minutes = 0;
    for (auto it = prices.lower_bound(from_minute); it != prices.end(); ++it) {
        const PriceRecord& row = it->second;
        minutes += row.minutes;
        if (row.minutes > row.closed) open.emplace_back(row.least, row.minutes - row.closed);
    }
    std::sort(open.begin(), open.end());
    int64_t below = 0;
    for (const auto& [price, n] : open)
        if ((below += n) * 2 >= minutes) return price;
    return std::nullopt;
}

Bid bid_of(const JobTerms& terms, const Standing& job, const PriceRows& prices) {
    const Money most = terms.max_price;
    switch (strategy_of(terms)) {
        case Strategy::truthful: break;
        case Strategy::pace:
            if (job.left.ns <= 0) break;
            return {paced_bid(terms, job.spent, job.left), pace_step(job.left), {}};
        case Strategy::deadline: {
            if (job.left.ns <= 0) return {most, Nanos::never(), 0.0};
            const Nanos work{
                std::max(terms.runtime.ns - job.done.ns, terms.runtime.ns / rest_part)};
            auto bid = deadline_bid(terms, work, job.left, prices, job.minute - deadline_minutes);
            if (!bid) return {most, price_step, {}};
            bid->good_for = pace_step(job.left);
            return *bid;
        }
        case Strategy::patient:
            return {std::clamp(job.usual.value_or(most), Money{1}, most), price_step, {}};
    }
    return {most, Nanos::never(), {}};
}

}  // namespace souk::market
