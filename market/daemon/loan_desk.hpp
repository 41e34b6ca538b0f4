// SPDX-License-Identifier: GPL-2.0-or-later
// LoanDesk: the words of two markets about a job of one that runs at the other (docs/sites.md),
// both sides of them. The job's own market brings what its home reports and takes orders; the other
// one brings orders and what the job pays. Each writes names as they are at its own site, and they
// are read here as they are at this one, so that a site can name no job but its own and those that
// it has been given.
//
// A word leaves when what it says is durable. Each says a whole, and all are said again when the
// two have been apart. Owned by Marketd.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "market/core/market.hpp"
#include "market/daemon/arrival_desk.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/sites.hpp"

namespace souk {

class LoanDesk {
  public:
    LoanDesk(Log& log, market::Market& market, MarketRecords& records, Sites& sites,
             Connections& connections, ArrivalDesk& arrivals, StepTaker& steps);

    void site_up(const std::string& site);
    void site_down(const std::string& site);

    static bool takes(wire::FrameType type);
    Status heard(uint64_t number, const Connection& c, const wire::Frame& frame);

    // Within a step, when the market has solved: what others are to hear.
    void tell();
    // The market has decided this for a home of another site, and it is durable.
    void send(const market::Send& message);

  private:
    struct Arriving {
        uint64_t connection = 0;
        SiteJob word;
    };
    Status heard_job(uint64_t number, const std::string& site, const wire::Frame& frame);
    void arrives(uint64_t number, const std::string& site, const SiteJob& word);
    Status take_job(uint64_t number, const std::string& site, const SiteJob& word,
                    market::SiteGuests::Leave leave);
    void refuse(uint64_t number, const std::string& site, const SiteJob& word, const Error& why);
    Status heard_order(uint64_t number, const std::string& site, const wire::Frame& frame);
    template <class T>
    void say(const std::string& site, const T& word);

    Log& log_;
    market::Market& market_;
    MarketRecords& records_;
    Sites& sites_;
    Connections& connections_;
    ArrivalDesk& arrivals_;
    StepTaker& steps_;
    // Words about jobs that come, as long as the operator's programs are asked: the newest of each.
    std::map<std::pair<std::string, JobId>, Arriving> arriving_;
};

}  // namespace souk
