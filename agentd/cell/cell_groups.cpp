// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/cell_groups.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

// A capsule whose job has not begun holds less than this.
constexpr int64_t capsule_bytes = 16 << 20;
constexpr Nanos give_back_limit = Nanos::from_s(5);

}  // namespace

CgroupUse CellGroups::use() const {
    return {.cpu = limits_cpus(),
            .memory = site_.limits.memory && job_.memory_mb > 0,
            .pids = site_.limits.pids && site_.pids_max > 0,
            .io = site_.limits.io && site_.disk_mb_per_s > 0};
}

Status CellGroups::take() {
    if (!site_.groups || capsule_) return {};
    // CRIU is not limited while it restores in a group, so a group that was used before may be.
    const int64_t memory = job_.from_image       ? 0
                           : job_.memory_mb == 0 ? INT64_MAX
                                                 : job_.memory_mb << 20;
    TRY_ASSIGN(CapsuleGroup groups, site_.groups->take(use(), memory));
    use_groups(std::move(groups));
    return {};
}

// Older daemons named the control group by the job.
Status CellGroups::find(const std::string& name, Nanos used) {
    if (!site_.groups) return {};
    name_ = !name.empty() ? name : site_.groups->parent() + "/" + job_.key.text();
    TRY_ASSIGN(CapsuleGroup groups, site_.groups->find(name_, use(), used));
    use_groups(std::move(groups));
    return {};
}

void CellGroups::use_groups(CapsuleGroup groups) {
    capsule_ = std::move(groups.capsule);
    job_group_ = std::move(groups.job);
    name_ = capsule_->name();
    used_ = groups.used;
    site_.cgroup_changed(*capsule_, used_, true);
}

Status CellGroups::give_back() {
    if (!capsule_) return {};
    site_.cgroup_changed(*capsule_, used_, false);
    Status back = site_.groups->give_back({std::move(*capsule_), std::move(*job_group_), {}},
                                          give_back_limit);
    job_group_.reset();
    capsule_.reset();
    name_.clear();
    return back;
}

Result<std::vector<pid_t>> CellGroups::pids() const {
    if (!job_group_) return fail("no control group");
    return job_group_->pids();
}

std::vector<int> CellGroups::v1_tasks() const {
    // A group of its own in that hierarchy lies below the node's share.
    std::vector<int> all = site_.v1_io_tasks;
    if (!capsule_ || !capsule_->has("cpu"))
        all.insert(all.end(), site_.v1_tasks.begin(), site_.v1_tasks.end());
    if (!capsule_) return all;
    const CgroupEntry entry = capsule_->entry();
    std::copy_if(entry.v1_tasks.begin(), entry.v1_tasks.end(), std::back_inserter(all),
                 [](int fd) { return fd >= 0; });
    return all;
}

std::string CellGroups::directory() const {
    if (capsule_entry() < 0) return "";
    std::error_code none;
    const auto link = "/proc/self/fd/" + std::to_string(capsule_entry());
    return std::filesystem::read_symlink(link, none).string();
}

// -------------------------------------------------------------------------------------------------
// limits

void CellGroups::warn(const char* what, const Error& why) const {
    site_.log->warning(what,
                       {{"JOB", job_.key.id.text()}, {"EPOCH", job_.key.epoch.n}, {"WHY", why}});
}

// CRIU restores inside of the job's groups, and is no part of what the job may have. A job that
// holds more than its limit by then keeps it: no move kills it.
bool CellGroups::set_limits() {
    if (!capsule_) return false;
    const auto set = [&]() -> Status {
        if (site_.limits.pids && site_.pids_max > 0) TRY(capsule_->set_pids_max(site_.pids_max));
        if (site_.limits.io && site_.disk_mb_per_s > 0)
            TRY(capsule_->set_io_max(site_.disks, site_.disk_mb_per_s << 20));
        if (!site_.limits.memory || job_.memory_mb <= 0) return {};
        int64_t most = job_.memory_mb << 20;
        if (job_.from_image || most < capsule_bytes) {
            TRY_ASSIGN(const int64_t held, capsule_->memory_bytes());
            most = std::max(most, held);
        }
        TRY(capsule_->set_memory_max(most));
        return limit_swap(most);
    };
    const Status done = set();
    if (!done) warn("a job is not limited", done.error());
    limit_cpus(true);
    return done.has_value();
}

Status CellGroups::limit_swap(int64_t memory_max) const {
    return site_.swap_mb < 0 ? Status{} : capsule_->set_swap_max(site_.swap_mb << 20, memory_max);
}

// While the job is dumped its CPUs are not limited: CRIU's work in its processes would wait for the
// next period of the scheduler.
void CellGroups::limit_cpus(bool on) {
    count_memory(on);
    cpus_limited_ = on;
    write_cpus_max(on);
}

void CellGroups::dump_begins() {
    limit_cpus(false);
    if (!use().memory || !capsule_) return;
    const auto lift = [&]() -> Status {
        TRY_ASSIGN(const int64_t held, capsule_->memory_bytes());
        const int64_t most = std::max(job_.memory_mb << 20, held) + held;
        TRY(limit_swap(most));  // on v1 it bounds both, and the other may not be more
        return capsule_->set_memory_max(most);
    };
    memory_lifted_ = true;
    if (const Status lifted = lift(); !lifted)
        warn("a job may have too little memory for its dump", lifted.error());
}

void CellGroups::dump_ends() {
    limit_cpus(true);
    memory_is_free();
}

// As long as the image is in memory the limit stays: a lower one would have a process killed.
void CellGroups::memory_is_free() {
    if (!memory_lifted_ || !use().memory || !capsule_) return;
    const auto lower = [&]() -> Status {
        const int64_t most = job_.memory_mb << 20;
        TRY_ASSIGN(const bool fits, capsule_->lower_memory_max(most));
        memory_lifted_ = !fits;
        return fits ? limit_swap(most) : Status{};
    };
    if (const Status lowered = lower(); !lowered) warn("a job is not limited", lowered.error());
}

// A group that nobody had before this capsule has no peak but the job's.
void CellGroups::found_running(bool runs) {
    cpus_limited_ = runs;
    count_memory(runs);
    memory_lifted_ = true;  // the daemon before this one may have been about to dump it
    if (runs) memory_is_free();
    if (runs && used_.ns == 0 && !job_.from_image) peak_before_ = 0;
}

void CellGroups::node_bound(bool on) {
    if (cpus_limited_) write_cpus_max(on);
}

void CellGroups::write_cpus_max(bool on) {
    if (!capsule_ || !limits_cpus()) return;
    const auto set = capsule_->set_cpus_max(on ? job_.cpus : 0);
    // On v1 no group may have more than its parent: then the owner lends less, and that holds.
    if (!set && set.error().code != EINVAL) warn("a job's CPUs are not limited", set.error());
}

// -------------------------------------------------------------------------------------------------
// use

std::string CellGroups::what_killed() const {
    if (!capsule_ || !site_.limits.memory || job_.memory_mb <= 0) return {};
    const auto kills = capsule_->memory_kills();
    if (!kills || *kills == 0) return {};
    return "a process of it was killed: it may have " + std::to_string(job_.memory_mb) +
           " MB of memory (srun -m)";
}

std::optional<uint64_t> CellGroups::memory_held() const {
    if (!capsule_) return std::nullopt;
    const auto held = capsule_->memory_bytes();
    if (!held) return std::nullopt;
    return static_cast<uint64_t>(*held);
}

// The kernel's peak of a group is never set back: it holds what a job before has used, and what
// CRIU has used in a dump or a restore. So the peak counts only as far as it has grown while the
// job alone was there; until then what the job holds at each look does.
int64_t CellGroups::memory_peak() {
    if (peak_before_ < 0 || !capsule_) return peak_;
    if (const auto held = capsule_->memory_bytes()) peak_ = std::max(peak_, *held);
    if (const auto most = capsule_->memory_peak_bytes(); most && *most > peak_before_)
        peak_ = std::max(peak_, *most);
    return peak_;
}

void CellGroups::count_memory(bool on) {
    (void)memory_peak();
    peak_before_ = -1;
    if (on && capsule_) peak_before_ = capsule_->memory_peak_bytes().value_or(0);
}

uint64_t CellGroups::memory_bytes() const {
    return memory_held().value_or(static_cast<uint64_t>(job_.memory_mb << 20));
}

}  // namespace souk
