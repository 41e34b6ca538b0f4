// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs of souk(1). Each returns an exit status: 0 done, 1 failed (one line on stderr), 2 wrong
// usage.
#pragma once

#include "tools/souk/supervise.hpp"

namespace souk {

int cmd_up(const UpOptions& options);
struct DownOptions {
    bool force = false;  // also with jobs that are not finished
    bool keep = false;   // the state stays
};
int cmd_down(const std::string& run, const DownOptions& options);
int cmd_status(const std::string& run, bool json);
int cmd_doctor(int argc, char** argv);
// Becomes souk-demo, the story of `make demo`; returns only if there is none.
int cmd_demo();
// Measures the speed of this machine and prints it.
int cmd_calibrate(bool json);
int complain(const std::string& text);  // one line on stderr; returns 1

}  // namespace souk
