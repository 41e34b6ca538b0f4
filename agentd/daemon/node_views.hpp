// SPDX-License-Identifier: GPL-2.0-or-later
// NodeViews: what this node shows of itself and of its jobs: what its machines hold right now
// (pvdctl guests), the stories of this home's jobs (marketctl job --story), their output (marketctl
// output), the load of a guest, for the market, and the node's status (node-status). It changes
// nothing. Owned by the Agent.
#pragma once

#include <string>

#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/home_shell.hpp"
#include "agentd/daemon/market_link.hpp"
#include "agentd/daemon/node_figures.hpp"
#include "agentd/daemon/owner_offer.hpp"

namespace souk {

class NodeViews {
  public:
    NodeViews(const Config& config, const MarketLink& market, HomeShell& home,
              const GuestHost& guests, const OwnerOffer& offer, const NodeFigures& figures)
        : config_(config),
          market_(market),
          home_(home),
          guests_(guests),
          offer_(offer),
          figures_(figures) {}
    // Whether this node answers the request itself, with or without a market: it holds what is
    // asked for.
    bool answers(const wire::CtlRequest& request) const;
    wire::CtlReply answer(const wire::CtlRequest& request) const { return view(request, false); }
    // The market asks, for a user who may see the job.
    wire::CtlReply answer_market(wire::CtlRequest request) const;
    // Answers `node-status`.
    wire::CtlReply status() const;

  private:
    wire::CtlReply view(const wire::CtlRequest& request, bool by_market) const;
    wire::CtlReply held(const wire::CtlRequest& request) const;
    Result<std::string> list_held(const std::string& id, const std::string& begin,
                                  std::string& next) const;
    Result<std::string> output_json(const wire::CtlRequest& request, const HomeJob& job) const;

    const Config& config_;
    const MarketLink& market_;
    HomeShell& home_;  // reading its terminals opens spools
    const GuestHost& guests_;
    const OwnerOffer& offer_;
    const NodeFigures& figures_;
};

}  // namespace souk
