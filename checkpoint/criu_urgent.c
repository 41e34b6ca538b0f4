// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU, so that urgent data which waits in a connection (MSG_OOB) stays what it is.
//
// CRIU counts what waits up to the urgent mark, and loses what is behind it; and a mark comes into
// a connection only with a segment (criu/sk-tcp.c). So at a dump CRIU sees a connection in which
// the segment with the mark and all behind it have not come yet, and these bytes go into a file
// beside the image. When the connection is restored, they come to it in segments as its peer sent
// them.
// A connection that the kernel encrypts is refused here, too.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#define LIST "souk-urgent"

struct urgent {
    int32_t pid, fd;
    uint32_t sequence, acknowledged;  // of its first byte; what the peer has acknowledged
    uint32_t length, was_read;        // of all bytes, the urgent one first
};

static long get(int fd, int level, int name, void* value, socklen_t* n) {
    return syscall(SYS_getsockopt, fd, level, name, value, n);
}

static uint32_t number_of(int fd, int level, int name) {
    uint32_t value = 0;
    socklen_t n = sizeof value;
    (void)get(fd, level, name, &value, &n);
    return value;
}

static void set_number(int fd, int level, int name, uint32_t value) {
    (void)syscall(SYS_setsockopt, fd, level, name, &value, (socklen_t)sizeof value);
}

// -------------------------------------------------------------------------------------------------
// at a dump

struct mark {
    uint32_t before, behind;  // bytes that wait up to the mark; the urgent one and all after it
    bool was_read;
};

// The kernel counts up to the mark, or all if urgent data is to be in line (tcp(7), SIOCINQ).
static bool find_mark(int fd, struct mark* m) {
    int before = 0, all = 0;
    if (getenv("SOUK_DUMP") == NULL || number_of(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP)
        return false;
    const uint32_t in_line = number_of(fd, SOL_SOCKET, SO_OOBINLINE);
    set_number(fd, SOL_SOCKET, SO_OOBINLINE, 0);
    (void)syscall(SYS_ioctl, fd, FIONREAD, &before);
    set_number(fd, SOL_SOCKET, SO_OOBINLINE, 1);
    (void)syscall(SYS_ioctl, fd, FIONREAD, &all);
    set_number(fd, SOL_SOCKET, SO_OOBINLINE, in_line);
    struct pollfd p = {fd, POLLPRI, 0};
    *m = (struct mark){(uint32_t)before, (uint32_t)(all - before), poll(&p, 1, 0) != 1};
    // A byte that has been read already, with nothing behind it, is of no more use.
    return all > before && !(m->was_read && m->behind == 1);
}

// The mark stops a read, so that is done from there on.
static bool read_behind(int fd, const struct mark* m, char* to) {
    const uint32_t in_line = number_of(fd, SOL_SOCKET, SO_OOBINLINE);
    const uint32_t peeks = number_of(fd, SOL_SOCKET, SO_PEEK_OFF);
    set_number(fd, SOL_SOCKET, SO_OOBINLINE, 1);
    set_number(fd, SOL_SOCKET, SO_PEEK_OFF, m->before);
    uint32_t got = 0;
    for (long n = 1; n > 0 && got<m->behind; got += n> 0 ? (uint32_t)n : 0)
        n = syscall(SYS_recvfrom, fd, to + got, m->behind - got, MSG_PEEK | MSG_DONTWAIT, NULL,
                    NULL);
    set_number(fd, SOL_SOCKET, SO_PEEK_OFF, peeks);
    set_number(fd, SOL_SOCKET, SO_OOBINLINE, in_line);
    return got == m->behind;
}

// CRIU has put it into repair mode.
static bool save(int fd, const struct mark* m) {
    struct urgent u = {.length = m->behind, .was_read = m->was_read};
    int unheard = 0;
    const uint32_t queue = number_of(fd, SOL_TCP, TCP_REPAIR_QUEUE);
    looked_at(&u.pid, &u.fd);
    (void)syscall(SYS_ioctl, fd, TIOCOUTQ, &unheard);
    set_number(fd, SOL_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);
    u.acknowledged = number_of(fd, SOL_TCP, TCP_QUEUE_SEQ) - (uint32_t)unheard;
    set_number(fd, SOL_TCP, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE);
    u.sequence = number_of(fd, SOL_TCP, TCP_QUEUE_SEQ) - m->behind;
    char* const record = malloc(sizeof u + m->behind);
    bool good = record != NULL && read_behind(fd, m, record + sizeof u);
    set_number(fd, SOL_TCP, TCP_REPAIR_QUEUE, queue);
    const int list = good ? append_to_image(LIST) : -1;
    if (good) memcpy(record, &u, sizeof u);
    good = list >= 0 &&
           syscall(SYS_write, list, record, sizeof u + m->behind) == (long)(sizeof u + m->behind);
    if (list >= 0) close(list);
    free(record);
    return good;
}

// Returns false if the peer has ended what it says, because that end is behind the mark; and over
// IPv6.
static bool can_be_sent_again(int fd) {
    struct tcp_info info = {0};
    struct sockaddr_storage peer = {0};
    socklen_t n = sizeof info, m = sizeof peer;
    (void)get(fd, SOL_TCP, TCP_INFO, &info, &n);
    return getpeername(fd, (struct sockaddr*)&peer, &m) == 0 && peer.ss_family == AF_INET &&
           (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_FIN_WAIT1 ||
            info.tcpi_state == TCP_FIN_WAIT2);
}

// The keys of TLS in the kernel cannot be had, and CRIU would restore a plain connection.
static bool is_encrypted(int fd) {
    char protocol[16] = "";
    socklen_t n = sizeof protocol;
    return getenv("SOUK_DUMP") != NULL && get(fd, SOL_TCP, TCP_ULP, protocol, &n) == 0 && n > 0;
}

// The count of what waits, of which CRIU is told the part before the mark.
int waiting_before_mark(int fd, int* waiting) {
    struct mark m;
    if (is_encrypted(fd)) {
        refuse_of("the kernel encrypts a connection", "when that is closed");
        errno = EBUSY;
        return -1;
    }
    if (!find_mark(fd, &m)) return 0;
    if (can_be_sent_again(fd) && save(fd, &m)) {
        *waiting = (int)m.before;
        return 0;
    }
    refuse_of("urgent data waits in a connection", "when that has been read");
    errno = EBUSY;
    return -1;
}

int getsockopt(int fd, int level, int name, void* restrict value, socklen_t* restrict n) {
    struct mark m;
    const int done = (int)get(fd, level, name, value, n);
    if (done == 0 && holds_back(fd, level, name, value)) {
        errno = EBUSY;
        return -1;
    }
    if (done != 0 || level != SOL_TCP || getenv("SOUK_DUMP") == NULL) return done;
    if (name == TCP_QUEUE_SEQ && number_of(fd, SOL_TCP, TCP_REPAIR_QUEUE) == TCP_RECV_QUEUE &&
        find_mark(fd, &m))
        *(uint32_t*)value -= m.behind;
    if (name == TCP_REPAIR_WINDOW && find_mark(fd, &m)) {
        struct tcp_repair_window* const window = value;
        window->rcv_wup -= m.behind;
        window->rcv_wnd += m.behind;
    }
    return done;
}

// -------------------------------------------------------------------------------------------------
// at a restore, while all threads stand

enum { piece_max = 32768 };

struct segment {
    struct iphdr ip;
    struct tcphdr tcp;
    unsigned char bytes[piece_max];
};

// Sends a piece from the peer to the job's own end, by loopback: whichever way it comes, it belongs
// to the connection.
static void send_piece(int raw, const struct urgent* u, const struct sockaddr_in ends[2],
                       struct segment* s, uint32_t at, uint32_t length) {
    const uint32_t size = (uint32_t)sizeof s->tcp + length;
    memset(s, 0, offsetof(struct segment, bytes));
    s->ip.version = 4;
    s->ip.ihl = sizeof s->ip / 4;
    s->ip.ttl = 64;
    s->ip.protocol = IPPROTO_TCP;
    s->ip.saddr = ends[1].sin_addr.s_addr;
    s->ip.daddr = ends[0].sin_addr.s_addr;
    s->ip.tot_len = htons((uint16_t)(sizeof s->ip + size));
    s->tcp.source = ends[1].sin_port;
    s->tcp.dest = ends[0].sin_port;
    s->tcp.seq = htonl(u->sequence + at);
    s->tcp.ack_seq = htonl(u->acknowledged);
    s->tcp.doff = sizeof s->tcp / 4;
    s->tcp.ack = s->tcp.psh = 1;
    s->tcp.urg = at == 0;
    s->tcp.urg_ptr = htons(at == 0);
    s->tcp.window = htons(UINT16_MAX);
    s->tcp.check = tcp_checksum(&s->ip.saddr, &s->ip.daddr, sizeof s->ip.saddr, &s->tcp, size);
    (void)sendto(raw, s, sizeof s->ip + size, MSG_DONTWAIT, (const struct sockaddr*)&ends[0],
                 sizeof ends[0]);
}

static void say_again(int fd, const struct urgent* u, int list) {
    static struct segment s;
    struct sockaddr_in ends[2];
    socklen_t n = sizeof ends[0], m = sizeof ends[1];
    const int raw = raw_socket(AF_INET, IPPROTO_RAW);
    const bool known =
        fd >= 0 && raw >= 0 && getsockname(fd, (struct sockaddr*)&ends[0], &n) == 0 &&
        getpeername(fd, (struct sockaddr*)&ends[1], &m) == 0 && ends[1].sin_family == AF_INET;
    for (uint32_t at = 0; at < u->length;) {
        const uint32_t piece = u->length - at < piece_max ? u->length - at : piece_max;
        if (syscall(SYS_read, list, s.bytes, piece) != (long)piece) break;
        if (known) send_piece(raw, u, ends, &s, at, piece);
        at += piece;
    }
    char byte;
    struct pollfd p = {fd, POLLPRI, 0};
    if (known && u->was_read && poll(&p, 1, 100) == 1)
        (void)syscall(SYS_recvfrom, fd, &byte, 1, MSG_OOB | MSG_DONTWAIT, NULL, NULL);
    if (raw >= 0) close(raw);
}

void say_urgent_again(void) {
    struct urgent u;
    const int list = open_image(LIST, O_RDONLY);
    while (list >= 0 && syscall(SYS_read, list, &u, sizeof u) == sizeof u) {
        const int fd = file_of(u.pid, u.fd);
        // Nobody but a connection of TCP has its addresses to itself.
        if (number_of(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP && can_be_sent_again(fd))
            say_again(fd, &u, list);
        if (fd >= 0) close(fd);
    }
    if (list >= 0) close(list);
}
