// SPDX-License-Identifier: GPL-2.0-or-later
// CellGroups: the control groups of a capsule, and of the job below it: what they limit the job to,
// what it uses, and how it is stopped. Owned by the Cell. Without control groups on this node it
// has none, and limits nothing. What fails: the kernel's files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agentd/cell/cell_site.hpp"
#include "agentd/cell/lease_watch.hpp"
#include "agentd/core/guest_io.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

class CellGroups final : public JobGroup {
  public:
    CellGroups(CellSite& site, const GuestJob& job) : site_(site), job_(job) {}

    // Takes groups for a new capsule, unless it has some.
    Status take();
    // Finds those of a capsule that has outlived its agentd. An error: there are none.
    Status find(const std::string& name, Nanos used);
    // Gives them back, when no process is in them. An error: they cannot be removed.
    Status give_back();

    // The group of the job, as LeaseWatch stops it. there(): this node has one.
    bool there() const override { return job_group_.has_value(); }
    Status freeze(Nanos wait_max) const override { return job_group_->freeze(wait_max); }
    Status stop() const override { return job_group_->stop(); }
    Status thaw() const override { return job_group_->thaw(); }
    // The job can be stopped as a whole (cgroup v2).
    bool can_stop() const { return job_group_ && job_group_->entry().v2 >= 0; }
    // Descriptor of the job's directory in cgroup v2; below 0: there is none.
    int job_entry() const { return job_group_ ? job_group_->entry().v2 : -1; }
    int capsule_entry() const { return capsule_ ? capsule_->entry().v2 : -1; }
    const std::optional<Cgroup>& job_group() const { return job_group_; }
    // The processes of the job.
    Result<std::vector<pid_t>> pids() const;
    // Every v1 hierarchy that a process of the capsule must enter.
    std::vector<int> v1_tasks() const;
    // Processes with a real-time policy can run there.
    bool allows_realtime() const { return !capsule_ || capsule_->allows_realtime(); }

    // "n1/jobs/c7"; empty: there is none.
    const std::string& name() const { return name_; }
    // The directory in cgroup v2; empty: there is none.
    std::string directory() const;
    // CPU time that capsules before this one used in the group.
    Nanos used_before() const { return used_; }

    // Limits the job, when it is about to start or has just been restored. False: some limit does
    // not hold.
    bool set_limits();
    // The job begins in groups that hold no more than they should.
    void job_begins() const { site_.groups->job_begins(name_); }
    // For the time of a dump its CPUs are not limited, and the capsule may hold twice what it
    // holds: souk-init, which is in it, copies the job's own file systems of memory into the image.
    void dump_begins();
    void dump_ends();
    // An image of the job is gone, so its limit of memory may hold again.
    void memory_is_free();
    // The bound of the CPUs of all guests is being set: off, this one has none of its own.
    void node_bound(bool on);
    // The job was found running, so its CPUs are limited.
    void found_running(bool runs);

    // Why the kernel has killed a process of the job; empty: it has not.
    std::string what_killed() const;
    // The memory that the capsule holds; if that is not counted, the memory that it may hold.
    uint64_t memory_bytes() const;
    // The same, if it is counted.
    std::optional<uint64_t> memory_held() const;
    // The most that the job has held at once in this capsule, in bytes; 0: it is not counted.
    int64_t memory_peak();

  private:
    CgroupUse use() const;
    void use_groups(CapsuleGroup groups);
    bool limits_cpus() const { return site_.limits.cpu && job_.cpus < site_.cpus; }
    void limit_cpus(bool on);
    void write_cpus_max(bool on);
    Status limit_swap(int64_t memory_max) const;
    void count_memory(bool on);
    void warn(const char* what, const Error& why) const;

    CellSite& site_;
    const GuestJob& job_;
    std::optional<Cgroup> capsule_, job_group_;
    std::string name_;
    Nanos used_;
    bool cpus_limited_ = false;  // by its own group, or it is to be
    bool memory_lifted_ = false;
    // The kernel's peak of the group when the job alone began to use it; below 0: CRIU uses it now.
    int64_t peak_before_ = -1;
    int64_t peak_ = 0;
};

}  // namespace souk
