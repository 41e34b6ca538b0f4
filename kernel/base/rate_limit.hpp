// SPDX-License-Identifier: GPL-2.0-or-later
// RateLimit: at most so many bytes a second of all who share it; RateShare: one of them.
//
// The limit uses virtual scheduling (the generic cell rate algorithm, ITU-T I.371): each piece is
// booked, and takes its time at the rate; the next may go when that is over. Pieces go in the order
// in which they are booked, so all who want to send get the same. Unused time is made up for by
// `slack` at most: within any span t no more goes than rate x (t + slack) and one piece of each who
// shares it.
//
// Pure; the caller says what time it is, and it never goes back. A RateLimit outlives its shares.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel/base/time.hpp"

namespace souk {

class RateLimit {
  public:
    // A timer that comes late costs nothing within that.
    static constexpr Nanos slack = Nanos::from_ms(20);

    // 0: there is no limit. What is booked keeps its bytes, and takes its time at the new rate.
    void set(uint64_t bytes_per_s, Nanos now) {
        if (bytes_per_s == rate_) return;
        if (bytes_per_s == 0 || rate_ == 0) {
            free_at_ = now;
        } else {
            const double owed = static_cast<double>((std::max(free_at_, now) - now).ns);
            const double times = static_cast<double>(rate_) / static_cast<double>(bytes_per_s);
            free_at_ = now + Nanos{static_cast<int64_t>(owed * times)};
        }
        rate_ = bytes_per_s;
    }
    uint64_t rate() const { return rate_; }

    // When so many bytes may go (2^33 at most), which are counted now.
    Nanos book(uint64_t bytes, Nanos now) {
        if (rate_ == 0) return now;
        free_at_ = std::max(free_at_, now - slack);
        const Nanos at = std::max(free_at_, now);
        free_at_ += Nanos{static_cast<int64_t>(bytes * 1'000'000'000 / rate_)};
        return at;
    }

  private:
    uint64_t rate_ = 0;
    Nanos free_at_;
};

class RateShare {
  public:
    // Nobody waits for longer, however many share a low rate: the other end would give it up.
    static constexpr Nanos wait_max = Nanos::from_s(10);
    // The rate may be another by then.
    static constexpr Nanos look_again = Nanos::from_ms(250);

    RateShare() = default;  // no limit
    // Pieces of `piece_bytes` at most are booked. Null: no limit.
    explicit RateShare(RateLimit* limit, uint64_t piece_bytes = 64 << 10)
        : limit_(limit), piece_bytes_(piece_bytes) {}

    bool limited() const { return limit_ && limit_->rate() > 0; }
    // Returns how much of `wanted` bytes (not 0) may go now; 0: ask again after wait().
    uint64_t room(uint64_t wanted, Nanos now) {
        if (!limited()) {
            booked_ = 0;
            return wanted;
        }
        if (booked_ == 0) {
            booked_ = std::min(wanted, piece_bytes_);
            at_ = std::min(limit_->book(booked_, now), now + wait_max);
        }
        return now >= at_ ? std::min(wanted, booked_) : 0;
    }
    Nanos wait(Nanos now) const {
        return limited() ? std::clamp(at_ - now, Nanos{}, look_again) : Nanos{};
    }
    // The caller has used so much of the room.
    void went(uint64_t bytes) { booked_ -= std::min(bytes, booked_); }
    // The caller had bytes that could not wait, and sent them without room. Other senders wait
    // until the rate allows for these bytes.
    void went_at_once(uint64_t bytes, Nanos now) {
        if (limited()) (void)limit_->book(bytes, now);
    }

  private:
    RateLimit* limit_ = nullptr;
    uint64_t piece_bytes_ = 0, booked_ = 0;
    Nanos at_;
};

}  // namespace souk
