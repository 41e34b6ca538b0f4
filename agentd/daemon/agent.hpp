// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: the shell around this node's three machines; that of guests has a shell of its own
// (guest_host.hpp). Every input becomes one call of a machine, and what comes out is carried out in
// the order persist, send, do: records go into the journal (kernel/base/journal.hpp) and messages
// into the queues of their connections at once; the journal is flushed (commits.hpp) before any
// byte leaves; only after it do effects begin and messages between this node's own halves arrive.
// As long as the disk refuses a commit, nothing of what is decided leaves and no effect begins;
// what comes in is decided on all the same, and waits with the rest: in records one each, in queues
// that are bounded. It makes the parts (agent_start.cpp) and connects them (agent_wiring.cpp).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/home_shell.hpp"
#include "agentd/daemon/leave_waits.hpp"
#include "agentd/daemon/ledger_mark.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/market_link.hpp"
#include "agentd/daemon/node_identity.hpp"
#include "agentd/daemon/node_share.hpp"
#include "agentd/daemon/owner_presence.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/price_learning.hpp"
#include "agentd/daemon/shutdown_guard.hpp"
#include "agentd/daemon/terminals.hpp"
#include "agentd/daemon/tool_session.hpp"
#include "agentd/daemon/use_reports.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"
#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/net/metrics_page.hpp"
#include "kernel/sys/net/user_share.hpp"

namespace souk {

class Agent final : private ToolHost, private GuestListener, private OfferListener {
  public:
    // `root` outlives it.
    Agent(Loop& loop, Log& log, Config config, AsRoot as_root, root::Helper& root);
    ~Agent() override;
    // Opens state and sockets, finds again what runs here, connects. `on_ready` is called once the
    // market has answered or was found away: from then on the daemon does all it can.
    Status begin(std::function<void()> on_ready);
    // What can change while it runs (reloaded(): the keys) is as this says from now on. An error
    // changes nothing.
    Status reload(const Config& config);
    static std::span<const std::string_view> reloaded();

  private:
    // agent_start.cpp
    Status open_directories();
    Status open_share();
    Status listen();

    // agent_wiring.cpp: what each part tells the others through this one
    void wire_peers();
    Status wire_ledger();
    void wire_market();

    // agent_metrics.cpp
    Status open_metrics();
    std::vector<Metric> metrics() const;
    std::vector<StatusLine> status_lines() const;

    // agent_load.cpp
    void tick_load();

    std::string why_waits(const HomeJob& job) const override { return home_->why_waits(job); }
    wire::Meter meter(const HomeJob& job) const override { return home_->meter(job); }
    void guests_stepped() override {
        check_left();
        presence_->guests_stepped();
        shutdown_->guests_stepped();
    }
    void guest_said(const GuestKey& key, GuestState state) override { use_->saw(key, state); }

    // agent_owner.cpp: what the owner wants of this node
    void offer_ticked() override { presence_->rank_guests(); }
    void write_guests(JsonWriter& j) const;
    // When no guest, or none of that job, runs here any more, or after a bound.
    void when_guests_left(const std::string& job, std::function<void()> done) override;
    void check_left();
    // agent_owner_rules.cpp: his rules
    std::optional<wire::CtlReply> rules_request(const wire::CtlRequest& request);
    Status frames_request(const std::vector<std::string>& args);
    Status price_request(const std::vector<std::string>& args);
    Status share_request(const std::vector<std::string>& args);
    Status change_zone(const std::string& zone);
    Status ban(const std::string& whom, bool on);
    Status evict(const std::string& id);
    // Guests that his rules do not take: at the start, and after a new rule.
    void evict_banned();
    std::string rules_json(const std::string& verb) const;
    Result<std::string> guest_load_json(const JobId& id) const;
    std::vector<Metric> guest_metrics() const;

    // agent_view.cpp
    Result<std::string> list_held(const std::string& id, const std::string& begin,
                                  std::string& next) const;
    // `by_market`: the market asks, for a user who may see the job.
    wire::CtlReply view_request(const wire::CtlRequest& request, bool by_market) const;
    void remote_request(uint64_t connection, const trust::Peer& who, wire::CtlRequest request);
    bool answers(const wire::CtlRequest& request) const;
    Result<std::string> output_json(const wire::CtlRequest& request, const HomeJob& job) const;
    std::optional<wire::CtlReply> view(const wire::CtlRequest& request) const override;

    // agent_tools.cpp: sessions on the unix socket
    static UserShare::Bounds tool_bounds(const Config& config);
    void tools_come();
    void accept_tool(Fd socket);
    void drop_session(ToolSession* session);
    const NodeName& node() const override { return config_.node; }
    Terminals& terminals() override { return home_->terminals(); }
    const HomeJob* job(const JobId& id) const override { return home_->machine().find(id); }
    Result<JobId> submit(const wire::Submit& request, uint32_t uid) override {
        return home_->submit(request, uid);
    }
    Status change(const JobId& id, const JobTerms& terms) override {
        return home_->change(id, terms);
    }
    void signal(const JobId& id, int32_t number, bool ends) override {
        home_->signal(id, number, ends);
    }
    void attached_to_finished(const JobId& id) override { home_->attached_to_finished(id); }
    void ask_market(wire::CtlRequest request, std::function<void(wire::CtlReply)> answer) override;
    bool may_wait(uint32_t uid, size_t more) const override;
    void closed(ToolSession* session, bool welcomed, const Error& why) override;
    void finished(std::shared_ptr<ToolSession> session) override;
    wire::CtlReply provider_request(const wire::CtlRequest& request) override;
    std::string provider_json() const override;
    std::string node_json() const;

    Loop& loop_;
    Log& log_;
    LogTrace trace_{log_};
    Config config_;
    AsRoot as_root_;
    root::Helper& root_;
    std::unique_ptr<Commits> state_;
    NodeIdentity identity_;
    std::unique_ptr<Peers> peers_;
    std::unique_ptr<MarketLink> market_;
    std::unique_ptr<CertificateRenewal> renewal_;
    std::unique_ptr<HomeShell> home_;
    std::unique_ptr<LedgerMark> ledger_;
    std::unique_ptr<NodeShare> share_;  // null: this machine has no control groups
    LoadMeter load_{log_};              // of groups of the share
    SystemAccounts accounts_;
    LeaveWaits leave_waits_{loop_};
    std::unique_ptr<GuestHost> guests_;
    std::unique_ptr<UseReports> use_;
    std::unique_ptr<OwnerOffer> offer_;
    std::unique_ptr<PriceLearning> learning_;
    std::unique_ptr<OwnerPresence> presence_;
    std::unique_ptr<ShutdownGuard> shutdown_;
    std::unique_ptr<MetricsPage> metrics_page_;
    std::unique_ptr<StatusFile> status_file_;
    uint64_t load_ticks_ = 0;
    Listener peers_listener_;
    Watch tools_watch_;
    Watch child_watch_;
    Fd children_;
    Timer load_timer_;
    UserShare tools_share_{tool_bounds(config_)};
    std::map<ToolSession*, std::shared_ptr<ToolSession>> sessions_;
    std::function<void()> on_ready_;
};

}  // namespace souk
