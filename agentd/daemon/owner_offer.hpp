// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerOffer: what the owner of this node offers, and the shell around the Provider machine that
// decides about it. It makes the machine from the configuration and from what pvdctl has set, calls
// it when a time frame begins or ends, and carries out what it returns: the record goes to disk,
// the report goes to the market, and the guests hear whether the node takes jobs. Owned by the
// Agent.
#pragma once

#include <functional>
#include <memory>

#include "agentd/core/provider.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/config.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/market_link.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/log_trace.hpp"

namespace souk {

// The Agent hears from the offer by this.
class OfferListener {
  public:
    virtual ~OfferListener() = default;
    // A time frame has begun or ended, so guests may get another share of the machine.
    virtual void offer_ticked() = 0;
};

struct OwnerOfferParts {
    Loop& loop;
    Log& log;
    LogTrace& trace;
    const Config& config;
    Commits& commits;
    MarketLink& market;
    GuestHost& guests;
    OfferListener& listener;
};

class OwnerOffer {
  public:
    explicit OwnerOffer(const OwnerOfferParts& parts) : p_(parts) {}
    // Reads what pvdctl has set. An error: the configuration offers something impossible.
    Status open();
    // The same with another configuration: the machine as it would be then.
    Result<Provider> made_of(const Config& config) const;
    void replace(Provider provider);

    void step(const std::function<void(Provider&, provider::Outputs&)>& step);
    // Calls the machine when it wants to be called next. To be called after each change of the
    // frames.
    void arm();
    const Provider& provider() const { return *provider_; }
    bool is_open() const { return provider_ != nullptr; }
    MachineSize machine_size() const;
    // The time of the week in the zone of the frames, and in another zone.
    WallTime wall_now() const { return wall_in(provider_->record().zone); }
    static WallTime wall_in(const std::string& zone);

    // The market tells of this node: its price, its guests, the money that it has earned.
    const ProviderNote& note() const { return note_; }
    void noted(const ProviderNote& note) { note_ = note; }

  private:
    Hardware hardware(const Config& config) const;
    ProviderRecord offered(const Config& config) const;
    void apply(provider::Output& output);

    OwnerOfferParts p_;
    std::unique_ptr<Provider> provider_;
    ProviderNote note_;
    Timer timer_;
};

}  // namespace souk
