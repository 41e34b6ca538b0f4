// SPDX-License-Identifier: GPL-2.0-or-later
// KeyMap: from a caller's 64-bit key to a dense index. Open addressing, linear probing, deletion by
// shifting back (Knuth, TAOCP 6.4 algorithm R), in shards by the hash, so that what one insertion
// may have to rebuild is a 256th of the map. Eight keys that follow each other lie side by side. It
// cannot be iterated, so no result can depend on its order. Key 0 is no key.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace souk::market {

class KeyMap {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    uint32_t find(uint64_t key) const {
        const uint64_t hash = hash_of(key);
        return shards_[hash >> 56].find(key, hash);
    }
    // The key must not be there.
    void insert(uint64_t key, uint32_t index) {
        const uint64_t hash = hash_of(key);
        shards_[hash >> 56].insert(key, hash, index);
    }
    // The key must be there.
    void erase(uint64_t key) {
        const uint64_t hash = hash_of(key);
        shards_[hash >> 56].erase(key, hash);
    }

  private:
    // Mixes both halves (keys often count up, or hold a small number in the upper half), but not
    // the last three bits. The upper 8 bits choose the shard, the next ones the place in it.
    static uint64_t hash_of(uint64_t key) {
        uint64_t group = key >> 3;
        group ^= group >> 32;
        return group * 0x9e3779b97f4a7c15ULL;
    }

    struct Cell {
        uint64_t key = 0;
        uint32_t index = none;
    };
    class Shard {
      public:
        uint32_t find(uint64_t key, uint64_t hash) const {
            if (cells_.empty()) return none;
            for (size_t i = home(key, hash);; i = (i + 1) & mask_) {
                if (cells_[i].key == key) return cells_[i].index;
                if (cells_[i].key == 0) return none;
            }
        }
        void insert(uint64_t key, uint64_t hash, uint32_t index) {
            if ((size_ + 1) * 2 > cells_.size()) grow();
            place(key, hash, index);
            ++size_;
        }
        void erase(uint64_t key, uint64_t hash) {
            size_t hole = home(key, hash);
            while (cells_[hole].key != key) hole = (hole + 1) & mask_;
            for (size_t i = (hole + 1) & mask_; cells_[i].key != 0; i = (i + 1) & mask_) {
                const size_t from = home(cells_[i].key, hash_of(cells_[i].key));
                // between the hole and its home: leave it
                if (((i - from) & mask_) < ((i - hole) & mask_)) continue;
                cells_[hole] = cells_[i];
                hole = i;
            }
            cells_[hole] = {};
            --size_;
        }

      private:
        size_t home(uint64_t key, uint64_t hash) const {
            return ((hash << 8 >> shift_) * 8 + (key & 7)) & mask_;
        }
        void place(uint64_t key, uint64_t hash, uint32_t index) {
            size_t i = home(key, hash);
            while (cells_[i].key != 0) i = (i + 1) & mask_;
            cells_[i] = {key, index};
        }
        void grow() {
            const std::vector<Cell> old =
                std::exchange(cells_, std::vector<Cell>(std::max<size_t>(16, cells_.size() * 2)));
            mask_ = static_cast<uint32_t>(cells_.size() - 1);
            shift_ = 64 - static_cast<uint32_t>(std::countr_zero(cells_.size() / 8));
            for (const Cell& c : old)
                if (c.key != 0) place(c.key, hash_of(c.key), c.index);
        }

        std::vector<Cell> cells_;
        uint32_t mask_ = 0;
        uint32_t size_ = 0;
        uint32_t shift_ = 63;
    };

    std::vector<Shard> shards_ = std::vector<Shard>(256);
};

// From a key to what its owner keeps elsewhere, at an address that does not change.
template <class T>
class KeyTable {
  public:
    // Null: no such key.
    T* find(uint64_t key) const {
        const uint32_t i = index_.find(key);
        return i == KeyMap::none ? nullptr : all_[i];
    }
    // The key must not be there.
    void insert(uint64_t key, T& one) {
        if (free_.empty()) {
            free_.push_back(static_cast<uint32_t>(all_.size()));
            all_.push_back(nullptr);
        }
        index_.insert(key, free_.back());
        all_[free_.back()] = &one;
        free_.pop_back();
    }
    void erase(uint64_t key) {
        const uint32_t i = index_.find(key);
        if (i == KeyMap::none) return;
        index_.erase(key);
        all_[i] = nullptr;
        free_.push_back(i);
    }

  private:
    KeyMap index_;
    std::vector<T*> all_;
    std::vector<uint32_t> free_;
};

}  // namespace souk::market
