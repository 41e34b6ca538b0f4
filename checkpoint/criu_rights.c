// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores a plain user's job: an image has it make no socket and change
// no network that the user could not make or change. (criu_user.c has the same of files.)
//
// CRIU keeps the capabilities by which it makes processes and their memory and repairs connections.
// Others it lays aside as it begins, since it would use them only because an image says so: to make
// a packet socket or a device, to wait at a port of the system's, to write to the audit's records.
// Changing the network is among those that it needs, so that one goes for the time of each call
// that might use it otherwise.
//
// Who listens or connects on a unix socket is known to the other end (SO_PEERCRED), and services
// trust who is root. So that is done as the user, whose word it was.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

struct rights {
    uint64_t effective, permitted, inheritable;
};

#define RIGHT(name) (UINT64_C(1) << CAP_##name)

static const uint64_t needed = RIGHT(CHOWN) | RIGHT(DAC_OVERRIDE) | RIGHT(DAC_READ_SEARCH) |
                               RIGHT(FOWNER) | RIGHT(FSETID) | RIGHT(KILL) | RIGHT(SETGID) |
                               RIGHT(SETUID) | RIGHT(SETPCAP) | RIGHT(NET_ADMIN) | RIGHT(IPC_LOCK) |
                               RIGHT(IPC_OWNER) | RIGHT(SYS_CHROOT) | RIGHT(SYS_PTRACE) |
                               RIGHT(SYS_ADMIN) | RIGHT(SYS_NICE) | RIGHT(SYS_RESOURCE) |
                               RIGHT(SYS_TIME) | RIGHT(LEASE) | RIGHT(CHECKPOINT_RESTORE);

static struct rights all;  // as CRIU has them from its first moment on

// The C library would set those of all threads, and CRIU's processes have one each.
static void set_rights(const struct rights* to) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; ++i)
        data[i] = (struct __user_cap_data_struct){(uint32_t)(to->effective >> 32 * i),
                                                  (uint32_t)(to->permitted >> 32 * i),
                                                  (uint32_t)(to->inheritable >> 32 * i)};
    if (syscall(SYS_capset, &head, data) != 0) abort();
}

void lay_rights_aside(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) != 0) abort();
    const uint64_t has = (uint64_t)data[1].permitted << 32 | data[0].permitted;
    // An image that would have more is ended when it is looked at, and not where CRIU cannot go on.
    all = (struct rights){has & needed, has, 0};
    set_rights(&all);
}

static void set_effective(uint64_t effective) {
    const int error = errno;
    const struct rights to = {effective, all.permitted, 0};
    set_rights(&to);
    errno = error;
}

void keep_rights_aside(void) { set_effective(all.effective); }

int raw_socket(int family, int protocol) {
    if (must_be_users()) set_effective((all.effective | RIGHT(NET_RAW)) & all.permitted);
    const int made = socket(family, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (must_be_users()) set_effective(all.effective);
    return made;
}

// Each is asked for as a user who is nobody special, whoever makes it.
#define PLAINLY(call)                           \
    do {                                        \
        if (!must_be_users()) return (int)call; \
        be_user();                              \
        const int done_plainly_ = (int)call;    \
        be_root();                              \
        return done_plainly_;                   \
    } while (0)

int bind_plainly(int fd, const struct sockaddr* address, unsigned length) {
    PLAINLY(syscall(SYS_bind, fd, address, length));
}
int listen(int fd, int backlog) { PLAINLY(syscall(SYS_listen, fd, backlog)); }
int socketpair(int family, int type, int protocol, int ends[2]) {
    PLAINLY(syscall(SYS_socketpair, family, type, protocol, ends));
}
int connect_plainly(int fd, const struct sockaddr* address, unsigned length) {
    PLAINLY(syscall(SYS_connect, fd, address, length));
}

// CRIU repairs a connection by these, and gives it the room that it had.
static bool is_for_repair(int level, int name) {
    if (level == SOL_TCP)
        return name == TCP_REPAIR || name == TCP_REPAIR_QUEUE || name == TCP_QUEUE_SEQ ||
               name == TCP_REPAIR_OPTIONS || name == TCP_REPAIR_WINDOW || name == TCP_TIMESTAMP;
    return level == SOL_SOCKET && (name == SO_SNDBUFFORCE || name == SO_RCVBUFFORCE);
}

int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
    const bool plainly = must_be_users() && !is_for_repair(level, name);
    if (plainly) set_effective(0);
    const int done = (int)syscall(SYS_setsockopt, fd, level, name, value, length);
    if (plainly) set_effective(all.effective);
    return level == SOL_SOCKET && name == SO_BINDTODEVICE ? passed_over(done) : done;
}
