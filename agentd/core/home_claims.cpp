// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_claims.hpp"

#include <algorithm>

#include "kernel/base/fields.hpp"
#include "kernel/base/saturating.hpp"

namespace souk {
namespace {

// CRIU's work in the job's processes is not held to its CPUs; and its node's clock is another.
constexpr Nanos cpu_slack = Nanos::from_s(10);
constexpr Nanos move_span_max = Nanos::from_s(86'400);
constexpr int64_t image_slack = int64_t{1} << 30;
// A job without a limit of its memory may have such an image.
constexpr int64_t image_bytes_max = int64_t{1} << 44;
// Memory that is sent ahead is sent several times.
constexpr uint64_t sent_bytes_max = uint64_t{1} << 50;

Nanos cpu_time_of(int32_t cpus, Nanos span) {
    return {saturating_multiply(int64_t{cpus}, std::max<int64_t>(0, span.ns))};
}

template <class T>
bool bring_within(T& value, T most) {
    if (value <= most) return false;
    value = most;
    return true;
}

int64_t image_most(const HomeJob& job) {
    const int64_t mb = job.terms.memory_mb;
    if (mb <= 0 || mb > image_bytes_max >> 21) return image_bytes_max;
    return (mb << 21) + image_slack;
}

bool bring_within(MoveForecast& forecast) {
    bool more = false;
    for (Nanos* span : {&forecast.pause, &forecast.total, &forecast.precopy_time})
        more |= bring_within(*span, move_span_max);
    for (uint64_t* bytes : {&forecast.precopy_bytes, &forecast.left_bytes, &forecast.frozen_bytes,
                            &forecast.dirty_bytes_per_s, &forecast.dirty_expected_bytes_per_s})
        more |= bring_within(*bytes, sent_bytes_max);
    return more;
}

}  // namespace

void HomeClaims::starts(const HomeJob& job, Nanos now) {
    State& s = jobs_[job.id.seq];
    s.since = now;
    s.used = job.stats.cpu_time;
}

// A job that this daemon did not start itself may have run since it was submitted.
HomeClaims::State& HomeClaims::state(const HomeJob& job, const HomeTurn& turn) {
    const auto [it, is_new] = jobs_.try_emplace(job.id.seq);
    State& s = it->second;
    if (!is_new) return s;
    s.since = turn.now;
    s.used.ns = saturating_add(job.stats.cpu_time.ns,
                               cpu_time_of(job.terms.cpus, turn.unix_now - job.submitted).ns);
    return s;
}

GuestEvent HomeClaims::checked(const HomeJob& job, const NodeName& node, GuestEvent event,
                               const HomeTurn& turn) {
    State& s = state(job, turn);
    const Nanos may_have = cpu_time_of(job.terms.cpus, turn.now - s.since + cpu_slack);
    const int64_t most = std::min(saturating_add(s.used.ns, may_have.ns), rule::span_ns_max);
    const int64_t left = std::max<int64_t>(0, most - job.stats.cpu_time.ns);
    // Less than before: its node counts anew, and all of it is new.
    const Nanos known = event.cpu_time < job.cpu_here ? Nanos{} : job.cpu_here;
    const bool cpu = bring_within(event.cpu_time, Nanos{saturating_add(known.ns, left)});
    const bool image = bring_within(event.image_bytes, image_most(job));
    const bool memory = bring_within(event.memory_peak, image_most(job));
    const bool move = bring_within(event.forecast);
    if ((cpu || memory || image || move) && !std::exchange(s.told, true))
        turn.tell(job, home::Tell::What::comment,
                  "node " + node + " says what cannot be of its " +
                      (cpu      ? "CPU time"
                       : memory ? "memory"
                       : image  ? "image"
                                : "move") +
                      ": it is taken for the most that can be");
    return event;
}

}  // namespace souk
