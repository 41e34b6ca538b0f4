// SPDX-License-Identifier: GPL-2.0-or-later
// ReleaseProfile: when running jobs are expected to release their processors, ordered by time.
// Owned by one replay. Sorted blocks of a bounded number of entries, so that a change moves a
// bounded number of bytes however many jobs run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace souk::sim {

class ReleaseProfile {
  public:
    void add(int64_t time_s, int64_t procs);
    // Takes back what add() was given.
    void remove(int64_t time_s, int64_t procs);

    struct Release {
        int64_t time_s = 0;  // the first time at which `need` processors are free
        int64_t free = 0;    // free then, with everything that is released by then
    };
    // `free_now` < need, and all that is expected to be released suffices.
    Release earliest(int64_t free_now, int64_t need) const;

  private:
    struct Entry {
        int64_t time_s;
        int64_t procs;
    };
    struct Block {
        std::vector<Entry> entries;  // never empty, ascending times, each time once
        int64_t procs = 0;           // their sum
    };
    size_t block_for(int64_t time_s) const;
    std::vector<Block> blocks_;
};

}  // namespace souk::sim
