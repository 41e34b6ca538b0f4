// SPDX-License-Identifier: GPL-2.0-or-later
// Chunks: an array that grows at its end and never moves what it holds, so that its growth costs
// one chunk (64 KiB) at most, however large it is, and references stay good.
#pragma once

#include <bit>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace souk::market {

template <class T>
class Chunks {
    static constexpr size_t per_chunk = std::bit_floor(64 * 1024 / sizeof(T));

    template <class Owner, class Item>
    struct Iterator {
        using iterator_category = std::forward_iterator_tag;
        using value_type = T;
        using difference_type = ptrdiff_t;
        using pointer = Item*;
        using reference = Item&;

        Owner* owner = nullptr;
        size_t i = 0;
        Item& operator*() const { return (*owner)[i]; }
        Item* operator->() const { return &(*owner)[i]; }
        Iterator& operator++() {
            ++i;
            return *this;
        }
        Iterator operator++(int) { return {owner, i++}; }
        bool operator==(const Iterator&) const = default;
    };

  public:
    Chunks() = default;
    Chunks(Chunks&& other) noexcept
        : chunks_(std::move(other.chunks_)), size_(std::exchange(other.size_, 0)) {}
    Chunks& operator=(Chunks&& other) noexcept {
        chunks_ = std::move(other.chunks_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }
    // No element of a copy ever moves either.
    Chunks(const Chunks& other) : size_(other.size_) {
        for (const auto& chunk : other.chunks_) {
            chunks_.emplace_back().reserve(per_chunk);
            chunks_.back().insert(chunks_.back().end(), chunk.begin(), chunk.end());
        }
    }
    Chunks& operator=(const Chunks& other) { return *this = Chunks(other); }

    size_t size() const { return size_; }
    T& operator[](size_t i) { return chunks_[i / per_chunk][i % per_chunk]; }
    const T& operator[](size_t i) const { return chunks_[i / per_chunk][i % per_chunk]; }
    // One more, as T{}.
    T& add() {
        if (size_ == chunks_.size() * per_chunk) chunks_.emplace_back().reserve(per_chunk);
        ++size_;
        return chunks_.back().emplace_back();
    }
    auto begin() { return Iterator<Chunks, T>{this, 0}; }
    auto end() { return Iterator<Chunks, T>{this, size_}; }
    auto begin() const { return Iterator<const Chunks, const T>{this, 0}; }
    auto end() const { return Iterator<const Chunks, const T>{this, size_}; }

  private:
    std::vector<std::vector<T>> chunks_;
    size_t size_ = 0;
};

}  // namespace souk::market
