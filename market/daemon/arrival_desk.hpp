// SPDX-License-Identifier: GPL-2.0-or-later
// ArrivalDesk: asks the operator's arrival filter, and then his user map, about each job of a peer
// that would come (docs/filters.md): when its market asks for an offer, and when the job arrives.
// It keeps what they said for a while, by all that they were told, so that the arrival mostly waits
// for nothing. A program that gives no answer lets nobody in. Owned by Marketd.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>

#include "market/core/site_guests.hpp"
#include "market/daemon/asked_program.hpp"
#include "market/daemon/sites.hpp"
#include "market/wire/program_words.hpp"

namespace souk {

class ArrivalDesk {
  public:
    static constexpr Nanos kept = Nanos::from_s(60), failure_kept = Nanos::from_s(5);
    static constexpr size_t kept_most = 1'024;
    using Done = std::function<void(const Result<market::SiteGuests::Leave>&)>;

    ArrivalDesk(Sites& sites, AskedProgram& filter, AskedProgram& users)
        : sites_(sites), filter_(filter), users_(users) {}

    // Calls `done` once: at once if it is known, or when the programs have answered. Errors: the
    // job does not come, and why. No program is asked about a job that the peer's terms keep away,
    // since a peer who may not come is to cost nothing; the market refuses it by the terms.
    void ask(const program_words::Guest& guest, const Done& done);

  private:
    bool terms_let_in(const program_words::Guest& guest) const;
    using Leave = market::SiteGuests::Leave;
    struct Known {
        Result<Leave> leave;
        Nanos until;
    };
    void filtered(const program_words::Guest& guest, const Result<std::string>& answer,
                  const Done& done);
    void mapped(const std::string& key, Leave leave, const Result<std::string>& answer,
                const Done& done);
    void keep(const std::string& key, Result<Leave> leave, const Done& done);

    Sites& sites_;
    AskedProgram &filter_, &users_;
    std::map<std::string, Known> known_;  // by the question
    std::deque<std::string> order_;       // its keys, the oldest first
};

}  // namespace souk
