// SPDX-License-Identifier: GPL-2.0-or-later
// Cgroups: the directory `souk` at the top of each cgroup hierarchy of this machine, found from
// /proc/self/mountinfo. Cgroup: one group below it, of a node ("n1") or a job ("n1/jobs/n1.7"), in
// the hierarchies that it needs; owns directory fds, not processes. Dropping a Cgroup leaves the
// group; remove() ends it and everything in it.
//
// Where what lives: processes, freezing, killing and CPU time are asked of cgroup v2 wherever it is
// mounted, even beside v1 controllers (its core needs none). Limits go to v2 where its root offers
// the controller, else to v1. Without any v2 mount the v1 freezer, cpuacct and signals stand in.
//
// Cost, measured on a 6.18 kernel: writing another process into cgroup.procs waits for an RCU grace
// period, 5 to 16 ms each. So nothing that must be quick moves a process: it is born in its group
// (fork_into: clone3 CLONE_INTO_CGROUP, 0.1 ms) and enters v1 hierarchies itself while
// single-threaded (0.01 ms each). CRIU started that way restores its job into the group
// (--manage-cgroups=ignore).
//
// Every error names the group and the file. ENOTSUP: this machine has no such controller.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk {

// Mount points, empty where there is none. `v2_controllers` is v2's root cgroup.controllers.
struct CgroupLayout {
    std::string v2;
    std::vector<std::string> v2_controllers;
    std::map<std::string, std::string> v1;  // controller -> mount point
    bool in_v2(std::string_view controller) const;
};
// Parses the text of mountinfo and reads v2's root. Never fails: an empty layout has no cgroups.
CgroupLayout detect_cgroups(const std::string& mountinfo);

// Makes the groups of a node ("n1" below the root "souk") in each hierarchy. Gives them, all below
// them, and the root, which the node shares with others, to that user. If the user is root, it only
// gives back what is there. Only root may call this.
Status hand_over_groups(const CgroupLayout& layout, const std::string& root,
                        const std::string& node, uint32_t uid, uint32_t gid);

// A process needs these to be born into a group; they are valid while the Cgroup lives. They are
// plain numbers, so that they can be used after a fork.
struct CgroupEntry {
    int v2 = -1;                                          // directory fd for CLONE_INTO_CGROUP
    std::array<int, 6> v1_tasks{-1, -1, -1, -1, -1, -1};  // open `tasks` files
};
// Enters the v1 hierarchies, in the new, single-threaded process. Async-signal-safe; 0 or an errno.
int enter_v1(const CgroupEntry& entry);

struct Forked {
    bool is_child = false;
    Pidfd pidfd;  // in the parent
};
// clone3(2) into the group with CLONE_PIDFD, SIGCHLD and `flags` (say CLONE_NEWPID); the child is
// in every hierarchy of the group when this returns there (it exits 125 if it could not enter).
// Like vfork's rules after a fork in a threaded program: the child calls async-signal-safe
// functions alone and execs.
Result<Forked> fork_into(const CgroupEntry& entry, uint64_t flags = 0);

// Limits that a group will be given; its v1 hierarchies are made only for these, as each costs a
// directory.
struct CgroupUse {
    bool cpu = false;
    bool memory = false;
    bool pids = false;
    bool io = false;
};

// A name is parts of [A-Za-z0-9._-], split by '/'.
bool valid_cgroup_name(std::string_view name);

class Cgroup {
  public:
    Cgroup(Cgroup&&) = default;
    Cgroup& operator=(Cgroup&&) = default;

    const std::string& name() const { return name_; }
    // The kernel's id of the v2 group (what BPF sees); 0 without v2.
    uint64_t id() const { return id_; }
    CgroupEntry entry() const;
    // Tells whether the group has limits of that controller, as it was created to.
    bool has(std::string_view controller) const { return find(controller) != nullptr; }

    // Moves a process and its threads here. Slow (see above): for a daemon that starts, not for a
    // job.
    Status add(pid_t pid) const;
    // CPU share against siblings, 1 to 10000, 100 is normal.
    Status set_cpu_weight(int64_t weight) const;
    // Lets its processes run on what others leave alone (the group's SCHED_IDLE). ENOENT: a kernel
    // before 5.15. While that is on, no weight can be set.
    Status set_cpu_idle(bool idle) const;
    bool cpu_idle() const;
    // Share of the disks, as of CPUs. ENOENT: no scheduler of disks that has one.
    Status set_io_weight(int64_t weight) const;
    // Memory beyond this is reclaimed first (v1: when memory is short); 0 lifts that.
    Status set_memory_high(int64_t bytes) const;
    // CPUs that all processes here may use together; 0 lifts the limit. EINVAL (v1): a group above
    // or below has another idea. bursts: what was left of a tenth of a second may be used up in the
    // next.
    Status set_cpus_max(int64_t cpus, bool bursts = false) const;
    // Sets the same limit in thousandths of a CPU; the least is 10.
    Status set_cpu_milli_max(int64_t milli, bool bursts = false) const;
    // Returns false if nothing in the group may have a real-time policy (v1 with RT_GROUP_SCHED,
    // and no time is left for it).
    bool allows_realtime() const;
    // Limits the memory, in bytes; 0 lifts the limit.
    Status set_memory_max(int64_t bytes) const;
    // Limits the swap that is held, in bytes; below 0: any. `memory_max` is the group's limit of
    // memory, for v1, where one limit is of both and is never below that of memory.
    Status set_swap_max(int64_t bytes, int64_t memory_max) const;
    // Limits the reads from each of these disks ("254:0"), and the writes to it, in bytes a second;
    // 0 lifts the limit.
    Status set_io_max(const std::vector<std::string>& disks, int64_t bytes_per_s) const;
    // Does as set_memory_max, but kills nobody: memory beyond the limit is given back where it can
    // be. False: the group holds more, and the limit is as it was.
    Result<bool> lower_memory_max(int64_t bytes) const;
    // Limits processes and threads; 0 lifts the limit.
    Status set_pids_max(int64_t count) const;
    // Returns how many processes the kernel has killed because set_memory_max's limit was reached.
    Result<int64_t> memory_kills() const;

    // Stops every process here and below, and returns when the kernel says that all are; ETIMEDOUT
    // after `wait_max`, and then the group is thawed again.
    Status freeze(Nanos wait_max) const;
    Status thaw() const;
    // Asks for it, and does not wait: nothing here runs code of its own from then on.
    Status stop() const;
    // The file that stops it, open for reading and writing, and what to write there: for a process
    // that outlives this one.
    Result<Fd> open_freezer() const;
    std::string_view freezer_word() const;
    // SIGKILL to every process here and below, frozen or not; returns when all have exited.
    // ETIMEDOUT.
    Status kill_all(Nanos wait_max) const;
    // Kills, then removes the group and those below. ETIMEDOUT; ok if it is gone already.
    Status remove(Nanos wait_max);

    // Returns the group's directories, open as long as it is there.
    std::vector<int> dirs() const;
    // Processes here and below, sorted; 0 is never among them.
    Result<std::vector<pid_t>> pids() const;
    Result<Nanos> cpu_time() const;
    Result<int64_t> memory_bytes() const;
    // The most that was held at once, since the group was made. ENOENT: a v2 before kernel 5.19.
    Result<int64_t> memory_peak_bytes() const;
    // Tells whether the kernel has refused or killed anything here for a limit of memory or
    // processes, since the group was made. False for a controller that it does not have.
    Result<bool> limit_was_reached() const;

  private:
    friend class Cgroups;
    struct Member {  // the group in one hierarchy
        std::string path;
        Fd dir, tasks;
        bool v2 = false;
    };
    Cgroup() = default;
    const Member* find(std::string_view controller) const;
    Result<const Member*> need(std::string_view controller) const;
    // Sets a limit in the file of that version's controller; 0: no limit.
    Status limit_memory(const char* v2, const char* v1, int64_t bytes) const;
    const Member& tracker() const;  // the hierarchy that processes are counted in
    Status wait_event(std::string_view line, Nanos wait_max) const;
    Status wait_v1_freezer(std::string_view state, Nanos wait_max) const;

    std::string name_;
    EndProgram end_ = kill_program;
    uint64_t id_ = 0;
    std::vector<Member> members_;
    std::map<std::string, size_t, std::less<>> controllers_;  // controller -> index into members_
};

class Cgroups {
  public:
    // `root` is one directory name; tests use their own. Makes nothing yet. ENOTSUP: no v2 and no
    // v1 freezer.
    static Result<Cgroups> open(CgroupLayout layout, std::string root = "souk");
    // Opens the groups in this machine's layout.
    static Result<Cgroups> open(std::string root = "souk");

    const CgroupLayout& layout() const { return layout_; }
    // Makes the group, and its parents, or takes what is there. A name is parts of [A-Za-z0-9._-],
    // split by '/'. On v2 a group that has children with limits can hold no process itself: nodes
    // keep theirs in a leaf.
    Result<Cgroup> create(const std::string& name, CgroupUse use = {}) const;
    // The root, in which they all are.
    Result<Cgroup> top(CgroupUse use = {}) const { return make({}, use); }
    // The names of the groups directly below `parent` (empty: below the root), in any hierarchy,
    // sorted.
    Result<std::vector<std::string>> list(const std::string& parent = {}) const;
    // Sets who kills the processes left in a group where they are killed one by one (v1), for a
    // daemon that may not. Counts for groups that are made from then on.
    void killed_by(EndProgram end) { end_ = std::move(end); }
    // Ends a group that may exist in any of the hierarchies (empty: the root itself, so all), say
    // after a crash.
    Status remove(const std::string& name, Nanos wait_max) const;

  private:
    Cgroups(CgroupLayout layout, std::string root)
        : layout_(std::move(layout)), root_(std::move(root)) {}
    std::vector<std::string> mounts() const;
    Result<Cgroup> make(const std::string& name, CgroupUse use) const;
    Status make_v2(const std::string& path, CgroupUse use) const;
    void share_realtime(const std::string& mount, const std::string& path) const;
    std::string below_root(const std::string& name) const {
        return name.empty() ? root_ : root_ + "/" + name;
    }

    CgroupLayout layout_;
    std::string root_;
    EndProgram end_ = kill_program;
    // us of each second, of groups that had children made
    mutable std::map<std::string, int64_t> realtime_;
};

}  // namespace souk
