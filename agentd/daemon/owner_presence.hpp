// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerPresence: whether the owner of this node uses it himself (agentd/core/owner_use.hpp), and
// what follows for guests: the rung that they are on, how they stand behind him in the kernel's
// eyes, how fast they leave, and what the market is told. He is noticed by the load of his
// processes, by the network, by devices, sessions and programs. He may also pause all guests by
// hand. It owns the history of his returns. Owned by the Agent.
#pragma once

#include <memory>
#include <string>

#include "agentd/core/leave_pace.hpp"
#include "agentd/core/owner_use.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/load_meter.hpp"
#include "agentd/daemon/node_share.hpp"
#include "agentd/daemon/owner_offer.hpp"
#include "agentd/daemon/return_history.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/base/retry.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

class JsonWriter;

struct OwnerPresenceParts {
    Loop& loop;
    Log& log;
    const Config& config;
    root::Helper& root;
    const SystemAccounts& accounts;
    Commits& commits;
    MarketLink& market;
    LoadMeter& load;
    NodeShare* share;  // null: this machine has no control groups
    GuestHost& guests;
    OwnerOffer& offer;
};

class OwnerPresence final : private GuestsInTheWay {
  public:
    explicit OwnerPresence(const OwnerPresenceParts& parts)
        : p_(parts),
          use_(parts.config.presence),
          rank_pause_(Nanos::from_s(1), Nanos::from_s(60), parts.config.home.boot),
          history_(parts.loop, parts.commits, parts.market, parts.config.node, *this) {}
    // The kernel notices the owner by these bounds. Before the offer is open its share does not
    // count.
    static LoadProbe::Options load_options(const Config& config, root::Helper& root,
                                           const OwnerUsePolicy& policy);
    // Reads whether guests are paused by hand, and the history.
    Status load();
    Status watch();
    // Takes up what the daemon before has left: guests that it has stopped, because the owner used
    // the node. He may use it still.
    void find();
    // The configuration has changed, or whether his presence matters.
    void configured();

    // Each second, with how busy the machine is; `ticks` counts the seconds.
    void see_load(const LoadReading& reading, uint64_t ticks);
    // Another guest may be here, or leave.
    void guests_stepped();
    // Tells the kernel how guests stand behind the owner, and what all of them may use.
    void rank_guests();
    Status apply_bounds();

    // The owner pauses all guests by hand, or lets them go on: they stand in memory.
    void pause(bool on);
    // The machine is being switched off, or that was called off.
    void switch_off(bool begins);

    bool is_here() const { return rung_ != OwnerUse::Rung::none; }
    // Nothing of a guest of another home is here, nor its image.
    bool is_empty() const { return guests_now().here == 0; }
    std::string why_paused() const;                   // empty: nobody is
    std::string why_away(OwnerUse::Rung from) const;  // empty: guests are below that rung
    // Why guests have to leave: the owner is here, or the machine is being switched off.
    std::string why_leaving() const;
    const ReturnHistory& history() const { return history_; }
    void write(JsonWriter& j) const;

  private:
    OwnerReturns::Guests guests_now() const override;
    OwnerUsePolicy policy() const;
    void watch_signs();
    void take_notices();
    void used(OwnerSign sign, const std::string& why);
    void see();
    void have_rung();
    void pace_leaving();
    void see_memory(const LoadReading& reading);
    void tell_offer();

    OwnerPresenceParts p_;
    OwnerUse use_;
    OwnerUse::Rung rung_ = OwnerUse::Rung::none;  // in force
    bool paused_ = false;                         // by hand
    bool switches_off_ = false;
    std::unique_ptr<OwnerSigns> signs_;
    OwnerSign sign_ = OwnerSign::load;  // by which he was noticed
    Watch notices_;
    Timer timer_, rank_timer_;
    RetryPause rank_pause_;
    bool ranked_leaving_ = false;  // guests are ranked for one that is being taken away
    std::string rank_trouble_;     // why they have another share than they should; told
    LeavePace pace_;
    ReturnHistory history_;
};

}  // namespace souk
