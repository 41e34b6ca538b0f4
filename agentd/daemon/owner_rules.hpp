// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerRules: what the owner of this node asks and sets by pvdctl: in which hours and at what price
// the node is offered, which share guests get, whose jobs do not come, which job is to go now,
// whether guests are paused, and how all that stands. It also knows who waits until guests have
// left. Owned by the Agent.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agentd/daemon/as_root.hpp"
#include "agentd/daemon/leave_waits.hpp"
#include "agentd/daemon/ledger_mark.hpp"
#include "agentd/daemon/node_identity.hpp"
#include "agentd/daemon/owner_presence.hpp"
#include "agentd/daemon/price_learning.hpp"

namespace souk {

struct OwnerRulesParts {
    Loop& loop;
    Log& log;
    const Config& config;
    const AsRoot& as_root;
    const MarketLink& market;
    CertificateRenewal& renewal;
    const LedgerMark& ledger;
    const LoadMeter& load;
    const NodeShare* share;  // null: this machine has no control groups
    GuestHost& guests;
    OwnerOffer& offer;
    PriceLearning& learning;
    OwnerPresence& presence;
};

class OwnerRules {
  public:
    explicit OwnerRules(const OwnerRulesParts& parts) : p_(parts), waits_(parts.loop) {}

    // Answers a verb that begins with "provider-". A request of uid 0 may change what holds.
    wire::CtlReply request(const wire::CtlRequest& request);
    // Answers `provider-status`.
    std::string status_json() const;
    // Evicts guests that the owner does not take: at the start, and after a new rule.
    void evict_banned();

    // Calls `done` when no guest, or none of that job, runs here any more, or after a bound.
    void when_guests_left(const std::string& job, std::function<void()> done);
    void guests_stepped();

  private:
    Status change(const wire::CtlRequest& request);
    Status set(const std::string& name, const std::string& value);
    Status unset(const std::string& name);
    std::optional<wire::CtlReply> rule(const wire::CtlRequest& request);
    Status frames(const std::vector<std::string>& args);
    Status price(const std::vector<std::string>& args);
    Status share(const std::vector<std::string>& args);
    Status zone(const std::string& zone);
    Status ban(const std::string& whom, bool on);
    Status evict(const std::string& id);
    std::string rule_json(const std::string& verb) const;
    void write_guests(JsonWriter& j) const;

    OwnerRulesParts p_;
    LeaveWaits waits_;
};

}  // namespace souk
