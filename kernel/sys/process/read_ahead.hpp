// SPDX-License-Identifier: GPL-2.0-or-later
// Says how far the kernel reads ahead in a FUSE mount: as much as is under way in 20 ms at 800
// MB/s. The kernel's own choice (128 KB) makes a reader wait for each piece. souk-init uses this,
// too, so it is plain C.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace souk {

// `mountpoint` without blanks. The file system itself is not asked: its server may not be there
// yet. What cannot be set stays.
inline void read_ahead(const char* mountpoint) {
    static char line[8192], point[4096];
    char path[64] = "";
    FILE* const table = fopen("/proc/self/mountinfo", "re");
    if (!table) return;
    unsigned major, minor;
    while (fgets(line, sizeof line, table))
        if (sscanf(line, "%*d %*d %u:%u %*s %4095s", &major, &minor, point) == 3 &&
            strcmp(point, mountpoint) == 0)
            snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major, minor);
    fclose(table);
    const int fd = path[0] ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    (void)!write(fd, "16384", 5);
    close(fd);
}

}  // namespace souk
