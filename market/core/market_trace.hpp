// SPDX-License-Identifier: GPL-2.0-or-later
// MarketTrace: tells a listener each input of a Market, how the states of its jobs change, and its
// outputs (kernel/base/trace.hpp). It makes no line while nobody listens. Owned by Market.
#pragma once

#include <string>

#include "kernel/base/trace.hpp"
#include "market/core/market_io.hpp"
#include "market/core/market_state.hpp"

namespace souk::market {

class MarketTrace {
  public:
    // Null: nobody listens. The listener outlives the Market.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    bool is_on() const { return tracer_.on(); }

    void heard(Input input, const JobId& id = {}, const NodeName& node = {},
               const std::string& why = {}) const {
        if (tracer_.on()) tell_input(to_string(input), id, node, why);
    }
    void heard(const NodeName& node, const ToMarket& message) const {
        if (tracer_.on()) tell_report(node, message);
    }
    // Tells the phase of a job and its outstanding order.
    void tell_state(const Job& job);
    // Tells what a step added to the outputs, which held so many before it.
    void tell_outputs(const Outputs& out, size_t stored, size_t sent) const;

  private:
    void tell_input(std::string step, const JobId& id, const NodeName& node,
                    const std::string& why) const;
    void tell_report(const NodeName& node, const ToMarket& message) const;

    Tracer tracer_;
};

}  // namespace souk::market
