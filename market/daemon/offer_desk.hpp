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
#include "market/daemon/arrival_desk.hpp"
#include "market/daemon/operator_programs.hpp"
#include "market/daemon/sites.hpp"

namespace souk {

class OfferDesk {
  public:
    OfferDesk(Loop& loop, market::Market& market, Sites& sites, Connections& connections,
              JournalDb& state, ArrivalDesk& arrivals, OperatorPrograms& programs,
              StepTaker& steps);

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
    void no(uint64_t connection, uint64_t number, Cause why);
    struct Question {
        uint64_t connection = 0;
        std::string site;
        SiteAsk ask;
        market::SiteGuests::Leave leave = {};
    };
    void ask_about(const JobId& id, Nanos now);
    void ask_for_gain(const JobId& id, Nanos now);
    // A gang is asked about by its first component, and of all that answered it takes rooms for
    // all.
    bool gang_told(const JobId& id);
    bool is_free_gang(const market::Job& leader) const;
    void ask_about_gang(const market::Job& leader, Nanos now);
    void combine(const JobId& id, Nanos now);
    void ask(OfferRounds& rounds, const market::Job& job, const std::vector<std::string>& sites,
             Nanos now);
    // `why` says it, if the job rests for all sites.
    void say_until_when(const market::Job& job, Nanos now);
    std::vector<std::string> sites_for(const market::Job& job, Nanos now) const;
    void take_ended(OfferRounds& rounds, Nanos now);
    void conclude(const OfferRounds& rounds, const market::Job& job,
                  const OfferRounds::Round& round, bool by_program, Nanos now);
    void give(const OfferRounds& rounds, const market::Job& job, const OfferRounds::Answer& best,
              bool by_program, Nanos now);
    // False: no program of the operator's has a say in it.
    bool ask_program(OfferRounds& rounds, const market::Job& job, const OfferRounds::Round& round);
    // The market decides about rounds for which a program has had its time.
    void take_undecided(Nanos now);
    void chosen_by(OfferRounds& rounds, const JobId& id, uint64_t number,
                   const std::vector<size_t>& which, const Result<std::string>& answer);
    void look();
    void answer_own(Nanos now);
    void they_are_back(Nanos now);

    Loop& loop_;
    market::Market& market_;
    Sites& sites_;
    Connections& connections_;
    JournalDb& state_;
    ArrivalDesk& arrivals_;
    OperatorPrograms& programs_;
    StepTaker& steps_;
    OfferRounds waiting_, running_;
    OfferTurns turns_;
    std::deque<Question> questions_;
    std::map<std::string, ptrdiff_t> before_filter_;  // of each peer, which wait for the filter
    std::deque<JobId> own_;                           // jobs at peers: what would they get at home
    std::map<JobId, market::Quote::Place> at_home_;   // this, while it is looked at
    // They are to go home, and their places there are looked for: is it a program's word?
    std::map<JobId, bool> go_home_;
    std::deque<JobId> gangs_;  // rounds about these have ended
    struct Undecided {
        OfferRounds* rounds = nullptr;
        JobId id;
        uint64_t number = 0;
        Nanos until;
    };
    std::deque<Undecided> undecided_;  // rounds that a program is asked about, the oldest first
    Timer timer_;
};

}  // namespace souk
