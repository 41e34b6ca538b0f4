/* SPDX-License-Identifier: GPL-2.0-or-later
 * Mappings of a process that CRIU takes along and cannot make again. A restore would fail with
 * CRIU's words, so that they are told here beforehand. For C and C++. */
#pragma once

#include <stdio.h>
#include <string.h>

/* Reads the text of /proc/PID/maps. Says in `words` what the process has there that cannot be made
 * again; 0: nothing. */
static inline int souk_lasting_mapping(FILE* maps, char* words, size_t room) {
    enum { line_max = 512 };
    char line[line_max];
    unsigned long begin, end, offset, id, last_end = 0, last_id = 0, next_offset = 0;
    int code = 0, data = 0, has_last = 0, holed = 0;
    while (!holed && fgets(line, sizeof line, maps) != NULL) {
        code |= strstr(line, " [vdso]\n") != NULL;
        data |= strstr(line, " [vvar]\n") != NULL;
        if (strstr(line, " /SYSV") == NULL ||
            sscanf(line, "%lx-%lx %*s %lx %*s %lu", &begin, &end, &offset, &id) != 4)
            continue;
        /* One that is attached anew begins with its first byte (criu/shmem.c, get_sysv_shmem_fd).
         */
        holed = offset != 0 &&
                (!has_last || last_id != id || last_end != begin || next_offset != offset);
        has_last = 1;
        last_id = id;
        last_end = end;
        next_offset = offset + (end - begin);
        if (holed)
            snprintf(words, room,
                     "the System V segment %lu attached with a hole before %lx; it can move when "
                     "it has attached the segment anew (shmat)",
                     id, begin);
    }
    if (holed || code || !data) return holed;
    snprintf(words, room,
             "no vDSO any more, but the data that belongs to it ([vvar]); it can move when it has "
             "unmapped these too");
    return 1;
}
