// SPDX-License-Identifier: GPL-2.0-or-later
// MUST(cond): a bug if false. Stays on in release builds: prints the condition and its place, then
// aborts.
#pragma once

namespace souk {
[[noreturn]] void must_failed(const char* condition, const char* file, int line);
}

#define MUST(cond) ((cond) ? static_cast<void>(0) : ::souk::must_failed(#cond, __FILE__, __LINE__))
