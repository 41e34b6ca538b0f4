// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/strategy.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include "market/core/pace.hpp"

namespace souk::market {
namespace {

constexpr std::string_view deadline_word = "deadline:";

// What of an hour a bid would have had a place for, times its speed; in speed x ns.
double progress(const PriceRecord& hour, Money bid) {
    for (const PriceRecord::Speed& s : hour.speeds)  // the fastest first
        if (s.price <= bid && s.minutes > 0)
            return static_cast<double>(s.speed) * s.minutes * static_cast<double>(minute_span.ns);
    return 0;
}

double length(const PriceRecord& hour) {
    return static_cast<double>(hour.minutes) * static_cast<double>(minute_span.ns);
}

// The least of these bids that has the chance; by halves, as a higher bid never has less of one.
Money deadline_bid(const JobTerms& terms, const StrategyView& view, Nanos runtime) {
    const Nanos work{std::max<int64_t>(runtime.ns - view.ran.ns, 0)};
    std::vector<Money> bids;
    for (const PriceRecord& hour : view.hours)
        for (const PriceRecord::Speed& s : hour.speeds)
            if (s.price.micro > 0 && s.price < terms.max_price) bids.push_back(s.price);
    std::sort(bids.begin(), bids.end());
    bids.erase(std::unique(bids.begin(), bids.end()), bids.end());
    const auto it = std::partition_point(bids.begin(), bids.end(), [&](Money bid) {
        return chance_in_time(view.hours, bid, work, view.left) < deadline_chance;
    });
    return it == bids.end() ? terms.max_price : *it;
}

Money patient_bid(const JobTerms& terms, const StrategyView& view) {
    const bool last_tenth = terms.finish.ns > 0 && view.left.ns <= terms.finish.ns / 10;
    const auto usual = usual_price(view.hours);
    if (last_tenth || !usual) return terms.max_price;
    return {std::clamp<int64_t>(usual->micro - usual->micro / 100, 1, terms.max_price.micro)};
}

}  // namespace

Result<Strategy> parse_strategy(std::string_view text) {
    if (text == "truthful" || text == "fixed") return Strategy{};
    if (text == "pace") return Strategy{StrategyKind::pace, {}};
    if (text == "patient") return Strategy{StrategyKind::patient, {}};
    if (text.starts_with(deadline_word)) {
        const std::string_view number = text.substr(deadline_word.size());
        int64_t seconds = 0;
        const auto [end, error] =
            std::from_chars(number.data(), number.data() + number.size(), seconds);
        if (error == std::errc() && end == number.data() + number.size() && seconds > 0 &&
            seconds <= 1'000'000'000)
            return Strategy{StrategyKind::deadline, Nanos::from_s(seconds)};
    }
    return fail("'" + std::string(text) +
                "' is none of truthful, pace, patient and deadline:TIME (how long it runs at "
                "speed 100)");
}

Strategy strategy_of(const JobTerms& terms) {
    if (terms.pace) return {StrategyKind::pace, {}};
    const auto known = parse_strategy(terms.strategy);
    return known && known->kind != StrategyKind::pace ? *known : Strategy{};
}

double chance_in_time(std::span<const PriceRecord> hours, Money bid, Nanos work, Nanos left) {
    if (work.ns <= 0) return 1;
    if (left.ns <= 0 || hours.empty()) return 0;
    const double wanted = static_cast<double>(work.ns) * 100;
    double round = 0, round_ns = 0;
    for (const PriceRecord& hour : hours) {
        round += progress(hour, bid);
        round_ns += length(hour);
    }
    // Whole days first: what is left of the time begins at each hour of a day.
    const auto rounds =
        static_cast<double>(static_cast<int64_t>(static_cast<double>(left.ns) / round_ns));
    size_t good = 0;
    for (size_t start = 0; start < hours.size(); ++start) {
        double done = rounds * round, ns = static_cast<double>(left.ns) - rounds * round_ns;
        for (size_t i = start; ns > 0 && done < wanted; i = i + 1 == hours.size() ? 0 : i + 1) {
            const double part = std::min(1.0, ns / length(hours[i]));
            done += progress(hours[i], bid) * part;
            ns -= length(hours[i]);
        }
        good += done >= wanted;
    }
    return static_cast<double>(good) / static_cast<double>(hours.size());
}

std::optional<Money> usual_price(std::span<const PriceRecord> hours) {
    std::vector<Money> prices;
    for (const PriceRecord& hour : hours)
        if (hour.closed < hour.minutes) prices.push_back(hour.least);
    if (prices.empty()) return {};
    const auto middle = prices.begin() + static_cast<ptrdiff_t>(prices.size() / 2);
    std::nth_element(prices.begin(), middle, prices.end());
    return *middle;
}

Money strategy_bid(const JobTerms& terms, const StrategyView& view) {
    const Strategy strategy = strategy_of(terms);
    switch (strategy.kind) {
        case StrategyKind::truthful: return terms.max_price;
        case StrategyKind::pace: return paced_bid(terms, view.spent, view.left);
        case StrategyKind::patient: return patient_bid(terms, view);
        case StrategyKind::deadline: break;
    }
    const bool timed = terms.finish.ns > 0 && view.left.ns > 0;
    return timed ? deadline_bid(terms, view, strategy.runtime) : terms.max_price;
}

Nanos strategy_step(const JobTerms& terms, Nanos left) {
    constexpr Nanos look_again = Nanos::from_s(60);
    const bool timed = terms.finish.ns > 0 && left.ns > 0;
    switch (strategy_of(terms).kind) {
        case StrategyKind::truthful: break;
        case StrategyKind::pace:
            if (terms.budget.micro > 0 && timed) return pace_step(left);
            break;
        case StrategyKind::deadline: return timed ? pace_step(left) : Nanos::never();
        case StrategyKind::patient: return timed ? pace_step(left) : look_again;
    }
    return Nanos::never();
}

}  // namespace souk::market
