// SPDX-License-Identifier: GPL-2.0-or-later
// A NodeAddress says how a node is reached: "HOST:PORT", or "HOST:PORT via HOST:PORT" if others may
// have to go by its gateway, which is the second (docs/sites.md). Pure.
#pragma once

#include <string>
#include <string_view>

namespace souk {

struct NodeAddress {
    std::string direct, gateway;  // gateway: empty if it has none

    static NodeAddress parted(std::string_view text) {
        const size_t at = text.find(between);
        if (at == std::string_view::npos) return {std::string(text), {}};
        return {std::string(text.substr(0, at)), std::string(text.substr(at + between.size()))};
    }
    std::string text() const {
        return gateway.empty() ? direct : direct + std::string(between) + gateway;
    }
    // Its agentd listens everywhere, and does not know by which address others reach it.
    bool is_everywhere() const {
        return direct.starts_with("0.0.0.0:") || direct.starts_with("[::]:");
    }
    // The same, at that host.
    NodeAddress at_host(std::string_view host) const {
        return {std::string(host) + direct.substr(direct.rfind(':')), gateway};
    }
    bool operator==(const NodeAddress&) const = default;

  private:
    static constexpr std::string_view between = " via ";
};

}  // namespace souk
