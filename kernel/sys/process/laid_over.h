/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files of the kernel's over which souk-init lays what a job may know of its CPUs. Each node has
 * others, and some have none. For C and C++. */
#pragma once

#include <string.h>

#include "kernel/sys/process/init_protocol.h"

#define SOUK_CPUS_ONLINE "/sys/devices/system/cpu/online"
#define SOUK_CPUS_LISTED "/proc/cpuinfo"

/* Whether it is one of them, by its path in a job, whose home may serve it its root. */
static inline int souk_is_laid_over(const char* path) {
    const size_t top = sizeof SOUK_FILES_ROOT - 1;
    if (strncmp(path, SOUK_FILES_ROOT "/", top + 1) == 0) path += top;
    return strcmp(path, SOUK_CPUS_ONLINE) == 0 || strcmp(path, SOUK_CPUS_LISTED) == 0;
}
