// SPDX-License-Identifier: GPL-2.0-or-later
// The version of this build, the same in every program: the file VERSION, and what git calls the
// commit if there is a repository (Makefile).
#pragma once

namespace souk {

const char* version();
// True for `PROGRAM --version`: then it is printed, and main() returns 0.
bool version_asked(const char* program, int argc, char** argv);
void print_version(const char* program);

}  // namespace souk
