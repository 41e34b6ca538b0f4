// SPDX-License-Identifier: GPL-2.0-or-later
// Overtaking: one queue by arrival, in which a job may pass those before it that do not fit, each
// of them at most so often.
//   0      first come, first served: nobody starts before a job that came earlier
//   never  fit processors first served (FPFS): the first that fits, again and again; a large job
//          can starve
//   else   bounded overtaking
// The solver's algorithms (first_come.cpp) and the simulator's policies for co-allocation are this.
// Key: what names a job, ordered. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace souk::market {

template <class Key>
class Overtaking {
  public:
    static constexpr uint32_t any = UINT32_MAX;  // it may be passed so often

    explicit Overtaking(uint32_t passes_max) : passes_max_(passes_max) {}

    // Offers a place to those who wait, in their order. try_start(key): whether it starts now.
    // `again`: after each start the queue is tried from its head again, for placements that find
    // room for a job in less room than before.
    template <class TryStart>
    void pass(std::vector<Key> queue, bool again, TryStart&& try_start) {
        for (size_t i = 0; i < queue.size();) {
            if (try_start(queue[i])) {
                for (size_t before = 0; before < i && passes_max_ != any; ++before)
                    ++passed_[queue[before]];
                passed_.erase(queue[i]);
                queue.erase(queue.begin() + static_cast<ptrdiff_t>(i));
                if (again) i = 0;
            } else if (passes(queue[i]) >= passes_max_) {
                return;
            } else {
                ++i;
            }
        }
    }
    // How often it was passed since it came.
    uint32_t passes(const Key& key) const {
        const auto at = passed_.find(key);
        return at == passed_.end() ? 0 : at->second;
    }
    // Nobody may pass it any more.
    bool blocks(const Key& key) const { return passes(key) >= passes_max_; }
    template <class Waits>
    void keep(Waits&& waits) {
        std::erase_if(passed_, [&](const auto& one) { return !waits(one.first); });
    }

  private:
    uint32_t passes_max_;
    std::map<Key, uint32_t> passed_;  // of those that wait
};

}  // namespace souk::market
