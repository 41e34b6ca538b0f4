// SPDX-License-Identifier: GPL-2.0-or-later
// A quote: what would become of a job if it were submitted now (Market::quote), and what the prices
// of the last day say about it. Nothing of it binds anybody. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "market/core/messages.hpp"
#include "market/core/price_history.hpp"

namespace souk::market {

struct QuoteRequest {
    NodeName home;
    uint32_t uid = 0;
    JobTerms terms;
    Nanos runtime;  // of the whole job on a standard machine (speed 100); 0: not known
};

// What the prices of some minutes, one after the other and then again from the first one, would
// have meant for a job that runs at the greatest speed that its bid reaches, waits or is frozen
// where it reaches none, and pays what is needed there. Every minute is as likely as another to be
// the one in which it begins; of them only those count that are as it is now (with a place, or
// without).
struct Outlook {
    int64_t minutes = 0;  // of prices
    // of them, the part at which its bid would have had a place
    double place_share = 0;
    // chance of being frozen, once it runs, before its run time is over
    std::optional<double> frozen;
    // expected, in all; as the following only if there is a run time
    std::optional<Money> cost;
    std::optional<Nanos> span;      // until its end, expected
    std::optional<double> in_time;  // chance that this is not more than `finish`
};

// `runtime`: as above; 0: not known, then `frozen` is that of an hour. `waits`: it has no place
// now.
Outlook outlook(const std::map<int64_t, PriceRecord>& rows, int64_t from_minute, Money bid,
                int32_t cpus, Nanos runtime, Nanos finish, bool waits);

struct Quote {
    bool runs = false;          // it would be given a place at once
    bool others_first = false;  // when others have left it
    NodeName node;              // where
    int64_t speed = 0;          // of that
    Money price;                // what it would pay per CPU-hour
    Money bid;                  // its maximum price, or less with --pace
    std::string why;            // why it waits
    std::optional<Money>
        // that would get a place at once, at most `bid` if that does; nullopt: no bid would
        winning_bid;
    size_t displaced = 0;               // jobs that would be frozen for it
    std::optional<Money> cost;          // with a run time: at the price now, where it would run now
    std::optional<Nanos> span;          // until its end there
    std::optional<Nanos> budget_lasts;  // how long at the price now
    Outlook day;                        // by the prices of the last day
};

}  // namespace souk::market
