// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/config.hpp"

#include <unistd.h>

#include <functional>
#include <map>
#include <toml++/toml.h>

namespace souk {
namespace {

// One key: takes the node or says what is wrong with it.
using Setter = std::function<Status(const toml::node&)>;

Setter text(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        if (!v || v->empty()) return fail("needs a text in quotes");
        into = *v;
        return {};
    };
}

template <class T>
Setter number(T& into, int64_t least, int64_t most) {
    return [&into, least, most](const toml::node& n) -> Status {
        const auto v = n.value_exact<int64_t>();
        if (!v || *v < least || *v > most)
            return fail("needs a whole number from " + std::to_string(least) + " to " + std::to_string(most));
        into = static_cast<T>(*v);
        return {};
    };
}

Setter money(Money& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        if (!v) return fail("needs a price in quotes, such as \"0.5\"");
        TRY_ASSIGN(into, parse_money(*v));
        return {};
    };
}

Setter boolean(bool& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<bool>();
        if (!v) return fail("needs true or false");
        into = *v;
        return {};
    };
}

Status check(Config& c) {
    if (c.node.empty()) {
        char host[256] = {};
        ::gethostname(host, sizeof host - 1);
        c.node = std::string(host).substr(0, std::string_view(host).find('.'));
    }
    if (!valid_node_name(c.node)) return fail("node: '" + c.node + "' is no node name (a letter, then letters, digits or -; 32 at most)");
    if (c.market.empty()) return fail("market: missing; set it to the market's host:port");
    if (c.address.empty()) c.address = c.listen;
    const size_t slash = c.cgroup.find('/');
    if (slash == std::string::npos || slash == 0 || slash + 1 == c.cgroup.size()) return fail("cgroup: needs ROOT/NODE");
    if (auto frames = TimeFrames::parse(c.frames); !frames) return wrap("frames", frames.error());
    return {};
}

}  // namespace

Result<Config> load_config(const std::string& path) {
    Config c;
    const std::map<std::string, Setter, std::less<>> keys = {
        {"node", text(c.node)},
        {"listen", text(c.listen)},
        {"address", text(c.address)},
        {"market", text(c.market)},
        {"socket", text(c.socket)},
        {"state", text(c.state)},
        {"cgroup", text(c.cgroup)},
        {"cpu_weight", number(c.cpu_weight, 1, 10'000)},
        {"criu", text(c.criu)},
        {"ram_mb", number(c.ram_mb, 1, int64_t{1} << 30)},
        {"output_mb", number(c.output_mb, 1, int64_t{1} << 30)},
        {"price", money(c.price)},
        {"speed", number(c.speed, 1, provider_speed_max)},
        {"cpus", number(c.cpus, 1, 65'536)},
        {"memory_mb", number(c.memory_mb, 1, int64_t{1} << 40)},
        {"frames", text(c.frames)},
        {"on_market", boolean(c.on_market)},
    };
    try {
        const toml::table table = toml::parse_file(path);
        for (const auto& [key, node] : table) {
            const std::string where = path + ":" + std::to_string(node.source().begin.line) + ": " + std::string(key.str());
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
