// SPDX-License-Identifier: GPL-2.0-or-later
// ReadWindow: how much of what the kernel reads ahead is asked of the home at once: twice what the
// link has under way (the shortest round trip, times the most that has come of late), so that a
// reader gets what the link gives, and what is asked beside does not wait behind megabytes.
// Pure. Owned by the client's Upstream.
#pragma once

#include <algorithm>
#include <cstdint>

namespace souk::files {

class ReadWindow {
  public:
    static constexpr uint64_t bytes_min = 2 << 20, bytes_max = 16 << 20;

    // A read of so many bytes may be asked for now. One always may.
    bool has_room(uint64_t bytes) const { return under_way_ == 0 || under_way_ + bytes <= bytes_; }
    void asked(uint64_t bytes, int64_t now_ns) {
        if (under_way_ == 0) begin_span(now_ns);  // a pause is none of the link's
        under_way_ += bytes;
    }
    // An answer has come, of `came` bytes to a request of `asked` (0: no read), after that time.
    void answered(uint64_t asked, uint64_t came, int64_t took_ns, int64_t now_ns) {
        under_way_ -= std::min(under_way_, asked);
        round_trip_ns_ = std::min(round_trip_ns_, std::max<int64_t>(took_ns, 1));
        came_ += came;
        const int64_t span = now_ns - since_ns_;
        if (span < std::max(span_ns, round_trip_ns_)) return;
        rate_ = std::max(rate_ - rate_ / 8, came_ * second / static_cast<uint64_t>(span));
        const auto trip_us = static_cast<uint64_t>(round_trip_ns_) / 1000;
        bytes_ = std::clamp(rate_ / 1'000'000 * trip_us * 2, bytes_min, bytes_max);
        begin_span(now_ns);
    }
    // A new stream.
    void begin() { *this = {}; }
    uint64_t bytes() const { return bytes_; }

  private:
    void begin_span(int64_t now_ns) {
        since_ns_ = now_ns;
        came_ = 0;
    }

    static constexpr uint64_t second = 1'000'000'000;
    static constexpr int64_t span_ns = 20'000'000, trip_max_ns = 1'000'000'000;
    uint64_t bytes_ = bytes_min, under_way_ = 0, came_ = 0;
    uint64_t rate_ = 0;  // bytes a second
    int64_t round_trip_ns_ = trip_max_ns, since_ns_ = 0;
};

}  // namespace souk::files
