// SPDX-License-Identifier: GPL-2.0-or-later
// StopRecord: how long a suspended job is worth keeping in memory before it is written to disk.
// Pure.
//
// A suspended job first only stops: its processes stand, and it goes on in some milliseconds if its
// bid wins the same place again. On disk it costs the time of a write and a read (its carry). To
// keep it in memory costs nothing until somebody wants that memory: then he waits for the write.
// Which of the two comes first is not known, but the market has a record of what became of those
// before. Kept for a time T, of the cases in the record
//   one that won again after T has paid its carry, one that won before has paid nothing;
//   one whose memory was wanted before T has made somebody wait for the write.
// T is where these add up to least: the rent-to-buy rule with the record in place of the
// distribution (Krishnan, Long, Vitter, "Adaptive Disk Spindown via Optimal Rent-to-Buy in
// Probabilistic Environments", Algorithmica 23, 1999). While there are few cases T is the carry
// itself: ski rental, which never costs more than twice what the best T would have (Karlin,
// Manasse, Rudolph, Sleator, "Competitive Snoopy Caching", Algorithmica 3, 1988).
#pragma once

#include <cstddef>
#include <deque>

#include "kernel/base/time.hpp"

namespace souk::market {

class StopRecord {
  public:
    static constexpr size_t kept_max = 1'000, enough = 20;

    // Its bid won again so long after it stopped, whether it was in memory still or not. `carry`: a
    // write and a read of it.
    void won(Nanos after, Nanos carry) { add({after, carry, false}); }
    // Somebody wanted its memory then; `write`: what he waits.
    void wanted(Nanos after, Nanos write) { add({after, write, true}); }
    // A job that stops now is written to disk after so long; below 0: at once; never: not before
    // its memory is wanted.
    Nanos patience(Nanos carry) const { return cases_.size() < enough ? carry : best_; }

  private:
    struct Case {
        Nanos after, cost;
        bool wanted = false;
    };
    void add(Case one);
    Nanos least() const;

    std::deque<Case> cases_;
    size_t since_looked_ = 0;
    Nanos best_ = Nanos::never();
};

}  // namespace souk::market
