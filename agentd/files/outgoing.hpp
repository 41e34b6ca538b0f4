// SPDX-License-Identifier: GPL-2.0-or-later
// Outgoing: what is to be sent on a stream, and has not been yet. Pure.
//
// The queue keeps its memory while messages come and go, so that no pages are made anew for each
// answer of a megabyte. Bytes that were sent are given up when they are as many as the rest: a
// stream that is never empty would otherwise hold all that it has ever carried. So each byte is
// moved at most once.
#pragma once

#include <cstddef>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

class Outgoing {
  public:
    // Messages are put at its end.
    Bytes& messages() {
        if (sent_ > 0 && sent_ >= size()) {
            bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(sent_));
            sent_ = 0;
        }
        return bytes_;
    }
    size_t size() const { return bytes_.size() - sent_; }
    bool empty() const { return size() == 0; }
    ByteView next() const { return ByteView(bytes_).subspan(sent_); }
    void sent(size_t bytes) {
        sent_ += bytes;
        if (!empty()) return;
        bytes_.clear();
        sent_ = 0;
    }
    // Tells that the queue has nothing to send, and memory that it could give back.
    bool holds_much() const { return empty() && bytes_.capacity() > keep_bytes; }
    void give_back() {
        if (empty()) bytes_.shrink_to_fit();
    }
    size_t capacity() const { return bytes_.capacity(); }

  private:
    static constexpr size_t keep_bytes = 2 << 20;
    Bytes bytes_;
    size_t sent_ = 0;
};

}  // namespace souk::files
