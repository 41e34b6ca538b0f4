// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/quote.hpp"

#include <algorithm>
#include <vector>

namespace souk::market {
namespace {

using Wide = __int128;

// One minute as the bid sees it: speed 0: no place.
struct Minute {
    int32_t speed = 0;
    Money price;
};

Minute minute_at(const PriceRecord& r, Money bid) {
    for (const PriceRecord::Speed& s : r.speeds)
        if (s.minutes > 0 && s.price <= bid) return {s.speed, s.price};
    return {};
}

}  // namespace

Outlook outlook(const std::map<int64_t, PriceRecord>& rows, int64_t from_minute, Money bid,
                int32_t cpus, Nanos runtime, Nanos finish, bool waits) {
    constexpr Nanos hour = Nanos::from_s(3'600);
    std::vector<Minute> day;
    for (auto it = rows.lower_bound(from_minute); it != rows.end(); ++it)
        day.push_back(minute_at(it->second, bid));
    Outlook o;
    o.minutes = static_cast<int64_t>(day.size());
    const auto open = static_cast<int64_t>(
        std::count_if(day.begin(), day.end(), [](const Minute& m) { return m.speed > 0; }));
    if (day.empty()) return o;
    o.place_share = static_cast<double>(open) / static_cast<double>(o.minutes);
    if (open == 0) return o;             // it never ran: nothing is known
    Wide round_work = 0, round_pay = 0;  // of all minutes; in speed x ns, micro-units x ns / hour
    for (const Minute& m : day) {
        round_work += Wide{m.speed} * minute_span.ns;
        round_pay += m.speed > 0 ? Wide{m.price.micro} * cpus * minute_span.ns : 0;
    }
    const bool known = runtime.ns > 0;
    const Wide work = Wide{known ? runtime.ns : hour.ns} * 100;
    // at least some is left: it may end before a round does
    const Wide rounds = (work - 1) / round_work;
    int64_t starts = 0, open_starts = 0, frozen = 0, in_time = 0;
    Wide pay = 0, span = 0;
    for (size_t start = 0; start < day.size(); ++start) {
        const bool begins_open = day[start].speed > 0;
        if (begins_open == waits && !(waits && open == o.minutes)) continue;
        ++starts;
        ++open_starts;
        Wide left = work - rounds * round_work, paid = rounds * round_pay,
             took = rounds * o.minutes * minute_span.ns;
        bool ran = rounds > 0, stopped = rounds > 0 && open < o.minutes, cut = stopped;
        for (size_t at = start; left > 0; at = at + 1 == day.size() ? 0 : at + 1) {
            const Minute& m = day[at];
            const Wide most = Wide{m.speed} * minute_span.ns;
            const Wide ns =
                m.speed > 0 && left < most ? (left + m.speed - 1) / m.speed : Wide{minute_span.ns};
            took += ns;
            stopped = stopped || (ran && m.speed == 0);
            if (m.speed == 0) continue;
            ran = true;
            cut = cut || stopped;  // and had to be thawed
            paid += Wide{m.price.micro} * cpus * ns;
            left -= std::min(most, left);
        }
        frozen += cut;
        pay += paid;
        span += took;
        in_time += finish.ns > 0 && took <= finish.ns;
    }
    if (starts == 0) return o;
    o.frozen = static_cast<double>(frozen) / static_cast<double>(open_starts);
    if (!known) return o;
    constexpr Wide most = Wide{1} << 62;
    o.cost = Money{static_cast<int64_t>(std::min(most, pay / hour.ns / starts))};
    o.span = Nanos{static_cast<int64_t>(std::min(most, span / starts))};
    if (finish.ns > 0) o.in_time = static_cast<double>(in_time) / static_cast<double>(starts);
    return o;
}

}  // namespace souk::market
