/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The credentials with which a restoring CRIU uses the job's paths: criu_user.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { images_fd = 200 }; /* checkpoint/launch.hpp */

/* From here on a path is looked up, made or removed as the job's user; the calls nest. Nothing
 * changes in a dump, and for a job of root. */
void as_user(void);
void as_agent(void);
/* A name of CRIU's own, which only root uses. */
bool is_crius_own(const char* path);
/* Whether what is restored must be a user's; who he is. */
bool must_be_users(void);
uid_t user_id(void);
bool is_users_group(gid_t group);
/* criu_let_go.c: before this ptrace(2), whose `data` it may change; -1: it must not be (errno). */
long before_ptrace(int request, pid_t thread, void** data);
/* criu_attributes.c: before a restore lets the first thread go. */
void before_all_go(void);
/* criu_inject.c: what that system call says (-errno) in a thread that is held. */
long call_in(pid_t thread, long number, long first, long second);
/* criu_asked.c: a number in the wire format of protocol buffers; false: there is none. */
struct bytes {
    const unsigned char *at, *end;
};
bool take_number(struct bytes* b, uint64_t* value);
/* As unlinkat(2): of the job's path, or of the copy that stands in for it. */
int unlink_of_job(int directory, const char* path, int flags);
