// SPDX-License-Identifier: GPL-2.0-or-later
// Bill: how long a job has run as the market reckons, what that costs, and when it becomes a
// receipt. Pure functions of one job: who is paid, its user's day and the ledger are the Market's,
// which charges by what is said here.
#pragma once

#include <optional>

#include "market/core/market_state.hpp"

namespace souk::market::bill {

// A rest of a budget, of a day, that a job would be thawed for in vain.
inline constexpr Nanos rest_min = Nanos::from_s(1), day_rest_min = Nanos::from_s(3);

// How long the job has run, by the market's clock.
Nanos run_time(const Job& job, Nanos now);
Money cost(const Job& job, Nanos now);
// When a running job's budget is used up; never() if it has none.
Nanos budget_end(const Job& job);
// The job does not run on, and nothing is left of its budget that is worth a start.
bool is_used_up(const Job& job);

// Charges the run time up to `ran` (or takes back): in its account and its tab. Returns the cost,
// which passes neither what its user may spend nor `room`.
Money charge(Job& job, Nanos ran, Nanos unix_now, Money room = money_max);
// Makes a receipt of what is open of the job; nullopt: nothing is.
std::optional<Receipt> close_tab(Job& job);
// No receipt has the part that the job used elsewhere, before it first runs here.
void begin_tab(Job& job);
// The name of the job's user, or of the project that pays for it.
const std::string& payer_name(const Job& job);
// The tab is closed when a run ends, and else when it is that old: when the price changes, and at
// any time.
bool is_due_at_price(const Job& job);
bool is_due(const Job& job);

// Reads what a new report says of the run time. `before`: the report that it replaced; `ran`: what
// the market reckoned with until now. The sum that a home reports is complete when the job stands
// still, and when it runs under a new epoch; in between the market's own clock may be ahead of it
// by what messages take. A home that restarted may have forgotten a stretch: it counts on.
struct Reading {
    Nanos total;
    bool complete = false;
};
Reading read(Job& job, const JobReport& before, Nanos ran);
// It came to where it is, and this market hears of it late: it was away, or the way to the home
// was. How much of the total is the former place's; the rest is the present one's. nullopt: it is
// where it was.
std::optional<Nanos> share_of_former(const Job& job, Nanos total);

}  // namespace souk::market::bill
