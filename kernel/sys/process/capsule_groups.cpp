// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/capsule_groups.hpp"

#include <sys/inotify.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/disks.hpp"

namespace souk {
namespace {

// A group may be used again while it is charged for no more than this. The kernel charges a
// capsule's kernel memory for a moment after its end, and each CPU holds some pages in advance.
constexpr int64_t charged_bytes_max = 1 << 20;
constexpr int64_t memory_parts = 32;
// No write sets back what the kernel counts in a group (cpu.stat, memory.peak). A group that has
// served so much makes way for a new one, so that a job that looks there finds little of others.
constexpr Nanos used_max = Nanos::from_s(1);
constexpr int64_t peak_bytes_max = 64 << 20;
constexpr Nanos empty_group_limit = Nanos::from_s(1);

bool same(const CgroupUse& a, const CgroupUse& b) {
    return a.cpu == b.cpu && a.memory == b.memory && a.pids == b.pids && a.io == b.io;
}

// "c7" -> 7
std::optional<uint64_t> number_of(std::string_view name) {
    if (!name.starts_with('c')) return std::nullopt;
    return whole_number<uint64_t>(name.substr(1));
}

// If a limit of the next job could not be set, it would have the one of the job before.
Status lift_limits(const Cgroup& group) {
    if (group.has("cpu")) TRY(group.set_cpus_max(0));
    // A machine without swap has no such limit.
    if (group.has("memory")) (void)group.set_swap_max(-1, 0);
    if (group.has("memory")) TRY(group.set_memory_max(0));
    if (group.has("io") || group.has("blkio")) TRY(group.set_io_max(whole_disks(), 0));
    if (group.has("pids")) TRY(group.set_pids_max(0));
    return {};
}

}  // namespace

CapsuleGroups::CapsuleGroups(const Cgroups& cgroups, std::string parent, size_t kept_max)
    : cgroups_(cgroups),
      parent_(std::move(parent)),
      kept_max_(cgroups.layout().v2.empty() ? 0 : kept_max) {
    if (kept_max_ > 0) changes_ = Fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    // A new group never takes the name of one that an earlier daemon has left.
    if (const auto left = cgroups_.list(parent_))
        for (const std::string& own : *left) pass(own);
}

void CapsuleGroups::pass(std::string_view own) {
    next_ = std::max(next_, number_of(own).value_or(0) + 1);
}

CapsuleGroups::~CapsuleGroups() { drop_kept(Nanos::never(), Nanos{}); }

Result<CapsuleGroup> CapsuleGroups::make(const std::string& name, CgroupUse use) const {
    TRY_ASSIGN(Cgroup capsule, cgroups_.create(name, use));
    TRY_ASSIGN(Cgroup job, cgroups_.create(name + "/job"));
    return CapsuleGroup{std::move(capsule), std::move(job), {}};
}

bool CapsuleGroups::watch(const CapsuleGroup& group, Watched& watched) const {
    for (const Cgroup* one : {&group.capsule, &group.job})
        for (const int dir : one->dirs()) {
            const int number = ::inotify_add_watch(
                changes_.get(), ("/proc/self/fd/" + std::to_string(dir)).c_str(),
                IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO);
            if (number < 0) return false;
            watched.watches.push_back(number);
        }
    return true;
}

Result<CapsuleGroup> CapsuleGroups::take(CgroupUse use, int64_t memory_bytes) {
    const auto fits = [&](const Kept& k) {
        return same(watched_.at(k.group.capsule.name()).use, use) &&
               k.charged_bytes <= memory_bytes / memory_parts;
    };
    // The one that was used last: its memory is in the caches.
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
    if (memory_bytes > 0 && found != kept_.rend()) {
        CapsuleGroup group = std::move(found->group);
        kept_.erase(std::next(found).base());
        return group;
    }
    const std::string name = parent_ + "/c" + std::to_string(next_++);
    TRY_ASSIGN(CapsuleGroup group, make(name, use));
    bool realtime = group.capsule.allows_realtime();
    const auto holds_realtime = [&](const Kept& k) {
        return watched_.at(k.group.capsule.name()).realtime;
    };
    if (!realtime && std::any_of(kept_.begin(), kept_.end(), holds_realtime)) {
        drop_kept(Nanos::never(), Nanos{});
        TRY_ASSIGN(group.capsule, cgroups_.create(name, use));
        realtime = group.capsule.allows_realtime();
    }
    Watched watched{use, {}, realtime, false, false};
    if (memory_bytes > 0 && changes_ && watch(group, watched)) {
        for (const int number : watched.watches) watches_[number] = name;
        watched_[name] = std::move(watched);
    } else {
        for (const int number : watched.watches) ::inotify_rm_watch(changes_.get(), number);
    }
    return group;
}

void CapsuleGroups::job_begins(const std::string& capsule) {
    const auto found = watched_.find(capsule);
    if (found == watched_.end()) return;
    look();
    found->second.begun = true;
    found->second.changed = false;
}

Result<CapsuleGroup> CapsuleGroups::find(const std::string& capsule, CgroupUse use, Nanos used) {
    pass(std::string_view(capsule).substr(std::min(parent_.size() + 1, capsule.size())));
    TRY_ASSIGN(CapsuleGroup group, make(capsule, use));
    group.used = used;
    return group;
}

// Notes what has been changed since the last look.
void CapsuleGroups::look() {
    alignas(inotify_event) char buffer[8192];
    ssize_t n = 0;
    while ((n = ::read(changes_.get(), buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < n;) {
            const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
            at += static_cast<ssize_t>(sizeof *event + event->len);
            const std::string_view file = event->len > 0 ? event->name : "";
            if (event->mask & IN_Q_OVERFLOW)
                for (auto& [name, watched] : watched_) watched.changed = true;
            if (event->mask & IN_IGNORED) continue;
            // The kernel says there that the last process has left.
            if (event->mask & IN_MODIFY && file == "cgroup.events") continue;
            if (const auto of = watches_.find(event->wd); of != watches_.end())
                watched_.at(of->second).changed = true;
        }
}

bool CapsuleGroups::as_new(CapsuleGroup& group, int64_t& charged_bytes) {
    const auto found = watched_.find(group.capsule.name());
    if (found == watched_.end() || !found->second.begun) return false;
    look();
    if (found->second.changed) return false;
    // The group came too late for a part of the time for real-time policies. A new one may get it.
    const bool others_have = std::any_of(watched_.begin(), watched_.end(),
                                         [](const auto& w) { return w.second.realtime; });
    if (!found->second.realtime && others_have) return false;
    // If this group is empty, so are those in the hierarchies of v1: a process that enters one
    // there writes its number, which was noticed.
    const auto events = read_file(group.capsule.entry().v2, "cgroup.events");
    if (!events || events->find("populated 0") == std::string::npos) return false;
    const auto used = group.capsule.cpu_time();
    const auto reached = group.capsule.limit_was_reached();
    if (!used || *used > used_max || !reached || *reached) return false;
    group.used = *used;
    charged_bytes = 0;
    if (group.capsule.has("memory")) {
        const auto charged = group.capsule.memory_bytes(), peak = group.capsule.memory_peak_bytes();
        if (!charged || *charged > charged_bytes_max || !peak || *peak > peak_bytes_max)
            return false;
        charged_bytes = *charged;
    }
    return lift_limits(group.capsule).has_value();
}

Status CapsuleGroups::give_back(CapsuleGroup group, Nanos wait_max) {
    int64_t charged_bytes = 0;
    if (kept_.size() < kept_max_ && as_new(group, charged_bytes)) {
        watched_.at(group.capsule.name()).begun = false;
        kept_.push_back({std::move(group), charged_bytes, monotonic_now()});
        return {};
    }
    return remove(std::move(group), wait_max);
}

Status CapsuleGroups::remove(CapsuleGroup group, Nanos wait_max) {
    if (const auto found = watched_.find(group.capsule.name()); found != watched_.end()) {
        for (const int number : found->second.watches) {
            ::inotify_rm_watch(changes_.get(), number);
            watches_.erase(number);
        }
        watched_.erase(found);
    }
    (void)group.job.remove(wait_max);  // what it holds keeps the one above
    return group.capsule.remove(wait_max);
}

Status CapsuleGroups::remove_others(const std::vector<std::string>& in_use, Nanos wait_max) {
    TRY_ASSIGN(const auto names, cgroups_.list(parent_));
    Status all;
    for (const std::string& own : names) {
        const std::string name = parent_ + "/" + own;
        if (std::find(in_use.begin(), in_use.end(), name) != in_use.end()) continue;
        if (Status removed = cgroups_.remove(name, wait_max); !removed) all = std::move(removed);
    }
    return all;
}

void CapsuleGroups::drop_kept(Nanos now, Nanos kept_for) {
    const auto stay = std::stable_partition(
        kept_.begin(), kept_.end(), [&](const Kept& k) { return now - k.since < kept_for; });
    for (auto it = stay; it != kept_.end(); ++it)
        (void)remove(std::move(it->group), empty_group_limit);
    kept_.erase(stay, kept_.end());
}

}  // namespace souk
