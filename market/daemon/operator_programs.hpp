// SPDX-License-Identifier: GPL-2.0-or-later
// OperatorPrograms: the programs that the operator has marketd ask, by the keys of its
// configuration (docs/filters.md). Owned by Marketd.
#pragma once

#include <string>
#include <vector>

#include "market/daemon/asked_program.hpp"
#include "market/daemon/config.hpp"

namespace souk {

struct OperatorPrograms {
    OperatorPrograms(Loop& loop, Log& log, const MarketConfig& config);
    // Errors: one of them could not be run now, and why.
    Status check() const;
    // Why those that could not be run now could not, in a line each.
    std::vector<std::string> troubles() const;
    void close();

    AskedProgram submit, arrival, users, metric, reroute;
};

}  // namespace souk
