// SPDX-License-Identifier: GPL-2.0-or-later
// HomeOrders: what the market's orders and notes mean for a job, and the newest order that came
// while a step was under way. Part of Home, which carries out what is said here.
#pragma once

#include <map>
#include <optional>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeOrders {
  public:
    // The actions that an order may ask for.
    enum class Deed : uint8_t {
        nothing,  // an older one, or it waits for the end of a step
        report,   // the job is as ordered, or has ended
        take,     // now; see deed_of
        cancel,
        give_up,  // no node is left that could execute its program
    };
    // It has come: its number and price are in the record.
    Deed came(HomeJob& job, const Order& order, const HomeTurn& turn);
    // The ways to carry out an order that is taken for a job in no step.
    enum class How : uint8_t {
        as_it_is,  // it is so already
        start,
        go_on,   // where it stands
        move,    // also a thaw
        freeze,  // to disk
        stand,   // where it runs
        refuse,  // its node is not heard from
        stays,   // it stands in place, and goes on with its gang and there, or not at all
    };
    // by_order: it stands, and could be frozen to disk.
    static How how(const HomeJob& job, const Order& order, bool node_is_silent, bool by_order);

    // It has gone back, and the files that it had then are being put back: orders wait for that.
    static bool files_come_first(const HomeJob& job) {
        return job.splice.due && job.spec.files_snapshot && job.phase == JobPhase::frozen;
    }
    // The order that waited for the end of a step, once.
    std::optional<Order> take_pending(const HomeJob& job);
    const Order* pending(const HomeJob& job) const;
    // It waits for longer than for that: as if it had not come yet. (Each order has a number of its
    // own, so the one before has none that is greater.)
    static void not_taken(HomeJob& job, const Order& order) { job.order_seq = order.seq - 1; }

    // The market's word of price and cost: in the record. True: something that has to hold after a
    // restart has changed.
    static bool note_price(HomeJob& job, const JobNote& note, const HomeTurn& turn);
    void forget(uint64_t seq) { pending_.erase(seq); }

  private:
    std::map<uint64_t, Order> pending_;
};

}  // namespace souk
