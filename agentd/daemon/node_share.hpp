// SPDX-License-Identifier: GPL-2.0-or-later
// NodeShare: the part of this machine that guests have: the control group of the node, in which
// every capsule is born, and below it the one that holds all jobs. The daemon and its dumps stay
// outside, so that a busy job cannot hold them up. Owned by the Agent.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/provider.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/process/capsule_groups.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

class NodeShare {
  public:
    // `group`: "souk/n1". Null: this machine has no control groups, which the log says.
    // `end`: who kills what is left in a group.
    static Result<std::unique_ptr<NodeShare>> open(Log& log, const std::string& group,
                                                   int64_t cpu_weight,
                                                   EndProgram end = kill_program);
    // Use open().
    NodeShare(Log& log, Cgroups cgroups, Cgroup share, const std::string& jobs);

    const Cgroups& cgroups() const { return cgroups_; }
    CapsuleGroups& capsules() { return capsules_; }
    // The limits of a capsule that this machine has controllers for.
    const CgroupUse& limits() const { return limits_; }
    // The files of tasks of the node's group, where v1 has the CPU controller.
    std::vector<int> v1_tasks() const;

    // The same where v1 has the controller of disks, in which a capsule has no group of its own.
    std::vector<int> v1_io_tasks() const;

    // How guests stand behind the owner. idle: they run on what he leaves, their disks come last,
    // and they get no more memory while he wants it. leaving: what takes them away (CRIU, in their
    // groups) gets a small share and the memory that it needs, so that it ends.
    enum class Rank : uint8_t { offered, idle, leaving };
    // Sets the weight of all jobs together, against the 100 of the rest of the machine. It leaves
    // out what this machine has no controller for. An error: something failed; call it again.
    Status rank(Rank rank, int64_t cpu_weight);
    // Lifts the bounds of each guest, or sets them again.
    using OwnBounds = std::function<void(bool on)>;
    // Bounds what all guests use together by what the owner lends: CPUs at once, memory when they
    // hold no more than that. Until then the market moves or freezes guests that the node has no
    // room for, and none is killed; call it again then. An error: CPUs are not bounded so.
    Status bound(const MachineSize& lent, const MachineSize& all, const OwnBounds& own);
    // Guests hold more memory than what is lent.
    bool memory_waits(int64_t memory_mb, const MachineSize& all) const;

  private:
    Status rank_cpu(const Cgroup& group, Rank rank, int64_t weight) const;
    Status rank_top(Rank rank, int64_t weight) const;
    Status rank_memory(Rank rank) const;
    bool try_limit(const std::string& jobs, bool CgroupUse::*controller, const char* name);
    Status bound_cpus(int64_t milli, bool bursts, const OwnBounds& own);
    void bound_memory(int64_t memory_mb);
    void trouble(const char* what, const Error& why);

    Log& log_;
    const Cgroups cgroups_;
    CapsuleGroups capsules_;
    Cgroup share_;
    std::optional<Cgroup> jobs_;  // if their memory can be bounded
    std::optional<Cgroup> io_;    // of the node, if disks can be shared by weight
    Rank rank_ = Rank::offered;
    CgroupUse limits_;
    int64_t milli_in_force_ = -1, memory_in_force_mb_ = -1;  // 0: no bound
};

}  // namespace souk
