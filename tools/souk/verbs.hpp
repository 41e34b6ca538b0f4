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
// Stands for the owner of a node for so long; returns only if it cannot.
int cmd_owner(const std::string& run, const std::string& node, Nanos span);
int cmd_doctor(int argc, char** argv);
// Becomes souk-demo, the story of `make demo`; returns only if there is none.
struct DemoOptions {
    bool fast = false;  // it does not stop at each step
    Nanos pause = Nanos::from_s(4);
};
int cmd_demo(const DemoOptions& options);
// Measures the speed of this machine and prints it.
int cmd_calibrate(bool json);
// One line on stderr, as tools/common/args.hpp says; gives the exit status 1.
int complain(const std::string& text);
int complain(CauseCode code, const std::string& text);
int complain(const Error& error);
// Complains of a mistake on the command line, and returns 2.
int complain_usage(std::string_view text);

}  // namespace souk
