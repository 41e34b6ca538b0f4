// SPDX-License-Identifier: GPL-2.0-or-later
// NodeFigures: this node's figures: for Prometheus (`metrics` of the configuration), for scripts
// that read a file (`status_file`), and what the kernel counts of one guest (marketctl job ID
// --load). Owned by the Agent.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agentd/daemon/config.hpp"
#include "agentd/daemon/gateway.hpp"
#include "agentd/daemon/home_shell.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/owner_presence.hpp"
#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/net/metrics_page.hpp"

namespace souk {

struct NodeFiguresParts {
    Loop& loop;
    Log& log;
    const Config& config;
    root::Helper& root;
    const MarketLink& market;
    const LoadMeter& load;
    const HomeShell& home;
    const GuestHost& guests;
    const OwnerOffer& offer;
    const OwnerPresence& presence;
    const GatewayLinks& gateways;
    const Gateway* gateway;  // null: this node is none
};

class NodeFigures {
  public:
    explicit NodeFigures(const NodeFiguresParts& parts) : p_(parts) {}
    // Begins to write the file and to answer Prometheus. An error: the port cannot be listened on.
    Status open();
    // Shows the job's newest copy here. An error: no copy of it runs here.
    Result<std::string> guest_load_json(const JobId& id) const;
    // Adds this node's gateway, and what it relays as one, to an answer.
    void add_gateway(JsonWriter& j) const;

  private:
    std::vector<Metric> metrics() const;
    std::vector<Metric> guest_metrics() const;
    std::vector<Metric> gateway_metrics() const;
    std::vector<StatusLine> status_lines() const;

    NodeFiguresParts p_;
    std::unique_ptr<MetricsPage> page_;
    std::unique_ptr<StatusFile> file_;
};

}  // namespace souk
