// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/version.hpp"

#include <stdio.h>
#include <string.h>

#include "version.inc"  // SOUK_VERSION, made by the Makefile

namespace souk {

const char* version() { return SOUK_VERSION; }

void print_version(const char* program) { printf("%s (souk) %s\n", program, SOUK_VERSION); }

bool version_asked(const char* program, int argc, char** argv) {
    if (argc != 2 || strcmp(argv[1], "--version") != 0) return false;
    print_version(program);
    return true;
}

}  // namespace souk
