// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of what souk-init reads from outside: the launch specification and RESIDUE. Plain C inside
// (no library, no allocation), because souk-init, a static program, uses it; unit tests use the
// same.
#pragma once

#include <stddef.h>

#include "kernel/sys/process/init_protocol.h"

namespace souk {

// These point to the parts of a launch specification inside the buffer that was parsed.
struct SpecView {
    const souk_spec* head = nullptr;
    const souk_rlimit* rlimits = nullptr;
    const uint32_t* groups = nullptr;
    const char* path = nullptr;
    const char* cwd = nullptr;
    char* first_arg = nullptr;  // argc strings one after the other, then envc
};

// Parses `size` bytes, 8-byte aligned. Returns null, or what is wrong with them.
const char* parse_spec(void* data, size_t size, SpecView* view);
// Fills `out[0 .. head->argc]` and then `[.. envc]`, each list NULL-ended: argc + envc + 2 pointers
// in all.
void spec_vectors(const SpecView& view, char** out);

// Parses the head of a RESIDUE of `size` bytes. Returns null, or what is wrong with it.
const char* check_residue(const void* data, size_t size);

}  // namespace souk
