# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of things that are at work while their job moves: each look() has them do one more turn."""
import array
import ctypes
import fcntl
import mmap
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import threading
import time

from rows import LIBC, Differs, Refused, call, child, comes, failed, row, syscall, text

WORK = "at work"


@row(WORK, "an epoll of a periodic timerfd", alone=True)
def ticks(place):
    timer = syscall(283, 1, 0)
    syscall(286, timer, 0, struct.pack("4q", 0, 20_000_000, 0, 20_000_000), 0)
    poll = select.epoll()
    poll.register(timer, select.EPOLLIN | select.EPOLLET)

    def look():
        for _ in range(3):
            if poll.poll(2) != [(timer, select.EPOLLIN)]:
                return "no tick"
            os.read(timer, 8)
        return "ticks"
    return look


@row(WORK, "a signalfd hears of a child's end", alone=True)
def hears(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, 40])
    fd = syscall(289, -1, struct.pack("Q", 1 << 16 | 1 << 39), 8, 0)

    def look():
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        said = struct.unpack_from("3iIi", os.read(fd, 128))
        os.waitpid(pid, 0)
        return [said[0], said[3] == pid]
    return look


@row(WORK, "a pidfd tells of its child's end, and sends it signals", alone=True)
def pidfds(place):
    children = [child(lambda: None) for _ in range(12)]
    fds = [os.pidfd_open(c.pid) for c in children]

    def look():
        fd = fds.pop()
        before = select.select([fd], [], [], 0)[0] == []
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        after = select.select([fd], [], [], 5)[0] == [fd]
        found = os.waitid(os.P_PIDFD, fd, os.WEXITED)
        return [before, after, found.si_status]
    return look


@row(WORK, "sealed memory that two processes have mapped", alone=True)
def sealed_memory(place):
    fd = os.memfd_create("shared", os.MFD_ALLOW_SEALING)
    os.truncate(fd, 8192)
    fcntl.fcntl(fd, 1033, 2 | 4)  # F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW
    area = mmap.mmap(fd, 8192)
    count = [0]

    def work():
        return lambda: struct.unpack_from("q", area, 4096)[0] + struct.unpack_from("q", area, 0)[0]
    other = child(work)

    def look():
        count[0] += 1
        struct.pack_into("q", area, 4096, count[0])
        struct.pack_into("q", area, 0, -count[0])
        try:
            os.truncate(fd, 100)
            shrunk = True
        except PermissionError:
            shrunk = False
        return [other.ask(), shrunk, fcntl.fcntl(fd, 1034)]
    return look


@row(WORK, "a reader that waits for a semaphore of eventfd", alone=True)
def waiting_reader(place):
    fd = os.eventfd(0, os.EFD_SEMAPHORE)
    read = []

    def run():
        while True:
            read.append(os.eventfd_read(fd))
    threading.Thread(target=run, daemon=True).start()

    def look():
        read.clear()
        os.eventfd_write(fd, 3)
        comes(lambda: len(read) >= 3)
        return read
    return look


pages = []  # an address alone keeps nothing mapped


def shared_page():
    """Memory that children have, too, and its address."""
    area = mmap.mmap(-1, 4096)
    pages.append(area)
    return area, ctypes.addressof(ctypes.c_char.from_buffer(area))


def new_mutex(at, protocol=0, robust=0):
    """A mutex of all processes, there."""
    mutex, attributes = ctypes.c_void_p(at), ctypes.create_string_buffer(64)
    LIBC.pthread_mutexattr_init(attributes)
    LIBC.pthread_mutexattr_setpshared(attributes, 1)
    LIBC.pthread_mutexattr_setprotocol(attributes, protocol)
    LIBC.pthread_mutexattr_setrobust(attributes, robust)
    LIBC.pthread_mutex_init(mutex, attributes)
    return mutex


@row(WORK, "a thread that waits for a mutex with inheritance, and one that is robust", alone=True)
def mutexes(place):
    area, at = shared_page()
    inherits, held = new_mutex(at, protocol=1), new_mutex(at + 64, robust=1)
    LIBC.pthread_mutex_lock(inherits)

    def waits():
        def run():
            LIBC.pthread_mutex_lock(inherits)
            area[4000] = 1
            LIBC.pthread_mutex_unlock(inherits)
        threading.Thread(target=run, daemon=True).start()
    child(lambda: LIBC.pthread_mutex_lock(held) and None)
    waits()

    def look():
        area[4000] = 0
        LIBC.pthread_mutex_unlock(inherits)
        comes(lambda: area[4000])
        came = area[4000]
        LIBC.pthread_mutex_lock(inherits)
        waits()
        return [came, LIBC.pthread_mutex_trylock(held)]  # EBUSY
    return look


@row(WORK, "a robust mutex whose holder ends", alone=True)
def robust(place):
    _, at = shared_page()
    held = []
    for i in range(12):
        mutex = new_mutex(at + 64 * i, robust=1)
        held.append((mutex, child(lambda: LIBC.pthread_mutex_lock(mutex) and None)))

    def look():
        mutex, holder = held.pop()
        os.kill(holder.pid, signal.SIGKILL)
        os.waitpid(holder.pid, 0)
        return LIBC.pthread_mutex_trylock(mutex)  # EOWNERDEAD
    return look


@row(WORK, "splice that waits for what comes, from a pipe into a file", alone=True)
def splices(place):
    r, w = os.pipe()
    file = os.open(f"{place}/spliced", os.O_RDWR | os.O_CREAT)

    def run():
        while os.splice(r, file, 65536):
            pass
    threading.Thread(target=run, daemon=True).start()
    size = [0]

    def look():
        os.write(w, b"12345")
        size[0] += 5
        comes(lambda: os.fstat(file).st_size >= size[0])
        return [os.fstat(file).st_size == size[0], os.pread(file, 9, size[0] - 5).decode()]
    return look


@row(WORK, "pages that were lent to a pipe (vmsplice)", alone=True)
def lent(place):
    r, w = os.pipe()
    area = mmap.mmap(-1, 8192)
    area[:] = b"ab" * 4096
    at = ctypes.addressof(ctypes.c_char.from_buffer(area))
    syscall(278, w, struct.pack("2Q", at, 8192), 1, 0)
    copy = os.pipe()

    def look():
        n = LIBC.tee(r, copy[1], 8192, 0)
        said = os.read(copy[0], 8192)
        return [n, said == b"ab" * 4096]
    return look


@row(WORK, "an abstract name, with a pipe on its way", alone=True)
def abstract(place):
    name = f"\0row-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name), listener.listen(3)
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    served, _ = listener.accept()
    pipe = os.pipe()
    os.write(pipe[1], b"in it")
    socket.send_fds(client, [b"x"], [pipe[0]])

    def look():
        said, fds, _, _ = socket.recv_fds(served, 9, 2)
        got = os.read(fds[0], 9)
        os.write(pipe[1], b"in it")
        socket.send_fds(client, [b"x"], [fds[0]])
        os.close(fds[0])
        again = socket.socket(socket.AF_UNIX)
        again.connect(name)
        other, _ = listener.accept()
        other.close(), again.close()
        return [said.decode(), got.decode(), listener.getsockname() == name.encode()]
    return look


@row(WORK, "a shell with a stopped job in its terminal", alone=True)
def shell(place):
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(PS1="$ ", HISTFILE="/dev/null", TERM="dumb")
        os.execv("/bin/bash", ["bash", "--norc", "--noprofile", "-i"])

    def ask(line, wanted):
        os.write(master, line)
        said, end = b"", time.monotonic() + 5
        while wanted not in said and time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                said += os.read(master, 4096)
        return wanted in said
    ask(b"stty -echo; echo o''k\n", b"ok")
    ask(b"cat\n", b"\n")
    ask(b"one\n", b"one")
    ask(b"\x1a", b"Stopped")

    def look():
        found = [ask(b"jobs\n", b"Stopped")]
        os.write(master, b"fg\n")
        found.append(ask(b"two\n", b"two\r\n"))
        found.append(ask(b"\x1a", b"Stopped"))
        return found
    return look


@row(WORK, "a program that waits in what it does at a signal", alone=True)
def waits_at_signal(place):
    down, up = os.pipe(), os.pipe()

    def work():
        def handler(*_):
            while os.read(down[0], 1):
                os.write(up[1], b"!")
        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    child(work)

    def look():
        os.write(down[1], b"?")
        return bool(select.select([up[0]], [], [], 3)[0] and os.read(up[0], 1))
    return look


@row(WORK, "a daemon, forked twice, whose parents have ended", alone=True)
def daemon(place):
    down, up = os.pipe(), os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        while os.read(down[0], 1):
            os.write(up[1], struct.pack("3i", os.getpid(), os.getppid(), os.getsid(0)))
        os._exit(0)
    os.waitpid(first, 0)

    def look():
        os.write(down[1], b"?")
        pid, parent, session = struct.unpack("3i", os.read(up[0], 12))
        return [pid, session, parent]
    return look


@row(WORK, "who is told of input by a signal (O_ASYNC, F_SETSIG)",
     alone=True)
def sigio(place):
    a, b = socket.socketpair()
    heard = []
    signal.signal(42, lambda n, frame: heard.append(n))
    fcntl.fcntl(a, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(a, 10, 42)  # F_SETSIG
    fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_ASYNC)

    def look():
        heard.clear()
        b.send(b"x")
        comes(lambda: heard)
        a.recv(9)
        return [heard[:1], fcntl.fcntl(a, fcntl.F_GETOWN) == os.getpid(), fcntl.fcntl(a, 11)]
    return look


@row(WORK, "who is told of changes of a directory (F_NOTIFY)", alone=True,
     outcome=Differs("Who has asked to be told of changes of a directory by a signal (`F_NOTIFY`)"))
def dnotify(place):
    heard = []
    signal.signal(43, lambda n, frame: heard.append(n))
    os.mkdir(f"{place}/watched")
    fd = os.open(f"{place}/watched", os.O_RDONLY)
    fcntl.fcntl(fd, 10, 43)
    fcntl.fcntl(fd, fcntl.F_NOTIFY, 0x80000000 - (1 << 32) | 4 | 8)

    def look():
        heard.clear()
        open(f"{place}/watched/file", "w").close()
        os.unlink(f"{place}/watched/file")
        comes(lambda: heard, limit=1)
        return heard[:1]
    return look


@row(WORK, "expedited barriers (membarrier)", alone=True)
def barriers(place):
    syscall(324, 16, 0, 0)   # REGISTER_PRIVATE_EXPEDITED
    syscall(324, 4, 0, 0)    # REGISTER_GLOBAL_EXPEDITED
    syscall(324, 64, 0, 0)   # REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
    return lambda: [syscall(324, 8, 0, 0), syscall(324, 32, 0, 0), syscall(324, 512, 0, 0)]


@row(WORK, "who waits for a message of System V of one type", alone=True)
def waits_for_type(place):
    queue = call("msgget", 0, 0o1666)
    came = []

    def run():
        room = ctypes.create_string_buffer(64)
        while True:
            n = LIBC.msgrcv(queue, room, 32, ctypes.c_long(5), 0)
            came.append(n)
    threading.Thread(target=run, daemon=True).start()
    call("msgsnd", queue, struct.pack("q4s", 3, b"left"), 4, 0)

    def look():
        came.clear()
        call("msgsnd", queue, struct.pack("q3s", 5, b"you"), 3, 0)
        comes(lambda: came)
        return came
    return look


@row(WORK, "a queue of datagrams whose sender waits for room", alone=True)
def full_datagrams(place):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)

    def run():
        i = 0
        while True:
            a.send(struct.pack("q", i) * 10)
            i += 1
    threading.Thread(target=run, daemon=True).start()
    wanted = [0]

    def look():
        good = True
        for _ in range(20):
            good = good and b.recv(99) == struct.pack("q", wanted[0]) * 10
            wanted[0] += 1
        return good
    return look


@row(WORK, "a filter of sockets, and limits of their time", alone=True)
def filtered(place):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    # passes what has more than three bytes
    code = struct.pack("HBBI" * 4, 0x80, 0, 0, 0, 0x25, 0, 1, 3, 6, 0, 0, 0xffff, 6, 0, 0, 0)
    keep = ctypes.create_string_buffer(code)
    b.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 4, ctypes.addressof(keep)))
    b.settimeout(None)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("2q", 0, 200_000))

    def look():
        a.send(b"long enough")
        try:
            a.send(b"no")
        except OSError:
            pass
        said = [b.recv(99).decode()]
        try:
            said.append(b.recv(99).decode())
        except BlockingIOError:
            said.append("nothing")
        return said
    return look


@row(WORK, "a filter of system calls that sends SIGSYS", alone=True)
def trapped(place):
    def work():
        got = []
        signal.signal(signal.SIGSYS, lambda *_: got.append(1))
        call("prctl", 38, 1, 0, 0, 0)
        code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 170, 6, 0, 0, 0x00030000,
                           6, 0, 0, 0x7fff0000)
        keep = ctypes.create_string_buffer(code)
        ready = struct.pack("HxxxxxxQ", 4, ctypes.addressof(keep))
        if LIBC.prctl(22, 2, ready, 0, 0) != 0:
            raise failed("a filter")

        def ask():
            got.clear()
            LIBC.sethostname(b"x", 1)
            for _ in range(10):
                pass
            return len(got)
        return ask
    other = child(work)
    return other.ask


@row(WORK, "nice value and processors of each thread", alone=True)
def of_each(place):
    numbers = []

    def run(i, ready):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 3 + i)
        os.sched_setaffinity(0, [i % os.cpu_count()])
        numbers.append(threading.get_native_id())
        ready.set()
        threading.Event().wait()
    for i in range(2):
        ready = threading.Event()
        threading.Thread(target=run, args=(i, ready), daemon=True).start()
        ready.wait(5)
    return lambda: [[os.getpriority(os.PRIO_PROCESS, n), sorted(os.sched_getaffinity(n))]
                    for n in numbers]


@row(WORK, "a mapping of a deleted file that two processes write", alone=True)
def deleted_shared(place):
    fd = os.open(f"{place}/deleted", os.O_RDWR | os.O_CREAT)
    os.truncate(fd, 12288)
    area = mmap.mmap(fd, 12288)
    os.unlink(f"{place}/deleted")
    other = child(lambda: lambda: (area.seek(4096), area.read(4))[1])
    count = [0]

    def look():
        count[0] += 1
        said = b"%04d" % count[0]
        area[4096:4100] = said
        return [other.ask() == said, os.pread(fd, 4, 4096) == said, os.fstat(fd).st_nlink]
    return look


@row(WORK, "who waits for a condition that processes share", alone=True)
def conditions(place):
    area, at = shared_page()
    mutex, condition = new_mutex(at), ctypes.c_void_p(at + 64)
    of_condition = ctypes.create_string_buffer(64)
    LIBC.pthread_condattr_init(of_condition), LIBC.pthread_condattr_setpshared(of_condition, 1)
    LIBC.pthread_cond_init(condition, of_condition)
    pid = os.fork()
    if pid == 0:
        LIBC.pthread_mutex_lock(mutex)
        while True:
            while area[2000] == 0:
                LIBC.pthread_cond_wait(condition, mutex)
            area[2000] = 0
            area[2001] += 1

    def look():
        LIBC.pthread_mutex_lock(mutex)
        area[2001] = 0
        area[2000] = 1
        LIBC.pthread_cond_broadcast(condition)
        LIBC.pthread_mutex_unlock(mutex)
        comes(lambda: area[2001])
        return area[2001]
    return look


@row(WORK, "a helper that its program asks line by line", alone=True)
def helper(place):
    cat = subprocess.Popen(["/usr/bin/awk", "{ print $1 * 2; fflush() }"], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE)
    count = [0]

    def look():
        count[0] += 1
        cat.stdin.write(b"%d\n" % count[0]), cat.stdin.flush()
        return int(cat.stdout.readline()) == 2 * count[0]
    return look


@row(WORK, "a socket with a name that was given another", alone=True,
     outcome=Refused("dump_refused", "has another name by now", check=False))
def renamed(place):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    os.chdir(place)
    s.bind("first")
    os.rename("first", "second")
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def look():
        client.sendto(b"hears", "second")
        s.settimeout(2)
        return [s.recv(9).decode(), s.getsockname(), sorted(os.listdir("."))]
    return look


@row(WORK, "who waits for a semaphore to be zero", alone=True)
def for_zero(place):
    pipes = os.pipe()
    found = call("semget", 0, 2, 0o1600)
    call("semctl", found, 0, 16, 1)

    def run():
        while True:
            LIBC.semop(found, struct.pack("Hhh", 0, 0, 0), 1)
            os.write(pipes[1], b"z")
            LIBC.semop(found, struct.pack("Hhh", 1, -1, 0), 1)
    threading.Thread(target=run, daemon=True).start()

    def look():
        call("semctl", found, 0, 16, 0)
        came = bool(select.select([pipes[0]], [], [], 3)[0] and os.read(pipes[0], 9))
        call("semctl", found, 0, 16, 1)
        call("semctl", found, 1, 16, 1)
        return came
    return look


@row(WORK, "a file of O_SYNC, its place shared with a child", alone=True)
def shared_place(place):
    fd = os.open(f"{place}/file", os.O_RDWR | os.O_CREAT | os.O_SYNC)
    os.write(fd, bytes(range(200)))
    os.lseek(fd, 10, os.SEEK_SET)
    other = child(lambda: lambda: os.read(fd, 1)[0])

    def look():
        os.lseek(fd, 50, os.SEEK_SET)
        os.read(fd, 5)
        return [other.ask(), os.read(fd, 1)[0], fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_SYNC > 0]
    return look


@row(WORK, "a child whose end sends another signal (clone)", alone=True)
def exit_signal(place):
    heard = []
    signal.signal(44, lambda n, frame: heard.append(n))
    asks = []
    for _ in range(8):
        r, w = os.pipe()
        pid = syscall(56, 44, 0, 0, 0, 0)
        if pid == 0:
            os.close(w)
            os.read(r, 1)
            os._exit(3)
        os.close(r)
        asks.append((pid, w))

    def look():
        heard.clear()
        pid, w = asks.pop()
        os.close(w)
        comes(lambda: heard)
        done = os.waitid(os.P_PID, pid, os.WEXITED | 0x40000000)
        return [heard[:1], done.si_status]
    return look


@row(WORK, "urgent data of a pair (MSG_OOB)", alone=True,
     outcome=Refused("dump_refused", "urgent data (MSG_OOB) waits", check=False))
def urgent(place):
    a, b = socket.socketpair()
    a.send(b"abc"), a.send(b"!", socket.MSG_OOB), a.send(b"def")

    def look():
        found = [b.recv(9, socket.MSG_PEEK).decode()]
        room = array.array("i", [0])
        fcntl.ioctl(b, 0x8905, room)  # SIOCATMARK
        found.append(room[0])
        try:
            found.append(b.recv(1, socket.MSG_OOB | socket.MSG_PEEK).decode())
        except OSError as e:
            found.append(e.errno)
        return found
    return look


@row(WORK, "a file without a name that gets one (O_TMPFILE, linkat)", alone=True,
     outcome=Differs("A file of `O_TMPFILE` gets no name by linkat(2)"))
def nameless(place):
    files = [os.open(place, os.O_TMPFILE | os.O_RDWR, 0o600) for _ in range(12)]
    for fd in files:
        os.write(fd, b"in it")

    def look():
        fd = files.pop()
        done = LIBC.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100,
                           f"{place}/named-{fd}".encode(), 0x400)
        return os.strerror(ctypes.get_errno()) if done != 0 else text(f"{place}/named-{fd}")
    return look


@row(WORK, "who takes in the children of its children", alone=True)
def subreaper(place):
    def work():
        call("prctl", 36, 1, 0, 0, 0)

        def ask():
            r, w = os.pipe()
            if os.fork() == 0:
                middle = os.getpid()
                if os.fork() == 0:
                    while os.getppid() == middle:
                        time.sleep(0.01)
                    os.write(w, struct.pack("i", os.getppid()))
                os._exit(0)
            os.wait(), os.wait()
            parent, = struct.unpack("i", os.read(r, 4))
            os.close(r), os.close(w)
            return parent == os.getpid()
        return ask
    return child(work).ask
