// SPDX-License-Identifier: GPL-2.0-or-later
// Operators: what people order about jobs and nodes, and what has become of such an order. Each
// order answers with one line for people, or why not. `uid` is the caller's, by the kernel's word;
// all but cancel and give are root's alone. It owns no data: orders are kept in the jobs. Pure;
// part of Market.
#pragma once

#include <string>

#include "market/core/allocation.hpp"
#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/explain.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/job_reports.hpp"
#include "market/core/lent_jobs.hpp"
#include "market/core/market_context.hpp"
#include "market/core/market_trace.hpp"
#include "market/core/notes.hpp"
#include "market/core/places.hpp"
#include "market/core/settling.hpp"
#include "market/core/solver.hpp"
#include "market/core/submit_filter.hpp"
#include "market/core/user_funds.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class Operators {
  public:
    struct Outcome {
        bool over = false, done = false;
        souk::Cause text;  // why it was not done, or not yet; done: where the job is
    };

    Operators(const MarketContext& context, const MarketTrace& trace, Book& book, Places& places,
              Solver& solver, Notes& notes, Billing& billing, UserFunds& funds,
              const Allocation& allocation, GangList& gangs, const Explain& explain,
              JobReports& reports, const Settling& settling, LentJobs& lent, WorkList& work,
              SubmitFilter& filter)
        : context_(context),
          trace_(trace),
          book_(book),
          places_(places),
          solver_(solver),
          notes_(notes),
          billing_(billing),
          funds_(funds),
          allocation_(allocation),
          gangs_(gangs),
          explain_(explain),
          reports_(reports),
          settling_(settling),
          lent_(lent),
          work_(work),
          filter_(filter) {}

    Result<std::string> cancel(const JobId& id, uint32_t uid);
    // `node` may be one of a peer ("uni:n3"), or stand for any node there ("uni:").
    Result<std::string> move(const JobId& id, const NodeName& node, bool hold, uint32_t uid);
    Result<std::string> freeze(const JobId& id, bool hold, uint32_t uid);
    Result<std::string> thaw(const JobId& id, const NodeName& node_or_empty, bool hold,
                             uint32_t uid);
    Result<std::string> release(const JobId& id, uint32_t uid);
    // Another user may run programs in the place that the job holds; `to` 0: nobody any more.
    Result<std::string> give(const JobId& id, uint32_t to, uint32_t uid);
    // Says what has become of such an order since the job had that many failures. `name`: a move's
    // node, empty for a freeze or a thaw. `freezes`: the order was a freeze.
    Outcome outcome(const JobId& id, const NodeName& name, bool freezes, uint64_t failures) const;

    Result<std::string> write_off(const NodeName& name, uint32_t uid);
    Result<std::string> forget(const NodeName& name, uint32_t uid, Nanos now);

  private:
    Result<std::string> move_to_site(Job& job, const NodeName& name, bool hold);
    Status may_go_to_site(const Job& job, const std::string& site) const;
    // The job, which that user may act on as it goes on.
    Result<Job*> owned(const JobId& id, uint32_t uid) const;
    Result<Job*> operated(const JobId& id, uint32_t uid, bool by_its_user);
    static bool is_wished(const Job& job, const NodeName& name, bool freezes);
    void unhold(const NodeName& name);
    Status may_forget(const Node& node, Nanos now) const;
    Status may_end_with(const Job& job, const Node& home, Nanos now) const;
    Nanos may_begin_until(const Job& job, const Node& home) const;

    const MarketContext& context_;
    const MarketTrace& trace_;
    Book& book_;
    Places& places_;
    Solver& solver_;
    Notes& notes_;
    Billing& billing_;
    UserFunds& funds_;
    const Allocation& allocation_;
    GangList& gangs_;
    const Explain& explain_;
    JobReports& reports_;
    const Settling& settling_;
    LentJobs& lent_;
    WorkList& work_;
    SubmitFilter& filter_;
};

}  // namespace souk::market
