// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/proc_stat.hpp"

#include <stdio.h>
#include <string.h>

namespace souk {

bool parse_proc_stat(const char* text, ProcStat* out) {
    // The name may hold blanks and brackets: it ends at the last bracket.
    const char* const open = strchr(text, '(');
    const char* const close = strrchr(text, ')');
    if (!open || !close || close < open) return false;
    size_t n = static_cast<size_t>(close - open) - 1;
    if (n >= sizeof out->name) n = sizeof out->name - 1;
    memcpy(out->name, open + 1, n);
    out->name[n] = 0;
    unsigned long start, reserved, pages;
    // These are the fields from 3 on: state, parent, group, session, terminal, its group, flags,
    // four counts of page faults, four times, priority, nice, threads, an unused one, start, size,
    // resident; 16 others; policy.
    out->policy = 0;
    const int fields = sscanf(
        close + 1,
        " %c %d %*d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %lu %lu %lu %*u"
        " %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %*d %*u %u",
        &out->state, &out->parent, &out->session, &out->flags, &out->threads, &start, &reserved,
        &pages, &out->policy);
    if (fields < 8) return false;
    out->start_ticks = start;
    out->reserved_bytes = reserved;
    out->resident_pages = pages;
    return true;
}

}  // namespace souk
