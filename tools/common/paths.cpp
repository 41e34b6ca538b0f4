// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/paths.hpp"

#include <unistd.h>

#include <cstdlib>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::wire {
namespace {

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string named_node(const std::string& node) {
    if (!node.empty()) return node;
    const char* environment = std::getenv("SOUK_NODE");
    return environment ? environment : "";
}

}  // namespace

std::string run_directory() {
    const char* run = std::getenv("SOUK_RUN");
    return run && *run ? run : "/run/souk";
}

std::string node_socket(const std::string& run, const std::string& node) {
    return run + "/" + node + "/agentd.sock";
}
std::string market_socket(const std::string& run) { return run + "/market/marketd.sock"; }

Result<std::string> find_agentd(const std::string& socket, const std::string& node) {
    if (!socket.empty()) return socket;
    const std::string run = run_directory(), name = named_node(node);
    if (!name.empty()) {
        if (!valid_node_name(name))
            return fail(CauseCode::invalid, "'" + name + "' is not a node name");
        if (exists(node_socket(run, name))) return node_socket(run, name);
        return fail(CauseCode::not_found,
                    "no node '" + name + "' here: there is no " + node_socket(run, name));
    }
    if (exists(run + "/agentd.sock")) return run + "/agentd.sock";
    if (exists(node_socket(run, "n1"))) return node_socket(run, "n1");
    if (const auto names = list_dir(AT_FDCWD, run))
        for (const std::string& other : *names)
            if (exists(node_socket(run, other))) return node_socket(run, other);
    return fail(
        CauseCode::not_found,
        "no agentd runs on this machine (nothing in " + run +
            "): start one, or a market on this host with 'souk up', or name it with --node or "
            "--socket");
}

Result<std::string> find_market(const std::string& socket, const std::string& node) {
    if (!socket.empty() || !named_node(node).empty()) return find_agentd(socket, node);
    const std::string run = run_directory();
    for (const std::string& path : {run + "/marketd.sock", market_socket(run)})
        if (exists(path)) return path;
    return find_agentd(socket, node);
}

}  // namespace souk::wire
