// SPDX-License-Identifier: GPL-2.0-or-later
// PriceHistory: what a place has cost during the last days, a row a minute; those older than two
// days are one row an hour, those older than a month are gone. Bounded (3,600 rows), so it is kept
// in memory; its owner, the Market, has rows stored and erased as add() says. A minute at which the
// market did not work has no row. Pure.
//
// A price here is what is needed: the least bid per CPU-hour with which one more job of one CPU and
// no memory would have got a place at once. For many speeds, 16 rows at most: neighbours share one,
// with the lowest speed of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

inline constexpr Nanos minute_span = Nanos::from_s(60);
constexpr int64_t minute_of(Nanos unix) { return unix.ns >= 0 ? unix.ns / minute_span.ns : -1; }

struct PriceRecord {
    struct Speed {
        int32_t speed = 0;
        int32_t minutes = 0;  // at which a bid could get a place at this speed
        Money price;          // mean over these
        bool operator==(const Speed&) const = default;
    };
    int64_t minute = 0;         // Unix time / 60 s, where it begins
    int32_t minutes = 1;        // rows that it stands for
    int32_t closed = 0;         // of these, how many at which no bid would have got a place
    Money least, low, high;     // at any speed, over the others: mean, least, most
    std::vector<Speed> speeds;  // the fastest first
    bool operator==(const PriceRecord&) const = default;
};

// Returns what a machine of this speed needed: the price of the nearest speed that is not faster.
// null: it was at no price to be had, or there was no such machine.
const PriceRecord::Speed* price_at(const PriceRecord& record, int64_t speed);

// A mean of prices, each with its minutes.
struct MeanPrice {
    __int128 sum = 0;
    int64_t minutes = 0;
    void add(Money price, int64_t n) {
        sum += static_cast<__int128>(price.micro) * n;
        minutes += n;
    }
    // 0: of no minute.
    Money value() const { return {minutes == 0 ? 0 : static_cast<int64_t>(sum / minutes)}; }
};

// One record for several that follow each other.
PriceRecord merged(std::span<const PriceRecord> records);

class PriceHistory {
  public:
    static constexpr int64_t fine_minutes = 2 * 1'440, kept_minutes = 30 * 1'440;
    static constexpr size_t speeds_max = 16;

    struct Changes {
        std::vector<PriceRecord> put;
        std::vector<int64_t> erase;  // by minute
    };
    void load(PriceRecord record) { rows_.insert_or_assign(record.minute, std::move(record)); }
    // The newest row; what was there of this minute or later (the clock was set back) goes.
    Changes add(PriceRecord record);
    int64_t newest() const { return rows_.empty() ? -1 : rows_.rbegin()->first; }
    const std::map<int64_t, PriceRecord>& rows() const { return rows_; }
    // From this minute on, one record for each `step` minutes of the calendar in which there is a
    // row.
    std::vector<PriceRecord> list(int64_t from, int64_t step) const;
    // It has a row of this minute or of one before.
    bool reaches(int64_t minute) const { return !rows_.empty() && rows_.begin()->first <= minute; }
    // The first minute after `from` of a row at which this bid had a place; nullopt: none.
    std::optional<int64_t> first_below(int64_t from, Money bid) const;

  private:
    std::map<int64_t, PriceRecord> rows_;
};

// Machines of this speed need this price now, as a record of this minute has it. nullopt: no bid
// gets a place.
struct Offer {
    int32_t speed = 0;
    std::optional<Money> price;
};
PriceRecord record_of(int64_t minute, std::vector<Offer> offers);

}  // namespace souk::market
