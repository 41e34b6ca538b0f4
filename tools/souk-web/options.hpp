// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/time.hpp"
#include "tools/common/remote.hpp"

namespace souk::tools::web {

struct Options {
    Where where;                   // whom it asks,
    std::optional<Remote> remote;  // and if that is a market on another host
    std::string address = "127.0.0.1";
    uint16_t port = 7780;
    std::vector<std::string> hosts;  // further names under which a browser may call it
    bool open = false;               // who reaches the port may read, without the key
    std::string key;                 // else who has shown this
    bool actions = false;            // who has logged in may give orders
    Nanos every = Nanos::from_s(2);
};

}  // namespace souk::tools::web
