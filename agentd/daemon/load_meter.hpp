// SPDX-License-Identifier: GPL-2.0-or-later
// LoadMeter: how busy this node is, and the CPU time of each guest (bpf/load.hpp). Without control
// groups it knows the free memory alone. Owned by the Agent.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agentd/core/provider.hpp"
#include "bpf/load.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class LoadMeter {
  public:
    explicit LoadMeter(Log& log) : log_(log) {}
    // Of the node's group; `cgroups` must outlive this.
    Status open(const Cgroups& cgroups, const std::string& node);

    // A capsule has this group now, or no more. lived: it has run before.
    void capsule_came(const Cgroup& capsule, Nanos used, bool lived);
    void capsule_went(const Cgroup& capsule);
    // Nothing: it is not measured.
    std::optional<Nanos> cpu_time(const std::string& capsule);

    // Since the last reading, of so many CPUs.
    LoadReading read(int32_t cpus);

  private:
    void tell(const Cgroup& capsule, const Status& done);

    Log& log_;
    std::unique_ptr<LoadProbe> probe_;
    LoadSample last_;
    Nanos last_at_;
};

}  // namespace souk
