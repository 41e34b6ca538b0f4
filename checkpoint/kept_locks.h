/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks of files that are kept while nothing of their job runs: what CRIU (criu_locks.c) writes
 * beside an image. It and souk-root (agentd/root/locks.hpp) send each other packets over a socket.
 * Those of files that a job's home serves stay with the home (kernel/sys/store/served_locks.h),
 * under the same token. For C and C++. */
#pragma once

#include <stdint.h>

#include "kernel/sys/store/served_locks.h"

#define SOUK_LOCKS_NAME "souk-locks" /* in an image: a head, and the locks */

enum {
    souk_locks_fd = 197, /* checkpoint/launch.hpp: the socket in CRIU */
    souk_lock_posix = 1, /* the kinds, as CRIU numbers them (criu/include/file-lock.h) */
    souk_lock_flock = 2,
    souk_lock_ofd = 4,
};

struct souk_locks_head {
    uint8_t token[16]; /* whoever has it gets what is kept */
    char boot[40];     /* of which kernel: its boot_id */
    uint32_t count;    /* of locks */
    uint32_t kept;     /* of these, descriptors */
};

/* The first process and descriptor that hold it, as the job numbers them. */
struct souk_lock {
    int32_t pid, fd;
    uint8_t kind, writes;   /* writes: nobody else may have it */
    uint8_t kept;           /* by a descriptor: those that are, in this order */
    uint8_t write_only;     /* so is the descriptor that holds it */
    uint32_t served;        /* one more than its number at the job's home; 0: it is not there */
    uint64_t start, length; /* length 0: to the end */
};
