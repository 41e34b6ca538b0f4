// SPDX-License-Identifier: GPL-2.0-or-later
// NeedsIndex: which nodes are what jobs ask for (needs.hpp). An expression is read once for all
// jobs that say it, and worked out once for each node, until that node's attributes change. Pure;
// part of Places.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "market/core/market_state.hpp"
#include "market/core/needs.hpp"

namespace souk::market {

// The value of an attribute: node, cpus, memory, speed, arch, kernel, cpu.flags, near as the node
// reports them for other uses, then those of ProviderReport::attributes.
std::optional<std::string> attribute_of(const ProviderReport& report, std::string_view name);

class NeedsIndex {
  public:
    // Whether the node is what the text says; empty text: it is. No node is what cannot be read.
    bool fits(const std::string& needs, const Node& node) const;
    // Null: the text is no expression.
    const Needs* read(const std::string& needs) const;
    // The node has reported again, after `before`. True: something that is asked for holds
    // otherwise now. A report that changes no attribute, such as one of another price, costs
    // nothing.
    bool changed(const ProviderReport& before, const Node& node);

  private:
    // Beyond so many different expressions all are worked out anew.
    static constexpr size_t known_max = 4'096;
    struct Known {
        std::optional<Needs> needs;
        std::map<uint64_t, bool> fits;  // by the node's key
    };
    Known& known(const std::string& needs) const;

    mutable std::map<std::string, Known> known_;
    mutable bool forgot_ = false;  // jobs may ask for what is not known any more
};

}  // namespace souk::market
