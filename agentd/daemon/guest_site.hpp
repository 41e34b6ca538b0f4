// SPDX-License-Identifier: GPL-2.0-or-later
// GuestSite: the ground that guests stand on: where images lie, the CRIU that is used, what this
// machine can and what its owner bounds. It fills the CellSite that all cells share and owns what
// that refers to. GuestHost owns it, and adds to the CellSite whom a cell tells.
#pragma once

#include "agentd/cell/cell_site.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/daemon/as_root.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/node_share.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class GuestSite {
  public:
    // `share` null: this machine has no control groups.
    GuestSite(Loop& loop, Log& log, root::Helper& root, const AsRoot& as_root, const Config& config,
              NodeShare* share);
    // Opens the directories, finds CRIU and examines the machine. The log says once what jobs
    // cannot do here.
    Status open();
    // The configuration has changed in what may change while the daemon runs (Agent::reloaded).
    void configured();
    Hardware hardware() const;
    CellSite& cell_site() { return site_; }
    const CellSite& cell_site() const { return site_; }
    // Bounds what leaves for the owner of this node: bytes a second of disk and link.
    RateLimit& leave_rate() { return leave_rate_; }

  private:
    Status open_directories();
    Status open_criu();
    void examine_node();

    Log& log_;
    root::Helper& root_;
    const AsRoot& as_root_;
    const Config& config_;
    NodeShare* share_;
    CriuTool criu_;
    inspect::Inspectors inspectors_;
    CpuAwake awake_;
    RateLimit leave_rate_;
    CellSite site_;
};

}  // namespace souk
