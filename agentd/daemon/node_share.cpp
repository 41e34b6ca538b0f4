// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/node_share.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/loop/loop.hpp"

namespace souk {
namespace {

// A restore needs so much beside the jobs' own memory, because CRIU works inside of their groups.
constexpr int64_t restore_room_bytes = 32 << 20;

// For the jobs that run at once, and for those that end while they do.
size_t kept_groups_max() { return 2 * static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN)) + 8; }

// 0: all that the machine has.
int64_t bound_of(int64_t offered, int64_t all) { return offered < all ? offered : 0; }

}  // namespace

Result<std::unique_ptr<NodeShare>> NodeShare::open(Log& log, const std::string& group,
                                                   int64_t cpu_weight, EndProgram end) {
    const size_t slash = group.find('/');
    const std::string node = group.substr(slash + 1);
    auto cgroups = Cgroups::open(group.substr(0, slash));
    if (!cgroups) {
        log.warning("no control groups: a job is not held while its daemon is away during a dump",
                    {{"WHY", cgroups.error()}});
        return std::unique_ptr<NodeShare>();
    }
    cgroups->killed_by(std::move(end));
    auto share = cgroups->create(node, CgroupUse{.cpu = true});
    if (!share) share = cgroups->create(node);
    if (!share) return tl::unexpected(share.error());
    auto opened =
        std::make_unique<NodeShare>(log, std::move(*cgroups), std::move(*share), node + "/jobs");
    if (auto set = opened->rank(Rank::offered, cpu_weight); !set)
        log.warning("no CPU share", {{"WHY", set.error()}});
    return opened;
}

NodeShare::NodeShare(Log& log, Cgroups cgroups, Cgroup share, const std::string& jobs)
    : log_(log),
      cgroups_(std::move(cgroups)),
      capsules_(cgroups_, jobs, kept_groups_max()),
      share_(std::move(share)) {
    limits_.memory = try_limit(jobs, &CgroupUse::memory, "memory");
    limits_.pids = try_limit(jobs, &CgroupUse::pids, "pids");
    limits_.cpu = try_limit(jobs, &CgroupUse::cpu, "cpu");
    limits_.io = try_limit(jobs, &CgroupUse::io, cgroups_.layout().in_v2("io") ? "io" : "blkio");
    const std::string node = jobs.substr(0, jobs.rfind('/'));
    if (auto group = cgroups_.create(node, CgroupUse{.io = true});
        group && (group->has("io") || group->has("blkio")) && group->set_io_weight(100))
        io_ = std::move(*group);
    if (!limits_.memory) return;
    if (auto group = cgroups_.create(jobs, CgroupUse{.memory = true})) jobs_ = std::move(*group);
}

// Notes that this controller limits jobs, if this machine has it (souk doctor).
bool NodeShare::try_limit(const std::string& jobs, bool CgroupUse::*controller, const char* name) {
    CgroupUse use;
    use.*controller = true;
    const auto group = cgroups_.create(jobs, use);
    if (!group)
        log_.warning("jobs are not limited", {{"controller", name}, {"WHY", group.error()}});
    return group && group->has(name);
}

namespace {

std::vector<int> tasks_of(const Cgroup& group) {
    std::vector<int> all;
    for (const int tasks : group.entry().v1_tasks)
        if (tasks >= 0) all.push_back(tasks);
    return all;
}

// The whole of it, whatever comes of each part.
void note(Status& all, const Status& part) {
    if (all && !part) all = part;
}

}  // namespace

std::vector<int> NodeShare::v1_tasks() const { return tasks_of(share_); }

std::vector<int> NodeShare::v1_io_tasks() const {
    return io_ && io_->has("blkio") ? tasks_of(*io_) : std::vector<int>{};
}

// A group that is idle takes no weight.
Status NodeShare::rank_cpu(const Cgroup& group, Rank rank, int64_t weight) const {
    const bool idle = rank == Rank::idle;
    Status done;
    const auto set_idle = [&] {
        const Status set = group.set_cpu_idle(idle);
        if (!set && set.error().code != ENOENT) note(done, set);  // an older kernel
    };
    if (group.cpu_idle()) set_idle();
    if (!group.cpu_idle()) {
        note(done, group.set_cpu_weight(weight));
        set_idle();
    }
    return done;
}

// The node's group competes with those beside it in the root; the root, with the owner's. Other
// nodes of this machine may have guests lowered too.
Status NodeShare::rank_top(Rank rank, int64_t weight) const {
    TRY_ASSIGN(const Cgroup top, cgroups_.top(CgroupUse{.cpu = true}));
    if (rank == Rank::offered) {
        TRY_ASSIGN(const auto nodes, cgroups_.list());
        for (const std::string& node : nodes) {
            const auto group = cgroups_.create(node, CgroupUse{.cpu = true});
            if (group && group->cpu_idle()) return {};
        }
    }
    return rank_cpu(top, rank, weight);
}

Status NodeShare::rank_memory(Rank rank) const {
    if (!jobs_) return {};
    if (rank != Rank::idle) return jobs_->set_memory_high(0);
    TRY_ASSIGN(const int64_t held, jobs_->memory_bytes());
    return jobs_->set_memory_high(std::max<int64_t>(held, 1 << 20));
}

Status NodeShare::rank(Rank rank, int64_t cpu_weight) {
    constexpr int64_t least = 1, leaves = 10, normal = 100;
    if (!share_.has("cpu"))
        return fail_errno("this machine has no controller of CPUs for groups", ENOTSUP);
    rank_ = rank;
    const int64_t behind = rank == Rank::idle ? least : leaves;
    const int64_t weight = rank == Rank::offered ? cpu_weight : behind;
    Status done = rank_cpu(share_, rank, weight);
    // The weight of all guests together counts in the group where they meet the owner's processes.
    note(done, rank_top(rank, weight));
    if (io_) note(done, io_->set_io_weight(rank == Rank::offered ? normal : least));
    note(done, rank_memory(rank));
    return done;
}

void NodeShare::trouble(const char* what, const Error& why) {
    log_.limited("bounds", Loop::now(), Level::warning, "what guests use in all is not bounded",
                 {{"of", what}, {"WHY", why}});
}

Status NodeShare::bound(const MachineSize& lent, const MachineSize& all, const OwnBounds& own) {
    bound_memory(bound_of(lent.memory_mb, all.memory_mb));
    const bool whole = lent.cpu_milli % 1'000 == 0;
    return bound_cpus(bound_of(lent.cpu_milli, all.cpu_milli), whole, own);
}

// On v1 no group may have more than the one above it: then a guest has only the bound of all. A
// restore is a burst; not of a part of a CPU, which is what the owner bears at most.
Status NodeShare::bound_cpus(int64_t milli, bool bursts, const OwnBounds& own) {
    if (!share_.has("cpu") || milli_in_force_ == milli) return {};
    const bool nested = !cgroups_.layout().in_v2("cpu") && own;
    if (nested) own(false);
    const Status set = share_.set_cpu_milli_max(milli, bursts);
    if (nested) own(true);
    if (set)
        milli_in_force_ = milli;
    else
        trouble("CPUs", set.error());
    return set;
}

void NodeShare::bound_memory(int64_t memory_mb) {
    if (!jobs_ || memory_in_force_mb_ == memory_mb) return;
    if (memory_mb == 0) {
        if (const Status lifted = jobs_->set_memory_max(0); !lifted)
            return trouble("memory", lifted.error());
    } else {
        const auto set = jobs_->lower_memory_max((memory_mb << 20) + restore_room_bytes);
        if (!set) return trouble("memory", set.error());
        if (*set) memory_in_force_mb_ = memory_mb;
    }
    if (memory_mb == 0) memory_in_force_mb_ = 0;
    if (const Status high = rank_memory(rank_); !high) trouble("memory", high.error());
}

bool NodeShare::memory_waits(int64_t memory_mb, const MachineSize& all) const {
    return jobs_ && memory_in_force_mb_ != bound_of(memory_mb, all.memory_mb);
}

}  // namespace souk
