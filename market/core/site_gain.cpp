// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_gain.hpp"

#include <algorithm>

#include "kernel/base/units.hpp"

namespace souk {
namespace {

using GainWide = __int128;
constexpr GainWide hour_of_ms = 3'600'000;

GainWide ms_of(Nanos span) { return span.ns / 1'000'000; }

int64_t as_int(GainWide value) {
    constexpr GainWide most = int64_t{1} << 62;
    return static_cast<int64_t>(std::clamp<GainWide>(value, -most, most));
}

Nanos of_ms(GainWide ms) { return Nanos{as_int(ms * 1'000'000)}; }

}  // namespace

// Spans are in milliseconds, so that all products stay below 2^120.
SiteGain gain_of(const SiteMove& move, const SiteStay& there, std::string_view site) {
    const Nanos rest = std::min(move.rest, gain_horizon);
    const GainWide here_ms = std::max<GainWide>(0, ms_of(rest) - ms_of(there.starts_in));
    const GainWide there_ms =
        here_ms * std::max<int64_t>(1, move.here.speed) / std::max<int64_t>(1, there.speed);
    const GainWide cost_ms = ms_of(std::min(move.pause, gain_horizon) + move_effort);
    SiteGain gain;
    gain.is_money = move.cheapest;
    gain.is_doubled = std::ranges::find(move.lately, site) != move.lately.end();
    const int factor = gain.is_doubled ? 2 : 1;
    if (!gain.is_money) {
        gain.time = of_ms(here_ms - there_ms);
        gain.time_cost = of_ms(cost_ms);
        gain.pays = here_ms - there_ms > factor * cost_ms;
        return gain;
    }
    const GainWide saved = GainWide{move.here.price.micro} * move.cpus * here_ms -
                           GainWide{there.price.micro} * move.cpus * there_ms;
    const GainWide cost =
        GainWide{move.bid.micro} * move.cpus * cost_ms + GainWide{move.carried.micro} * hour_of_ms;
    gain.money = Money{as_int(saved / hour_of_ms)};
    gain.money_cost = Money{as_int(cost / hour_of_ms)};
    gain.pays = saved > factor * cost;
    return gain;
}

std::string SiteGain::text(std::string_view site) const {
    const bool loses = is_money ? money < Money{} : time < Nanos{};
    const auto said = [&](Nanos span, Money amount) {
        return is_money ? human_money(amount < Money{} ? Money{-amount.micro} : amount)
                        : human_span(span < Nanos{} ? Nanos{-span.ns} : span);
    };
    std::string line(site);
    line += (loses ? " loses " : " saves ") + said(time, money) + ", a move costs ";
    line += said(time_cost, money_cost);
    if (is_doubled) line += " and counts twice: it left there lately";
    return line;
}

}  // namespace souk
