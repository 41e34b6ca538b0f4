// SPDX-License-Identifier: GPL-2.0-or-later
// BlockList: entries in a total order, in blocks of at most `width`, each with a summary, so that a
// search skips the blocks that cannot hold what it looks for. Insert, erase: a binary search over
// the blocks and a short move inside one.
//
// Entry has order(), its place in the total order; no two are equal. Summary is empty as Summary{},
// and widen(const Entry&) makes it cover one more. A summary may be too generous (erase and changes
// only widen it; summarise() tightens it), never too strict. loosen(), if it has that, is called
// when an entry goes. What a Summary counts exactly, if it does, it is told by count(entry, 1) of
// each that comes and count(entry, -1) of each that goes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel/base/check.hpp"

namespace souk::market {

template <class Entry, class Summary, size_t width>
class BlockList {
  public:
    using Key = std::remove_cvref_t<decltype(std::declval<const Entry&>().order())>;
    using Block = std::vector<Entry>;
    struct Place {
        size_t block = SIZE_MAX;
        size_t at = 0;
        explicit operator bool() const { return block != SIZE_MAX; }
    };

    bool empty() const { return blocks_.empty(); }
    size_t size() const { return size_; }
    size_t blocks() const { return blocks_.size(); }
    Block& block(size_t b) { return blocks_[b]; }
    const Block& block(size_t b) const { return blocks_[b]; }
    const Summary& summary(size_t b) const { return summaries_[b]; }
    Entry& operator[](const Place& p) { return blocks_[p.block][p.at]; }

    // The first block that ends after the key, or at it; blocks() if none does.
    size_t block_after(const Key& key) const {
        return index(std::upper_bound(lasts_.begin(), lasts_.end(), key));
    }
    size_t block_from(const Key& key) const {
        return index(std::lower_bound(lasts_.begin(), lasts_.end(), key));
    }
    // The entry must be there.
    Place find(const Key& key) const {
        const size_t b = block_from(key);
        MUST(b < blocks_.size());
        const size_t at = position(blocks_[b], key);
        MUST(blocks_[b][at].order() == key);
        return {b, at};
    }

    void insert(const Entry& entry) {
        if (blocks_.empty()) return append(entry);
        const Key key = entry.order();
        size_t b = std::min(block_from(key), blocks_.size() - 1);
        if (blocks_[b].size() == width) {
            split(b);
            b += lasts_[b] < key;
        }
        Block& block = blocks_[b];
        block.insert(block.begin() + static_cast<ptrdiff_t>(position(block, key)), entry);
        lasts_[b] = block.back().order();
        summaries_[b].widen(entry);
        count(summaries_[b], entry, 1);
        ++size_;
    }
    // Behind all others. Leaves a quarter of each block free.
    void append(const Entry& entry) {
        if (blocks_.empty() || blocks_.back().size() >= width - width / 4) {
            blocks_.emplace_back().reserve(width);
            lasts_.push_back(entry.order());
            summaries_.emplace_back();
        }
        blocks_.back().push_back(entry);
        lasts_.back() = entry.order();
        summaries_.back().widen(entry);
        count(summaries_.back(), entry, 1);
        ++size_;
    }
    // The entry must be there.
    void erase(const Key& key) {
        const Place p = find(key);
        Block& block = blocks_[p.block];
        count(summaries_[p.block], block[p.at], -1);
        block.erase(block.begin() + static_cast<ptrdiff_t>(p.at));
        --size_;
        if constexpr (requires { summaries_[0].loosen(); }) summaries_[p.block].loosen();
        if (!block.empty()) {
            lasts_[p.block] = block.back().order();
            return;
        }
        const auto b = static_cast<ptrdiff_t>(p.block);
        blocks_.erase(blocks_.begin() + b);
        lasts_.erase(lasts_.begin() + b);
        summaries_.erase(summaries_.begin() + b);
    }

    // After a change of an entry of this block.
    void widen(size_t b, const Entry& entry) { summaries_[b].widen(entry); }
    void summarise(size_t b) {
        Summary s;
        for (const Entry& e : blocks_[b]) {
            s.widen(e);
            count(s, e, 1);
        }
        summaries_[b] = s;
    }

    // Every entry in order; visit returns false to stop.
    template <class Visit>
    void each(Visit&& visit) const {
        for (const Block& block : blocks_)
            for (const Entry& e : block)
                if (!visit(e)) return;
    }

  private:
    static void count(Summary& s, const Entry& e, int by) {
        if constexpr (requires { s.count(e, by); }) s.count(e, by);
    }
    size_t index(typename std::vector<Key>::const_iterator it) const {
        return static_cast<size_t>(it - lasts_.begin());
    }
    static size_t position(const Block& block, const Key& key) {
        return static_cast<size_t>(
            std::partition_point(block.begin(), block.end(),
                                 [&](const Entry& e) { return e.order() < key; }) -
            block.begin());
    }
    void split(size_t b) {
        Block right;
        right.reserve(width);
        Block& left = blocks_[b];
        const auto half = left.begin() + static_cast<ptrdiff_t>(width / 2);
        right.assign(half, left.end());
        left.erase(half, left.end());
        const auto behind = static_cast<ptrdiff_t>(b) + 1;
        lasts_.insert(lasts_.begin() + behind, right.back().order());
        lasts_[b] = left.back().order();
        summaries_.insert(summaries_.begin() + behind, Summary{});
        blocks_.insert(blocks_.begin() + behind, std::move(right));
        summarise(b);
        summarise(b + 1);
    }

    std::vector<Block> blocks_;
    std::vector<Key> lasts_;  // the order of each block's last entry
    std::vector<Summary> summaries_;
    size_t size_ = 0;
};

}  // namespace souk::market
