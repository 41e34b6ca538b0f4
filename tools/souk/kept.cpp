// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/kept.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

using json = nlohmann::json;

std::string path_of(const std::string& state) { return state + "/market.json"; }

}  // namespace

Result<std::optional<MarketShape>> load_shape(const std::string& state) {
    const auto text = read_file(AT_FDCWD, path_of(state));
    if (!text) {
        if (text.error().code == ENOENT || text.error().code == ENOTDIR) return std::nullopt;
        return tl::unexpected(text.error());
    }
    try {
        const json j = json::parse(*text);
        MarketShape s;
        for (const json& n : j.at("nodes"))
            s.nodes.push_back({n.at("name"), n.at("speed"), n.at("price")});
        s.cpus = j.at("cpus");
        s.memory_mb = j.at("memory_mb");
        s.solver = j.at("solver");
        s.pricing = j.at("pricing");
        s.off = j.at("off");
        s.private_files = j.value("private_files", false);
        s.agent_user = j.value("agent_user", "");
        s.owner_return = j.value("owner_return", "");
        return s;
    } catch (const json::exception&) {
        return fail(path_of(state) +
                    " is damaged: it does not say of what the market is made. Remove " + state +
                    ", and the market's state with it, or put the file right");
    }
}

Status save_shape(const std::string& state, const MarketShape& s) {
    json nodes = json::array();
    for (const NodeOptions& n : s.nodes)
        nodes.push_back({{"name", n.name}, {"speed", n.speed}, {"price", n.price}});
    const json j = {{"nodes", nodes},
                    {"cpus", s.cpus},
                    {"memory_mb", s.memory_mb},
                    {"solver", s.solver},
                    {"pricing", s.pricing},
                    {"off", s.off},
                    {"private_files", s.private_files},
                    {"agent_user", s.agent_user},
                    {"owner_return", s.owner_return}};
    return replace_file(path_of(state), j.dump(1) + "\n", 0644, true);
}

}  // namespace souk
