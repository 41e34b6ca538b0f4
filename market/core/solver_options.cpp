// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/solver_options.hpp"

#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"

namespace souk::market {
namespace {

template <auto member>
int64_t get(const SolverOptions& o) {
    const auto& value = o.*member;
    if constexpr (requires { value.ns; })
        return value.ns;
    else if constexpr (requires { value.micro; })
        return value.micro;
    else
        return value;
}

template <auto member>
void set(SolverOptions& o, int64_t value) {
    auto& to = o.*member;
    if constexpr (requires { to.ns; })
        to.ns = value;
    else if constexpr (requires { to.micro; })
        to.micro = value;
    else
        to = static_cast<std::remove_reference_t<decltype(to)>>(value);
}

using Kind = SolverOption::Kind;
using O = SolverOptions;
constexpr int64_t ns_per_s = 1'000'000'000;
constexpr int64_t long_time = 1'000'000'000 * ns_per_s;
constexpr Nanos second = Nanos{ns_per_s}, millisecond = Nanos{1'000'000};

constexpr SolverOption table[] = {
    {"k_permille",
     "k",
     Kind::number,
     {},
     0,
     1'000,
     "uniform",
     "uniform pricing: 0 gives the buyers all of the gap, 1000 the providers",
     get<&O::k_permille>,
     set<&O::k_permille>},
    {"horizon_s", "horizon", Kind::time, second, 0, long_time, "",
     "within which a move must pay for itself (0: every gain is taken)", get<&O::horizon>,
     set<&O::horizon>},
    {"min_stay_ms", "min-stay", Kind::time, millisecond, 0, long_time, "",
     "for which nobody who was just placed is moved or displaced", get<&O::min_stay>,
     set<&O::min_stay>},
    {"moves_max",
     "moves-max",
     Kind::number,
     {},
     0,
     1'000'000,
     "",
     "at most this many voluntary moves in a moves-window (0: no cap)",
     get<&O::moves_max>,
     set<&O::moves_max>},
    {"moves_window_s", "moves-window", Kind::time, second, ns_per_s, long_time, "",
     "in which voluntary moves are counted", get<&O::moves_window>, set<&O::moves_window>},
    {"ageing_s", "ageing", Kind::time, second, 0, long_time, "greedy_migration",
     "the wait after which a job's bid counts double, and again after each more (0: never)",
     get<&O::ageing>, set<&O::ageing>},
    {"quantum_s", "quantum", Kind::time, second, ns_per_s, long_time, "proportional_share",
     "proportional_share: a turn", get<&O::quantum>, set<&O::quantum>},
    {"stand_max_s", "stand-max", Kind::time, second, 0, long_time, "",
     "for which a job that has lost its place stands in memory at most (0: it goes to disk at "
     "once)",
     get<&O::stand_max>, set<&O::stand_max>},
    {"link_bytes_per_s",
     "link",
     Kind::number,
     {},
     1,
     int64_t{1} << 40,
     "",
     "bytes/s that a horizon reckons the pause of a move and waits for files with",
     get<&O::link_bytes_per_s>,
     set<&O::link_bytes_per_s>},
    {"byte_cost_per_gb",
     "byte-cost",
     Kind::money,
     {},
     0,
     money_max.micro,
     "",
     "what a horizon reckons for carrying 10^9 bytes, beside the pause",
     get<&O::byte_cost_per_gb>,
     set<&O::byte_cost_per_gb>},
};

}  // namespace

std::span<const SolverOption> solver_option_table() { return table; }

const SolverOption* find_solver_option(std::string_view name) {
    for (const SolverOption& o : table)
        if (name == o.key || name == o.name) return &o;
    return nullptr;
}

Result<int64_t> SolverOption::parse(std::string_view given, Nanos plain) const {
    if (kind == Kind::time) {
        TRY_ASSIGN(const Nanos span, parse_span(given, plain, Nanos{least}, Nanos{most}));
        return span.ns;
    }
    if (kind == Kind::money) {
        TRY_ASSIGN(const Money amount, parse_money(given));
        return amount.micro;
    }
    const auto value = whole_number<int64_t>(given);
    if (!value || *value < least || *value > most)
        return fail("'" + std::string(given) + "' is not a whole number from " + range());
    return *value;
}

std::string SolverOption::text(int64_t value) const {
    if (kind == Kind::time) return span_text(Nanos{value});
    if (kind == Kind::money) return format_money(Money{value});
    return std::to_string(value);
}

std::string SolverOption::range() const { return text(least) + " to " + text(most); }

}  // namespace souk::market
