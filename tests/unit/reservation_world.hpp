// SPDX-License-Identifier: GPL-2.0-or-later
// A World whose jobs book places ahead of their time, for the tests of reservations.
#pragma once

#include "tests/unit/market_world.hpp"

namespace souk::market::reserving {

inline Nanos s(int64_t n) { return Nanos::from_s(n); }

// A Monday at 0:00 UTC is at `now` = 0.
constexpr Nanos monday = Nanos::from_s(1'700'438'400);

inline World world(MarketOptions options = {}) {
    World w(std::move(options));
    w.calendar = monday;
    w.market->set_calendar(monday);
    return w;
}

struct Asked {
    int64_t start_s = 0;  // of `now`; 0: at once
    int64_t span_s = 0;
    int32_t cpus = 1;
    bool early = false, holds = false;
    std::string within = {};
    std::string resources = {};
};

inline JobId book(World& w, const NodeName& home, int64_t price, const Asked& asked,
                  uint32_t uid = 1000) {
    JobId id = w.submit(home, price, Nanos::never(), asked.cpus, 100, {}, uid);
    Booking b;
    if (asked.start_s > 0) b.start = monday + s(asked.start_s);
    b.span = s(asked.span_s);
    b.early = asked.early;
    b.holds = asked.holds;
    b.within = asked.within;
    // As its home would have told it from the beginning.
    w.jobs[id].report.terms.booking = b;
    w.jobs[id].report.terms.resources = asked.resources;
    w.tell(w.jobs[id]);
    return id;
}

inline NodeName where(World& w, const JobId& id) {
    return w.phase(id) == JobPhase::running ? w.market->find(id)->record.report.where : "";
}

inline const Contract& contract(World& w, const JobId& id) {
    return *w.market->find(id)->record.contract;
}

inline ReasonCode code(World& w, const JobId& id) {
    return w.market->reason(*w.market->find(id)).code;
}

}  // namespace souk::market::reserving
