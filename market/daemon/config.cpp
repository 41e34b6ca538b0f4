// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/config.hpp"

#include <unistd.h>

#include "kernel/sys/host/settings.hpp"

namespace souk {
namespace {

Status check(MarketConfig& c) {
    if (c.name.empty()) {
        char host[256] = {};
        ::gethostname(host, sizeof host - 1);
        c.name = host;
    }
    if (c.identity.empty()) c.identity = c.state + "/identity";
    TRY(market::Solver().set_options(c.market.solver));
    return {};
}

// The name of an algorithm, or what else it may be called.
settings::Setter algorithm(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        const auto name =
            market::Solver::algorithm_named(n.value_exact<std::string>().value_or(""));
        if (name) {
            into = *name;
            return {};
        }
        static const auto algorithms = market::Solver::algorithms();
        return settings::one_of(into, algorithms)(n);  // says which there are
    };
}

// A number in the unit that the key names, or a text as the tools take it.
settings::Setter of_solver(const market::SolverOption& option, market::SolverOptions& into) {
    return [&option, &into](const toml::node& n) -> Status {
        const auto number = n.value_exact<int64_t>();
        const std::string text =
            number ? std::to_string(*number) : n.value_exact<std::string>().value_or("");
        TRY_ASSIGN(const int64_t value, option.parse(text, option.unit));
        option.set(into, value);
        return {};
    };
}

}  // namespace

Result<MarketConfig> load_market_config(const std::string& path) {
    constexpr int64_t day = 86'400;
    static const auto pricings = market::Solver::pricings();
    MarketConfig c;
    market::SolverOptions& solver = c.market.solver;
    using namespace settings;
    Keys keys = {
        {"name", text(c.name)},
        {"listen", address(c.listen)},
        {"socket", socket_path(c.socket)},
        {"state", text(c.state)},
        {"identity", text(c.identity)},
        {"insecure", boolean(c.insecure)},
        {"nodes_operate", boolean(c.nodes_operate)},
        {"solver", algorithm(solver.algorithm)},
        {"pricing", one_of(solver.pricing, pricings)},
        {"settle_ms", milliseconds(c.market.settle, 0, 3'600'000)},
        {"grace_s", seconds(c.market.grace, 0, day)},
        {"backoff_min_ms", milliseconds(c.market.backoff_min, 10, day * 1'000)},
        {"backoff_max_s", seconds(c.market.backoff_max, 1, day)},
        {"jobs_max", number(c.market.jobs_max, 1, 100'000'000)},
        {"nodes_max", number(c.market.nodes_max, 1, 1'000'000)},
        {"finished_max", number(c.finished_max, 0, 1'000'000'000)},
        {"finished_days", days(c.finished_age, 0, 36'500)},
        {"decisions_mb", megabytes(c.decisions_mb, 0, 1'000'000)},
        {"decisions_days", days(c.decisions_age, 0, 36'500)},
        {"solver_program", words(c.solver_program)},
        {"solver_places", boolean(c.solver_places)},
        {"solver_patience_ms", milliseconds(c.solver_patience, 1, 60'000)},
        {"hello_patience_ms", milliseconds(c.hello_patience, 10, 60'000)},
        {"agent_queue_mb", megabytes(c.agent_queue_mb, 2, 4'096)},
        {"keepalive_s", seconds(c.keepalive, 1, 3'600)},
    };
    for (const market::SolverOption& option : market::solver_option_table())
        keys.emplace(option.key, of_solver(option, solver));
    if (path.empty()) {
        TRY(check(c));
        return c;
    }
    TRY(settings::load(path, keys));
    if (auto good = check(c); !good) return wrap(path, good.error());
    return c;
}

}  // namespace souk
