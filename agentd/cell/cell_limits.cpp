// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: what the control groups of a capsule limit its job to, and a job that is stopped where it
// is. See cell.hpp.
#include <algorithm>
#include <cerrno>

#include "agentd/cell/cell.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

// More than a capsule holds whose job has not begun.
constexpr int64_t capsule_bytes = 16 << 20;

}  // namespace

// When the job is about to start, or has just been restored: CRIU does that inside of the job's
// groups, and is no part of what the job may have. A job that holds more than its limit by then
// keeps what it holds: no move kills it.
bool Cell::set_limits() {
    if (!cgroup_) return false;
    const auto set = [&]() -> Status {
        if (site_.limits.pids && site_.pids_max > 0) TRY(cgroup_->set_pids_max(site_.pids_max));
        if (site_.limits.io && site_.disk_mb_per_s > 0)
            TRY(cgroup_->set_io_max(site_.disks, site_.disk_mb_per_s << 20));
        if (!site_.limits.memory || job_.memory_mb <= 0) return {};
        int64_t most = job_.memory_mb << 20;
        if (job_.from_image || most < capsule_bytes) {
            TRY_ASSIGN(const int64_t held, cgroup_->memory_bytes());
            most = std::max(most, held);
        }
        TRY(cgroup_->set_memory_max(most));
        return site_.swap_mb < 0 ? Status{} : cgroup_->set_swap_max(site_.swap_mb << 20, most);
    };
    const Status done = set();
    if (!done)
        site_.log->warning(
            "a job is not limited",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", done.error()}});
    limit_cpus(true);
    return done.has_value();
}

// Not while it is dumped: what CRIU has the job's processes do there would wait for the next period
// of the scheduler.
void Cell::limit_cpus(bool on) {
    cpus_limited_ = on;
    write_cpus_max(on);
}

void Cell::node_bound(bool on) {
    if (cpus_limited_) write_cpus_max(on);
}

void Cell::write_cpus_max(bool on) {
    if (!cgroup_ || !limits_cpus()) return;
    const auto set = cgroup_->set_cpus_max(on ? job_.cpus : 0);
    // On v1 no group may have more than its parent: then the owner lends less, and that holds.
    if (!set && set.error().code != EINVAL)
        site_.log->warning(
            "a job's CPUs are not limited",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", set.error()}});
}

std::string Cell::what_killed() const {
    if (!cgroup_ || !site_.limits.memory || job_.memory_mb <= 0) return {};
    const auto kills = cgroup_->memory_kills();
    if (!kills || *kills == 0) return {};
    return "a process of it was killed: it may have " + std::to_string(job_.memory_mb) +
           " MB of memory (srun -m)";
}

void Cell::pause(bool on) {
    const bool possible = job_group_ && job_group_->entry().v2 >= 0;
    const Status done = possible ? lease_.pause(on) : fail("no cgroup v2 could stop it");
    if (!done) log_.warning("a job is not stopped for the owner", done.error());
    tell(guest::Paused{on, done ? Trouble() : Trouble(done.error())});
}

// By its own group: PID 1 of the capsule goes on, with what the job has printed.
void Cell::stand() {
    const bool possible = job_group_ && job_group_->entry().v2 >= 0;
    const Status stopped =
        possible ? lease_.stand() : fail("this node has no cgroup v2 that could stop it");
    if (stopped) network_.patient(true);
    tell(
        guest::Stood{stopped ? Trouble() : Trouble(stopped.error()).within("it is not stopped: ")});
}

// A copy of all its memory beside it, for as long as it is on its way to its home: if that would be
// tight, on the disk.
bool Cell::fits_memory() const {
    if (!cgroup_) return false;
    const auto held = cgroup_->memory_bytes();
    return held && image_.fits_memory(static_cast<uint64_t>(*held));
}

uint64_t Cell::memory_bytes() const {
    const auto held = cgroup_ ? cgroup_->memory_bytes() : Result<int64_t>(fail("no group"));
    return static_cast<uint64_t>(held ? *held : job_.memory_mb << 20);
}

}  // namespace souk
