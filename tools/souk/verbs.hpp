// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs of souk(1). Each returns an exit status: 0 done, 1 failed (one line on stderr), 2 wrong usage.
#pragma once

#include "tools/souk/supervise.hpp"

namespace souk {

int cmd_up(const UpOptions& options);
int cmd_down(const std::string& run);
int cmd_status(const std::string& run, bool json);
int cmd_doctor(int argc, char** argv);

}  // namespace souk
