// SPDX-License-Identifier: GPL-2.0-or-later
// MarketContext: the options, the calendar and the decision log that all parts of a Market
// (market.hpp) share. The Market owns it and outlives its parts.
#pragma once

#include "kernel/base/time.hpp"
#include "kernel/base/time_frames.hpp"
#include "market/core/decision_log.hpp"
#include "market/core/solver_options.hpp"

namespace souk::market {

struct MarketOptions {
    SolverOptions solver;
    // Users spend what their accounts hold. If false, accounts are kept and nothing ends at them.
    bool metered = false;
    // A job that made its place miss a promise to the owner gives him this share of what it has
    // paid there, once, beside the price.
    int32_t refund_permille = 0;
    // After a restart the market waits this long for agents before it moves anything.
    Nanos settle = Nanos::from_s(3);
    Nanos grace = Nanos::from_s(60);  // a lost provider's jobs count as running for this long
    Nanos order_patience = Nanos::from_s(1'200);
    // A home that took an order, is not there and does not say that it failed, has this long.
    Nanos doubt_patience = Nanos::from_s(2);
    // A home that is back and does not report a job that it had has this long.
    Nanos forgotten_patience = Nanos::from_s(60);
    Nanos backoff_min = Nanos::from_s(1), backoff_max = Nanos::from_s(300);
    // A node confirms within this time that it has a job that its home places there. A home that
    // says more than the market and the node know is then told to freeze the job.
    Nanos confirm_patience = Nanos::from_s(60);
    size_t jobs_max = 1'000'000, nodes_max = 10'000;
    size_t jobs_home_max = 0, jobs_user_max = 0;  // 0: nine tenths of jobs_max
    // The market goes on to know this many finished jobs. The records of all are stored.
    size_t finished_recent = 256;
    // Named resources of the whole market, as licences are.
    std::vector<ResourceOffer> resources = {};
    // New jobs wait until the operator's submit filter has let them pass (submit_filter.hpp).
    bool submit_filter = false;
};

struct MarketContext {
    MarketOptions options;
    Nanos calendar;              // what to add to `now` for Unix time
    DecisionLog* log = nullptr;  // hears each decision; null: nobody does; outlives the machine

    Nanos zone = {};  // what to add to Unix time for the market's local time

    Nanos unix(Nanos now) const { return now + calendar; }
    // Counts from Monday 0:00, as the market's local clocks show that Unix time.
    int32_t second_of_week(Nanos unix) const {
        constexpr int64_t monday_s = 3 * 86'400;  // 1970-01-01 was a Thursday
        const int64_t local = (unix + zone).ns / 1'000'000'000 + monday_s;
        return static_cast<int32_t>((local % week_s + week_s) % week_s);
    }
};

}  // namespace souk::market
