// SPDX-License-Identifier: GPL-2.0-or-later
// InsidePlaces: which jobs run inside a place that another job of their user holds (srun --in), or
// that was given to their user (marketctl give). A job inside takes no room of the market. Pure;
// part of Reservations.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "market/core/book.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/places.hpp"

namespace souk::market {

class InsidePlaces {
  public:
    InsidePlaces(Book& book, const Places& places, GangList& gangs)
        : book_(book), places_(places), gangs_(gangs) {}

    // Is told what becomes of a job: it is inside, on that node, or outside, and why.
    using Put = std::function<void(Job& job, Booked booked, const NodeName& on, Reason why)>;
    // Places those of the booked jobs that are to run inside others.
    void place(const std::set<JobId>& booked, const Put& put);

  private:
    // So much is left of a place for jobs inside it.
    struct Room {
        int64_t cpus = 0, mb = 0;
        int64_t of_unit = 0;  // components of the gang that is being placed
    };
    void place_unit(const std::vector<Job*>& unit, std::map<JobId, Room>& rooms, const Put& put);
    Job* roomiest(const std::vector<Job*>& places, const Job& job,
                  std::map<JobId, Room>& rooms) const;

    Book& book_;
    const Places& places_;
    GangList& gangs_;
};

}  // namespace souk::market
