// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: whoever has a connection with the job that does not come
// along hears that it is gone. These are connections that the program had not accepted, and such as
// it had closed before all was delivered (agentd/init/kernel_state.cpp). He would wait for ever for
// words of theirs, as long as he says nothing himself.
//
// The numbers of the connection are known to him alone. So he gets a segment with numbers that are
// none of it. His kernel answers with the right ones (RFC 9293, 3.10.7.4), and the job's, which has
// no such connection, refuses that with those. Of two numbers that are half of all apart one at
// least is none of it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// An address of IPv4 may be in one of IPv6.
static void unmap(struct souk_cut_off* one) {
    if (one->family != AF_INET6 || memcmp(one->remote, mapped, sizeof mapped) != 0) return;
    one->family = AF_INET;
    memcpy(one->local, one->local + sizeof mapped, 4);
    memcpy(one->remote, one->remote + sizeof mapped, 4);
}

static uint32_t sum(uint32_t before, const void* bytes, size_t n) {
    const unsigned char* const b = bytes;
    for (size_t i = 0; i < n; ++i) before += i % 2 == 0 ? (uint32_t)b[i] << 8 : b[i];
    return before;
}

uint16_t tcp_checksum(const void* local, const void* remote, size_t address_bytes,
                      const void* segment, size_t bytes) {
    uint32_t all = IPPROTO_TCP + (uint32_t)bytes;
    all = sum(sum(sum(all, local, address_bytes), remote, address_bytes), segment, bytes);
    while (all >> 16 != 0) all = (all & 0xffff) + (all >> 16);
    return htons((uint16_t)~all);
}

static socklen_t address_of(int family, const unsigned char* bytes, struct sockaddr_storage* to) {
    memset(to, 0, sizeof *to);
    to->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        memcpy(&((struct sockaddr_in*)to)->sin_addr, bytes, 4);
        return sizeof(struct sockaddr_in);
    }
    memcpy(&((struct sockaddr_in6*)to)->sin6_addr, bytes, 16);
    return sizeof(struct sockaddr_in6);
}

static void ask(const struct souk_cut_off* one) {
    struct sockaddr_storage local, remote;
    const socklen_t n = address_of(one->family, one->local, &local);
    (void)address_of(one->family, one->remote, &remote);
    const size_t address_bytes = one->family == AF_INET ? 4 : 16;
    const int raw = raw_socket(one->family, IPPROTO_TCP);
    if (raw < 0) return;
    if (syscall(SYS_bind, raw, &local, n) == 0)
        for (uint32_t half = 0; half < 2; ++half) {
            struct tcphdr segment = {.th_sport = htons(one->local_port),
                                     .th_dport = htons(one->remote_port),
                                     .th_seq = htonl(half << 31),
                                     .th_off = sizeof segment / 4,
                                     .th_flags = TH_ACK};
            segment.th_sum =
                tcp_checksum(one->local, one->remote, address_bytes, &segment, sizeof segment);
            (void)sendto(raw, &segment, sizeof segment, MSG_DONTWAIT, (struct sockaddr*)&remote, n);
        }
    close(raw);
}

static void cut_off(void) {
    struct souk_cut_off one;
    if (!has_own_network()) return;  // there are others' connections
    const int list = open_image(SOUK_CUT_OFF_NAME, O_RDONLY);
    while (list >= 0 && syscall(SYS_read, list, &one, sizeof one) == sizeof one) {
        unmap(&one);
        if (one.family == AF_INET || one.family == AF_INET6) ask(&one);
    }
    if (list >= 0) close(list);
}

// agentd has opened the network, since nothing may fail any more.
void speak_to_others(void) {
    static bool done;
    if (done || getenv("SOUK_DUMP") != NULL) return;
    done = true;
    cut_off();
    say_urgent_again();
}
