// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/job_waits.hpp"

#include <algorithm>
#include <utility>

#include "market/core/age.hpp"

namespace souk::market {

Nanos JobWaits::waited(const Job& job, Nanos now) {
    const bool waits = job.waits_from != Nanos::never();
    return job.record.waited + (waits ? std::max(Nanos{}, now - job.waits_from) : Nanos{});
}

void JobWaits::note(Job& job, bool waits, Nanos now) {
    if (const bool waited_before = job.waits_from != Nanos::never(); waits != waited_before) {
        job.record.waited = waited(job, now);
        job.waits_from = waits ? now : Nanos::never();
        job.record.waits_since = waits ? context_.unix(now) : Nanos{};
        book_.save(job);
    }
    const Nanos so_far = waited(job, now), ageing = solver_.ageing();
    const int32_t weight = weight_after(so_far, ageing);
    if (std::exchange(job.weight, weight) != weight) book_.save(job);
    const Nanos next = waits ? next_weight_at(so_far, ageing) : Nanos::never();
    const Nanos at = next == Nanos::never() ? next : now + (next - so_far);
    if (std::exchange(job.weighs_until, at) != at) alarms_.set(job);
}

void JobWaits::resume(Job& job, Nanos now) {
    JobRecord& r = job.record;
    if (r.waits_since.ns == 0) return;
    r.waited = r.waited + std::max(Nanos{}, context_.unix(now) - r.waits_since);
    r.waits_since = Nanos{};
    book_.save(job);
}

int32_t JobWaits::weight_of(const std::vector<Job*>& gang, Nanos now) const {
    Nanos least = Nanos::never();
    for (const Job* one : gang) least = std::min(least, waited(*one, now));
    return weight_after(least, solver_.ageing());
}

}  // namespace souk::market
