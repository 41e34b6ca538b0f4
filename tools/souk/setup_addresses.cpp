// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/setup_addresses.hpp"

#include <unistd.h>

#include "kernel/base/cause.hpp"
#include "kernel/base/ipv4.hpp"
#include "kernel/base/number.hpp"

namespace souk {

std::string addresses_by_name(const std::string& network, const std::string& node) {
    constexpr uint32_t each = 256;  // addresses of one node
    const auto range = parse_ipv4_range(network);
    const size_t letter = node.find_last_not_of("0123456789");
    const auto number =
        whole_number<uint32_t>(std::string_view(node).substr(letter == node.npos ? 0 : letter + 1));
    // The first share has the gateway.
    if (!range || !number || *number == 0 || *number >= range->size() / each) return {};
    return Ipv4{range->first.n + *number * each}.text() + "/24";
}

Result<std::string> address_lines(const AddressPlan& plan, const std::string& interfaces) {
    const auto network = parse_ipv4_range(plan.network);
    if (!network) return wrap("--network", network.error());
    if (plan.addresses.empty())
        return fail(CauseCode::invalid,
                    "which addresses are this node's? --addresses RANGE, a part of " +
                        plan.network + " that no other node has");
    const auto addresses = parse_ipv4_range(plan.addresses);
    if (!addresses) return wrap("--addresses", addresses.error());
    if (!network->contains(*addresses))
        return fail(CauseCode::invalid, plan.addresses + " is not in " + plan.network);
    if (plan.bridge.find('/') != std::string::npos ||
        ::access((interfaces + "/" + plan.bridge + "/bridge").c_str(), F_OK) != 0)
        return fail(CauseCode::not_found,
                    "this machine has no bridge " + plan.bridge +
                        ": make one that reaches the other nodes first (docs/network.md, \"On real "
                        "machines\")");
    if (!plan.gateway.empty()) {
        const auto gateway = parse_ipv4_range(plan.gateway);
        if (!gateway) return wrap("--gateway", gateway.error());
        if (gateway->size() != 1 || !network->contains(*gateway) || addresses->contains(*gateway))
            return fail(CauseCode::invalid, "the gateway " + plan.gateway +
                                                " is not an address of " + plan.network +
                                                " outside of " + plan.addresses);
    }
    std::string lines = "job_network = \"" + plan.network + "\"\njob_bridge = \"" + plan.bridge +
                        "\"\njob_addresses = \"" + plan.addresses + "\"\n";
    if (!plan.gateway.empty()) lines += "job_gateway = \"" + plan.gateway + "\"\n";
    return lines;
}

}  // namespace souk
