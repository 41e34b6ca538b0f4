// SPDX-License-Identifier: GPL-2.0-or-later
// Machines: the kinds of machines that a market has, and which of them can take what ran on which.
// A pool is of one kind or of a few, so all is worked out once for a kind. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernel/base/machine.hpp"

namespace souk::market {

class Machines {
  public:
    static constexpr size_t kinds_max = 256;
    // Takes a use of its kind, for one node. Kind 0: not known, or one too many: fits everywhere
    // and takes everything; then the image is checked where it arrives.
    int take(const souk::Machine& machine);
    // Gives back what take() returned. A kind that no node is of any more makes room for another.
    void leave(int kind);
    bool fits(int here, int there) const {
        return takes_[static_cast<size_t>(here)][static_cast<size_t>(there)];
    }
    // Whether machines of these two kinds take the same things.
    bool take_the_same(int a, int b) const {
        return takes_[static_cast<size_t>(a)] == takes_[static_cast<size_t>(b)];
    }
    // Whether what ran there can go to every known kind.
    bool fits_all(int there) const { return refusals_[static_cast<size_t>(there)] == 0; }
    // Whether that is the kind of this machine.
    bool is(int kind, const souk::Machine& machine) const {
        const souk::Machine* const known = machines_[static_cast<size_t>(kind)];
        return known && *known == machine;
    }
    size_t kinds() const { return kinds_.size(); }

  private:
    int new_kind();
    void set(size_t here, size_t there, bool takes);

    std::map<souk::Machine, int> kinds_;
    std::vector<const souk::Machine*> machines_{nullptr};
    std::vector<uint32_t> uses_{0};
    std::vector<std::vector<bool>> takes_{{true}};  // [here][there]
    std::vector<uint32_t> refusals_{0};             // by how many kinds what ran there is not taken
    std::vector<int> free_;
};

}  // namespace souk::market
