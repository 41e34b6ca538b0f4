// SPDX-License-Identifier: GPL-2.0-or-later
// Machines: the kinds of machines that a market has, and which of them can take what ran on which.
// A pool is of one kind or of a few, so all is worked out once for a kind. Pure.
#pragma once

#include <map>
#include <vector>

#include "kernel/base/machine.hpp"

namespace souk::market {

class Machines {
  public:
    static constexpr size_t kinds_max = 256;
    // Kind 0: not known, or one too many: fits everywhere and takes everything; then the image is
    // checked where it arrives.
    int kind_of(const Machine& machine);
    bool fits(int here, int there) const {
        return takes_[static_cast<size_t>(here)][static_cast<size_t>(there)];
    }
    // Whether machines of these two kinds take the same things.
    bool take_the_same(int a, int b) const {
        return takes_[static_cast<size_t>(a)] == takes_[static_cast<size_t>(b)];
    }
    // Whether what ran there can go to every known kind.
    bool fits_all(int there) const { return all_[static_cast<size_t>(there)]; }
    size_t kinds() const { return takes_.size() - 1; }

  private:
    std::map<Machine, int> kinds_;
    std::vector<const Machine*> machines_{nullptr};
    std::vector<std::vector<bool>> takes_{{true}};  // [here][there]
    std::vector<bool> all_{true};
};

}  // namespace souk::market
