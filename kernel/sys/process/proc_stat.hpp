// SPDX-License-Identifier: GPL-2.0-or-later
// Parses /proc/PID/stat (proc(5)), of a process or one thread of it. The code is plain C inside (no
// library, no allocation), because souk-init, a static program, uses it too.
#pragma once

#include <stdint.h>

namespace souk {

struct ProcStat {
    char name[65];  // as the kernel shows it: cut, and it may hold anything
    char state;     // R, S, D, T, t, Z, X, ...
    int parent, session, threads;
    unsigned flags;        // include/linux/sched.h, PF_*
    uint64_t start_ticks;  // since boot
    uint64_t reserved_bytes, resident_pages;
    unsigned policy;  // sched(7); 0 if the text is cut before it
};

// Parses the file's text. False: it is none; `out` is undefined then.
bool parse_proc_stat(const char* text, ProcStat* out);

}  // namespace souk
