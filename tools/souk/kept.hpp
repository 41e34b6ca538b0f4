// SPDX-License-Identifier: GPL-2.0-or-later
// STATE/market.json describes a market of `souk up`. With it `souk up` takes the market up again
// after `souk down --keep` or a reboot. It is written whole under a temporary name, then renamed;
// beside it lie the states of the daemons.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

struct NodeOptions {
    std::string name;
    int64_t speed = 100;
    std::string price = "1";
};

struct MarketShape {
    std::vector<NodeOptions> nodes;
    int32_t cpus = 1;
    int64_t memory_mb = 0;
    std::string solver, pricing;  // empty: the market's own choice
    std::string agent_user;       // of each agentd; empty: its own choice
    bool private_files = false;   // all nodes but the first have files of their own
    std::string owner_return;     // what guests do for an owner (souk owner); empty: nothing
    // nodes that `souk down --keep` took off the market; the next `souk up` brings them back
    std::vector<std::string> off;
};

// nullopt: none is kept there.
Result<std::optional<MarketShape>> load_shape(const std::string& state);
Status save_shape(const std::string& state, const MarketShape& shape);

}  // namespace souk
