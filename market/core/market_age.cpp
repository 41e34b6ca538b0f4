// SPDX-License-Identifier: GPL-2.0-or-later
// Market: how long a job has waited for a place, and what that makes of its bid (age.hpp). Who is
// held by an order, a limit or an empty budget does not wait in this sense: no bid would help it.
// See market.hpp.
#include <algorithm>
#include <utility>

#include "market/core/age.hpp"
#include "market/core/market.hpp"

namespace souk::market {

Nanos Market::waited(const Job& job, Nanos now) {
    const bool waits = job.waits_from != Nanos::never();
    return job.record.waited + (waits ? std::max(Nanos{}, now - job.waits_from) : Nanos{});
}

void Market::note_wait(Job& job, bool waits, Nanos now) {
    if (const bool waited_before = job.waits_from != Nanos::never(); waits != waited_before) {
        job.record.waited = waited(job, now);
        job.waits_from = waits ? now : Nanos::never();
        job.record.waits_since = waits ? now + calendar_ : Nanos{};
        book_.save(job);
    }
    const Nanos so_far = waited(job, now), ageing = solver_.ageing();
    const int32_t weight = weight_after(so_far, ageing);
    if (std::exchange(job.weight, weight) != weight) book_.save(job);
    const Nanos next = waits ? next_weight_at(so_far, ageing) : Nanos::never();
    const Nanos at = next == Nanos::never() ? next : now + (next - so_far);
    if (std::exchange(job.weighs_until, at) != at) set_alarm(job);
}

// The wait that the last life of the market knew of has lasted until now.
void Market::resume_wait(Job& job, Nanos now) {
    JobRecord& r = job.record;
    if (r.waits_since.ns == 0) return;
    r.waited = r.waited + std::max(Nanos{}, now + calendar_ - r.waits_since);
    r.waits_since = Nanos{};
    book_.save(job);
}

// Its components rank as one, by the wait of the one that has waited least.
int32_t Market::weight_of(const std::vector<Job*>& gang, Nanos now) const {
    Nanos least = Nanos::never();
    for (const Job* one : gang) least = std::min(least, waited(*one, now));
    return weight_after(least, solver_.ageing());
}

void Market::weigh_all() {
    for (auto& [id, job] : book_.jobs())
        if (job.phase() != JobPhase::finished) touch(job);
}

}  // namespace souk::market
