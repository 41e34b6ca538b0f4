# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of sockets, by family, type and state."""
import fcntl
import os
import select
import socket
import struct
import termios

from rows import Differs, Refused, child, row, shown, text

UNIX = "sockets: of a machine (AF_UNIX)"
INET = "sockets: TCP, UDP and the like"
OTHERS = "sockets: other families"
STREAM, DGRAM, PACKETS = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET
CLOSED = "a move closes established connections of TCP"


def waits(s):
    poll = select.poll()
    poll.register(s)
    found = poll.poll(0)
    return found[0][1] if found else 0


def state(s):
    """Returns all that a socket of any kind says of itself."""
    return [s.family, s.type, repr(s.getsockname()), s.getsockopt(1, 30), waits(s),
            f"{fcntl.fcntl(s, fcntl.F_GETFL):o}", s.getsockopt(1, 4)]


def peeks(s, size=99):
    return s.recv(size, socket.MSG_PEEK | socket.MSG_DONTWAIT).decode()


def keep(*sockets):
    kept.extend(sockets)
    return sockets


kept = []

# ---- AF_UNIX

for word, kind in {"stream": STREAM, "datagram": DGRAM, "packet": PACKETS}.items():
    @row(UNIX, f"a pair of {word} sockets, with data")
    def pair(place, kind=kind):
        a, b = keep(*socket.socketpair(socket.AF_UNIX, kind))
        a.send(b"one"), a.send(b"two")
        return lambda: [state(a), state(b), peeks(b)]

    @row(UNIX, f"a {word} socket with a name")
    def bound(place, kind=kind):
        s, = keep(socket.socket(socket.AF_UNIX, kind))
        s.bind(f"{place}/name")
        return lambda: [state(s), os.path.exists(f"{place}/name")]

    @row(UNIX, f"a {word} socket with an abstract name")
    def abstract(place, kind=kind):
        s, = keep(socket.socket(socket.AF_UNIX, kind))
        s.bind(f"\0row-{os.getpid()}-{kind}")
        return lambda: state(s)


@row(UNIX, "a socket whose name was deleted")
def deleted(place):
    s, = keep(socket.socket(socket.AF_UNIX))
    s.bind(f"{place}/name")
    os.unlink(f"{place}/name")
    return lambda: [state(s), os.path.exists(f"{place}/name")]


@row(UNIX, "a socket that listens")
def listens(place):
    s, = keep(socket.socket(socket.AF_UNIX))
    s.bind(f"{place}/name")
    s.listen(3)

    def look():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{place}/name")
            s.accept()[0].close()
        return state(s)
    return look


@row(UNIX, "a connection that waits to be accepted",
     outcome=Refused("criu_cannot_dump", "CRIU cannot dump it", check=False))
def backlog(place):
    s, client = keep(socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX))
    s.bind(f"{place}/name")
    s.listen(3)
    client.connect(f"{place}/name")
    client.send(b"asks")
    return lambda: [state(s), state(client)]


@row(UNIX, "a connection by a name")
def connected(place):
    s, client = keep(socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX))
    s.bind(f"{place}/name")
    s.listen(3)
    client.connect(f"{place}/name")
    server, = keep(s.accept()[0])
    client.send(b"asks")
    return lambda: [waits(client), waits(server), peeks(server)]


@row(UNIX, "the name of a socket that was accepted",
     outcome=Differs("A UNIX socket that was accepted has no name any more"))
def accepted(place):
    s, client = keep(socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX))
    s.bind(f"{place}/name")
    s.listen(3)
    client.connect(f"{place}/name")
    server, = keep(s.accept()[0])
    return lambda: [client.getpeername(), server.getsockname()]


for word, how in {"read": socket.SHUT_RD, "written": socket.SHUT_WR, "used": 2}.items():
    @row(UNIX, f"a connection that is not {word} any more (shutdown)")
    def half(place, how=how):
        a, b = keep(*socket.socketpair())
        a.shutdown(how)
        return lambda: [state(a), state(b)]


@row(UNIX, "a connection whose other end was closed")
def orphaned(place):
    a, b = keep(*socket.socketpair())
    b.send(b"the last")
    b.close()
    return lambda: [state(a), peeks(a)]


@row(UNIX, "a descriptor on its way (SCM_RIGHTS)")
def rights(place):
    a, b = keep(*socket.socketpair(socket.AF_UNIX, DGRAM))
    with open(f"{place}/file", "w+") as f:
        f.write("sent")
        f.flush()
        socket.send_fds(a, [b"here"], [f.fileno()])

    def look():
        said, fds, _, _ = socket.recv_fds(b, 99, 4)
        got = os.pread(fds[0], 99, 0).decode()
        socket.send_fds(a, [said], fds)
        os.close(fds[0])
        return [said.decode(), got]
    return look


@row(UNIX, "a descriptor on its way between two processes", alone=True,
     outcome=Refused("dump_refused", "is on its way between two processes", check=False))
def rights_between(place):
    a, b = keep(*socket.socketpair())
    with open(f"{place}/file", "w+") as f:
        socket.send_fds(a, [b"here"], [f.fileno()])

    def work():
        a.close()
        return lambda: b.recv(9, socket.MSG_PEEK).decode()
    other = child(work)
    b.close()
    return other.ask


@row(UNIX, "a message that waits and names its sender (SO_PASSCRED)",
     outcome=Refused("dump_refused", "names its sender waits", check=False))
def named_sender(place):
    a, b = keep(*socket.socketpair(socket.AF_UNIX, DGRAM))
    b.setsockopt(1, 16, 1)
    a.send(b"named")

    def look():
        said, (one,), _, _ = b.recvmsg(99, 99, socket.MSG_PEEK)
        pid, uid, gid = struct.unpack("3i", one[2])
        return [said.decode(), pid == os.getpid(), uid, gid]
    return look


@row(UNIX, "an empty message that waits",
     outcome=Refused("dump_refused", "an empty message waits", check=False))
def empty_waits(place):
    a, b = keep(*socket.socketpair(socket.AF_UNIX, DGRAM))
    for message in b"first", b"", b"third":
        a.send(message)

    def look():
        found = [b.recv(9).decode() for _ in range(3)]
        for message in found:
            a.send(message.encode())
        return found
    return look


@row(UNIX, "a datagram that waits, of a sender with a name",
     outcome=Refused("dump_refused", "of a sender with a name waits", check=False))
def sender_waits(place):
    s, client = keep(socket.socket(socket.AF_UNIX, DGRAM), socket.socket(socket.AF_UNIX, DGRAM))
    s.bind(f"{place}/name"), client.bind(f"{place}/client")
    client.sendto(b"asks", f"{place}/name")
    return lambda: [part.decode() if isinstance(part, bytes) else part.rpartition("/")[2]
                    for part in s.recvfrom(9, socket.MSG_PEEK)]


@row(UNIX, "credentials of the other end (SO_PEERCRED)")
def credentials(place):
    a, b = keep(*socket.socketpair())

    def look():
        pid, uid, gid = struct.unpack("3i", a.getsockopt(1, 17, 12))
        return [pid == os.getpid(), uid, gid]
    return look


@row(UNIX, "groups of the other end (SO_PEERGROUPS)", alone=True,
     outcome=Differs("`SO_PEERGROUPS`"))
def peer_groups(place):
    mine = os.getgroups()
    os.setgroups([4711, 4712])
    a, b = socket.socketpair()
    os.setgroups(mine)
    keep(a, b)
    return lambda: struct.unpack("2I", a.getsockopt(1, 59, 8)) == (4711, 4712)


@row(UNIX, "the place from which is peeked (SO_PEEK_OFF)")
def peek_offset(place):
    a, b = keep(*socket.socketpair())
    b.setsockopt(1, 42, 4)
    a.send(b"0123456789")

    def look():
        found = b.recv(2, socket.MSG_PEEK).decode()
        b.setsockopt(1, 42, 4)
        return [found, b.getsockopt(1, 42)]
    return look


@row(UNIX, "a socket in two processes")
def in_two(place):
    a, b = keep(*socket.socketpair())
    other = child(lambda: lambda: a.send(b"x"))
    return lambda: [other.ask(), b.recv(9).decode()]


# ---- TCP, UDP

def unbound(family, kind, protocol=0):
    def set_up(place):
        s, = keep(socket.socket(family, kind, protocol))
        return lambda: [s.family, s.type, s.proto, waits(s)]
    return set_up


for version, family, host in (("IPv4", socket.AF_INET, "127.0.0.1"),
                              ("IPv6", socket.AF_INET6, "::1")):
    for word, kind, protocol in (("TCP", STREAM, 0), ("UDP", DGRAM, 0), ("UDP-Lite", DGRAM, 136),
                                 ("ping", DGRAM, 1 if family == 2 else 58),
                                 ("raw", socket.SOCK_RAW, 1 if family == 2 else 58)):
        needs = "that protocol" if word in ("UDP-Lite", "ping") else ""
        row(INET, f"{word} over {version}, new", needs=needs)(unbound(family, kind, protocol))

    @row(INET, f"TCP over {version}, bound")
    def tcp_bound(place, family=family, host=host):
        s, = keep(socket.socket(family, STREAM))
        s.bind((host, 0))
        return lambda: state(s)

    @row(INET, f"TCP over {version}, listening")
    def tcp_listens(place, family=family, host=host):
        s, = keep(socket.create_server((host, 0), family=family, backlog=7))

        def look():
            with socket.create_connection(s.getsockname()[:2], 5):
                s.accept()[0].close()
            return state(s)
        return look

    @row(INET, f"UDP over {version}, connected")
    def udp_connected(place, family=family, host=host):
        a, b = keep(socket.socket(family, DGRAM), socket.socket(family, DGRAM))
        a.bind((host, 0)), b.bind((host, 0))
        a.connect(b.getsockname()), b.connect(a.getsockname())

        def look():
            a.send(b"there"), b.settimeout(5)
            return [state(a), a.getpeername(), b.recv(9).decode()]
        return look

    @row(INET, f"UDP over {version}, shared (SO_REUSEPORT)")
    def reuse(place, family=family, host=host):
        a, b = keep(socket.socket(family, DGRAM), socket.socket(family, DGRAM))
        for s in (a, b):
            s.setsockopt(1, 15, 1)
            s.bind((host, 0) if s is a else a.getsockname())
        return lambda: [a.getsockname() == b.getsockname(), a.getsockopt(1, 15)]


@row(INET, "TCP over both versions (IPV6_V6ONLY off)")
def both(place):
    s, = keep(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))

    def look():
        with socket.create_connection(("127.0.0.1", s.getsockname()[1]), 5):
            s.accept()[0].close()
        return [state(s), s.getsockopt(41, 26)]
    return look


@row(INET, "a connection of TCP, without --net=own", outcome=Differs(CLOSED))
def tcp_connected(place):
    l, = keep(socket.create_server(("127.0.0.1", 0)))
    a, = keep(socket.create_connection(l.getsockname()))
    b, = keep(l.accept()[0])
    l.close()

    def look():
        a.settimeout(1)
        try:
            a.send(b"x")
            return b.recv(9).decode()
        except OSError as e:
            return type(e).__name__
    return look


@row(INET, "datagrams that wait to be read",
     outcome=Differs("datagrams of UDP that wait to be read are lost"))
def datagrams(place):
    a, b = keep(socket.socket(socket.AF_INET, DGRAM), socket.socket(socket.AF_INET, DGRAM))
    b.bind(("127.0.0.1", 0))
    a.sendto(b"waits", b.getsockname())
    return lambda: struct.unpack("i", fcntl.ioctl(b, termios.FIONREAD, bytes(4)))[0]


def held_back(place, send):
    a, b = keep(socket.socket(socket.AF_INET, DGRAM), socket.socket(socket.AF_INET, DGRAM))
    b.bind(("127.0.0.1", 0)), b.settimeout(5)
    a.connect(b.getsockname())
    send(a)
    return lambda: [a.getsockopt(17, 1), waits(b)]


@row(INET, "the part of a datagram that waits for the rest (MSG_MORE)",
     outcome=Refused("dump_refused", "waits for the rest of it", check=False))
def more(place):
    return held_back(place, lambda s: s.send(b"first", socket.MSG_MORE))


def neighbour_of_none():
    """An address of a network that this machine is on, which is nobody's as a rule."""
    for line in text("/proc/net/route").splitlines()[1:]:
        device, to, gateway, _, _, _, _, mask, *_ = line.split()
        mask, = struct.unpack(">I", struct.pack("<I", int(mask, 16)))
        if int(gateway, 16) == 0 and 0 < mask < 0xfffffff8 and device != "lo":
            to, = struct.unpack(">I", struct.pack("<I", int(to, 16)))
            return socket.inet_ntoa(struct.pack(">I", (to | ~mask & 0xffffffff) - 1))
    raise OSError("there is no network with neighbours")


@row(INET, "a datagram that waits until its neighbour is known",
     needs="a network with neighbours")
def unresolved(place):
    a, = keep(socket.socket(socket.AF_INET, DGRAM))
    address = neighbour_of_none(), 9

    def look():
        a.sendto(b"x", address)
        return a.getsockname()
    look()
    if not struct.unpack("i", fcntl.ioctl(a, termios.TIOCOUTQ, bytes(4)))[0]:
        raise OSError("there is no neighbour that is not known")
    return look


@row(INET, "UDP that has no port yet")
def udp_without_port(place):
    a, = keep(socket.socket(socket.AF_INET, DGRAM))
    return lambda: [a.getsockname(), a.getsockopt(17, 1)]


@row(INET, "datagrams that are put together (UDP_CORK)",
     outcome=Refused("dump_refused", "UDP_CORK", check=False))
def cork(place):
    return held_back(place, lambda s: s.setsockopt(17, 1, 1))


@row(INET, "MPTCP", needs="MPTCP", outcome=Refused("holds_mptcp", "MPTCP"))
def mptcp(place):
    s, = keep(socket.socket(socket.AF_INET, STREAM, 262))
    s.bind(("127.0.0.1", 0))
    s.listen()
    return lambda: repr(s.getsockname())


for word, number in {"SCTP": 132, "DCCP": 33}.items():
    row(INET, word, needs="that protocol", outcome=Refused("holds_unsupported", "socket"))(
        unbound(socket.AF_INET, STREAM if number == 132 else 6, number))
shown(INET, "each option of a socket, and groups of multicast",
      "cluster/test_descriptors.py::test_each_option_of_a_socket_is_as_before")
shown(INET, "connections, with --net=own", "cluster/test_net.py::"
      "test_connections_within_a_job_go_on_through_moves_freezes_and_checkpoints")
shown(INET, "who waits to be accepted, with --net=own", "cluster/test_descriptors.py::"
      "test_who_waits_to_be_accepted_hears_that_the_connection_is_gone",
      outcome=Differs("who waits to be accepted hears that the connection is gone"))
shown(INET, "urgent data, with --net=own",
      "cluster/test_descriptors.py::test_urgent_data_that_waits_is_as_it_was")


# ---- other families

NETLINK = {"routes": 0, "sockets": 4, "netfilter": 12, "devices": 15, "generic": 16}
for word, number in NETLINK.items():
    @row(OTHERS, f"netlink of {word}", needs="that protocol")
    def netlink(place, number=number):
        s, = keep(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, number))
        s.bind((0, 0))
        return lambda: [s.family, s.type, s.proto, s.getsockname()[1]]


@row(OTHERS, "netlink, with an answer that waits to be read",
     outcome=Refused("criu_cannot_dump", "CRIU cannot dump it", check=False))
def answered(place):
    s, = keep(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
    s.bind((0, 0))
    s.send(struct.pack("IHHIIB3x", 20, 18, 0x301, 1, 0, 0))  # RTM_GETLINK
    return lambda: waits(s)


@row(OTHERS, "packets of a device", needs="packet sockets")
def packets(place):
    s, = keep(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5)))
    s.bind(("lo", 0x88b5))
    return lambda: repr(s.getsockname())


def refused(family, kind, protocol=0, bind=None):
    def set_up(place):
        s, = keep(socket.socket(family, kind, protocol))
        if bind:
            s.bind(bind)
        return lambda: [s.family, s.type]
    return set_up


row(OTHERS, "ciphers of the kernel (AF_ALG)", needs="AF_ALG",
    outcome=Refused("holds_unsupported", "socket"))(
    refused(38, PACKETS, 0, ("hash", "sha256")))
row(OTHERS, "the host of a virtual machine (AF_VSOCK)", needs="AF_VSOCK",
    outcome=Refused("holds_unsupported", "socket"))(refused(40, STREAM))
row(OTHERS, "AF_XDP", needs="AF_XDP", outcome=Refused("holds_unsupported", "socket"))(
    refused(44, socket.SOCK_RAW))
row(OTHERS, "AF_KEY", needs="AF_KEY", outcome=Refused("holds_unsupported", "socket"))(
    refused(15, socket.SOCK_RAW, 2))
row(OTHERS, "CAN", needs="CAN", outcome=Refused("holds_unsupported", "socket"))(
    refused(29, socket.SOCK_RAW, 1))
