# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of namespaces of its own below those of its capsule."""
import os
import socket
import struct
import subprocess
import time

from rows import LIBC, Refused, call, child, row, text

NAMESPACES = "namespaces"
NEW = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000,
       "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "time": 0x80}


NESTED = Refused("namespace_nested", "a namespace of its own")


def within(name, kind, **how):
    """A row of a child in a new namespace; the function says in it how it finds it."""
    def register(work):
        def set_up(place):
            def enter():
                if LIBC.unshare(NEW[kind]) != 0:
                    raise OSError(f"no new namespace: {kind}")
                return work(place)
            return child(enter).ask
        how.setdefault("outcome", NESTED)
        row(NAMESPACES, name, alone=True, **how)(set_up)
        return work
    return register


@within("a name of the machine (UTS)", "uts")
def uts(place):
    socket.sethostname("row")
    call("setdomainname", b"domain", 6)
    return lambda: [os.uname().nodename, text("/proc/sys/kernel/domainname")]


@within("IPC, with a segment and a set of semaphores", "ipc")
def ipc(place):
    m = call("shmget", 0x77, 8192, 0o1600)
    s = call("semget", 0x78, 2, 0o1600)
    call("semctl", s, 1, 16, 5)
    return lambda: [call("shmget", 0x77, 0, 0) == m, call("semctl", s, 1, 12, 0),
                    os.readlink("/proc/self/ns/ipc") != os.readlink("/proc/1/ns/ipc")]


@row(NAMESPACES, "a mount in its capsule, by root", alone=True,
     outcome=Refused("dump_refused", "has mounted something", check=False))
def mounted(place):
    os.mkdir(f"{place}/mounted")
    call("mount", b"none", f"{place}/mounted".encode(), b"tmpfs", 2, b"size=1m")
    with open(f"{place}/mounted/file", "w") as f:
        f.write("in it")
    return lambda: text(f"{place}/mounted/file")


@within("mounts, with a tmpfs", "mount")
def mounts(place):
    private = 1 << 18 | 1 << 14
    call("mount", b"none", b"/", None, private, None)
    os.mkdir(f"{place}/top")
    call("mount", b"none", f"{place}/top".encode(), b"tmpfs", 2, b"size=1m,mode=711")
    with open(f"{place}/top/file", "w") as f:
        f.write("in it")

    def look():
        lines = text("/proc/self/mountinfo").splitlines()
        mine = [line for line in lines if f"{place}/top" in line]
        return [text(f"{place}/top/file"), len(mine), mine and mine[0].split()[5]]
    return look


@within("mounts, with a bind mount that is read only", "mount")
def bound(place):
    call("mount", b"none", b"/", None, 1 << 18 | 1 << 14, None)
    os.mkdir(f"{place}/there")
    call("mount", place.encode(), f"{place}/there".encode(), None, 4096, None)
    call("mount", b"none", f"{place}/there".encode(), None, 4096 | 32 | 1, None)

    def look():
        try:
            os.mkdir(f"{place}/there/made")
        except OSError as e:
            return e.errno
        os.rmdir(f"{place}/there/made")
        return "made"
    return look


@within("mounts, with a root of its own (pivot_root)", "mount")
def pivot(place):
    call("mount", b"none", b"/", None, 1 << 18 | 1 << 14, None)
    os.mkdir(f"{place}/root")
    call("mount", b"none", f"{place}/root".encode(), b"tmpfs", 0, None)
    for name in ("old", "proc"):
        os.mkdir(f"{place}/root/{name}")
    call("mount", b"none", f"{place}/root/proc".encode(), b"proc", 0, None)
    if LIBC.syscall(155, f"{place}/root".encode(), f"{place}/root/old".encode()) != 0:
        raise OSError("pivot_root")
    os.chdir("/")
    call("umount2", b"/old", 2)
    return lambda: sorted(os.listdir("/"))


@within("a network, with its own loopback", "net")
def net(place):
    with socket.socket() as s:
        import fcntl
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 1))
    listener = socket.create_server(("127.0.0.1", 7777))

    def look():
        with socket.create_connection(("127.0.0.1", 7777), 5):
            listener.accept()[0].close()
        return [name for _, name in socket.if_nameindex()]
    return look


@within("a network, with a pair of interfaces (veth)", "net", needs="veth")
def veth(place):
    for words in ("link add one type veth peer name two", "addr add 10.9.9.1/24 dev one",
                  "link set one up", "link set two up"):
        subprocess.run(["ip", *words.split()], check=True, capture_output=True)
    return lambda: [sorted(name for _, name in socket.if_nameindex()), "10.9.9.1" in
                    subprocess.run(["ip", "addr"], capture_output=True, text=True).stdout]


@row(NAMESPACES, "processes (PID), nested", alone=True, outcome=NESTED)
def pids(place):
    def enter():
        call("unshare", NEW["pid"])
        inner = child(lambda: lambda: [os.getpid(), os.getppid()])
        return lambda: inner.ask()
    return child(enter).ask


@row(NAMESPACES, "users, with a map", alone=True, outcome=NESTED)
def user(place):
    def enter():
        os.setgroups([])
        call("unshare", NEW["user"])
        return lambda: [os.getuid(), os.getgid(), text("/proc/self/uid_map").split(),
                        text("/proc/self/gid_map").split(), text("/proc/self/setgroups")]
    ready = child(enter)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{ready.pid}/{name}", "w") as f:
            f.write("0 1000 10\n10 0 1\n")
    return ready.ask


@within("control groups (the view of them)", "cgroup")
def cgroup(place):
    return lambda: [line.split(":", 2)[2] for line in text("/proc/self/cgroup").splitlines()]


@row(NAMESPACES, "times, with offsets", alone=True, needs="namespaces of time", outcome=NESTED)
def times(place):
    def enter():
        call("unshare", NEW["time"])
        with open("/proc/self/timens_offsets", "w") as f:
            f.write("monotonic 86400 0\nboottime 172800 0\n")
        inner = child(lambda: lambda: round((time.clock_gettime(time.CLOCK_BOOTTIME) -
                                             time.clock_gettime(time.CLOCK_MONOTONIC)) / 3600))
        return inner.ask
    return child(enter).ask
