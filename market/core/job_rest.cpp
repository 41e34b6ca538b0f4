// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/job_rest.hpp"

#include <algorithm>

#include "market/core/bill.hpp"

namespace souk::market {

Nanos JobRest::at(int64_t speed) const {
    Nanos span = clock.ns >= 0 ? clock : Nanos::never();
    if (work.ns >= 0) {
        // Rounded up: it is not over before that.
        const __int128 on =
            (static_cast<__int128>(work.ns) * 100 + std::max<int64_t>(1, speed) - 1) /
            std::max<int64_t>(1, speed);
        span = std::min(span, Nanos{static_cast<int64_t>(std::min<__int128>(on, INT64_MAX))});
    }
    return span;
}

void JobRest::take(Nanos span, int64_t speed) {
    if (clock.ns >= 0) clock = std::max(Nanos{}, clock - span);
    if (work.ns >= 0) work = std::max(Nanos{}, work - Nanos{span.ns / 100 * speed});
}

Nanos work_done(const Job& job, int64_t speed_there, Nanos now) {
    const Nanos open = std::max(Nanos{}, bill::run_time(job, now) - job.record.billed);
    return job.record.done + Nanos{open.ns / 100 * std::max<int64_t>(0, speed_there)};
}

JobRest rest_of(const Job& job, const RunTimes* learned, RestBand band, int64_t speed_there,
                Nanos now) {
    const JobReport& r = job.record.report;
    const RunLimits& limits = *r.terms.limits;
    const Nanos done = work_done(job, speed_there, now);
    JobRest rest;
    if (limits.run.ns > 0 && limits.at_speed == 0)
        rest.clock = std::max(Nanos{}, limits.run - bill::run_time(job, now));
    const auto work = [&](Nanos all) {
        const Nanos left = std::max(Nanos{}, all - done);
        rest.work = rest.work.ns >= 0 ? std::min(rest.work, left) : left;
    };
    if (limits.run.ns > 0 && limits.at_speed > 0) {
        const __int128 all = static_cast<__int128>(limits.run.ns) * limits.at_speed / 100;
        work({static_cast<int64_t>(std::min<__int128>(all, Nanos::never().ns / 4))});
    }
    if (r.terms.runtime.ns > 0) work(r.terms.runtime);
    // A limit is no more than what a user is ready to wait for; it is what a promise goes by, and
    // what is likely is better learned.
    const bool stated = r.terms.runtime.ns > 0 || (rest.is_known() && band == RestBand::most);
    if (!learned || stated) return rest;
    if (const auto known = learned->of(r.uid, r.command)) {
        work(band == RestBand::most ? known->most : known->usual);
        rest.learned = true;
    }
    return rest;
}

}  // namespace souk::market
