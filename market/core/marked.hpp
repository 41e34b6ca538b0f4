// SPDX-License-Identifier: GPL-2.0-or-later
// Marked: of many things those that are still to be looked at, each once. They come out by name, so
// that no result depends on the order in which they went in. The mark is a number in the thing
// itself (0: it is not among them), so to mark one twice costs nothing and no name is compared
// before all of them come out. Nothing is owned; who is gone must have been erased before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace souk::market {

template <class T, uint32_t T::*mark>
class Marked {
  public:
    bool empty() const { return all_.empty(); }
    void insert(T& one) {
        if (one.*mark != 0) return;
        all_.push_back(&one);
        one.*mark = static_cast<uint32_t>(all_.size());
    }
    void erase(T& one) {
        const uint32_t at = std::exchange(one.*mark, 0);
        if (at == 0) return;
        if (all_.back() != &one) {
            all_[at - 1] = all_.back();
            all_[at - 1]->*mark = at;
        }
        all_.pop_back();
    }
    // All of them, which are marked no more: as they come, and by name.
    std::vector<T*> take_any_order() {
        for (T* one : all_) one->*mark = 0;
        return std::exchange(all_, {});
    }
    std::vector<T*> take() {
        std::vector<T*> all = take_any_order();
        std::sort(all.begin(), all.end(), [](const T* a, const T* b) { return a->id() < b->id(); });
        return all;
    }

  private:
    std::vector<T*> all_;
};

}  // namespace souk::market
