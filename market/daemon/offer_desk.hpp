// SPDX-License-Identifier: GPL-2.0-or-later
// OfferDesk: offers between sites (docs/sites.md), both sides of them. It asks the markets of peers
// for jobs that wait here and whose users let them go (market/core/offer_rounds.hpp), and has this
// market answer what peers ask for theirs (Market::offer), by the terms that hold for the peer.
// Behind those that wait come jobs that run and may gain by a move to a peer, or back home: then
// this market asks itself (market/core/site_moves.hpp).
//
// A question is answered when the step is decided in which it came, and the answer leaves when that
// is durable. Owned by Marketd.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "market/core/market.hpp"
#include "market/core/offer_rounds.hpp"
#include "market/daemon/sites.hpp"

namespace souk {

class OfferDesk {
  public:
    OfferDesk(Loop& loop, market::Market& market, Sites& sites, Connections& connections,
              JournalDb& state, StepTaker& steps);

    // All jobs that wait are looked at.
    void start();
    void close() { timer_.cancel(); }

    // -- jobs of this site

    // Its home has said something of the job.
    void job_told(const JobId& id);
    void peer_came();
    Status answered(const Connection& c, const wire::Frame& frame);
    // Tells what peers have answered for a job, to its user and to operators.
    Result<std::string> list(const wire::CtlRequest& request) const;

    // -- jobs of peers

    Status asked(uint64_t number, const Connection& c, const wire::Frame& frame);
    // Within a step, when the market has solved, for a few milliseconds. Returns whether more wait.
    bool answer();

  private:
    struct Question {
        uint64_t connection = 0;
        std::string site;
        SiteAsk ask;
    };
    void ask_about(const JobId& id, Nanos now);
    void ask_for_gain(const JobId& id, Nanos now);
    void ask(OfferRounds& rounds, const market::Job& job, const std::vector<std::string>& sites,
             Nanos now);
    // `why` says it, if the job rests for all sites.
    void say_until_when(const market::Job& job, Nanos now);
    std::vector<std::string> sites_for(const market::Job& job, Nanos now) const;
    void take_ended(OfferRounds& rounds, Nanos now);
    void give(const OfferRounds& rounds, const market::Job& job, const OfferRounds::Answer& best,
              Nanos now);
    void look();
    void answer_own(Nanos now);
    void they_are_back(Nanos now);

    Loop& loop_;
    market::Market& market_;
    Sites& sites_;
    Connections& connections_;
    JournalDb& state_;
    StepTaker& steps_;
    OfferRounds waiting_, running_;
    OfferTurns turns_;
    std::deque<Question> questions_;
    std::deque<JobId> own_;                          // jobs at peers: what would they get at home
    std::map<JobId, market::Quote::Place> at_home_;  // this, while it is looked at
    Timer timer_;
};

}  // namespace souk
