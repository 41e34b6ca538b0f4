// SPDX-License-Identifier: GPL-2.0-or-later
// LoadProbe: how much the jobs of a node run, and how long they wait for a CPU; each job by itself,
// the node's whole cgroup subtree, and what runs outside of it: the owner's tasks. An agent owns
// one. source() says where the figures come
// from:
//   "bpf"   programs on the scheduler's tracepoints (load.bpf.c), summed up in the kernel; a read
//           costs no system call.
//   "proc"  cpu.stat of the groups and schedstat of their threads, where BTF, permission or cgroup
//           v2 is missing; why_not_bpf() says which. Here a thread's wait counts from when a read
//           first sees it, until the last read that does. Of the owner there is the run time
//           alone; what the kernel's threads and the daemon run is counted in ticks.
// Figures are totals since add() (a group that was there before: since it was made; the node: since
// open()) and never fall. What can fail: errno of the kernel's answer.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bpf/cpu_wakers.hpp"
#include "bpf/load_proc.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/process/packet_sight.hpp"

struct load_bpf;
struct load_cpu;
struct ring_buffer;

namespace souk {

struct LoadSample {
    Nanos run, wait;
    // "proc" does not count these: switches because the tasks waited for something, and switches
    // while they could have gone on; processes that began and ended; and for guests what storage
    // gave and took.
    uint64_t gave_up = 0, preempted = 0, births = 0, deaths = 0;
    uint64_t major_faults = 0, read_bytes = 0, write_bytes = 0;
    // "proc" does not count this: the time that threads of guests were not runnable, because they
    // waited for something or were stopped. It is counted when a thread goes on.
    Nanos off_cpu{};
    // "proc" does not count these: bytes of packets with their IP headers. why_no_network() says
    // why there are none.
    uint64_t received_bytes = 0, sent_bytes = 0;
    // Counts the waits for a CPU by their length: waits[i] of below 1024 << i ns.
    std::array<uint64_t, 32> waits{};
    // Looks at the waits since `before`: no more than this share of them were longer than the
    // result, which is a power of two of 1024 ns. 0: there was no wait.
    Nanos wait_quantile(const LoadSample& before, int permille) const;
};

// A notice tells at once what the owner's tasks do.
struct LoadNotice {
    bool waited = false;  // else it ran
    pid_t pid = 0;
    Nanos span;
    bool program = false;  // none of both: a program that is named has begun
    uint64_t bytes = 0;    // none of these: of packets that came and went within 40 ms
};

class LoadProbe {
  public:
    // These count for bpf alone.
    struct Options {
        bool allow_bpf = true;
        bool count_network = true;
        pid_t daemon = ::getpid();  // it and its children outside of the node are no owner's
        // A process that may not open events itself sets this.
        OpenCpuEvent open_event = open_cpu_event;
        SeePackets see_packets = {};  // those of packet_programs(); none: who may
        // A notice comes when the owner's tasks have run so long on one CPU within 40 ms, or when
        // one of them has waited so long for it. 0: none comes.
        Nanos notice_run = {}, notice_wait = {};
        // A notice comes when so many bytes have come and gone at the owner's sockets within 40 ms.
        // Loopback, and the sockets of the daemon's control group, do not count.
        uint64_t notice_bytes = 0;
    };
    // `cgroups` must outlive the probe; `node` is a group of it ("n1"), whose jobs are all
    // `job_depth` levels below it
    // ("n1/jobs/n1.7": 2). Falls back to "proc" by itself.
    static Result<LoadProbe> open(const Cgroups& cgroups, const std::string& node,
                                  int job_depth = 2) {
        return open(cgroups, node, job_depth, Options());
    }
    static Result<LoadProbe> open(const Cgroups& cgroups, const std::string& node, int job_depth,
                                  const Options& options);
    LoadProbe(LoadProbe&&) noexcept;
    LoadProbe& operator=(LoadProbe&&) noexcept;
    ~LoadProbe();

    const char* source() const { return cpus_ != nullptr ? "bpf" : "proc"; }
    const std::string& why_not_bpf() const { return why_not_bpf_; }
    // Returns the programs that see the packets of the whole machine, for what comes and for what
    // is sent, while the owner may be noticed by packets. None: packets are not counted.
    std::vector<int> packet_programs() const {
        return on_owner_sent_ ? std::vector<int>{on_owner_received_.get(), on_owner_sent_.get()}
                              : std::vector<int>{};
    }
    // Empty: bytes of the network are counted.
    const std::string& why_no_network() const { return why_no_network_; }

    // Begins to count a job's group, by its full name; at most 253 at a time (ENOSPC). The group
    // exists; `lived`: its processes have run before, which counts too, but for the CPU time that
    // others had `used` in that group before them. `id` of the group, if it is known.
    Status add(const std::string& job, bool lived = false, uint64_t id = 0, Nanos used = {});
    // Forgets it; ok if unknown. Call when its processes have ended.
    Status remove(const std::string& job);

    // ENOENT: not added.
    Result<LoadSample> read(const std::string& job);
    Result<LoadSample> read_node();
    // Reads what is not of the node. read_system: threads of the kernel, the daemon and its
    // children.
    Result<LoadSample> read_owner();
    LoadSample read_system();
    // Sets what is noticed from now on, as Options say.
    void notice(Nanos run, Nanos wait);
    // Sets the same for packets. The error says why they are not noticed.
    Status notice_network(uint64_t bytes);
    // Makes a notice come also when the owner begins one of these programs, by name (15 bytes
    // count). With "proc" none comes.
    Status notice_programs(const std::set<std::string>& programs);
    // Readable when a notice has come; -1: none will. At most one a second comes from each CPU.
    int notices_fd() const;
    // Says how often a task that is not switched out is looked at, so that no notice is later than
    // 50 ms after its use began. 0: a task is noticed when it is switched out; why_no_look() says
    // why.
    Nanos look_every() const { return look_every_; }
    const std::string& why_no_look() const { return why_no_look_; }
    void take_notices(const std::function<void(const LoadNotice&)>& each);
    // Guests, whom the caller has lowered (SCHED_IDLE or cpu.idle), give a CPU back within some ten
    // microseconds that they get while another task could go on there, in place of at the next tick
    // of the kernel. Needs bpf, and a thread for each CPU, which are begun at the first `on`.
    Status give_way(bool on);
    // Counts how often a guest has given a CPU back so.
    uint64_t gave_way() const;
    // Switches that the kernel did not tell of; 0 with "proc".
    uint64_t unseen() const;

  private:
    struct Job {
        uint64_t id = 0;
        uint32_t slot = 0;
        LoadSample last;
        Nanos before;  // that it had run when it was added
    };
    LoadProbe() = default;
    struct Levels {
        int node, job;
    };
    Status load(const Cgroup& node, Levels levels, const Options& options);
    Status load_object(load_bpf& skeleton, const Cgroup& node, Levels levels,
                       const Options& options);
    Status attach_network(load_bpf& skeleton, const Cgroup& node);
    LoadSample sum(uint32_t slot, LoadSample& last) const;
    void slots_changed();
    Status arm_clocks(Nanos every);
    // The daemon's own group of v2, below the root.
    struct Own {
        int level = 0;
        uint64_t id = 0;
        bool root = false;  // it is in the root itself
    };
    Own group_of(pid_t daemon) const;
    static Result<LoadSample> read_proc(GroupLoad& followed);
    void close();

    const Cgroups* cgroups_ = nullptr;
    std::string why_not_bpf_, why_no_network_;
    load_cpu* cpus_ = nullptr;  // mapped, one per CPU
    size_t cpu_count_ = 0, bytes_ = 0;
    Fd slots_;  // map: cgroup id -> slot
    Fd names_;  // map: name of a program -> it is noticed
    Fd wakes_;  // map: CPU -> the event that wakes its waker
    OpenCpuEvent open_event_;
    std::optional<CpuWakers> wakers_;
    std::unique_ptr<ring_buffer, void (*)(ring_buffer*)> ring_{nullptr, nullptr};
    std::unique_ptr<std::function<void(const LoadNotice&)>> on_notice_;
    std::vector<Fd> links_;   // the programs run while these are open
    Fd look_;                 // the program that looks at the task that runs
    std::vector<Fd> clocks_;  // of each CPU, while there is something to notice
    SeePackets see_packets_;
    Fd on_owner_received_, on_owner_sent_;  // programs for packets of the owner's
    std::vector<Fd> owner_packets_;         // run while these are open
    bool daemon_in_root_ = false;
    Nanos look_every_;
    std::string why_no_look_;
    std::map<std::string, Job> jobs_;
    LoadSample last_of_node_, last_of_owner_, last_of_system_;
    std::map<std::string, GroupLoad> followed_;  // "" is the node
};

}  // namespace souk
