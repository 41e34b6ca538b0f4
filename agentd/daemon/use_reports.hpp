// SPDX-License-Identifier: GPL-2.0-or-later
// UseReports: how long guests run here, as this node measures it (agentd/core/use_meter.hpp), for
// the market. It keeps the measure on disk and reports it: all of it when the connection is new,
// what has changed every 10 s, and soon when a guest has ended or stands. Each second it also tells
// how far images and memory are that are on their way. Owned by the Agent.
#pragma once

#include "agentd/core/use_meter.hpp"
#include "agentd/daemon/commits.hpp"
#include "agentd/daemon/guest_host.hpp"
#include "agentd/daemon/market_link.hpp"

namespace souk {

class UseReports {
  public:
    UseReports(Loop& loop, Commits& commits, MarketLink& market, const GuestHost& guests,
               uint64_t boot)
        : loop_(loop), commits_(commits), market_(market), guests_(guests), meter_(boot) {}
    // Reads what the daemon before has measured.
    Status load();
    void start() { tick(); }
    // A guest is in this state now.
    void saw(const GuestKey& key, GuestState state);
    // `all`: the connection to the market is new.
    void tell(bool all);
    // To be called each second. It says nothing where nothing is on its way.
    void tell_sends();

  private:
    void tick();
    UseReport report(bool all);

    Loop& loop_;
    Commits& commits_;
    MarketLink& market_;
    const GuestHost& guests_;
    UseMeter meter_;
    Nanos kept_;
    Timer timer_;
    bool due_ = false;
};

}  // namespace souk
