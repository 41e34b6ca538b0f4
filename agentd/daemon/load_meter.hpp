// SPDX-License-Identifier: GPL-2.0-or-later
// LoadMeter: how busy this node is, and the CPU time of each guest (bpf/load.hpp). Without control
// groups it knows the free memory alone. Owned by the Agent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agentd/core/provider.hpp"
#include "bpf/load.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class LoadMeter {
  public:
    explicit LoadMeter(Log& log) : log_(log) {}
    // Measures the group of the node. `cgroups` must outlive this.
    Status open(const Cgroups& cgroups, const std::string& node,
                const LoadProbe::Options& options = {});
    // The kernel tells of the owner's use as it begins; else only each reading does.
    int notices_fd() const { return probe_ ? probe_->notices_fd() : -1; }
    std::vector<int> packet_programs() const {
        return probe_ ? probe_->packet_programs() : std::vector<int>{};
    }
    void notice(const LoadProbe::Options& options);
    // That the owner uses the network; why that is not noticed, empty: it is, or need not be.
    const std::string& why_no_network_notice() const { return why_no_network_notice_; }
    // Why what runs without being switched out is noticed by a reading alone; empty: it is not so.
    std::string why_no_look() const { return probe_ ? probe_->why_no_look() : ""; }
    Status notice_programs(const std::set<std::string>& programs) {
        return probe_ ? probe_->notice_programs(programs) : Status{};
    }
    // While guests are lowered (LoadProbe::give_way).
    void give_way(bool on);
    uint64_t gave_way() const { return probe_ ? probe_->gave_way() : 0; }
    // Why they do not, though they are lowered; empty: they do, or need not.
    const std::string& why_no_give_way() const { return why_no_give_way_; }
    void take_notices(const std::function<void(const LoadNotice&)>& each) {
        if (probe_) probe_->take_notices(each);
    }

    // A capsule has this group now, or no more. lived: it has run before.
    void capsule_came(const Cgroup& capsule, Nanos used, bool lived);
    void capsule_went(const Cgroup& capsule);
    // Nothing: it is not measured.
    std::optional<Nanos> cpu_time(const std::string& capsule);
    // All that is counted of it, since it came.
    std::optional<LoadSample> load(const std::string& capsule);
    // How long some process of it stood still for want of memory, since it came (the kernel's
    // pressure stall information of its group). Nothing: this machine does not tell.
    std::optional<Nanos> memory_stall(const std::string& capsule) const;

    // Since the last reading; guests of so many CPUs.
    LoadReading read(int32_t cpus);
    // Why what is measured comes from /proc; empty: it does not.
    std::string why_not_bpf() const { return probe_ ? probe_->why_not_bpf() : ""; }
    // Why bytes of the network are not counted, which BPF alone counts; empty: they are.
    std::string why_no_network() const { return probe_ ? probe_->why_no_network() : ""; }

    // As of the last reading: of 10 s, the thousandths in which some task of the machine stood
    // still for want of memory. Errors: the kernel does not tell, and why.
    const Result<int32_t>& memory_pressure() const { return memory_pressure_; }

  private:
    struct Stall {
        Fd group;    // its directory of cgroup v2
        Nanos base;  // of who had that group before
    };
    static Result<Nanos> stalled(int group);
    void tell(const Cgroup& capsule, const Status& done);
    void read_owner(int64_t span_ns, LoadReading& reading);

    Log& log_;
    std::unique_ptr<LoadProbe> probe_;
    std::map<std::string, Stall> stalls_;  // by capsule
    LoadSample last_, last_of_owner_, last_of_system_;
    Nanos last_at_;
    Result<int32_t> memory_pressure_ = 0;
    std::string why_no_network_notice_, why_no_give_way_;
};

}  // namespace souk
