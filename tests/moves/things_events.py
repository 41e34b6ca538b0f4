# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of descriptors that tell of events and times, and of terminals."""
import ctypes
import fcntl
import os
import select
import struct
import termios
import time
import tty

from rows import (Differs, Refused, call, child, fdinfo, flags, link, prctl, row, shown, status,
                  syscall)

EVENTS = "files: events and times"
TERMINALS = "files: terminals"


# ---- events and times

def event(count, how):
    def set_up(place):
        fd = call("eventfd", count, how)
        return lambda: [flags(fd), fdinfo(fd, "eventfd-count", "eventfd-semaphore")]
    return set_up


def too_much(place):
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    os.eventfd_write(fd, 1 << 32)
    return lambda: fdinfo(fd, "eventfd-count")


row(EVENTS, "eventfd")(event(41, 0))
row(EVENTS, "eventfd with a large count")(event(1 << 31, os.O_NONBLOCK))
row(EVENTS, "eventfd with a count of more than 32 bits",
    outcome=Refused("dump_refused", "counts more than 4294967295", check=False))(too_much)
row(EVENTS, "eventfd as a semaphore")(event(3, os.EFD_SEMAPHORE | os.O_NONBLOCK))


@row(EVENTS, "signalfd")
def signals(place):
    mask = struct.pack("Q", 1 << 9 | 1 << 39)
    fd = syscall(289, -1, mask, 8, os.O_NONBLOCK)
    return lambda: [flags(fd), fdinfo(fd, "sigmask")]


def timer(clock, how=0, first=5000.0, each=60.0):
    def set_up(place):
        fd = call("timerfd_create", clock, os.O_NONBLOCK)
        begin = time.clock_gettime(clock) + first if how & 1 else first
        value = struct.pack("4q", int(each), 0, int(begin), 1000)
        call("timerfd_settime", fd, how, value, None)

        def look():
            now = ctypes.create_string_buffer(32)
            call("timerfd_gettime", fd, now)
            each, _, left, _ = struct.unpack("4q", now.raw)
            return [flags(fd), each, first - 500 < left <= first,
                    fdinfo(fd, "clockid", "settime flags")]
        return look
    return set_up


ALARM = Refused("holds_unsupported", "a timer that wakes the machine")
for word, clock in {"CLOCK_REALTIME": 0, "CLOCK_MONOTONIC": 1, "CLOCK_BOOTTIME": 7,
                    "CLOCK_REALTIME_ALARM": 8, "CLOCK_BOOTTIME_ALARM": 9}.items():
    needs = "a clock that wakes the machine" if "ALARM" in word else ""
    row(EVENTS, f"timerfd of {word}", needs=needs, outcome=ALARM if needs else None)(
        timer(clock))
    if clock < 2:
        row(EVENTS, f"timerfd of {word}, absolute")(timer(clock, 1))
row(EVENTS, "timerfd that the setting of the clock cancels")(timer(0, 3))


@row(EVENTS, "timerfd that has expired")
def expired(place):
    fd = call("timerfd_create", 1, os.O_NONBLOCK)
    call("timerfd_settime", fd, 0, struct.pack("4q", 0, 0, 0, 1), None)
    time.sleep(0.01)
    return lambda: [fdinfo(fd, "ticks"), select.select([fd], [], [], 0)[0] == [fd]]


def polls(how, file_events=select.EPOLLIN):
    def set_up(place):
        e = select.epoll()
        a, b = os.pipe()
        os.write(b, b"x")
        e.register(a, file_events | how)
        told = e.poll(0)

        def look():
            return [len(told), len(e.poll(0)) if not how else None,
                    fdinfo(e.fileno(), "tfd")[0].split()[2:5]]
        return look
    return set_up


row(EVENTS, "epoll")(polls(0))
row(EVENTS, "epoll, edge triggered")(polls(select.EPOLLET))
row(EVENTS, "epoll, once (EPOLLONESHOT)",
    outcome=Differs("An epoll that has told of a file once (`EPOLLONESHOT`)"))(
    polls(select.EPOLLONESHOT))
row(EVENTS, "epoll, exclusive")(polls(select.EPOLLEXCLUSIVE))


@row(EVENTS, "epoll of an epoll")
def nested(place):
    inner, outer = select.epoll(), select.epoll()
    a, b = os.pipe()
    os.write(b, b"x")
    inner.register(a, select.EPOLLIN)
    outer.register(inner.fileno(), select.EPOLLIN)
    return lambda: [len(outer.poll(0)), len(inner.poll(0))]


@row(EVENTS, "an edge that an epoll has told (EPOLLET)",
     outcome=Differs("An epoll that tells of edges (`EPOLLET`)"))
def edge(place):
    e = select.epoll()
    a, b = os.pipe()
    held.append((a, b))
    os.write(b, b"x")
    e.register(a, select.EPOLLIN | select.EPOLLET)
    e.poll(0)
    return lambda: len(e.poll(0))


@row(EVENTS, "poll by io_submit (IOCB_CMD_POLL)", alone=True,
     outcome=Refused("dump_refused", "IOCB_CMD_POLL", check=False))
def aio_poll(place):
    context = ctypes.c_ulong()
    syscall(206, 8, ctypes.byref(context))
    a, b = os.pipe()
    request = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 7, 0, 0, 5, 0, a, 1, 0, 0, 0,
                                                      0, 0))
    held.append((context, request))
    submit(context, request)

    def look():
        os.write(b, b"x")
        event = ctypes.create_string_buffer(32)
        got = syscall(208, context.value, 0, 1, event, struct.pack("qq", 0, 0))
        os.read(a, 1)
        if got:
            submit(context, request)
        return [got, event.raw[:8].hex()]
    return look


def submit(context, request):
    syscall(209, context.value, 1, struct.pack("Q", ctypes.addressof(request)))


shown(EVENTS, "epoll of a file that another process has open", "cluster/test_descriptors.py::"
      "test_an_epoll_tells_of_a_file_that_another_process_has_open")
shown(EVENTS, "inotify", "cluster/test_descriptors.py::"
      "test_who_watches_a_directory_hears_when_notices_are_lost",
      outcome=Differs("is told that notices are lost"))


@row(EVENTS, "inotify that waits for nothing")
def watches(place):
    fd = call("inotify_init1", os.O_NONBLOCK)
    watch = call("inotify_add_watch", fd, place.encode(), 0x2)
    return lambda: [watch, flags(fd), fdinfo(fd, "inotify wd")[0].split()[0]]


@row(EVENTS, "numbers of new watches of an inotify",
     outcome=Differs("A new watch of an inotify may get the number"))
def watch_numbers(place):
    fd = call("inotify_init1", os.O_NONBLOCK)
    call("inotify_add_watch", fd, place.encode(), 0x2)
    os.mkdir(f"{place}/other")
    last = [0]

    def look():
        now = call("inotify_add_watch", fd, f"{place}/other".encode(), 0x2)
        call("inotify_rm_watch", fd, now)
        before, last[0] = last[0], now
        return before == 0 or now == before + 1
    for _ in range(5):
        look()
    return look


def fanotify(how, mark, mask):
    def set_up(place):
        fd = call("fanotify_init", how | 2, os.O_RDONLY)
        call("fanotify_mark", fd, 1 | mark, ctypes.c_uint64(mask), -100, place.encode())
        return lambda: [flags(fd), fdinfo(fd, "fanotify flags"),
                        len(fdinfo(fd, "fanotify ino", "fanotify mnt_id", "fanotify sdev"))]
    return set_up


row(EVENTS, "fanotify of a directory", needs="fanotify")(fanotify(0, 0, 0x2))
row(EVENTS, "fanotify of a mount", needs="fanotify")(fanotify(0, 0x10, 0x2))
row(EVENTS, "fanotify that decides (FAN_CLASS_CONTENT)", needs="fanotify")(fanotify(4, 0, 0x10000))


@row(EVENTS, "pidfd of itself")
def pidfd_self(place):
    fd = os.pidfd_open(os.getpid())
    return lambda: [fdinfo(fd, "Pid") == [str(os.getpid())], flags(fd)]


@row(EVENTS, "pidfd of a child")
def pidfd_child(place):
    other = child(lambda: None)
    fd = os.pidfd_open(other.pid, os.O_NONBLOCK)
    return lambda: [fdinfo(fd, "Pid") == [str(other.pid)], flags(fd)]


@row(EVENTS, "pidfd of a child that has ended")
def pidfd_ended(place):
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    fd = os.pidfd_open(pid)
    os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT)
    return lambda: os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT).si_status


@row(EVENTS, "pidfd of a thread (PIDFD_THREAD)", needs="such pidfds",
     outcome=Refused("holds_unsupported", "a pidfd of a thread"))
def pidfd_thread(place):
    fd = syscall(434, os.getpid(), os.O_EXCL)
    return lambda: [fdinfo(fd, "Pid") == [str(os.getpid())], flags(fd)]


@row(EVENTS, "io_uring", outcome=Refused("holds_io_uring", "io_uring"))
def uring(place):
    fd = syscall(425, 4, ctypes.create_string_buffer(120))
    return lambda: link(fd)


@row(EVENTS, "userfaultfd", outcome=Refused("holds_userfaultfd", "userfaultfd"))
def userfault(place):
    fd = syscall(323, 1)
    return lambda: link(fd)


@row(EVENTS, "perf event", needs="perf events", outcome=Refused("holds_perf_event", "perf event"))
def perf(place):
    attributes = struct.pack("IIQ", 1, 128, 0) + bytes(112)
    fd = syscall(298, attributes, 0, -1, -1, 0)
    return lambda: link(fd)


@row(EVENTS, "map of BPF", needs="BPF", outcome=Refused("holds_bpf", "BPF"))
def bpf(place):
    fd = syscall(321, 0, struct.pack("IIII", 2, 4, 8, 4) + bytes(100), 116)
    return lambda: link(fd)


@row(EVENTS, "rules of Landlock that no thread has", needs="Landlock",
     outcome=Refused("holds_unsupported", "landlock"))
def ruleset(place):
    fd = syscall(444, struct.pack("Q", 1), 8, 0)
    return lambda: link(fd)


@row(EVENTS, "notifier of seccomp", alone=True, outcome=Refused("holds_unsupported", "seccomp"))
def notifier(place):
    prctl(38, 1)
    allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow))
    fd = syscall(317, 1, 8, program)
    return lambda: [link(fd), status("Seccomp")]


# ---- terminals

def terminal(change=lambda master, slave: None):
    def set_up(place):
        master, slave = os.openpty()
        change(master, slave)
        held.append((master, slave))

        def look():
            return [repr(termios.tcgetattr(slave)), os.ttyname(slave),
                    fcntl.ioctl(slave, termios.TIOCGWINSZ, bytes(8)).hex(),
                    fcntl.ioctl(slave, 0x80045440, bytes(4)).hex(),  # TIOCGEXCL
                    fcntl.ioctl(master, 0x80045438, bytes(4)).hex(),  # TIOCGPKT
                    fcntl.ioctl(master, 0x80045439, bytes(4)).hex(),  # TIOCGPTLCK
                    fcntl.ioctl(slave, termios.TIOCGETD, bytes(4)).hex(), flags(master),
                    flags(slave)]
        return look
    return set_up


held = []
row(TERMINALS, "a pseudo terminal")(terminal())
row(TERMINALS, "raw")(terminal(lambda m, s: tty.setraw(s)))
row(TERMINALS, "without echo")(terminal(lambda m, s: termios.tcsetattr(s, 0, [
    *termios.tcgetattr(s)[:3], termios.tcgetattr(s)[3] & ~termios.ECHO,
    *termios.tcgetattr(s)[4:]])))
row(TERMINALS, "the size of its window")(terminal(
    lambda m, s: fcntl.ioctl(s, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 5, 6))))
row(TERMINALS, "packet mode")(terminal(
    lambda m, s: fcntl.ioctl(m, termios.TIOCPKT, struct.pack("i", 1))))
row(TERMINALS, "exclusive (TIOCEXCL)",
    outcome=Differs("A terminal that was exclusive (`TIOCEXCL`) is open to others"))(
    terminal(lambda m, s: fcntl.ioctl(s, termios.TIOCEXCL)))


@row(TERMINALS, "with no discipline of lines (N_NULL)",
     outcome=Refused("dump_refused", "discipline of lines", check=False))
def no_discipline(place):
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSETD, struct.pack("i", 27))
    return lambda: [flags(master), fcntl.ioctl(slave, termios.TIOCGETD, bytes(4)).hex()]


row(TERMINALS, "locked (TIOCSPTLCK)")(terminal(
    lambda m, s: fcntl.ioctl(m, 0x40045431, struct.pack("i", 1))))


@row(TERMINALS, "a master without a slave")
def lone_master(place):
    master, slave = os.openpty()
    os.close(slave)
    return lambda: [os.ptsname(master) if hasattr(os, "ptsname") else
                    fcntl.ioctl(master, 0x80045430, bytes(4)).hex(), flags(master)]


@row(TERMINALS, "a slave whose master is gone")
def lone_slave(place):
    master, slave = os.openpty()
    os.close(master)

    def look():
        poll = select.poll()
        poll.register(slave)
        return [poll.poll(0)[0][1], flags(slave)]
    return look


@row(TERMINALS, "controlling terminal of a session, and its foreground group")
def controlling(place):
    def work():
        os.setsid()
        master, slave = os.openpty()
        held.append(master)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        group = child(lambda: os.setpgid(0, 0))
        os.tcsetpgrp(slave, group.pid)
        return lambda: [os.tcgetpgrp(slave) == group.pid, os.getsid(0) == os.getpid()]
    return child(work).ask


@row(TERMINALS, "its controlling terminal (/dev/tty)")
def own_terminal(place):
    def work():
        os.setsid()
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        fd = os.open("/dev/tty", os.O_RDWR)
        return lambda: [flags(fd), os.tcgetpgrp(fd) == os.getpid(), master > 0]
    return child(work).ask


shown(TERMINALS, "what waits in one, both ways", "cluster/test_state.py::test_a_move_that_works")
