// SPDX-License-Identifier: GPL-2.0-or-later
// The options of a solver that an operator may set: plain values, which Solver::set_options checks,
// and one table that says of each what it is called, how far it goes and what it is for. marketd's
// configuration, `marketctl set`, `solver` and `marketsim` take their options from the table, so a
// new one is a member here and a line there. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

struct SolverOptions {
    std::string algorithm = "greedy_migration";
    std::string pricing = "critical";
    int32_t k_permille = 500;  // uniform: 0 gives the buyers all of the gap, 1000 the providers

    // Migration-awareness (every algorithm but proportional_share). All zero: the plain algorithm.
    // a move must pay for itself within this; 0: every move to a better place is made
    Nanos horizon;
    int64_t link_bytes_per_s = 100'000'000;  // what a move's pause is reckoned with
    Money byte_cost_per_gb;                  // what carrying 10^9 bytes costs, beside the pause
    // nobody who was just placed is moved or displaced before this has passed; 0: off
    Nanos min_stay;
    int32_t moves_max = 0;  // at most this many voluntary moves in any moves_window; 0: no cap
    Nanos moves_window = Nanos::from_s(60);

    // a bid counts double for each time that its job has waited so long (age.hpp); 0: never
    Nanos ageing;

    Nanos quantum = Nanos::from_s(10);  // proportional_share: the turn of a job is this long
    // a suspended job stands in memory for so long at most before it goes to disk; 0: at once. The
    // solver itself does not look at it.
    Nanos stand_max;
};

// One of them, apart from the names of algorithm and pricing. Its value is one whole number: of a
// time nanoseconds, of an amount of money micro-units.
struct SolverOption {
    enum class Kind : uint8_t { number, time, money };

    std::string_view key;   // in marketd's configuration; the unit of a time is in it
    std::string_view name;  // for everybody else: "min-stay"
    Kind kind = Kind::number;
    Nanos unit;  // of a time: what a number alone counts in the configuration
    int64_t least = 0, most = 0;
    std::string_view of;  // the algorithm or the pricing that alone looks at it; empty: several
    std::string_view help;
    int64_t (*get)(const SolverOptions& options);
    void (*set)(SolverOptions& options, int64_t value);

    // The value that `text` states, within its bounds: a whole number, a time ("90s", "10m"; a
    // number alone is in units of `plain`) or an amount ("0.25").
    Result<int64_t> parse(std::string_view text, Nanos plain) const;
    // As parse() takes it.
    std::string text(int64_t value) const;
    // "0 to 1000", for help and errors.
    std::string range() const;
};
std::span<const SolverOption> solver_option_table();
// The option with this key or name; null: there is none.
const SolverOption* find_solver_option(std::string_view name);

}  // namespace souk::market
