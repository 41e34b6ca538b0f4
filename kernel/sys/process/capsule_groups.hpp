// SPDX-License-Identifier: GPL-2.0-or-later
// CapsuleGroups: the control groups of a node's capsules: for each capsule one, and below it one of
// its job. To make and remove them in each hierarchy costs more than a short job itself, so a few
// that are as good as new are kept for the next capsule. An agent owns one. Groups that are kept
// are removed with it, those of capsules stay.
//
// A kept group is as good as new: no process is in it, no limit was reached, next to no memory is
// charged to it, and nobody but the agent has written to a file of it or made a group below it (a
// job of root can; inotify tells of it). Its limits are lifted before it is kept, and set again for
// the next job, so a group only serves a job that is limited by the same controllers. What the
// kernel has counted (CPU time, the most memory) stays, and readers subtract it; a group that has
// served a second of CPU time, or 64 MB at once, is removed.
//
// One thing is not noticed: a BPF program that a job of root attaches to its group stays there for
// the next job (a group that the job makes below its own, as container runtimes do, is noticed).
//
// Names are numbers ("c7"): a v2 group cannot be renamed. Who finds a capsule again must know its
// group's name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

struct CapsuleGroup {
    Cgroup capsule, job;
    Nanos used;  // CPU time that capsules before this one had there
};

class CapsuleGroups {
  public:
    // The groups are below `parent`. At most `kept_max` are kept; 0: none. `cgroups` must outlive
    // this.
    CapsuleGroups(const Cgroups& cgroups, std::string parent, size_t kept_max);
    CapsuleGroups(const CapsuleGroups&) = delete;
    CapsuleGroups& operator=(const CapsuleGroups&) = delete;
    ~CapsuleGroups();

    const std::string& parent() const { return parent_; }
    // Takes groups for a new capsule. `memory_bytes` is what its job may have. A group that was
    // kept may still be charged for some memory, at most 1/32 of that. 0: makes new ones, to which
    // nothing is charged and which limit nothing.
    Result<CapsuleGroup> take(CgroupUse use, int64_t memory_bytes);
    // The limits are set and the job begins: what is changed from now on is not the agent's doing.
    void job_begins(const std::string& capsule);
    // Takes the groups of a capsule that was found.
    Result<CapsuleGroup> find(const std::string& capsule, CgroupUse use, Nanos used = {});
    // Takes back the groups of a capsule that has ended. They are kept, or removed with what is
    // left in them (at most `wait_max`).
    Status give_back(CapsuleGroup group, Nanos wait_max);
    // Removes the groups of capsules that nobody knows. in_use names those that are known.
    Status remove_others(const std::vector<std::string>& in_use, Nanos wait_max);
    // Removes those that have been kept for that long.
    void drop_kept(Nanos now, Nanos kept_for);
    size_t kept() const { return kept_.size(); }

  private:
    struct Watched {
        CgroupUse use;
        std::vector<int> watches;  // of inotify
        bool realtime = false;     // it has its part of the time for real-time policies
        bool begun = false, changed = false;
    };
    struct Kept {
        CapsuleGroup group;
        int64_t charged_bytes;
        Nanos since;
    };
    Result<CapsuleGroup> make(const std::string& name, CgroupUse use) const;
    bool watch(const CapsuleGroup& group, Watched& watched) const;
    void look();
    void pass(std::string_view own);
    bool as_new(CapsuleGroup& group, int64_t& charged_bytes);
    Status remove(CapsuleGroup group, Nanos wait_max);

    const Cgroups& cgroups_;
    const std::string parent_;
    const size_t kept_max_;
    uint64_t next_ = 1;
    Fd changes_;                              // inotify
    std::map<std::string, Watched> watched_;  // by the capsule's group
    std::map<int, std::string> watches_;      // the group that each is of
    std::vector<Kept> kept_;                  // the latest last
};

}  // namespace souk
