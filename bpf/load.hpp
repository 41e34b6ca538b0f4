// SPDX-License-Identifier: GPL-2.0-or-later
// LoadProbe: how much the jobs of a node run, and how long they wait for a CPU; each job by itself,
// and the node's whole cgroup subtree. An agent owns one. source() says where the figures come
// from:
//   "bpf"   programs on the scheduler's tracepoints (load.bpf.c), summed up in the kernel; a read
//           costs no system call.
//   "proc"  cpu.stat of the groups and schedstat of their threads, where BTF, permission or cgroup
//           v2 is missing; why_not_bpf() says which. Here a thread's wait counts from when a read
//           first sees it, until the last read that does.
// Figures are totals since add() (a group that was there before: since it was made; the node: since
// open()) and never fall. What can fail: errno of the kernel's answer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/cgroup.hpp"

struct load_cpu;

namespace souk {

struct LoadSample {
    Nanos run, wait;
};

class LoadProbe {
  public:
    // `cgroups` must outlive the probe; `node` is a group of it ("n1"), whose jobs are all
    // `job_depth` levels below it
    // ("n1/jobs/n1.7": 2). Falls back to "proc" by itself; `allow_bpf` false takes it at once.
    static Result<LoadProbe> open(const Cgroups& cgroups, const std::string& node,
                                  int job_depth = 2, bool allow_bpf = true);
    LoadProbe(LoadProbe&&) noexcept;
    LoadProbe& operator=(LoadProbe&&) noexcept;
    ~LoadProbe();

    const char* source() const { return cpus_ != nullptr ? "bpf" : "proc"; }
    const std::string& why_not_bpf() const { return why_not_bpf_; }

    // Begins to count a job's group, by its full name; at most 255 at a time (ENOSPC). The group
    // exists; `lived`: its processes have run before, which counts too, but for the CPU time that
    // others had `used` in that group before them. `id` of the group, if it is known.
    Status add(const std::string& job, bool lived = false, uint64_t id = 0, Nanos used = {});
    // Forgets it; ok if unknown. Call when its processes have ended.
    Status remove(const std::string& job);

    // ENOENT: not added.
    Result<LoadSample> read(const std::string& job);
    Result<LoadSample> read_node();
    // Updates that the kernel side lost for want of memory; 0 with "proc".
    uint64_t dropped() const;

  private:
    struct Followed {  // for "proc"
        Cgroup group;
        std::map<pid_t, int64_t> wait_ns;  // of each thread, as last seen
        LoadSample start, total;
    };
    struct Job {
        uint64_t id = 0;
        uint32_t slot = 0;
        LoadSample last;
        Nanos before;  // that it had run when it was added
    };
    LoadProbe() = default;
    Status load(uint64_t node_id, int node_level, int job_level);
    LoadSample sum(uint32_t slot, LoadSample& last) const;
    static Result<LoadSample> follow(Followed& followed);
    void close();

    const Cgroups* cgroups_ = nullptr;
    std::string why_not_bpf_;
    load_cpu* cpus_ = nullptr;  // mapped, one per CPU
    size_t cpu_count_ = 0, bytes_ = 0;
    Fd slots_;               // map: cgroup id -> slot
    std::vector<Fd> links_;  // the programs run while these are open
    std::map<std::string, Job> jobs_;
    LoadSample last_of_node_;
    std::map<std::string, Followed> followed_;  // "" is the node
};

}  // namespace souk
