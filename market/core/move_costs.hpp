// SPDX-License-Identifier: GPL-2.0-or-later
// MoveCosts: what the move of a job costs, what a place is worth to it within the horizon, and from
// which class on a move there is worth its cost. The Allocator asks it; it holds the rules alone.
//
// Files have a place (JobDemand::files): a job that runs away from its home reads and writes them
// over the network. With a horizon H that is part of what a place must pay for. Over H a place is
// worth to the job, in value x cpus x speed / fastest speed x time:
//   at home    H at the speed of its home
//   elsewhere  H x (1 - w) at the speed there, less what carrying bytes/s x H bytes costs
// where w is the part of the time in which it waits for its files: (requests/s x round trip +
// bytes/s / link) / cpus, at most 95 %. So of two other places the faster one is still the better,
// and home is like a machine of a higher speed for this one job: it chooses it where that is worth
// at least as much as the best other place, moves there when that gains more than the move costs,
// and leaves it for what gains more than the move costs, beside the traffic. What is gained in
// either direction is what is lost in the other, so nobody goes back and forth as long as the
// traffic stays. A move of a job with files is never undone to save bytes (Allocator::settle).
//
// With H = 0 files are not looked at, as no move has a price; prices never look at them. Pure.
#pragma once

#include <cstdint>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "market/core/rank.hpp"
#include "market/core/types.hpp"

namespace souk::market {

struct Rules {
    Nanos horizon;
    int64_t link_bytes_per_s = 100'000'000;
    Money byte_cost_per_gb;
    Nanos min_stay;
    int32_t moves_max = 0;
    Nanos moves_window = Nanos::from_s(60);
};

// The bytes that a move of this job carries, and how long the job stands still meanwhile. Where the
// dirty rate is known it takes one round of pre-copy, and the pause carries what was dirtied during
// the round; otherwise the pause carries all of it.
struct MoveCost {
    int64_t bytes = 0;
    Nanos pause;
};
MoveCost move_cost(int64_t bytes, int64_t dirty_bytes_per_s, int64_t link_bytes_per_s);

// A job that runs away from its files waits for them for so many of each 1000 ms.
int64_t waits_permille(const FileTraffic& files, int32_t cpus, int64_t link_bytes_per_s);

// The part of a job that its moves depend on. `files`: null: it reads none over the network.
struct MovedJob {
    Money value;
    int32_t cpus = 1;
    int64_t bytes = 0;
    int64_t dirty_bytes_per_s = -1;
    const FileTraffic* files = nullptr;

    bool is_home(ProviderKey key) const { return files && files->home == key; }
};
// The machine on which the job is. Key 0 is any machine but its home.
struct JobPlace {
    ProviderKey key;
    int32_t speed = 0;
    ClassKey cls = class_none;
};

class MoveCosts {
  public:
    using Wide = __int128;
    // The worth of the horizon at a place: value x cpus x speed x ms, less `cost` (as of a move).
    struct Stay {
        Wide per_speed = 0;
        Wide cost = 0;
        Wide at(int32_t speed) const { return per_speed * speed - cost; }
    };

    MoveCosts() = default;
    explicit MoveCosts(const Rules& rules) : rules_(rules) {}
    const Rules& rules() const { return rules_; }

    // The cost of a move, in micro-units of an hour x fastest speed x ms of an hour. `speed_top`:
    // the fastest speed; `speed`: that of the machine that the job leaves.
    Wide of_move(const MovedJob& job, int32_t speed, int32_t speed_top) const;
    Stay stay(const MovedJob& job, ProviderKey at, int32_t speed_top) const;
    // The least class bound that makes a move worth its cost, with a horizon above 0: the job would
    // leave for any machine of a class before it.
    ClassKey bound(const MovedJob& job, const JobPlace& at, int32_t speed_top) const;
    // The same of a move to the home of a job with files; at its home: none is.
    ClassKey home_bound(const MovedJob& job, const JobPlace& at, int32_t speed_top) const;

  private:
    ClassKey bound_with_files(const MovedJob& job, const JobPlace& at, int32_t speed_top) const;
    int64_t horizon_ms() const { return rules_.horizon.ns / 1'000'000; }

    Rules rules_;
};

}  // namespace souk::market
