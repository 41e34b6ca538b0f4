// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/provider_io.hpp"

#include <iterator>

#include "kernel/base/check.hpp"

namespace souk::provider {

const char* to_string(Input input) {
    switch (input) {
        case Input::started: return "started";
        case Input::tick: return "tick";
        case Input::market_up: return "market_up";
        case Input::market_on: return "market_on";
        case Input::market_off: return "market_off";
        case Input::set_price: return "set_price";
        case Input::set_speed: return "set_speed";
        case Input::set_cpus: return "set_cpus";
        case Input::set_memory: return "set_memory";
        case Input::set_frames: return "set_frames";
        case Input::unset: return "unset";
        case Input::set_cannot: return "set_cannot";
        case Input::set_resting: return "set_resting";
        case Input::set_load: return "set_load";
        case Input::set_auto: return "set_auto";
        case Input::set_zone: return "set_zone";
        case Input::set_curve: return "set_curve";
        case Input::set_warning: return "set_warning";
        case Input::learned: return "learned";
        case Input::ban: return "ban";
        case Input::allow: return "allow";
        case Input::set_share: return "set_share";
        case Input::set_here: return "set_here";
    }
    MUST(false);
}

const char* to_string(const Output& output) {
    static constexpr const char* names[] = {"persist", "report", "accepting"};
    static_assert(std::size(names) == std::variant_size_v<Output>);
    return names[output.index()];
}

}  // namespace souk::provider
