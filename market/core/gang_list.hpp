// SPDX-License-Identifier: GPL-2.0-or-later
// GangList: which jobs are components of one gang, which gangs the solver refused, and which wait
// for a node that is not known yet (docs/gangs.md). Each component is a job with a record, a price
// and receipts of its own. Pure; owned by Market.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "market/core/book.hpp"
#include "market/core/places.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

inline bool is_component(const Job& job) { return !job.record.report.gang.empty(); }
// A gang begins without such a component, which joins it later.
inline bool is_optional(const Job& job) { return job.record.report.optional; }
// The home is part of the name, because a home speaks for its own gangs alone.
std::string gang_name(const Job& job);

class GangList {
  public:
    GangList(Book& book, const Places& places, WorkList& work)
        : book_(book), places_(places), work_(work) {}

    // Lists a component, or takes it off the list when it has finished. Other jobs are ignored.
    void list(const Job& job);
    // The components of the job's gang that have not finished, itself included, in the order of
    // their numbers.
    std::vector<Job*> of(const Job& job) const;
    // The solver does not place the gang, and why; it does from now on.
    void refuse(const std::string& gang, souk::Error why) { refused_[gang] = std::move(why); }
    void accept(const std::string& gang) { refused_.erase(gang); }
    // The gang has a component for a node that is not known: it is looked at when that comes.
    void wait_for(const NodeName& node, const std::string& gang) { waiting_[node].insert(gang); }
    void wake_for(const Node& node);
    // Another algorithm decides: components that the solver does not know are looked at again.
    void wake_unplaced();
    // Why the solver is not told of the job's gang, or what no bid would mend. Empty: neither.
    Reason why_waits(const Job& job) const;

  private:
    std::vector<const Job*> required(const std::string& gang) const;

    Book& book_;
    const Places& places_;
    WorkList& work_;
    std::map<std::string, std::set<JobId>> gangs_;  // components that have not finished
    std::map<std::string, souk::Error> refused_;
    std::map<NodeName, std::set<std::string>> waiting_;
};

}  // namespace souk::market
