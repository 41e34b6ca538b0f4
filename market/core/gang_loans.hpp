// SPDX-License-Identifier: GPL-2.0-or-later
// GangLoans: gangs of this site of which some components, or all, are given to other sites
// (docs/sites.md). To each of these a component is a single job that it places by itself
// (lent_jobs.hpp); that all of them run or none is the home's one write (docs/gangs.md): each is
// started where its site says and held there, and all are released together.
//
//   lent       each component that goes has a loan, on disk before its site hears of it; the solver
//              here places the rest as a gang of its own, and nothing of that is started yet
//   ordered    the other sites name places, and the home starts and holds these components
//   held       when all that are away are held, or about to be, the rest is ordered here
//   released   the home has released all
//   given up   a site does not take its component, or does not order it in time; the home takes a
//              start back; the rest has no place here; one is frozen, as then the home freezes all;
//              or all_run_most has passed. All that are away are called back as one, and the gang
//              waits at home as a whole. The sites where a component was rest (LentJobs)
//
// All but the time of a try follows from the records, so a market that is started again goes on
// with each gang where it is, and gives it that time anew. Pure; part of Market.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "market/core/allocation.hpp"
#include "market/core/book.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/lent_jobs.hpp"
#include "market/core/site_offer.hpp"

namespace souk::market {

class GangLoans {
  public:
    // From the first loan until all run; homes take starts back after 60 s.
    static constexpr Nanos all_run_most = Nanos::from_s(90);
    // The components at home may be without a place for so long.
    static constexpr Nanos no_place_most = Nanos::from_s(5);
    struct Part {
        JobId id;
        std::string site;
    };

    GangLoans(Book& book, GangList& gangs, const Allocation& allocation, LentJobs& lent)
        : book_(book), gangs_(gangs), allocation_(allocation), lent_(lent) {}

    // The component by which its gang is asked about: the first required one. Null: there is none.
    const Job* leader_of(const Job& job) const;
    // This component leads a gang that has no place, and may go to several sites by its user's
    // terms.
    bool seeks(const Job& leader) const;
    // All its required components are known, and compete for places here.
    bool is_whole(const Job& leader) const;
    // A component of its gang is at another site, or its stay there is not settled.
    bool has_gone(const Job& job) const;
    // The required components of its gang, and what they need, in the same order.
    std::vector<const Job*> required_of(const Job& job) const;
    std::vector<SitePart> parts_of(const Job& job) const;

    struct Offer {
        std::string site;
        std::vector<SiteRoom> rooms;
    };
    // Says which of its components go where, by these offers and the rooms at home
    // (combined_offers.hpp): the others stay. Empty: all find room at home. Errors: not all find
    // room, and why.
    Result<std::vector<Part>> choose(const Job& leader, const std::vector<Offer>& offers,
                                     const std::vector<SiteRoom>& own, const OfferWish& wish,
                                     uint64_t seed) const;

    // These components go to these sites. Errors: none does, and why.
    Status lend(Job& leader, const std::vector<Part>& parts, Nanos now);
    // Something was heard of the job, or it was loaded.
    void note(const Job& job);
    void look(Nanos now);
    Nanos next() const;

  private:
    struct Try {
        JobId one;             // of its components
        std::set<JobId> away;  // these are given to other sites
        Nanos until = Nanos::never(), no_place_since = Nanos::never();
        bool released = false;  // all of it have run since
    };
    // False: nothing of the gang is away any more.
    bool look_at(Try& gang, Nanos now);
    souk::Cause why_give_up(Try& gang, const std::vector<Job*>& all, Nanos now) const;
    void give_up(const std::vector<Job*>& all, const souk::Cause& why);
    Status may_lend(Job& job, const std::string& site, Nanos now) const;

    Book& book_;
    GangList& gangs_;
    const Allocation& allocation_;
    LentJobs& lent_;
    std::map<std::string, Try> tries_;
    Nanos now_;  // of the newest look
};

}  // namespace souk::market
