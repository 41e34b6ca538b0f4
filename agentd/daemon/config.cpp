// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/config.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/settings.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {
namespace {

struct NetworkKeys {
    std::string network, bridge, gateway, addresses;
};

Status check_network(const NetworkKeys& k, Config& c) {
    if (k.network.empty() != k.bridge.empty())
        return fail("job_network and job_bridge: both or none");
    if (k.network.empty() && !(k.gateway.empty() && k.addresses.empty()))
        return fail("job_gateway and job_addresses need job_network");
    if (k.network.empty()) return {};
    JobNetwork n;
    if (k.bridge.size() >= IFNAMSIZ || k.bridge.find_first_of("/: \t") != std::string::npos ||
        k.bridge == "." || k.bridge == "..")
        return fail("job_bridge: '" + k.bridge +
                    "' cannot be the name of an interface (15 bytes at most)");
    n.bridge = k.bridge;
    auto range = parse_ipv4_range(k.network);
    if (!range) return wrap("job_network", range.error());
    n.range = *range;
    if (!k.gateway.empty()) {
        const auto gateway = parse_ipv4(k.gateway);
        if (!gateway) return wrap("job_gateway", gateway.error());
        if (!n.range.contains(*gateway))
            return fail("job_gateway: " + k.gateway + " is not in " + k.network);
        n.gateway = *gateway;
    }
    if (!k.addresses.empty()) {
        const auto addresses = parse_ipv4_range(k.addresses);
        if (!addresses) return wrap("job_addresses", addresses.error());
        if (!n.range.contains(*addresses))
            return fail("job_addresses: " + k.addresses + " is not in " + k.network);
        if (addresses->contains(n.gateway))
            return fail("job_addresses: " + k.addresses + " holds the gateway");
        c.home.addresses = *addresses;
    }
    c.network = n;
    return {};
}

// The first half of what the kernel calls this boot; 0: it does not say.
uint64_t boot_number() {
    auto text = read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id");
    if (!text) return 0;
    std::erase(*text, '-');
    return leading_number<uint64_t>(std::string_view(*text).substr(0, 16), 16).value_or(0);
}

// Half of what this node offers for each of its CPUs, so that such a job finds a place also on a
// small machine.
int64_t default_memory_mb(const Config& c) {
    struct sysinfo info {};
    ::sysinfo(&info);
    const int64_t memory_mb =
        c.memory_mb > 0 ? c.memory_mb : static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
    const int64_t cpus = c.cpus > 0 ? c.cpus : std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    return std::clamp<int64_t>(memory_mb / (2 * cpus), 16, 1'024);
}

Status check(Config& c) {
    if (c.node.empty()) {
        char host[256] = {};
        ::gethostname(host, sizeof host - 1);
        c.node = std::string(host).substr(0, std::string_view(host).find('.'));
    }
    if (!valid_node_name(c.node))
        return fail("node: '" + c.node +
                    "' is no node name (a letter, then letters, digits or -; 32 at most)");
    if (c.identity.empty()) c.identity = c.state + "/identity";
    if (c.market.empty()) return fail("market: missing; set it to the market's host:port");
    const auto everywhere = [](const std::string& address) {
        return address.starts_with("0.0.0.0:") || address.starts_with("[::]:") ||
               address.starts_with("*:");
    };
    if (everywhere(c.address))
        return fail(
            "address: " + c.address +
            " names no machine; give the one at which other machines reach this one, or leave "
            "`address` out: then they are told where the market sees it");
    if (c.address.empty()) {  // others take numbers only
        TRY_ASSIGN(const Address listen, Address::resolve(c.listen));
        c.address = listen.text();
    }
    c.home.address = c.address;
    c.home.address_known = !everywhere(c.address);
    c.home.boot = boot_number();
    if (c.home.memory_default_mb < 0) c.home.memory_default_mb = default_memory_mb(c);
    const size_t slash = c.cgroup.find('/');
    if (slash == std::string::npos || slash == 0 || slash + 1 == c.cgroup.size() ||
        !valid_cgroup_name(c.cgroup))
        return fail("cgroup: needs ROOT/NODE, each of letters, digits, '.', '_' or '-'");
    // What the owner offers is judged as at the start.
    ProviderRecord offer;
    offer.reserve = c.price;
    offer.speed = c.speed;
    offer.cpus = std::max(c.cpus, 1);
    offer.memory_mb = std::max<int64_t>(c.memory_mb, 1);
    offer.frames = c.frames;
    TRY(Provider::create(c.node, Hardware{}, offer));
    return {};
}

}  // namespace

Result<Config> load_config(const std::string& path) {
    Config c;
    NetworkKeys network;
    std::string immovable = "stop";
    c.home.memory_default_mb = -1;
    using namespace settings;
    const Keys keys = {
        {"node", text(c.node)},
        {"listen", listener(c.listen)},
        {"address", address(c.address)},
        {"market", peer(c.market)},
        {"socket", socket_path(c.socket)},
        {"state", text(c.state)},
        {"identity", text(c.identity)},
        {"insecure", boolean(c.insecure)},
        {"cgroup", text(c.cgroup)},
        {"cpu_weight", number(c.cpu_weight, 1, 10'000)},
        {"criu", text(c.criu)},
        {"pids_max", number(c.pids_max, 0, 1 << 22)},
        {"ram_mb", megabytes(c.ram_mb, 1, int64_t{1} << 30)},
        {"check_ahead", boolean(c.check_precopy)},
        {"awake_for_moves", boolean(c.awake_for_moves)},
        {"output_mb", megabytes(c.output_mb, 1, int64_t{1} << 30)},
        {"job_network", text(network.network)},
        {"job_bridge", text(network.bridge)},
        {"job_gateway", text(network.gateway)},
        {"job_addresses", text(network.addresses)},
        {"price", money(c.price)},
        {"speed", number(c.speed, 1, provider_speed_max)},
        {"cpus", number(c.cpus, 1, 65'536)},
        {"memory_mb", megabytes(c.memory_mb, 1, int64_t{1} << 40)},
        {"frames", text(c.frames)},
        {"on_market", boolean(c.on_market)},
        {"budget_warn_permille", number(c.home.warn_permille, 0, 1'000)},
        {"checkpoint_every_s", seconds(c.home.checkpoint_every, 0, 31'536'000)},
        {"memory_default_mb", number(c.home.memory_default_mb, 0, int64_t{1} << 40)},
        {"leave_s", seconds(c.policy.leave, 1, 86'400)},
        {"immovable", text(immovable)},
        {"immovable_s", seconds(c.policy.stand, 0, 86'400)},
        {"lease_s", seconds(c.home.lease, 0, 31'536'000)},
        {"budget_warn_s", seconds(c.home.warn_span, 0, 86'400)},
    };
    TRY(settings::load(path, keys));
    if (auto good = check(c); !good) return wrap(path, good.error());
    if (immovable != "stop" && immovable != "kill")
        return fail(path + ": immovable: '" + immovable + "' is neither stop nor kill");
    c.policy.kill = immovable == "kill";
    if (auto good = check_network(network, c); !good) return wrap(path, good.error());
    return c;
}

}  // namespace souk
