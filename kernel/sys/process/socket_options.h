/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Options of sockets that CRIU does not carry, or not of each kind of socket: souk-init reads them
 * at a dump (agentd/init/descriptors.cpp), and a CRIU that restores sets them
 * (checkpoint/criu_descriptors.c). C and C++. */
#pragma once

#include <netinet/in.h>
#include <stdint.h>

/* How they go into the image, as records: this, then `length` bytes of value. */
struct souk_option {
    int32_t pid, fd; /* inside; whoever else has the same socket open needs no record */
    uint16_t level, name, length, pad;
};

/* A value of level IP or IPV6 and this name: the device by its name, then a struct group_filter as
 * getsockopt(2) gives it of MCAST_MSFILTER: the socket is in that multicast group. */
enum { souk_in_group = 48, souk_device_name = 16, souk_value_max = 16 * 1024 };

union souk_option_value {
    char bytes[souk_value_max];
    uint32_t number;
    struct {
        char device[souk_device_name];
        struct group_filter filter;
    } group;
};

/* privileged  only a job of root can have set it; of others it is not set again
 * device      an interface by its number, which goes by its name; be_device: in network byte order
 * changed     CRIU leaves it changed in a TCP socket where it was as in a new one */
enum { souk_privileged = 1, souk_device = 2, souk_be_device = 4, souk_changed = 8 };

enum { souk_ip = 0, souk_socket = 1, souk_tcp = 6, souk_udp = 17, souk_ipv6 = 41 };
enum { souk_udplite = 136, souk_packet = 263, souk_netlink = 270 };

/* In the order in which they are set: some change others. The numbers are the kernel's own, since
 * the headers of a machine may be older than its kernel. SO_ names with _OLD and _NEW differ in the
 * size of the time stamps that come. */
#define SOUK_SOCKET_OPTIONS(ROW)                                   \
    ROW(souk_ip, 1, IP_TOS, 0)                                     \
    ROW(souk_ip, 2, IP_TTL, 0)                                     \
    ROW(souk_ip, 4, IP_OPTIONS, 0)                                 \
    ROW(souk_ip, 6, IP_RECVOPTS, 0)                                \
    ROW(souk_ip, 7, IP_RETOPTS, 0)                                 \
    ROW(souk_ip, 8, IP_PKTINFO, 0)                                 \
    ROW(souk_ip, 10, IP_MTU_DISCOVER, 0)                           \
    ROW(souk_ip, 11, IP_RECVERR, 0)                                \
    ROW(souk_ip, 12, IP_RECVTTL, 0)                                \
    ROW(souk_ip, 13, IP_RECVTOS, 0)                                \
    ROW(souk_ip, 18, IP_PASSSEC, 0)                                \
    ROW(souk_ip, 19, IP_TRANSPARENT, souk_privileged)              \
    ROW(souk_ip, 20, IP_RECVORIGDSTADDR, 0)                        \
    ROW(souk_ip, 21, IP_MINTTL, 0)                                 \
    ROW(souk_ip, 23, IP_CHECKSUM, 0)                               \
    ROW(souk_ip, 24, IP_BIND_ADDRESS_NO_PORT, 0)                   \
    ROW(souk_ip, 25, IP_RECVFRAGSIZE, 0)                           \
    ROW(souk_ip, 26, IP_RECVERR_RFC4884, 0)                        \
    ROW(souk_ip, 32, IP_MULTICAST_IF, 0)                           \
    ROW(souk_ip, 33, IP_MULTICAST_TTL, 0)                          \
    ROW(souk_ip, 34, IP_MULTICAST_LOOP, 0)                         \
    ROW(souk_ip, 49, IP_MULTICAST_ALL, 0)                          \
    ROW(souk_ip, 50, IP_UNICAST_IF, souk_be_device)                \
    ROW(souk_ip, 51, IP_LOCAL_PORT_RANGE, 0)                       \
    ROW(souk_ipv6, 2, IPV6_2292PKTINFO, 0)                         \
    ROW(souk_ipv6, 3, IPV6_2292HOPOPTS, 0)                         \
    ROW(souk_ipv6, 4, IPV6_2292DSTOPTS, 0)                         \
    ROW(souk_ipv6, 5, IPV6_2292RTHDR, 0)                           \
    ROW(souk_ipv6, 7, IPV6_CHECKSUM, 0)                            \
    ROW(souk_ipv6, 8, IPV6_2292HOPLIMIT, 0)                        \
    ROW(souk_ipv6, 11, IPV6_FLOWINFO, 0)                           \
    ROW(souk_ipv6, 16, IPV6_UNICAST_HOPS, 0)                       \
    ROW(souk_ipv6, 17, IPV6_MULTICAST_IF, souk_device)             \
    ROW(souk_ipv6, 18, IPV6_MULTICAST_HOPS, 0)                     \
    ROW(souk_ipv6, 19, IPV6_MULTICAST_LOOP, 0)                     \
    ROW(souk_ipv6, 23, IPV6_MTU_DISCOVER, 0)                       \
    ROW(souk_ipv6, 25, IPV6_RECVERR, 0)                            \
    ROW(souk_ipv6, 29, IPV6_MULTICAST_ALL, 0)                      \
    ROW(souk_ipv6, 30, IPV6_ROUTER_ALERT_ISOLATE, 0)               \
    ROW(souk_ipv6, 31, IPV6_RECVERR_RFC4884, 0)                    \
    ROW(souk_ipv6, 33, IPV6_FLOWINFO_SEND, 0)                      \
    ROW(souk_ipv6, 49, IPV6_RECVPKTINFO, 0)                        \
    ROW(souk_ipv6, 51, IPV6_RECVHOPLIMIT, 0)                       \
    ROW(souk_ipv6, 53, IPV6_RECVHOPOPTS, 0)                        \
    ROW(souk_ipv6, 56, IPV6_RECVRTHDR, 0)                          \
    ROW(souk_ipv6, 58, IPV6_RECVDSTOPTS, 0)                        \
    ROW(souk_ipv6, 60, IPV6_RECVPATHMTU, 0)                        \
    ROW(souk_ipv6, 62, IPV6_DONTFRAG, 0)                           \
    ROW(souk_ipv6, 66, IPV6_RECVTCLASS, 0)                         \
    ROW(souk_ipv6, 67, IPV6_TCLASS, 0)                             \
    ROW(souk_ipv6, 70, IPV6_AUTOFLOWLABEL, 0)                      \
    ROW(souk_ipv6, 72, IPV6_ADDR_PREFERENCES, 0)                   \
    ROW(souk_ipv6, 73, IPV6_MINHOPCOUNT, 0)                        \
    ROW(souk_ipv6, 74, IPV6_RECVORIGDSTADDR, 0)                    \
    ROW(souk_ipv6, 75, IPV6_TRANSPARENT, souk_privileged)          \
    ROW(souk_ipv6, 76, IPV6_UNICAST_IF, souk_be_device)            \
    ROW(souk_ipv6, 77, IPV6_RECVFRAGSIZE, 0)                       \
    ROW(souk_tcp, 2, TCP_MAXSEG, 0)                                \
    ROW(souk_tcp, 7, TCP_SYNCNT, 0)                                \
    ROW(souk_tcp, 8, TCP_LINGER2, 0)                               \
    ROW(souk_tcp, 9, TCP_DEFER_ACCEPT, 0)                          \
    ROW(souk_tcp, 10, TCP_WINDOW_CLAMP, 0)                         \
    ROW(souk_tcp, 12, TCP_QUICKACK, 0)                             \
    ROW(souk_tcp, 13, TCP_CONGESTION, 0)                           \
    ROW(souk_tcp, 16, TCP_THIN_LINEAR_TIMEOUTS, 0)                 \
    ROW(souk_tcp, 17, TCP_THIN_DUPACK, 0)                          \
    ROW(souk_tcp, 18, TCP_USER_TIMEOUT, 0)                         \
    ROW(souk_tcp, 23, TCP_FASTOPEN, 0)                             \
    ROW(souk_tcp, 25, TCP_NOTSENT_LOWAT, 0)                        \
    ROW(souk_tcp, 27, TCP_SAVE_SYN, 0)                             \
    ROW(souk_tcp, 30, TCP_FASTOPEN_CONNECT, 0)                     \
    ROW(souk_tcp, 33, TCP_FASTOPEN_KEY, 0)                         \
    ROW(souk_tcp, 34, TCP_FASTOPEN_NO_COOKIE, 0)                   \
    ROW(souk_tcp, 36, TCP_INQ, 0)                                  \
    ROW(souk_tcp, 37, TCP_TX_DELAY, 0)                             \
    ROW(souk_tcp, 44, TCP_RTO_MAX_MS, 0)                           \
    ROW(souk_tcp, 45, TCP_RTO_MIN_US, 0)                           \
    ROW(souk_tcp, 46, TCP_DELACK_MAX_US, 0)                        \
    ROW(souk_udp, 100, UDP_ENCAP, 0)                               \
    ROW(souk_udp, 101, UDP_NO_CHECK6_TX, 0)                        \
    ROW(souk_udp, 102, UDP_NO_CHECK6_RX, 0)                        \
    ROW(souk_udp, 103, UDP_SEGMENT, 0)                             \
    ROW(souk_udp, 104, UDP_GRO, 0)                                 \
    ROW(souk_udplite, 10, UDPLITE_SEND_CSCOV, 0)                   \
    ROW(souk_udplite, 11, UDPLITE_RECV_CSCOV, 0)                   \
    ROW(souk_packet, 17, PACKET_TIMESTAMP, 0)                      \
    ROW(souk_packet, 20, PACKET_QDISC_BYPASS, 0)                   \
    ROW(souk_packet, 23, PACKET_IGNORE_OUTGOING, 0)                \
    ROW(souk_netlink, 3, NETLINK_PKTINFO, 0)                       \
    ROW(souk_netlink, 4, NETLINK_BROADCAST_ERROR, 0)               \
    ROW(souk_netlink, 5, NETLINK_NO_ENOBUFS, 0)                    \
    ROW(souk_netlink, 8, NETLINK_LISTEN_ALL_NSID, souk_privileged) \
    ROW(souk_netlink, 10, NETLINK_CAP_ACK, 0)                      \
    ROW(souk_netlink, 11, NETLINK_EXT_ACK, 0)                      \
    ROW(souk_netlink, 12, NETLINK_GET_STRICT_CHK, 0)               \
    ROW(souk_socket, 1, SO_DEBUG, souk_privileged)                 \
    ROW(souk_socket, 12, SO_PRIORITY, 0)                           \
    ROW(souk_socket, 15, SO_REUSEPORT, souk_changed)               \
    ROW(souk_socket, 29, SO_TIMESTAMP_OLD, 0)                      \
    ROW(souk_socket, 35, SO_TIMESTAMPNS_OLD, 0)                    \
    ROW(souk_socket, 37, SO_TIMESTAMPING_OLD, 0)                   \
    ROW(souk_socket, 63, SO_TIMESTAMP_NEW, 0)                      \
    ROW(souk_socket, 64, SO_TIMESTAMPNS_NEW, 0)                    \
    ROW(souk_socket, 65, SO_TIMESTAMPING_NEW, 0)                   \
    ROW(souk_socket, 40, SO_RXQ_OVFL, 0)                           \
    ROW(souk_socket, 41, SO_WIFI_STATUS, 0)                        \
    ROW(souk_socket, 42, SO_PEEK_OFF, 0)                           \
    ROW(souk_socket, 43, SO_NOFCS, 0)                              \
    ROW(souk_socket, 45, SO_SELECT_ERR_QUEUE, 0)                   \
    ROW(souk_socket, 46, SO_BUSY_POLL, souk_privileged)            \
    ROW(souk_socket, 47, SO_MAX_PACING_RATE, 0)                    \
    ROW(souk_socket, 49, SO_INCOMING_CPU, 0)                       \
    ROW(souk_socket, 60, SO_ZEROCOPY, 0)                           \
    ROW(souk_socket, 61, SO_TXTIME, 0)                             \
    ROW(souk_socket, 69, SO_PREFER_BUSY_POLL, souk_privileged)     \
    ROW(souk_socket, 70, SO_BUSY_POLL_BUDGET, souk_privileged)     \
    ROW(souk_socket, 73, SO_RESERVE_MEM, 0)                        \
    ROW(souk_socket, 74, SO_TXREHASH, 0)                           \
    ROW(souk_socket, 75, SO_RCVMARK, souk_privileged)              \
    ROW(souk_socket, 76, SO_PASSPIDFD, 0)                          \
    ROW(souk_socket, 82, SO_RCVPRIORITY, 0)                        \
    ROW(souk_socket, 83, SO_PASSRIGHTS, 0)                         \
    ROW(souk_socket, 84, SO_INQ, 0)                                \
    ROW(souk_socket, 44, SO_LOCK_FILTER, 0)

static const struct souk_option_row {
    uint16_t level, name;
    uint8_t how;
} souk_socket_options[] = {
#define ROW(level, name, word, how) {level, name, how},
    SOUK_SOCKET_OPTIONS(ROW)
#undef ROW
};
