// SPDX-License-Identifier: GPL-2.0-or-later
// HomeShell: this node as the home of jobs, and the shell around the Home machine. Jobs are
// submitted to it; it gives their commands to guests, this node's own among them; it hears what
// guests and the market say of the jobs; it keeps their records, output, files and snapshots and
// answers their terminals. Each input is one step of the machine. What the machine returns is
// carried out in the order persist, send, do (agent.hpp).
//
// Owned by the Agent. Without the market jobs that run go on, and those that wait are told so.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "agentd/core/home.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/home_files.hpp"
#include "agentd/daemon/job_snapshots.hpp"
#include "agentd/daemon/market_link.hpp"
#include "agentd/daemon/output_files.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/terminals.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"

namespace souk {

struct HomeShellParts {
    Loop& loop;
    Log& log;
    LogTrace& trace;
    const Config& config;
    root::Helper& root;
    const SystemAccounts& accounts;
    wire::Tls* tls;  // null: insecure
    Commits& commits;
    Peers& peers;
    MarketLink& market;
};

class HomeShell final : public OwnHome, public HomeOfPeers {
  public:
    explicit HomeShell(const HomeShellParts& parts);
    // Opens what is kept of jobs. `guests`: those on this node; they outlive this.
    Status open(GuestHost& guests);
    // Finds again the jobs that the daemon before left.
    Status recover();

    void step(const std::function<void(Home&, home::Outputs&)>& step);
    const Home& machine() const { return home_; }
    Terminals& terminals() { return *terminals_; }

    // Tools.
    Result<JobId> submit(const wire::Submit& request, uint32_t uid);
    Status change(const JobId& id, const JobTerms& terms);
    // A job that cannot take a signal now is cancelled by one that is meant to end it (`ends`).
    void signal(const JobId& id, int32_t number, bool ends);
    // Somebody is attached to a job that has finished: its terminals may have all that they wait
    // for.
    void attached_to_finished(const JobId& id);
    // Why it does not run yet; empty: it does, or nothing is known.
    std::string why_waits(const HomeJob& job) const;
    wire::Meter meter(const HomeJob& job) const;

    // Guests on other nodes, and on this one.
    void guest_up(const NodeName& node) override;
    void undelivered(const NodeName& node, const GuestCommand& command) override;
    void guest_too_old(const NodeName& node, const GuestCommand& command,
                       const Trouble& why) override;
    Status from_guest(const NodeName& node, const wire::Frame& frame) override;
    bool guest_needed(const NodeName& node) const override { return home_.needs_guest(node); }
    // Asks again for the output that was lost.
    void guest_drained(const NodeName& node) override;
    void from_own_guest(const GuestEvent& event) override { guest_event(p_.config.node, event); }
    void from_own_guest(const Expel& expel) override { expelled(p_.config.node, expel); }
    void from_own_guest(const wire::StdioData& data) override { stdio_data(p_.config.node, data); }
    void from_own_guest(const wire::StdioInputAck& ack) override {
        stdio_input_ack(p_.config.node, ack);
    }

    // The market.
    void market_up(const std::string& seen_at);
    // Reports that had no room are made anew.
    void market_drained();
    void market_down();
    void from_market(const FromMarket& message);

    // How much memory is free on this node; the room on its disk is looked at meanwhile.
    void free_memory(int64_t mb);

  private:
    void tick();
    void apply(home::Output& output);
    void persist(const home::Persist& persist);
    void erase(const JobId& id);
    void tell(const home::Tell& tell);
    void gone_back(const JobId& id);
    void splice(const JobId& id, const std::string& files);
    void finish_terminals(const JobId& id);
    void tell_waiting();
    void to_market(const ToMarket& message);
    std::string summary(const HomeJob& job) const;
    TerminalOutlet outlet();

    void command_guest(const Peer& peer, GuestCommand command);
    void add_image_key(GuestCommand& command) const;
    void add_disk_secret(GuestCommand& command) const;
    void add_file_systems(GuestCommand& command) const;
    const HomeJob* output_owner(const NodeName& node, const JobId& id, Epoch epoch) const;
    void guest_event(const NodeName& node, const GuestEvent& event);
    void expelled(const NodeName& node, const Expel& expel);
    void stdio_data(const NodeName& node, const wire::StdioData& data);
    void stdio_input_ack(const NodeName& node, const wire::StdioInputAck& ack);

    Result<Submission> submission(const wire::Submit& request, uint32_t uid) const;
    Result<std::string> user_name(uint32_t uid) const;
    void learn_address(const std::string& seen_at);
    Status adopt_users();

    HomeShellParts p_;
    std::string image_secret_;  // the keys of transfers are made from it
    Home home_;
    GuestHost* guests_ = nullptr;
    std::unique_ptr<Terminals> terminals_;
    std::unique_ptr<OutputFiles> output_files_;
    std::unique_ptr<HomeFiles> files_;
    JobSnapshots snapshots_;
    Timer timer_, outage_timer_;
    std::map<JobId, Timer> exit_waits_;  // finished jobs whose bill is awaited
    bool outage_told_ = false;           // to those whose jobs wait
    // Jobs of each user whose reports had no room.
    std::map<uint32_t, std::set<uint64_t>> unreported_;
};

}  // namespace souk
