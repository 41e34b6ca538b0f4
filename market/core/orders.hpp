// SPDX-License-Identifier: GPL-2.0-or-later
// Orders: their numbers, what becomes of one, and for how long a job is not asked again what it
// could not do. One order a job at a time; it is outstanding until the home reports what was wished
// for, says that it failed, or is silent for too long. Pure; part of Market, which decides what is
// ordered and sends it.
#pragma once

#include <optional>
#include <string>

#include "market/core/market_state.hpp"
#include "market/core/ticket.hpp"

namespace souk::market {

class Orders {
  public:
    struct Limits {
        Nanos order_patience;  // then an order of which nothing is heard is over
        // a home took it, and is neither there nor says that it failed
        Nanos doubt_patience;
        // a home is back and does not report a job that it had
        Nanos forgotten_patience;
        Nanos backoff_min, backoff_max;
    };
    explicit Orders(Limits limits) : limits_(limits) {}

    // Numbers grow for ever: above each that was ever used. A home that says a number so large that
    // records could not hold the ones after it has not got that from a market.
    static constexpr uint64_t seq_believed_max = uint64_t{1} << 61;
    uint64_t next_seq() const { return next_seq_; }
    void begin_at(uint64_t seq) { next_seq_ = seq; }
    void used(uint64_t seq) {
        if (seq < seq_believed_max) next_seq_ = std::max(next_seq_, seq + 1);
    }

    // A new order for the job, not outstanding yet.
    Order make(const Job& job, Order::Kind kind, const NodeName& node, std::string reason);
    // The order lets the job's home do this on other nodes, but for keys and times. nullopt: no
    // other node has a part in it.
    static std::optional<Ticket> ticket(const Job& job, const Order& order);
    // It asks the home of a job that is not known here to report it.
    Order ask(const JobId& id);
    // It is outstanding from now on.
    static void give(Job& job, const Order& order, Nanos now);

    // Nothing is decided about it: an order is outstanding, or a step is under way.
    static bool in_transit(const Job& job);
    // An order to run somewhere is outstanding.
    static bool is_sent(const Job& job) {
        return job.record.order && job.record.order->kind == Order::Kind::run;
    }
    // A job in transit will run on this node if all goes well; empty: nowhere.
    static NodeName heading_for(const Job& job);

    // After a report: is the order done, lost, or not carried out? `fresh`: the first report since
    // its home connected, so whatever was under way to the home before has arrived or never will.
    static void judge(Job& job, bool fresh, Nanos now);
    // Its home says that the order of that number failed. False: it is not outstanding.
    bool failed(Job& job, const OrderFailed& failed, Nanos now) const;

    // The job does not go there for a while, longer each time.
    void bar(Job& job, const NodeName& node, const souk::Cause& why, Nanos now) const;

    // When time changes something: an order is silent or in doubt for too long, a back-off ends.
    Nanos due(const Job& job) const;
    // To be called when that is due.
    bool is_forgotten(const Job& job, Nanos now) const;  // by its home, which is back
    bool gives_up(Job& job, Nanos now) const;            // true: its order is over
    static void end_back_offs(Job& job, Nanos now);

  private:
    void refused(Job& job, const Order& order, const NodeName& blame, const souk::Cause& why,
                 Nanos now) const;

    Limits limits_;
    uint64_t next_seq_ = 1;
};

}  // namespace souk::market
