// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: one node's daemon, put together. It makes the parts and connects them; what a part does
// stands in the part:
//
//   HomeShell       this node as the home of jobs
//   GuestHost       this node as the host of guests
//   OwnerOffer, OwnerPresence, OwnerRules, PriceLearning, ShutdownGuard    the owner of the node
//   NodeIdentity, CertificateRenewal    who the node is to others
//   Peers, MarketLink, ToolServer       the connections
//   NodeViews, NodeFigures, UseReports, LedgerMark    what others see of it
//
// Every input becomes one call of a machine, and what the machine returns is carried out in the
// order persist, send, do: records go into the journal (kernel/base/journal.hpp) and messages into
// the queues of their connections at once; the journal is flushed (commits.hpp) before any byte
// leaves; only after it do effects begin and messages between this node's own halves arrive. As
// long as the disk refuses a commit, nothing that is decided leaves and no effect begins. Inputs
// are decided on all the same and wait with the rest: in records one each, in queues that are
// bounded.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "agentd/daemon/as_root.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/gateway.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/home_shell.hpp"
#include "agentd/daemon/ledger_mark.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/market_link.hpp"
#include "agentd/daemon/node_figures.hpp"
#include "agentd/daemon/node_identity.hpp"
#include "agentd/daemon/node_share.hpp"
#include "agentd/daemon/node_views.hpp"
#include "agentd/daemon/owner_rules.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/shutdown_guard.hpp"
#include "agentd/daemon/tool_server.hpp"
#include "agentd/daemon/use_reports.hpp"
#include "bpf/shut_in.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"

namespace souk {

class Agent final : private MarketListener, private GuestListener, private OfferListener {
  public:
    // `root` outlives it.
    Agent(Loop& loop, Log& log, Config config, AsRoot as_root, root::Helper& root);
    ~Agent() override;
    // Opens state and sockets, finds again what runs here, and connects. It calls `on_ready` once
    // the market has answered or was found away: from then on the daemon does all that it can.
    Status begin(std::function<void()> on_ready);
    // Takes the keys that may change while the daemon runs from this configuration, and their text
    // from what was read. An error changes nothing.
    Result<ConfigChange> reload(const Config& now, ConfigText& text, const ConfigText& read);

  private:
    Status open_share();
    void keep_shut_in(Result<ShutIn> opened);
    Status make_ledger();
    void make_home_and_guests();
    void make_owner();
    void make_views();
    Status start();
    Status reap_children();
    Status listen();
    void tick_load();

    void market_up(const std::string& own_address) override;
    void market_drained() override;
    void market_down() override { home_->market_down(); }
    void market_tried() override;
    void from_market(const FromMarket& message) override;
    void certified(const wire::Certified& certified) override { renewal_->certified(certified); }
    void revoked(const std::string& list) override { renewal_->revoked(list); }
    void ticket_keys(const wire::TicketKeys& told) override { renewal_->ticket_keys(told); }
    void peer_sites(const wire::PeerSites& told) override { renewal_->peer_sites(told); }
    wire::CtlReply market_asks(const wire::CtlRequest& request) override {
        return views_->answer_market(request);
    }
    void guests_stepped() override;
    void guest_said(const GuestKey& key, GuestState state) override { use_->saw(key, state); }
    void offer_ticked() override { presence_->rank_guests(); }

    Loop& loop_;
    Log& log_;
    LogTrace trace_{log_};
    Config config_;
    AsRoot as_root_;
    root::Helper& root_;
    SystemAccounts accounts_;
    std::unique_ptr<Commits> commits_;
    NodeIdentity identity_;
    std::unique_ptr<NodeShare> share_;  // null: this machine has no control groups
    LoadMeter load_{log_};              // measures the groups of the share
    std::optional<ShutIn> shut_in_;     // none: only a dump finds who is shut in
    std::unique_ptr<GatewayLinks> gateways_;
    std::unique_ptr<Ways> ways_;
    std::unique_ptr<Peers> peers_;
    std::unique_ptr<Gateway> gateway_;  // null: this node is none
    std::unique_ptr<MarketLink> market_;
    std::unique_ptr<CertificateRenewal> renewal_;
    std::unique_ptr<LedgerMark> ledger_;
    std::unique_ptr<HomeShell> home_;
    std::unique_ptr<GuestHost> guests_;
    std::unique_ptr<UseReports> use_;
    std::unique_ptr<OwnerOffer> offer_;
    std::unique_ptr<PriceLearning> learning_;
    std::unique_ptr<OwnerPresence> presence_;
    std::unique_ptr<ShutdownGuard> shutdown_;
    std::unique_ptr<OwnerRules> rules_;
    std::unique_ptr<NodeFigures> figures_;
    std::unique_ptr<NodeViews> views_;
    std::unique_ptr<ToolServer> tools_;
    Listener peers_listener_;
    Fd children_;
    Watch child_watch_;
    Timer load_timer_;
    uint64_t load_ticks_ = 0;
    std::function<void()> on_ready_;
};

}  // namespace souk
