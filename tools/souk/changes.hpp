// SPDX-License-Identifier: GPL-2.0-or-later
// souk setup makes these changes, and says before what it is going to do.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

// A daemon's configuration as it is and as it is to be.
struct Rewrite {
    std::string path, before, after;
};

// Makes the configuration use certificates from now on; `more` has lines that are not there yet.
Rewrite secured(const std::string& path, const std::string& more);
Status write(const Rewrite& r);

// Says the steps, what is written into the configuration, and that the unit is restarted. If a
// person was asked questions, he is asked whether this may be done; a no is an error.
Status announce(bool asked, bool restarts, std::vector<std::string> steps, const Rewrite& r,
                const std::string& more, const char* unit);

}  // namespace souk
