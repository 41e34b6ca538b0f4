# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of what processes share by name or by number, and of locks of files."""
import ctypes
import fcntl
import os
import socket
import struct
import time

from rows import LIBC, Differs, Refused, call, child, failed, row, shown, text

SYSTEM_V = "IPC: System V"
POSIX = "IPC: POSIX"
LOCKS = "locks of files"


# ---- System V

@row(SYSTEM_V, "a segment of shared memory, attached twice")
def segment(place):
    m = call("shmget", 0, 10000, 0o1640)
    LIBC.shmat.restype = ctypes.c_void_p
    one, two = LIBC.shmat(m, None, 0), LIBC.shmat(m, None, 0o10000)
    ctypes.memmove(one + 5000, b"kept", 4)
    return lambda: [ctypes.string_at(two + 5000, 4).decode(), shm_state(m)]


def shm_state(m):
    buffer = ctypes.create_string_buffer(112)
    call("shmctl", m, 2, buffer)
    key, uid, gid, cuid, cgid, mode = struct.unpack_from("iIIIII", buffer.raw)
    size, = struct.unpack_from("Q", buffer.raw, 48)
    return [key, uid, gid, cuid, cgid, oct(mode & 0o7777), size, struct.unpack_from(
        "Q", buffer.raw, 88)[0]]


@row(SYSTEM_V, "a segment that nobody has attached")
def unattached(place):
    m = call("shmget", 0x1234, 4096, 0o1600)
    return lambda: [call("shmget", 0x1234, 0, 0) == m, shm_state(m)]


@row(SYSTEM_V, "a segment of another user")
def others(place):
    m = call("shmget", 0x1235, 4096, 0o1600)
    buffer = ctypes.create_string_buffer(112)
    call("shmctl", m, 2, buffer)
    struct.pack_into("II", buffer, 4, 1000, 1001)
    call("shmctl", m, 1, buffer)
    return lambda: shm_state(m)


@row(SYSTEM_V, "a segment of huge pages", needs="huge pages")
def huge(place):
    m = call("shmget", 0x1236, 2 << 20, 0o5600)
    return lambda: shm_state(m)


@row(SYSTEM_V, "a segment that is locked in memory (SHM_LOCK)")
def locked(place):
    m = call("shmget", 0x1237, 4096, 0o1600)
    call("shmctl", m, 11, None)
    return lambda: shm_mode(m)


def shm_mode(m):
    buffer = ctypes.create_string_buffer(112)
    call("shmctl", m, 2, buffer)
    return oct(struct.unpack_from("I", buffer.raw, 20)[0])


@row(SYSTEM_V, "values of a set of semaphores")
def semaphores(place):
    s = call("semget", 0x2234, 3, 0o1600)
    for number, value in enumerate((1, 32767, 7)):
        call("semctl", s, number, 16, value)
    return lambda: [call("semctl", s, n, 12, 0) for n in range(3)]


@row(SYSTEM_V, "who waits for a semaphore")
def waits(place):
    s = call("semget", 0x2235, 2, 0o1600)
    for number in range(2):
        pid = os.fork()
        if pid == 0:
            LIBC.semop(s, struct.pack("Hhh", number, -1, 0), 1)
            os._exit(0)
    until(lambda: call("semctl", s, 0, 14, 0) == call("semctl", s, 1, 14, 0) == 1)
    return lambda: [call("semctl", s, n, 14, 0) for n in range(2)]


def until(true):
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)
    raise OSError("it did not come to that within 5 s")


shown(SYSTEM_V, "what is undone at a process's end (SEM_UNDO)", "cluster/test_ipc.py::"
      "test_what_a_process_has_done_to_semaphores_is_undone_at_its_end")
shown(SYSTEM_V, "a segment that was removed",
      "cluster/test_ipc.py::test_removed_segments_and_what_was_asked_of_memory_stay")
shown(SYSTEM_V, "processes that share what is undone (CLONE_SYSVSEM)",
      "cluster/test_ipc.py::test_processes_that_share_what_is_to_be_undone_stay",
      outcome=Refused("dump_refused", "CLONE_SYSVSEM"))


@row(SYSTEM_V, "a queue of messages")
def messages(place):
    q = call("msgget", 0x3234, 0o1620)
    for kind, said in ((3, b"three"), (1, b"one"), (3, b"again")):
        call("msgsnd", q, struct.pack("q", kind) + said, len(said), 0)

    def look():
        found = []
        for i in range(3):
            buffer = ctypes.create_string_buffer(108)
            n = call("msgrcv", q, buffer, 100, i, 0o44000)
            found.append([struct.unpack_from("q", buffer.raw)[0], buffer.raw[8:8 + n].decode()])
        state = ctypes.create_string_buffer(120)
        call("msgctl", q, 2, state)
        return found, struct.unpack_from("5I", state.raw), struct.unpack_from("2Q", state.raw, 80)
    return look


@row(SYSTEM_V, "who has sent a message last (msg_lspid)",
     outcome=Differs("who has sent to a System V queue last (`msg_lspid`)"))
def sender(place):
    q = call("msgget", 0x3235, 0o1600)
    call("msgsnd", q, struct.pack("q", 1) + b"x", 1, 0)

    def look():
        state = ctypes.create_string_buffer(120)
        call("msgctl", q, 2, state)
        return struct.unpack_from("i", state.raw, 96)[0] == os.getpid()
    return look


def queue_state(q):
    state = ctypes.create_string_buffer(120)
    call("msgctl", q, 2, state)
    return state


@row(SYSTEM_V, "room of a queue (msg_qbytes)")
def room(place):
    q = call("msgget", 0x3236, 0o1600)
    state = queue_state(q)
    struct.pack_into("Q", state, 88, 3000)
    call("msgctl", q, 1, state)
    return lambda: struct.unpack_from("Q", queue_state(q).raw, 88)


CHANGED = "The times at which a System V queue or segment was made or changed"


@row(SYSTEM_V, "when a queue was changed last (msg_ctime)", outcome=Differs(CHANGED))
def queue_changed(place):
    q = call("msgget", 0x3237, 0o1600)
    time.sleep(1)
    first = struct.unpack_from("Q", queue_state(q).raw, 64)
    return lambda: struct.unpack_from("Q", queue_state(q).raw, 64) == first


@row(SYSTEM_V, "when a segment was changed last (shm_ctime)", outcome=Differs(CHANGED))
def segment_changed(place):
    m = call("shmget", 0x1238, 4096, 0o1600)
    time.sleep(1)

    def changed():
        buffer = ctypes.create_string_buffer(112)
        call("shmctl", m, 2, buffer)
        return struct.unpack_from("Q", buffer.raw, 72)
    first = changed()
    return lambda: changed() == first


@row(SYSTEM_V, "a segment of which a part is not mapped any more", alone=True,
     outcome=Refused("dump_refused", "with a hole"))
def holed(place):
    m = call("shmget", 0x1239, 5 * 4096, 0o1600)
    LIBC.shmat.restype = ctypes.c_void_p
    at = LIBC.shmat(m, None, 0)
    ctypes.memmove(at, b"kept", 4)
    call("munmap", ctypes.c_void_p(at + 4096), ctypes.c_size_t(4096))
    return lambda: ctypes.string_at(at, 4).decode()


# ---- POSIX

@row(POSIX, "shared memory by a name (shm_open)")
def shared(place):
    fd = os.open(f"/dev/shm/souk-row-{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, 8192)
    os.pwrite(fd, b"kept", 5000)
    return lambda: [os.pread(fd, 4, 5000).decode(), os.fstat(fd).st_size]


@row(POSIX, "a semaphore by a name (sem_open)")
def named(place):
    LIBC.sem_open.restype = ctypes.c_void_p
    s = LIBC.sem_open(f"/row-{os.getpid()}".encode(), os.O_CREAT, 0o600, 3)
    if not s:
        raise failed("sem_open")

    def look():
        value = ctypes.c_int()
        LIBC.sem_getvalue(ctypes.c_void_p(s), ctypes.byref(value))
        return [value.value, os.path.exists(f"/dev/shm/sem.row-{os.getpid()}")]
    return look


@row(POSIX, "a queue of messages (mq_open)", needs="POSIX message queues",
     outcome=Refused("holds_message_queue", "POSIX message queue"))
def queue(place):
    LIBC.mq_open.restype = ctypes.c_int
    fd = call("mq_open", b"/row", os.O_CREAT | os.O_RDWR, 0o600, None)
    return lambda: os.readlink(f"/proc/self/fd/{fd}")


@row(POSIX, "who waits for a futex that processes share", alone=True)
def futex(place):
    import mmap
    words = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(words))
    pid = os.fork()
    if pid == 0:
        LIBC.syscall(202, ctypes.c_void_p(address), 0, 0, None, None, 0)
        os._exit(9)

    def look():
        return [text(f"/proc/{pid}/syscall").split()[:3:2], os.waitpid(pid, os.WNOHANG)[0]]
    until(lambda: text(f"/proc/{pid}/syscall").startswith("202"))
    return look


# ---- locks of files

def file(place, name="file"):
    return os.open(f"{place}/{name}", os.O_RDWR | os.O_CREAT, 0o600)


def others_lock(place, work):
    """Asks another process that would have the lock; returns the answer that it gets."""
    def attempt():
        fd = file(place)

        def look():
            try:
                work(fd)
                return "free"
            except OSError as e:
                return e.errno
        return look
    return child(attempt).ask


for word, kind in {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX}.items():
    @row(LOCKS, f"flock, {word}", alone=True)
    def flock(place, kind=kind):
        fd = file(place)
        fcntl.flock(fd, kind)

        def attempt(other):
            for how in (fcntl.LOCK_SH, fcntl.LOCK_EX):
                fcntl.flock(other, how | fcntl.LOCK_NB)
                fcntl.flock(other, fcntl.LOCK_UN)
        return others_lock(place, attempt)

    @row(LOCKS, f"POSIX, {word}", alone=True)
    def posix(place, kind=kind):
        fd = file(place)
        fcntl.lockf(fd, kind, 10, 100)

        def attempt(other):
            for how in (fcntl.LOCK_SH, fcntl.LOCK_EX):
                fcntl.lockf(other, how | fcntl.LOCK_NB, 1, 109)
                fcntl.lockf(other, fcntl.LOCK_UN, 1, 109)
        ask = others_lock(place, attempt)
        return ask

    @row(LOCKS, f"of an open file description, {word}", alone=True)
    def ofd(place, kind=kind):
        fd = file(place)
        what = fcntl.F_RDLCK if kind == fcntl.LOCK_SH else fcntl.F_WRLCK
        fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", what, 0, 10, 5, 0))

        def attempt(other):
            for how in (fcntl.F_RDLCK, fcntl.F_WRLCK):
                fcntl.fcntl(other, 37, struct.pack("hhqqi4x", how, 0, 12, 1, 0))
                fcntl.fcntl(other, 37, struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, 12, 1, 0))
        return others_lock(place, attempt)


@row(LOCKS, "beside what is locked it is free", alone=True)
def beside(place):
    fd = file(place)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 100)

    def attempt(other):
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 110)
        fcntl.lockf(other, fcntl.LOCK_UN)
    return others_lock(place, attempt)


@row(LOCKS, "a lock beside a child that has ended and was not asked for", alone=True)
def beside_zombie(place):
    fd = file(place)
    fcntl.flock(fd, fcntl.LOCK_EX)
    ask = others_lock(place, lambda other: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB))
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return lambda: [ask(), os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_status]


@row(LOCKS, "who waits for a lock", alone=True)
def waiter(place):
    fd = file(place)
    fcntl.flock(fd, fcntl.LOCK_EX)
    pid = os.fork()
    if pid == 0:
        os.close(fd)
        fcntl.flock(file(place), fcntl.LOCK_EX)
        os._exit(9)
    until(lambda: text(f"/proc/{pid}/syscall").startswith("73 "))
    return lambda: [text(f"/proc/{pid}/syscall").split()[0], os.waitpid(pid, os.WNOHANG)[0]]


for word, kind in {"of a reader": fcntl.F_RDLCK, "of a writer": fcntl.F_WRLCK}.items():
    @row(LOCKS, f"a lease {word} (F_SETLEASE)", alone=True)
    def lease(place, kind=kind):
        fd = os.open(f"{place}/file", (os.O_RDONLY if kind == fcntl.F_RDLCK else os.O_RDWR) |
                     os.O_CREAT, 0o600)
        fcntl.fcntl(fd, 1024, kind)
        return lambda: fcntl.fcntl(fd, 1025)


for word, how in {"flock": fcntl.flock, "lockf by its open file (F_OFD_SETLK)": lambda fd, _:
                  fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))}.items():
    @row(LOCKS, f"{word}, whose descriptor is on its way (SCM_RIGHTS)", alone=True,
         outcome=Refused("dump_refused", "with a lock of it is on its way", check=False))
    def in_flight(place, how=how):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        fd = file(place)
        how(fd, fcntl.LOCK_EX)
        socket.send_fds(a, [b"locked"], [fd])
        os.close(fd)
        kept.append((a, b))
        return others_lock(place, lambda other: how(other, fcntl.LOCK_EX | fcntl.LOCK_NB))

    @row(LOCKS, f"{word}, a copy of whose descriptor is on its way", alone=True)
    def in_flight_too(place, how=how):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        fd = file(place)
        how(fd, fcntl.LOCK_EX)
        socket.send_fds(a, [b"locked"], [fd])
        kept.append((a, b))
        return others_lock(place, lambda other: how(other, fcntl.LOCK_EX | fcntl.LOCK_NB))


kept = []
shown(LOCKS, "nobody else gets one meanwhile", "cluster/test_locks.py::"
      "test_nobody_else_gets_a_lock_while_its_holder_moves_or_lies_frozen")
shown(LOCKS, "of a child that shares its parent's descriptor", "cluster/test_locks.py::"
      "test_the_lock_of_a_child_that_shares_its_parent_s_descriptor")
