// SPDX-License-Identifier: GPL-2.0-or-later
// FaultTable: what becomes of a job when one thing fails in one step of its move.
// test_fault_table.cpp plays each cell on the cluster simulator; `clustersim --fault-table` prints
// the same rows, and `make fault-table` writes them into docs/move.md.
#pragma once

#include <span>
#include <string>

#include "tests/sim/cluster.hpp"

namespace souk::sim {

// Which sources a row is about. A fenced source goes on only when its home says so (Guest::Held).
enum class Sources : uint8_t { any, fenced, not_fenced };

struct MovesOf {
    const char* forms;  // what the table calls them
    MoveForm first, last;
    Sources sources;
};
struct FaultRow {
    MovesOf moves;
    Moment moment;
    // One string for each victim, with the outcomes of Cluster::run_one_fault. The first outcome
    // happens often; the others may happen, by the moment of the fault within the step.
    const char* by_victim[static_cast<size_t>(Victim::count_)];

    bool is_of(MoveForm form, bool fenced) const {
        return form >= moves.first && form <= moves.last &&
               (moves.sources == Sources::any || fenced == (moves.sources == Sources::fenced));
    }
};
std::span<const FaultRow> fault_rows();
// The rows as a Markdown table.
std::string fault_table();

}  // namespace souk::sim
