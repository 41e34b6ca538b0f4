// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: what souk-init has written of sockets beside the image, as
// CRIU does not carry it, is set before the first thread goes on (agentd/init/descriptors.cpp has
// what).
//
// The image may be a stranger's: of options those in the list are set and no others, and of sockets
// those of processes that this CRIU has restored, which it holds. One that the kernel refuses here
// stays as it is: this node may have no such congestion control, or no device of that name.
#define _GNU_SOURCE
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/socket_options.h"

bool is_held(pid_t process) {
    static const char key[] = "\nTracerPid:\t";
    const char* const status = text_of(process, "status");
    const char* const at = status == NULL ? NULL : strstr(status, key);
    return at != NULL && atol(at + strlen(key)) == syscall(SYS_getpid);
}

int file_of(pid_t process, int fd) {
    static pid_t known;  // most records of a process follow one another
    static int pidfd = -1;
    if (process != known) {
        if (pidfd >= 0) close(pidfd);
        known = process;
        pidfd = is_held(process) ? (int)syscall(SYS_pidfd_open, process, 0) : -1;
    }
    return pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

static void join_group(int socket, int level, union souk_option_value* v, size_t length) {
    struct group_filter* const filter = &v->group.filter;
    const size_t fixed = offsetof(struct group_filter, gf_slist);
    if (length < souk_device_name + fixed) return;
    const size_t sources = (length - souk_device_name - fixed) / sizeof *filter->gf_slist;
    if (filter->gf_numsrc > sources || filter->gf_group.ss_family > AF_INET6) return;
    v->group.device[souk_device_name - 1] = 0;
    struct group_req group = {if_nametoindex(v->group.device), filter->gf_group};
    struct if_nameindex* const devices = if_nameindex();
    // If there is none of that name, by the one that the node's routes have for it, else by the
    // first that takes it; a loopback device comes first, and is asked last.
    bool joined = setsockopt(socket, level, MCAST_JOIN_GROUP, &group, sizeof group) == 0;
    for (int last = 0; last < 2; ++last)
        for (const struct if_nameindex* d = devices; d != NULL && d->if_index != 0 && !joined;
             ++d) {
            if ((strcmp(d->if_name, "lo") == 0) != last) continue;
            group.gr_interface = d->if_index;
            joined = setsockopt(socket, level, MCAST_JOIN_GROUP, &group, sizeof group) == 0;
        }
    if (devices != NULL) if_freenameindex(devices);
    if (!joined) return;
    filter->gf_interface = group.gr_interface;
    if (filter->gf_fmode == MCAST_INCLUDE || filter->gf_numsrc > 0)
        setsockopt(socket, level, MCAST_MSFILTER, filter, (socklen_t)(length - souk_device_name));
}

static void set_option(int socket, const struct souk_option_row* row, union souk_option_value* v,
                       size_t length) {
    static union souk_option_value now;
    socklen_t n = sizeof now;
    if ((row->how & souk_privileged) != 0 && must_be_users()) return;
    if ((row->how & (souk_device | souk_be_device)) != 0) {
        v->bytes[souk_device_name - 1] = 0;
        const uint32_t device = if_nametoindex(v->bytes);
        if (length != souk_device_name || device == 0) return;
        v->number = (row->how & souk_be_device) != 0 ? htonl(device) : device;
        length = sizeof v->number;
    }
    if (getsockopt(socket, row->level, row->name, &now, &n) == 0 && n == length &&
        memcmp(&now, v, n) == 0)
        return;
    setsockopt(socket, row->level, row->name, v, (socklen_t)length);
}

static void set_one(int socket, const struct souk_option* one, union souk_option_value* v) {
    if (one->name == souk_in_group && (one->level == souk_ip || one->level == souk_ipv6))
        return join_group(socket, one->level, v, one->length);
    for (size_t i = 0; i < sizeof souk_socket_options / sizeof *souk_socket_options; ++i)
        if (souk_socket_options[i].level == one->level && souk_socket_options[i].name == one->name)
            return set_option(socket, &souk_socket_options[i], v, one->length);
}

void set_sockets(void) {
    static union souk_option_value value;
    struct souk_option one, last = {0, -1, 0, 0, 0, 0};
    const int fd = open_image(SOUK_OPTIONS_NAME, O_RDONLY);
    FILE* const list = fd < 0 ? NULL : fdopen(fd, "r");
    int socket = -1;
    while (list != NULL && fread(&one, sizeof one, 1, list) == 1 && one.length <= sizeof value &&
           fread(&value, 1, one.length, list) == one.length) {
        if (one.pid != last.pid || one.fd != last.fd) {
            if (socket >= 0) close(socket);
            socket = file_of(one.pid, one.fd);
            last = one;
        }
        if (socket >= 0) set_one(socket, &one, &value);
    }
    if (socket >= 0) close(socket);
    if (list != NULL) fclose(list);
}
