// SPDX-License-Identifier: GPL-2.0-or-later
// HomeWakes: how many of the home's frozen jobs wake at one time, as its owner wants it. An order
// to wake a job whose turn has not come is kept here, and the job's home has not taken it: the
// market does not take it for lost. Part of Home, which carries the order out when its turn comes.
//
// A job wakes from the moment its order is taken until its destination holds it, or the thaw is
// given up. Jobs that stand where they are (in place) have no image and are not counted.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agentd/core/home_io.hpp"

namespace souk {

enum class WakeRule : uint8_t {
    all,  // as the market orders
    // those whose images lie on this node: only as many as fit its free memory at one time; one
    // that is larger wakes alone
    fit,
    one,  // of all jobs of this home, wherever their images lie
};

class HomeWakes {
  public:
    HomeWakes(NodeName node, WakeRule rule) : node_(std::move(node)), rule_(rule) {}
    void configured(WakeRule rule) { rule_ = rule; }
    // The free memory of this node now. Until it is told, `fit` holds no job back.
    void free_memory(int64_t bytes) { free_bytes_ = bytes; }

    // A newer order for a job in no step. True: it is to wake it, its turn has not come, and the
    // order is kept. The order that was kept of that job before is dropped; its place is not.
    bool keeps(const HomeJob& job, const Order& order, Nanos now);
    // After each step of the job: it may wake now, have woken, or have ended.
    void look_at(const HomeJob& job);
    void forget(uint64_t seq);
    // The market is told of all jobs anew, and orders what it has not heard of again.
    void market_is_up() {
        kept_.clear();
        places_.clear();
    }

    // The order whose turn has come, once.
    std::optional<Order> next();
    // One that has waited for longer than a market's ticket can be expected to last, once.
    std::optional<Order> overdue(Nanos now);
    Nanos due() const;
    std::string why_late() const;
    const Order* kept(uint64_t seq) const;

  private:
    struct Kept {
        Order order;
        Nanos since;
        int64_t bytes = 0;
        bool here = false;  // its image lies on this node
    };
    bool is_limited(bool here) const {
        return rule_ == WakeRule::one || (rule_ == WakeRule::fit && here && free_bytes_);
    }
    bool has_room(const Kept& kept) const;
    void drop(uint64_t seq);
    void woken(std::map<uint64_t, int64_t>::iterator job);
    Order take_first();

    NodeName node_;
    WakeRule rule_;
    std::optional<int64_t> free_bytes_;
    std::map<uint64_t, int64_t> waking_;   // by the number of the job: bytes, if they lie here
    int64_t waking_bytes_ = 0;             // their sum
    std::map<uint64_t, Kept> kept_;        // by place: the first came first
    std::map<uint64_t, uint64_t> places_;  // by the number of the job
    uint64_t last_place_ = 0;
};

}  // namespace souk
