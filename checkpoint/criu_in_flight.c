// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps: what waits in a UNIX socket to be read, and CRIU cannot take
// along, keeps the job from moving until it has been read. That is mostly a moment later.
//
// - A socket that wants to know who has sent (SO_PASSCRED) tells it with each message. CRIU takes
//   no such message.
// - An empty message CRIU takes for the end of all that waits (criu/sk-queue.c). The kernel shows
//   it to who peeks once only (net/core/datagram.c), so a mark stays in the capsule's /run for as
//   long as the socket has anything to be read.
// - Urgent data (MSG_OOB) would be among the rest.
// - A datagram has its sender's name. CRIU sends it again from a socket without one.
// - Descriptors on their way (SCM_RIGHTS) CRIU sends again from one process. It chooses that one
//   before it has settled who makes the two ends of a pair (criu/cr-restore.c, prepare_scms and
//   run_post_prepare). If these are two processes, others than the job's files would be sent, or
//   none. Who makes an end is the process with the least number of all that have it.
// - A lock of flock(2), or of an open file description, is the description's. If that is only on
//   its way, no process has it from which the lock could be taken over and handed on
//   (criu_locks.c), and it would be let go.
// - A UDP socket holds back a datagram until the rest of it comes (MSG_MORE, UDP_CORK). CRIU knows
//   of the second alone.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "checkpoint/criu_locks.h"
#include "checkpoint/criu_user.h"

// The other end of a socket, by its inode; 0: it has none, or the kernel does not tell.
static unsigned long peer_of(unsigned long inode) {
    struct {
        struct nlmsghdr head;
        struct unix_diag_req asks;
    } request = {.head = {.nlmsg_len = sizeof request,
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST},
                 .asks = {.sdiag_family = AF_UNIX,
                          .udiag_states = ~0U,
                          .udiag_ino = (uint32_t)inode,
                          .udiag_show = UDIAG_SHOW_PEER,
                          .udiag_cookie = {~0U, ~0U}}};
    union {
        struct nlmsghdr head;
        char room[4096];
    } answer;
    const int ask = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    long n = ask < 0 ? -1 : syscall(SYS_sendto, ask, &request, sizeof request, 0, NULL, 0);
    if (n >= 0) n = syscall(SYS_recvfrom, ask, &answer, sizeof answer, 0, NULL, NULL);
    if (ask >= 0) close(ask);
    if (n < (long)NLMSG_LENGTH(sizeof(struct unix_diag_msg)) ||
        answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return 0;
    const struct unix_diag_msg* const said = NLMSG_DATA(&answer.head);
    const struct rtattr* one = (const struct rtattr*)(said + 1);
    for (int left = (int)n - (int)NLMSG_LENGTH(sizeof *said); RTA_OK(one, left);
         one = RTA_NEXT(one, left))
        if (one->rta_type == UNIX_DIAG_PEER) return *(const uint32_t*)RTA_DATA(one);
    return 0;
}

// The least process of the job that has the socket; 0: none has.
static pid_t first_with(unsigned long inode) {
    char path[32], wanted[40], link[40];
    pid_t first = 0;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR* const all = opendir("/proc");
    for (struct dirent* one; all != NULL && (one = readdir(all)) != NULL;) {
        const pid_t pid = atoi(one->d_name);
        if (pid <= 1 || (first != 0 && pid > first) || !is_held(pid)) continue;
        snprintf(path, sizeof path, "/proc/%d/fd", pid);
        DIR* const files = opendir(path);
        for (struct dirent* file; files != NULL && (file = readdir(files)) != NULL;) {
            const ssize_t n = readlinkat(dirfd(files), file->d_name, link, sizeof link - 1);
            link[n < 0 ? 0 : n] = 0;
            if (n > 0 && strcmp(link, wanted) == 0) first = pid;
        }
        if (files != NULL) closedir(files);
    }
    if (all != NULL) closedir(all);
    return first;
}

static bool is_made_by_two(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return true;
    const unsigned long peer = peer_of(st.st_ino);
    return peer != 0 && peer_of(peer) == st.st_ino && first_with(st.st_ino) != first_with(peer);
}

static bool has(struct msghdr* message, int type) {
    for (struct cmsghdr* c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == type) return true;
    return false;
}

// Finds a descriptor on its way whose open file has a lock and is open in no process. -1: there is
// none.
static int locked_alone(struct msghdr* message) {
    for (struct cmsghdr* c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            char name[24];
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            snprintf(name, sizeof name, "fdinfo/%d", fd);
            const char* const info = text_of((pid_t)syscall(SYS_getpid), name);
            if (info == NULL || strstr(info, "\nlock:") == NULL) continue;
            if (!is_open_in_job(fd)) return fd;
            locks_are_on_way = true;
        }
    }
    return -1;
}

static void refuse_lock(int fd) {
    char link[32], name[PATH_MAX] = "", what[PATH_MAX + 64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    (void)!readlink(link, name, sizeof name - 1);
    snprintf(what, sizeof what, "%.256s with a lock of it is on its way in a socket", name);
    refuse_of(what, "when it has been taken");
}

// A part is held back if the kernel would take a further one without a port to send it to: it
// refuses that of any other datagram. Nothing is sent or added (MSG_PROBE). What a socket counts as
// unsent (SIOCOUTQ) would not do, because that has datagrams whose neighbour is not known yet, too.
// A socket without a port of its own has sent nothing, and would get one here.
static bool waits_for_rest(int fd) {
    enum { only_probe = 0x10 };  // linux/socket.h
    struct sockaddr_in6 of = {0};
    socklen_t size = sizeof of;
    if (getsockname(fd, (struct sockaddr*)&of, &size) != 0 || of.sin6_port == 0) return false;
    of.sin6_port = 0;  // at the same place in an address of IPv4
    return syscall(SYS_sendto, fd, "", 0, MSG_MORE | only_probe, &of, size) == 0;
}

bool holds_back(int fd, int level, int name, const void* corked) {
    if (level != SOL_UDP || name != UDP_CORK || getenv("SOUK_DUMP") == NULL) return false;
    if (*(const int*)corked != 0) {
        refuse_of("datagrams are put together (UDP_CORK) in a socket", "when UDP_CORK is off");
        return true;
    }
    if (!waits_for_rest(fd)) return false;
    refuse_of("a part of a datagram waits for the rest of it (MSG_MORE) in a socket",
              "when the rest has been sent");
    return true;
}

// An end of the queue that is not one by shutdown(2) is an empty message.
static bool hides_empty(int fd, int type, ssize_t n) {
    char path[48];
    struct stat st;
    struct pollfd look = {.fd = fd, .events = POLLIN | POLLRDHUP};
    if (type == SOCK_STREAM || fstat(fd, &st) != 0) return false;
    const bool waits = poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
    const bool empty = n == 0 && waits && (look.revents & POLLRDHUP) == 0;
    snprintf(path, sizeof path, "/run/souk.empty.%lu", (unsigned long)st.st_ino);
    if (!waits) unlink(path);
    if (empty) {
        const int mark = open(path, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (mark >= 0) close(mark);
    }
    return empty || (waits && access(path, F_OK) == 0);
}

static bool names_sender(int fd, int type, const struct msghdr* message) {
    struct sockaddr_un of;
    socklen_t size = sizeof of;
    return type == SOCK_DGRAM && message->msg_namelen > sizeof(sa_family_t) &&
           getpeername(fd, (struct sockaddr*)&of, &size) != 0;
}

// CRIU peeks at what waits in a socket (criu/sk-queue.c), as nobody else here does.
ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    int family = 0, type = 0;
    socklen_t size = sizeof family;
    struct sockaddr_un sender;
    const bool dumps = (flags & MSG_PEEK) != 0 && getenv("SOUK_DUMP") != NULL &&
                       getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 &&
                       family == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
    if (!dumps) return syscall(SYS_recvmsg, fd, message, flags);
    const bool asks_name = message->msg_name == NULL;
    if (asks_name) message->msg_name = &sender, message->msg_namelen = sizeof sender;
    const ssize_t n = syscall(SYS_recvmsg, fd, message, flags);
    const int code = errno;
    const bool named = n >= 0 && names_sender(fd, type, message);
    const int locked = n >= 0 ? locked_alone(message) : -1;
    if (asks_name) message->msg_name = NULL, message->msg_namelen = 0;
    struct pollfd urgent = {.fd = fd, .events = POLLPRI};
    if (poll(&urgent, 1, 0) == 1 && (urgent.revents & POLLPRI) != 0) {
        refuse_of("urgent data (MSG_OOB) waits in a UNIX socket", "when it has been read");
    } else if (hides_empty(fd, type, n)) {
        refuse_of("an empty message waits in a socket", "when it has been read");
    } else if (named) {
        refuse_of("a datagram of a sender with a name waits in a socket", "when it has been read");
    } else if (n < 0) {
        errno = code;
        return n;
    } else if (has(message, SCM_CREDENTIALS)) {
        refuse_of("a message that names its sender waits in a socket", "when it has been read");
    } else if (locked >= 0) {
        refuse_lock(locked);
    } else if ((message->msg_flags & MSG_CTRUNC) != 0) {
        refuse_of("more descriptors than CRIU takes along are on their way in a socket",
                  "when they have been taken");
    } else if (has(message, SCM_RIGHTS) && is_made_by_two(fd)) {
        refuse_of("a descriptor is on its way between two processes in a socket",
                  "when it has been taken");
    } else {
        return n;
    }
    errno = EBUSY;
    return -1;
}
