// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into each CRIU of a job: a restore for trial. It shows whether an image can be restored
// while its job still stands here (agentd/cell/thaw_trial.hpp), and is ended before anything of the
// job runs. Whatever agentd says then, it is never let go (before_all_go): an image that comes may
// have the file that asks for a trial. What the job has in common with others stays as it is: no
// lock is taken, no file that was taken away is made again, and the name of a socket stays that
// socket's.
//
// - A socket whose name the job's own still has gets a name without a file instead, made of that
//   file's number: so the sockets of the trial find each other, and nobody else finds them.
// - Its network is one of its own, in which nothing leads out. Every address is this network's, so
//   the job's can be bound, and connections can be repaired. Not a packet arrives there: those that
//   a repaired connection sends would be answered by a reset.
// - It cannot tell whether an interface will be there (SO_BINDTODEVICE, an address of one link
//   alone, a packet socket): only the network in which the job thaws says that. Such an error, and
//   no other one, is passed over.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "checkpoint/trial.h"

static bool trial;

__attribute__((constructor)) static void begun(void) {
    trial = getenv("SOUK_DUMP") == NULL &&
            syscall(SYS_faccessat, images_fd, SOUK_TRIAL_NAME, F_OK) == 0;
}

bool is_trial(void) { return trial; }

// -------------------------------------------------------------------------------------------------
// sockets with the name of a file

bool is_spared(const char* path) {
    struct stat st;
    return trial && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

// An address without a file in the place of one whose file is there. False: it is another one.
static bool name_without_file(const struct sockaddr* address, socklen_t length,
                              struct sockaddr_un* other, socklen_t* other_length) {
    char path[sizeof other->sun_path + 1] = "";
    struct stat st;
    const size_t begin = offsetof(struct sockaddr_un, sun_path);
    if (!trial || address->sa_family != AF_UNIX || length <= begin || length > sizeof *other ||
        address->sa_data[0] == 0)
        return false;
    memcpy(path, address->sa_data, length - begin);
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
    memset(other, 0, sizeof *other);
    other->sun_family = AF_UNIX;
    const int n = snprintf(other->sun_path + 1, sizeof other->sun_path - 1, "souk-trial %lx %lx",
                           (unsigned long)st.st_dev, (unsigned long)st.st_ino);
    *other_length = (socklen_t)(begin + 1 + (size_t)n);
    return true;
}

// Whoever thaws makes the file there: he must be allowed to.
static bool can_make(const char* path) {
    char directory[sizeof((struct sockaddr_un*)0)->sun_path + 1];
    const char* const slash = strrchr(path, '/');
    snprintf(directory, sizeof directory, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
    return faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0;
}

bool bind_for_trial(int fd, const struct sockaddr* address, socklen_t length, int* done) {
    struct sockaddr_un other;
    socklen_t n;
    if (!name_without_file(address, length, &other, &n)) return false;
    char path[sizeof other.sun_path + 1] = "";
    memcpy(path, address->sa_data, length - offsetof(struct sockaddr_un, sun_path));
    as_user();
    *done = can_make(path) ? (int)syscall(SYS_bind, fd, &other, n) : -1;
    as_agent();
    return true;
}

// Returns false if nobody of the trial has that address: then the call stays as it is.
bool connect_for_trial(int fd, const struct sockaddr* address, socklen_t length, int* done) {
    struct sockaddr_un other;
    socklen_t n;
    if (!name_without_file(address, length, &other, &n)) return false;
    *done = connect_plainly(fd, (const struct sockaddr*)&other, n);
    return *done == 0 || errno != ECONNREFUSED;
}

// -------------------------------------------------------------------------------------------------
// its network

int passed_over(int done) {
    const bool of_link = errno == ENODEV || errno == EADDRNOTAVAIL || errno == ENXIO;
    return trial && done != 0 && of_link ? 0 : done;
}

static void set(const char* name, const char* value) {
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!syscall(SYS_write, fd, value, strlen(value));
    close(fd);
}

// Every address of that family is one of loopback's, as by `ip route add local default dev lo`.
static void has_all_addresses(int netlink, uint8_t family) {
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
        struct rtattr of;
        uint32_t interface;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = RTM_NEWROUTE,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE},
             .route = {.rtm_family = family,
                       .rtm_table = RT_TABLE_LOCAL,
                       .rtm_protocol = RTPROT_BOOT,
                       .rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
                       .rtm_type = RTN_LOCAL},
             .of = {.rta_len = RTA_LENGTH(sizeof ask.interface), .rta_type = RTA_OIF},
             .interface = 1};
    (void)!syscall(SYS_sendto, netlink, &ask, sizeof ask, 0, NULL, 0);
}

// Loopback sends through a queue that has room for none, as by `tc qdisc add dev lo root pfifo
// limit 0`.
static void loses_all_packets(int netlink) {
    struct {
        struct nlmsghdr head;
        struct tcmsg queue;
        struct rtattr of_kind;
        char kind[8];
        struct rtattr of_options;
        struct tc_fifo_qopt options;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = RTM_NEWQDISC,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL},
             .queue = {.tcm_family = AF_UNSPEC,
                       .tcm_ifindex = 1,
                       .tcm_handle = 1U << 16,
                       .tcm_parent = TC_H_ROOT},
             .of_kind = {.rta_len = RTA_LENGTH(sizeof "pfifo"), .rta_type = TCA_KIND},
             .kind = "pfifo",
             .of_options = {.rta_len = RTA_LENGTH(sizeof(struct tc_fifo_qopt)),
                            .rta_type = TCA_OPTIONS}};
    (void)!syscall(SYS_sendto, netlink, &ask, sizeof ask, 0, NULL, 0);
}

void open_trial_network(void) {
    if (!trial || !has_own_network()) return;
    set("/proc/sys/net/ipv4/ip_nonlocal_bind", "1");
    set("/proc/sys/net/ipv6/ip_nonlocal_bind", "1");
    // Whoever waits at a port already was allowed to.
    set("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    const int netlink =
        (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (netlink < 0) return;
    has_all_addresses(netlink, AF_INET);
    has_all_addresses(netlink, AF_INET6);
    loses_all_packets(netlink);
    close(netlink);
}
