/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files of the kernel's over which souk-init lays what a job may know of its CPUs. Each node has
 * others, and some have none. For C and C++. */
#pragma once

#define SOUK_CPUS_ONLINE "/sys/devices/system/cpu/online"
#define SOUK_CPUS_LISTED "/proc/cpuinfo"
#define SOUK_LAID_OVER \
    { SOUK_CPUS_ONLINE, SOUK_CPUS_LISTED }
