// SPDX-License-Identifier: GPL-2.0-or-later
// SubmitFilter: what the operator's submit filter (docs/filters.md) has said of the jobs of this
// site. A job that waits or is frozen is not considered before the filter has let it pass; one that
// it refuses goes on to wait, until an operator lets it pass. When the user changes the terms of a
// job, the filter is asked anew. One that runs, here or at a peer, goes on meanwhile, and also when
// it is refused, but goes to no other site. What the filter adds stands in the job's record beside
// the user's own terms, which nobody changes, until the next answer.
//
// The shell asks the program. A filter that gives no answer keeps the job: nobody else knows what
// it would have said. Pure; part of Market.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "market/core/book.hpp"
#include "market/core/market_context.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class SubmitFilter {
  public:
    SubmitFilter(const MarketContext& context, Book& book, Notes& notes, WorkList& work)
        : context_(context), book_(book), notes_(notes), work_(work) {}

    // It is not to run: the filter has not let it pass, and it does not run already.
    static bool keeps(const Job& job);
    static Reason why(const Job& job);
    // The job does not go to that site: the filter has said so, or has not let it pass.
    static bool is_barred(const Job& job, const std::string& site);

    // Whether what it adds and what the job's user needs are one expression that can be read.
    static Status can_join(const Job& job, const FilterWord& word);

    // A job was loaded; without a filter none is kept.
    void resume(Job& job);
    // The job is new here.
    void came(Job& job);
    // Its home has reported it; its terms were these.
    void reported(Job& job, const JobTerms& before);
    // The filter has answered. False: it was not asked about the job.
    bool answered(Job& job, FilterWord word);
    // It has given no answer, and why.
    bool silent(Job& job, const std::string& why);
    // An operator has said what is to become of the job: a hold of the filter's is his from now on.
    static void overruled(Job& job);
    // An operator lets it pass. False: it is not kept.
    bool let_pass(Job& job);
    // Jobs about which the filter is to be asked, since the last call.
    std::set<JobId> take_due() { return std::exchange(due_, {}); }

  private:
    void ask(Job& job);
    void changed(Job& job);

    const MarketContext& context_;
    Book& book_;
    Notes& notes_;
    WorkList& work_;
    std::set<JobId> due_;
};

}  // namespace souk::market
