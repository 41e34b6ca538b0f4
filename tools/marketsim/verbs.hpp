// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs of marketsim, one file each. A verb parses its own arguments and returns the exit code:
// 0 done, 1 failed (one line on stderr), 2 usage.
#pragma once

namespace souk::tools {
int marketsim_run(int argc, char** argv);
int marketsim_import(int argc, char** argv);
int marketsim_compare(int argc, char** argv);
int marketsim_report(int argc, char** argv);
int marketsim_reserve(int argc, char** argv);
int marketsim_replay(int argc, char** argv);
int marketsim_coallocation(int argc, char** argv);
}  // namespace souk::tools
