// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/config.hpp"

#include <unistd.h>

#include "kernel/sys/settings.hpp"

namespace souk {
namespace {

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
    using namespace settings;
    const Keys keys = {
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
    TRY(settings::load(path, keys));
    if (auto good = check(c); !good) return wrap(path, good.error());
    return c;
}

}  // namespace souk
