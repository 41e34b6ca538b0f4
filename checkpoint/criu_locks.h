/* SPDX-License-Identifier: GPL-2.0-or-later
 * The locks of files that a job has, as its image lists them (criu_locks_found.c), for who takes
 * them over and hands them on (criu_locks.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "checkpoint/kept_locks.h"

extern struct souk_locks_head locks_head;
extern struct souk_lock locks[souk_locks_max];
/* This dump has listed some. */
extern bool locks_noted;
/* A descriptor on its way in a socket has some, which processes have too. */
extern bool locks_are_on_way;

void read_boot(char boot[sizeof locks_head.boot]);
bool stat_of(pid_t pid, int fd, struct statx* st);
/* The lock of a mapped index, which a home gives to one job alone. */
bool is_of_index(const struct souk_lock* lock);
/* Asks a question in the name of the holder. Returns 1: yes, 0: no, or -errno. */
long ask_home(const struct souk_lock* lock, uint32_t question, uint32_t number);
/* Whether a file of that process is on a file system of FUSE, as all are that a home serves. */
bool may_be_served(pid_t pid, int fd, const struct statx* its);
