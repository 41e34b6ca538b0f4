// SPDX-License-Identifier: GPL-2.0-or-later
// KeyMap: from a caller's 64-bit key to a dense index. Open addressing, linear probing, deletion by shifting back
// (Knuth, TAOCP 6.4 algorithm R). It cannot be iterated, so no result can depend on its order. Key 0 is no key.
#pragma once

#include <cstdint>
#include <vector>

namespace souk::market {

class KeyMap {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    uint32_t find(uint64_t key) const {
        if (cells_.empty()) return none;
        for (size_t i = slot(key);; i = (i + 1) & mask_) {
            if (cells_[i].key == key) return cells_[i].index;
            if (cells_[i].key == 0) return none;
        }
    }

    // The key must not be there.
    void insert(uint64_t key, uint32_t index) {
        if ((size_ + 1) * 2 > cells_.size()) grow();
        place(key, index);
        ++size_;
    }

    // The key must be there.
    void erase(uint64_t key) {
        size_t hole = slot(key);
        while (cells_[hole].key != key) hole = (hole + 1) & mask_;
        for (size_t i = (hole + 1) & mask_; cells_[i].key != 0; i = (i + 1) & mask_) {
            const size_t home = slot(cells_[i].key);
            if (((i - home) & mask_) < ((i - hole) & mask_)) continue;  // between the hole and its home: leave it
            cells_[hole] = cells_[i];
            hole = i;
        }
        cells_[hole] = {};
        --size_;
    }

    void clear() { *this = {}; }

  private:
    struct Cell {
        uint64_t key = 0;
        uint32_t index = none;
    };

    // Mixes both halves: keys often count up, or hold a small number in the upper half.
    size_t slot(uint64_t key) const {
        key ^= key >> 32;
        return (key * 0x9e3779b97f4a7c15ULL) >> shift_;
    }
    void place(uint64_t key, uint32_t index) {
        size_t i = slot(key);
        while (cells_[i].key != 0) i = (i + 1) & mask_;
        cells_[i] = {key, index};
    }
    void grow() {
        std::vector<Cell> old = std::move(cells_);
        const size_t n = old.empty() ? 16 : old.size() * 2;
        cells_.assign(n, {});
        mask_ = n - 1;
        shift_ = 64 - static_cast<uint32_t>(__builtin_ctzll(n));
        for (const Cell& c : old)
            if (c.key != 0) place(c.key, c.index);
    }

    std::vector<Cell> cells_;
    size_t mask_ = 0;
    size_t size_ = 0;
    uint32_t shift_ = 60;
};

}  // namespace souk::market
