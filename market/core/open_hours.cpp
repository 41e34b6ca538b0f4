// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/open_hours.hpp"

#include <algorithm>

namespace souk::market {

namespace {

// When its frames begin next, at this time or later; never(): it has none.
Nanos opens_after(const ProviderReport& report, Nanos unix) {
    Nanos first = Nanos::never();
    for (const OpenHours& h : report.hours) {
        if (!h.is_sound()) continue;  // of a record of an older version
        const Nanos into = into_week(Nanos::from_s(h.from_s), unix);
        first = std::min(first, into.ns == 0 ? unix : unix + Nanos{week_ns} - into);
    }
    return first;
}

}  // namespace

Nanos into_week(Nanos from, Nanos unix) {
    return Nanos{((unix.ns - from.ns) % week_ns + week_ns) % week_ns};
}

Nanos left_of(const OpenHours& h, Nanos unix) {
    const Nanos span = Nanos::from_s(h.to_s - h.from_s);
    return std::max(Nanos{}, span - into_week(Nanos::from_s(h.from_s), unix));
}

const OpenHours* hours_at(const ProviderReport& report, Nanos unix) {
    for (const OpenHours& h : report.hours)
        if (h.is_sound() && left_of(h, unix).ns > 0) return &h;
    return nullptr;
}

std::vector<Closed> closed_in(const ProviderReport& r, Nanos unix, Nanos until) {
    std::vector<Closed> all;
    Nanos at = unix;
    if (!r.on_market) {
        at = r.opens > unix ? r.opens : Nanos::never();
        all.push_back({unix, at});
    } else if (!hours_at(r, at)) {
        at = opens_after(r, at);
    }
    while (at < until && !r.hours.empty()) {
        if (const OpenHours* const h = hours_at(r, at)) {
            at = at + left_of(*h, at);
            continue;
        }
        const Nanos opens = opens_after(r, at);
        all.push_back({at, opens});
        at = opens;
    }
    return all;
}

}  // namespace souk::market
