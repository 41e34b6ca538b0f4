// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/config.hpp"

#include <unistd.h>

#include <functional>
#include <map>
#include <toml++/toml.h>

#include "kernel/sys/socket.hpp"

namespace souk {
namespace {

// One key: takes the node or says what is wrong with it.
using Setter = std::function<Status(const toml::node&)>;
using Keys = std::map<std::string, Setter, std::less<>>;

Setter text(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        if (!v || v->empty()) return fail("needs a text in quotes");
        into = *v;
        return {};
    };
}

Result<int64_t> whole(const toml::node& n, int64_t least, int64_t most) {
    const auto v = n.value_exact<int64_t>();
    if (!v || *v < least || *v > most)
        return fail("needs a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return *v;
}

template <class T>
Setter number(T& into, int64_t least, int64_t most) {
    return [&into, least, most](const toml::node& n) -> Status {
        TRY_ASSIGN(const int64_t v, whole(n, least, most));
        into = static_cast<T>(v);
        return {};
    };
}

Setter milliseconds(Nanos& into, int64_t least, int64_t most) {
    return [&into, least, most](const toml::node& n) -> Status {
        TRY_ASSIGN(const int64_t v, whole(n, least, most));
        into = Nanos::from_ms(v);
        return {};
    };
}

Setter seconds(Nanos& into, int64_t least, int64_t most) {
    return [&into, least, most](const toml::node& n) -> Status {
        TRY_ASSIGN(const int64_t v, whole(n, least, most));
        into = Nanos::from_s(v);
        return {};
    };
}

Setter address(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        TRY(text(into)(n));
        TRY_ASSIGN(const Address parsed, Address::parse(into));
        if (parsed.is_unix()) return fail("needs HOST:PORT with a numeric host");
        return {};
    };
}

Setter words(std::vector<std::string>& into) {
    return [&into](const toml::node& n) -> Status {
        const toml::array* array = n.as_array();
        if (!array) return fail("needs a list: [\"PROGRAM\", \"ARGUMENT\"]");
        for (const toml::node& item : *array) {
            const auto v = item.value_exact<std::string>();
            if (!v) return fail("needs a list of texts in quotes");
            into.push_back(*v);
        }
        return {};
    };
}

template <class Names>
Setter one_of(std::string& into, const Names& names) {
    return [&into, &names](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        std::string all;
        for (const std::string_view name : names) {
            if (v && *v == name) {
                into = *v;
                return {};
            }
            all += (all.empty() ? "" : ", ") + std::string(name);
        }
        return fail("needs one of: " + all);
    };
}

Status check(MarketConfig& c) {
    if (c.name.empty()) {
        char host[256] = {};
        ::gethostname(host, sizeof host - 1);
        c.name = host;
    }
    TRY(market::Solver().set_options(c.market.solver));
    return {};
}

}  // namespace

Result<MarketConfig> load_market_config(const std::string& path) {
    constexpr int64_t day = 86'400;
    static const auto algorithms = market::Solver::algorithms();
    static const auto pricings = market::Solver::pricings();
    MarketConfig c;
    market::SolverOptions& solver = c.market.solver;
    const Keys keys = {
        {"name", text(c.name)},
        {"listen", address(c.listen)},
        {"socket", text(c.socket)},
        {"state", text(c.state)},
        {"solver", one_of(solver.algorithm, algorithms)},
        {"pricing", one_of(solver.pricing, pricings)},
        {"k_permille", number(solver.k_permille, 0, 1'000)},
        {"horizon_s", seconds(solver.horizon, 0, day)},
        {"link_bytes_per_s", number(solver.link_bytes_per_s, 1, int64_t{1} << 40)},
        {"min_stay_ms", milliseconds(solver.min_stay, 0, day * 1'000)},
        {"moves_max", number(solver.moves_max, 0, 1'000'000)},
        {"moves_window_s", seconds(solver.moves_window, 1, day)},
        {"quantum_s", seconds(solver.quantum, 1, day)},
        {"settle_ms", milliseconds(c.market.settle, 0, 3'600'000)},
        {"grace_s", seconds(c.market.grace, 0, day)},
        {"backoff_min_ms", milliseconds(c.market.backoff_min, 10, day * 1'000)},
        {"backoff_max_s", seconds(c.market.backoff_max, 1, day)},
        {"jobs_max", number(c.market.jobs_max, 1, 100'000'000)},
        {"nodes_max", number(c.market.nodes_max, 1, 1'000'000)},
        {"finished_max", number(c.market.finished_max, 0, 100'000'000)},
        {"solver_program", words(c.solver_program)},
        {"solver_patience_ms", milliseconds(c.solver_patience, 1, 60'000)},
        {"hello_patience_ms", milliseconds(c.hello_patience, 10, 60'000)},
        {"keepalive_s", seconds(c.keepalive, 1, 3'600)},
    };
    if (path.empty()) {
        TRY(check(c));
        return c;
    }
    try {
        const toml::table table = toml::parse_file(path);
        for (const auto& [key, node] : table) {
            const std::string where = path + ":" + std::to_string(key.source().begin.line) + ": " + std::string(key.str());
            const auto known = keys.find(key.str());
            if (known == keys.end()) return fail(where + ": unknown key");
            if (auto set = known->second(node); !set) return wrap(where, set.error());
        }
    } catch (const toml::parse_error& e) {
        return fail(path + ":" + std::to_string(e.source().begin.line) + ": " + std::string(e.description()));
    }
    if (auto good = check(c); !good) return wrap(path, good.error());
    return c;
}

}  // namespace souk
