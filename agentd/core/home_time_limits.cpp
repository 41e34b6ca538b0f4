// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_time_limits.hpp"

#include <algorithm>

#include "agentd/core/home_clock.hpp"
#include "kernel/base/saturating.hpp"
#include "kernel/base/units.hpp"

namespace souk {

namespace {

constexpr Nanos asks_at_least_every = Nanos::from_s(1);

Nanos later(Nanos now, Nanos span) {
    return {saturating_add(now.ns, std::max<int64_t>(0, span.ns))};
}

Nanos scaled(Nanos span, int64_t times, int64_t by) {
    const __int128 n = static_cast<__int128>(span.ns) * times / by;
    return {static_cast<int64_t>(std::min<__int128>(n, INT64_MAX))};
}

// The clock of the machine may be set.
constexpr Nanos looks_again = Nanos::from_s(60);

// The job ends then, Unix time; 0: with no place. A start that was asked for says the end before
// the market has sold it.
Nanos ends_with_place(const HomeJob& job) {
    const Booking& booking = *job.terms.booking;
    if (!booking.holds && job.terms.resources.empty()) return {};
    // Its user may want no place any more; what was sold to it ends all the same.
    if (job.place_ends.ns > 0) return job.place_ends;
    if (!booking.asks()) return {};
    return booking.start.ns > 0 ? booking.start + booking.span : Nanos{};
}

RunLimits limits_of(const HomeJob& job) { return job.terms.limits; }

Nanos cpu_left(const HomeJob& job) {
    return job.terms.limits->cpu - std::min(job.terms.limits->cpu, job.stats.cpu_time);
}

}  // namespace

// The moment at which its run time is over, if it goes on running where it is.
Nanos HomeTimeLimits::run_ends(const HomeJob& job) {
    const RunLimits limits = limits_of(job);
    if (limits.run.ns <= 0) return Nanos::never();
    if (limits.at_speed == 0)
        return later(job.running_since, limits.run - std::min(limits.run, job.stats.run_time));
    const Nanos all = scaled(limits.run, limits.at_speed, 100);
    return later(job.running_since,
                 scaled(all - std::min(all, job.work), 100, std::max<int64_t>(1, job.speed)));
}

Nanos HomeTimeLimits::cpu_looked_at(const HomeJob& job) const {
    if (job.terms.limits->cpu.ns <= 0) return Nanos::never();
    const auto it = jobs_.find(job.id.seq);
    const Nanos from =
        it == jobs_.end() ? job.running_since : std::max(it->second.asked, job.running_since);
    if (cpu_left(job).ns == 0) return job.running_since;
    const Nanos soonest{cpu_left(job).ns / std::max(1, job.terms.cpus)};
    return later(from, std::max(soonest, asks_at_least_every));
}

bool HomeTimeLimits::has_warned(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it != jobs_.end() && it->second.warned == limits_of(job);
}

Nanos HomeTimeLimits::place_due(const HomeJob& job) const {
    if (ends_with_place(job).ns == 0 || job.cancelled || job.phase == JobPhase::finished)
        return Nanos::never();
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos{0} : it->second.place_looked_at.value_or(Nanos{0});
}

HomeTimeLimits::Due HomeTimeLimits::look_at_place(const HomeJob& job, const HomeTurn& turn) {
    const Nanos ends = ends_with_place(job);
    State& s = jobs_[job.id.seq];
    if (ends <= turn.unix_now) {
        const Nanos span = job.terms.booking->span;
        return {false, because(CauseCode::place_over,
                               {{"limit", span.ns > 0 ? span_text(span) : "a promise"}})};
    }
    const RunLimits limits = limits_of(job);
    const Nanos left = ends - turn.unix_now;
    const bool warns = limits.signal != 0 && s.place_warned != ends;
    if (warns && left <= limits.before && job.phase == JobPhase::running) {
        s.place_warned = ends;
        turn.tell(job, home::Tell::What::warning, "its place is over in " + span_text(left));
        return {true, {}};
    }
    const Nanos next = warns && left > limits.before ? left - limits.before : left;
    s.place_looked_at = later(turn.now, std::min(next, looks_again));
    return {};
}

Nanos HomeTimeLimits::due(const HomeJob& job) const {
    return std::min(place_due(job), run_due(job));
}

Nanos HomeTimeLimits::run_due(const HomeJob& job) const {
    const RunLimits limits = limits_of(job);
    const bool may_end = job.phase == JobPhase::running || job.phase == JobPhase::moving;
    if (limits == RunLimits{} || job.cancelled || !may_end || !HomeClock::runs(job))
        return Nanos::never();
    const Nanos ends = run_ends(job);
    const bool warns = limits.signal != 0 && ends != Nanos::never() && !has_warned(job);
    return std::min(warns ? ends - std::min(limits.before, ends) : ends, cpu_looked_at(job));
}

HomeTimeLimits::Due HomeTimeLimits::look(const HomeJob& job, const HomeTurn& turn) {
    if (place_due(job) <= turn.now)
        if (Due place = look_at_place(job, turn); place.warns || !place.ends.empty()) return place;
    if (run_due(job) > turn.now) return {};
    const RunLimits limits = limits_of(job);
    const Nanos ends = run_ends(job);
    const std::string speed =
        limits.at_speed == 0 ? "" : " on a machine of speed " + std::to_string(limits.at_speed);
    if (ends <= turn.now)
        return {false, because(CauseCode::time_limit, {{"limit", span_text(limits.run) + speed}})};
    if (limits.cpu.ns > 0 && cpu_left(job).ns == 0)
        return {false, because(CauseCode::cpu_limit, {{"limit", span_text(limits.cpu)}})};
    State& s = jobs_[job.id.seq];
    if (cpu_looked_at(job) <= turn.now) {
        s.asked = turn.now;
        turn.send(job.at, job.id, job.epoch, GuestVerb::query);
    }
    if (limits.signal == 0 || has_warned(job) || ends - std::min(limits.before, ends) > turn.now)
        return {};
    s.warned = limits;
    const bool alone = job.group.components == 0;
    turn.tell(job, home::Tell::What::warning,
              "its time limit is over in " + span_text(ends - turn.now) +
                  (alone ? " (srun -J " + job.id.text() + " --time MORE gives it more)" : ""));
    return {true, {}};
}

}  // namespace souk
