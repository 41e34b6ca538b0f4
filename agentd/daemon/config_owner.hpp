// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerKeys: the keys of agentd.conf that say what becomes of guests when the owner wants the
// machine, and what shows that he does. Part of what config.cpp reads; owned by it.
#pragma once

#include <string>

#include "agentd/daemon/config.hpp"
#include "kernel/sys/host/settings.hpp"

namespace souk {

// The words of keys whose values are others in Config.
struct OwnerKeys {
    std::string immovable = "stop", on_return = "nothing", owner_sessions = "none",
                owner_input = "none", owner_programs;

    // Their values are written into `c` and into this, which must both outlive `all`.
    void add(Config& c, settings::Settings& all);
    // Errors: a key that does not hold together, by its name.
    Status take(Config& c) const;
};

}  // namespace souk
