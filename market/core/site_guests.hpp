// SPDX-License-Identifier: GPL-2.0-or-later
// SiteGuests: jobs of other sites that run here, or wait to (docs/sites.md). Such a job is a job of
// this market like any other, whose home is a node of another site ("lab:n1"): the market of that
// site brings the home's reports, and takes the orders to it. What it may say of the job is decided
// here: the terms of its site hold, what the job asks for stays as it was when it came, and the
// account of its site pays, whoever its user is there. Pure; part of Market.
#pragma once

#include <string>

#include "market/core/book.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/site_terms.hpp"

namespace souk::market {

// The number of the account of a peer, from the number that its record has (1 to 65,535): no user
// of a machine has it.
inline constexpr uint32_t site_account_first = 0xefff'0000;
constexpr uint32_t site_account(uint32_t number) { return site_account_first + number; }
constexpr bool is_site_account(uint32_t uid) {
    return uid > site_account_first && uid < project_first;
}
inline bool is_of_site(const JobId& id) { return !of_site(id.home).site.empty(); }

class SiteGuests {
  public:
    // Nodes of one site that are known here at most.
    static constexpr size_t nodes_max = 1'024;
    // The operator's programs have said this of a job that would come (docs/filters.md).
    struct Leave {
        Money least;          // per CPU-hour; it gets nothing below that
        std::string account;  // its user's account on the nodes here; empty: their owners say it
    };
    // The site that a job comes from.
    struct Site {
        std::string name;
        uint32_t account = 0;  // site_account()
        const SiteTerms* terms = nullptr;
        int32_t second_of_week = 0;
        Leave leave = {};  // of that job
    };
    explicit SiteGuests(Book& book) : book_(book) {}

    // Whether a new job of that user there may come by the terms. `kept`: CPUs that are kept for
    // other jobs of the site. Errors: it may not, and why.
    Status lets_in(const Site& site, const std::string& user, const JobTerms& terms,
                   int64_t kept) const;
    // Returns what this market goes by of a report, whose names are as they are here; `kept` as
    // above. `comes`: it has no stay here that goes on. Errors: a job that does not come, or is not
    // here any more, and why.
    Result<JobReport> heard(const Site& site, const JobReport& report, int64_t kept,
                            bool comes) const;
    // Returns a job of which that is said if it has ended a stay here, and comes once more; else
    // null.
    const Job* comes_again(const SiteJob& word) const;
    // The nodes of it that are known here: homes of its jobs, and where it runs jobs of this site.
    std::vector<NodeName> nodes_of(const std::string& site) const;
    Status has_room_for_node(const std::string& site) const;
    // CPUs of all jobs of the site that have not ended.
    int64_t cpus_of(const std::string& site) const;

  private:
    Status may_come(const Site& site, const JobReport& report, int64_t kept) const;

    Book& book_;
};

}  // namespace souk::market
