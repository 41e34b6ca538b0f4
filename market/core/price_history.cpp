// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/price_history.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {
namespace {

// At most speeds_max of them: neighbours share one.
std::vector<PriceRecord::Speed> few(std::vector<PriceRecord::Speed> all) {
    if (all.size() <= PriceHistory::speeds_max) return all;
    const size_t group = (all.size() + PriceHistory::speeds_max - 1) / PriceHistory::speeds_max;
    std::vector<PriceRecord::Speed> shared;
    for (size_t i = 0; i < all.size(); i += group) {
        PriceRecord::Speed s = all[i];
        for (size_t j = i + 1; j < std::min(all.size(), i + group); ++j) {
            s.speed = all[j].speed;
            s.minutes = std::max(s.minutes, all[j].minutes);
            s.price = std::min(s.price, all[j].price);
        }
        shared.push_back(s);
    }
    return shared;
}

}  // namespace

const PriceRecord::Speed* price_at(const PriceRecord& record, int64_t speed) {
    // The fastest come first.
    for (const PriceRecord::Speed& s : record.speeds)
        if (s.speed <= speed) return s.minutes > 0 ? &s : nullptr;
    return nullptr;
}

PriceRecord merged(std::span<const PriceRecord> records) {
    PriceRecord all;
    all.minute = records.front().minute;
    all.minutes = 0;
    MeanPrice least;
    std::map<int32_t, MeanPrice, std::greater<>> speeds;
    for (const PriceRecord& r : records) {
        all.minutes += r.minutes;
        all.closed += r.closed;
        for (const PriceRecord::Speed& s : r.speeds) speeds[s.speed].add(s.price, s.minutes);
        if (r.closed == r.minutes) continue;
        all.low = least.minutes == 0 ? r.low : std::min(all.low, r.low);
        all.high = std::max(all.high, r.high);
        least.add(r.least, r.minutes - r.closed);
    }
    all.least = least.value();
    for (const auto& [speed, mean] : speeds)
        all.speeds.push_back({speed, static_cast<int32_t>(mean.minutes), mean.value()});
    all.speeds = few(std::move(all.speeds));
    return all;
}

PriceHistory::Changes PriceHistory::add(PriceRecord record) {
    Changes changes;
    for (auto it = rows_.lower_bound(record.minute); it != rows_.end(); it = rows_.erase(it))
        changes.erase.push_back(it->first);
    const int64_t fine_from = record.minute - fine_minutes,
                  kept_from = record.minute - kept_minutes;
    changes.put.push_back(record);
    rows_.insert_or_assign(record.minute, std::move(record));
    for (auto it = rows_.begin(); it != rows_.end() && it->first < kept_from; it = rows_.erase(it))
        changes.erase.push_back(it->first);
    // Hours that are all older than two days.
    for (auto it = rows_.begin(); it != rows_.end() && (it->first / 60 + 1) * 60 <= fine_from;) {
        const auto end = rows_.lower_bound((it->first / 60 + 1) * 60);
        if (std::next(it) == end) {
            it = end;
            continue;
        }
        std::vector<PriceRecord> hour;
        for (auto row = it; row != end; ++row) hour.push_back(row->second);
        changes.put.push_back(merged(hour));
        for (auto row = std::next(it); row != end; row = rows_.erase(row))
            changes.erase.push_back(row->first);
        it->second = changes.put.back();
        it = end;
    }
    return changes;
}

std::optional<int64_t> PriceHistory::first_below(int64_t from, Money bid) const {
    for (auto row = rows_.upper_bound(from); row != rows_.end(); ++row)
        if (row->second.closed < row->second.minutes && row->second.least <= bid) return row->first;
    return {};
}

std::vector<PriceRecord> PriceHistory::list(int64_t from, int64_t step) const {
    std::vector<PriceRecord> all, part;
    for (auto it = rows_.lower_bound(from); it != rows_.end(); ++it) {
        if (!part.empty() && part.front().minute / step != it->first / step)
            all.push_back(merged(std::exchange(part, {})));
        part.push_back(it->second);
    }
    if (!part.empty()) all.push_back(merged(part));
    return all;
}

PriceRecord record_of(int64_t minute, std::vector<Offer> offers) {
    std::sort(offers.begin(), offers.end(),
              [](const Offer& a, const Offer& b) { return a.speed > b.speed; });
    PriceRecord r;
    r.minute = minute;
    for (const Offer& o : offers) {
        if (!o.price) continue;
        r.low = r.speeds.empty() ? *o.price : std::min(r.low, *o.price);
        if (r.speeds.empty() || r.speeds.back().speed != o.speed)
            r.speeds.push_back({o.speed, 1, *o.price});
        else
            r.speeds.back().price = std::min(r.speeds.back().price, *o.price);
    }
    r.closed = r.speeds.empty();
    r.least = r.high = r.low;
    r.speeds = few(std::move(r.speeds));
    return r;
}

}  // namespace souk::market
