# SPDX-License-Identifier: GPL-2.0-or-later
# Long: each row is a few lines, and all are of one kind.
"""Rows of files and other descriptors."""
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import termios
import time
import tty

from rows import (LIBC, Differs, Refused, Uncheckpointed, call, child, fdinfo, prctl, row, shown,
                  status, syscall, text)

O_TMPFILE, O_PATH = 0o20200000, 0o10000000
OPENED = "files: how a file is open"
KINDS = "files: kinds of files"
QUEUES = "files: pipes and FIFOs"
EVENTS = "files: events and times"
TERMINALS = "files: terminals"


# These count as a file is opened, and say nothing of it later.
AT_OPEN = 0o100000 | os.O_DIRECTORY | 0o20000000  # O_LARGEFILE, O_DIRECTORY, __O_TMPFILE


def flags(fd):
    return f"{fcntl.fcntl(fd, fcntl.F_GETFL) & ~AT_OPEN:o} {fcntl.fcntl(fd, fcntl.F_GETFD)}"


def link(fd):
    return os.readlink(f"/proc/self/fd/{fd}")


def is_open(fd):
    return lambda: [flags(fd), link(fd), os.lseek(fd, 0, os.SEEK_CUR)]


def made(place, name="file", data=b"0123456789"):
    with open(f"{place}/{name}", "wb") as f:
        f.write(data)
    return f"{place}/{name}"


# ---- how a file is open

FLAGS = {"O_RDONLY": os.O_RDONLY, "O_WRONLY": os.O_WRONLY, "O_RDWR": os.O_RDWR,
         "O_APPEND": os.O_RDWR | os.O_APPEND, "O_NONBLOCK": os.O_RDWR | os.O_NONBLOCK,
         "O_SYNC": os.O_RDWR | os.O_SYNC, "O_DSYNC": os.O_RDWR | os.O_DSYNC,
         "O_DIRECT": os.O_RDWR | os.O_DIRECT, "O_NOATIME": os.O_RDONLY | os.O_NOATIME,
         "O_ASYNC": os.O_RDWR | os.O_ASYNC, "no O_CLOEXEC": os.O_RDWR}


def open_with(how):
    def set_up(place):
        fd = os.open(made(place), how)
        os.lseek(fd, 4, os.SEEK_SET)
        if how & os.O_ASYNC:
            fcntl.fcntl(fd, fcntl.F_SETFL, how)
        return is_open(fd)
    return set_up


for word, how in FLAGS.items():
    row(OPENED, word)(open_with(how))


@row(OPENED, "inherited, without FD_CLOEXEC")
def inherited(place):
    fd = os.open(made(place), os.O_RDONLY)
    os.set_inheritable(fd, True)
    return is_open(fd)


@row(OPENED, "O_PATH of a file")
def path_of_file(place):
    fd = os.open(made(place), O_PATH)
    return lambda: [flags(fd), link(fd), text(f"/proc/self/fd/{fd}")]


@row(OPENED, "O_PATH of a directory")
def path_of_directory(place):
    fd = os.open(place, O_PATH | os.O_DIRECTORY)
    return lambda: [flags(fd), link(fd), os.stat(fd).st_ino]


@row(OPENED, "O_PATH of a symbolic link")
def path_of_link(place):
    os.symlink("nowhere", f"{place}/link")
    fd = os.open(f"{place}/link", O_PATH | os.O_NOFOLLOW)
    return lambda: [flags(fd), link(fd), os.readlink("", dir_fd=fd)]


@row(OPENED, "O_PATH of a socket")
def path_of_socket(place):
    bound.append(socket.socket(socket.AF_UNIX))
    bound[-1].bind(f"{place}/name")
    fd = os.open(f"{place}/name", O_PATH)
    return lambda: [flags(fd), link(fd), oct(os.fstat(fd).st_mode)]


bound = []


@row(OPENED, "O_TMPFILE")
def temporary(place):
    fd = os.open(place, O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"no name")
    return lambda: [flags(fd), os.pread(fd, 99, 0).decode(), oct(os.fstat(fd).st_mode),
                    os.fstat(fd).st_nlink]


@row(OPENED, "offset behind the end")
def behind(place):
    fd = os.open(made(place), os.O_RDWR)
    os.lseek(fd, 1 << 40, os.SEEK_SET)
    return is_open(fd)


@row(OPENED, "one open file in two descriptors")
def twice(place):
    fd = os.open(made(place), os.O_RDWR)
    other = os.dup(fd)

    def look():
        os.lseek(fd, 7, os.SEEK_SET)
        return os.lseek(other, 0, os.SEEK_CUR), os.lseek(fd, 0, os.SEEK_SET)
    return look


@row(OPENED, "one open file in two processes")
def shared(place):
    fd = os.open(made(place), os.O_RDWR)
    other = child(lambda: lambda: os.lseek(fd, 0, os.SEEK_CUR))

    def look():
        os.lseek(fd, 6, os.SEEK_SET)
        return other.ask(), os.lseek(fd, 0, os.SEEK_SET)
    return look


@row(OPENED, "its owner and signal (F_SETOWN, F_SETSIG)")
def owned(place):
    a, _ = os.pipe()
    fcntl.fcntl(a, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(a, fcntl.F_SETSIG, 40)
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)
    return lambda: [fcntl.fcntl(a, fcntl.F_GETOWN) == os.getpid(),
                    fcntl.fcntl(a, fcntl.F_GETSIG), flags(a)]


@row(OPENED, "its owner is a thread (F_SETOWN_EX)")
def owned_by_thread(place):
    a, _ = os.pipe()
    fcntl.fcntl(a, 15, struct.pack("ii", 0, os.getpid()))
    return lambda: struct.unpack("ii", fcntl.fcntl(a, 16, bytes(8)))[0]


@row(OPENED, "a hint of its life (F_SET_RW_HINT)")
def hinted(place):
    fd = os.open(made(place), os.O_RDWR)
    fcntl.fcntl(fd, 1036, struct.pack("Q", 3))
    return lambda: struct.unpack("Q", fcntl.fcntl(fd, 1035, bytes(8)))[0]


@row(OPENED, "read ahead (POSIX_FADV_RANDOM)")
def advised(place):
    fd = os.open(made(place), os.O_RDWR)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return lambda: fdinfo(fd, "flags")


# ---- kinds of files

@row(KINDS, "a file that was deleted")
def deleted(place):
    fd = os.open(made(place), os.O_RDWR)
    os.unlink(f"{place}/file")
    return lambda: [os.pread(fd, 99, 0).decode(), os.fstat(fd).st_nlink, link(fd)]


@row(KINDS, "a deleted file that has another name in its directory")
def deleted_linked(place):
    fd = os.open(made(place), os.O_RDWR)
    os.link(f"{place}/file", f"{place}/other")
    os.unlink(f"{place}/file")
    return lambda: [os.fstat(fd).st_nlink, os.fstat(fd).st_ino == os.stat(f"{place}/other").st_ino]


@row(KINDS, "a deleted file that has another name in another directory", outcome=Uncheckpointed(
     "A job that holds a file by a name that was deleted, while the file has another in another "
     "directory, does not go back to a checkpoint"))
def deleted_linked_elsewhere(place):
    fd = os.open(made(place), os.O_RDWR)
    os.mkdir(f"{place}/there")
    os.link(f"{place}/file", f"{place}/there/other")
    os.unlink(f"{place}/file")
    return lambda: [os.fstat(fd).st_nlink,
                    os.fstat(fd).st_ino == os.stat(f"{place}/there/other").st_ino]


@row(KINDS, "a deleted file that is open twice")
def deleted_twice(place):
    name = made(place)
    one, two = os.open(name, os.O_RDWR), os.open(name, os.O_RDONLY)
    os.unlink(name)
    return lambda: [os.pwrite(one, b"same", 0), os.pread(two, 99, 0).decode()]


@row(KINDS, "a file that was renamed")
def renamed(place):
    fd = os.open(made(place), os.O_RDWR)
    os.rename(f"{place}/file", f"{place}/renamed")
    return is_open(fd)


@row(KINDS, "a name that is another file's by now")
def replaced(place):
    fd = os.open(made(place), os.O_RDWR)
    os.unlink(f"{place}/file")
    made(place, data=b"another")
    return lambda: [os.pread(fd, 99, 0).decode(), text(f"{place}/file")]


@row(KINDS, "a directory that is read in part")
def directory(place):
    for i in range(20):
        made(place, f"name{i:02}")
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    buffer = ctypes.create_string_buffer(200)
    assert LIBC.getdents64(fd, buffer, 200) > 0
    at = os.lseek(fd, 0, os.SEEK_CUR)

    def look():
        os.lseek(fd, at, os.SEEK_SET)
        found = LIBC.getdents64(fd, buffer, 200)
        os.lseek(fd, at, os.SEEK_SET)
        return [found, buffer.raw[19:found].partition(b"\0")[0].decode()]
    return look


@row(KINDS, "a directory that was deleted")
def deleted_directory(place):
    os.mkdir(f"{place}/gone")
    fd = os.open(f"{place}/gone", os.O_RDONLY)
    os.rmdir(f"{place}/gone")
    return lambda: [os.fstat(fd).st_nlink, os.listdir(fd), link(fd)]


def device(name, how=os.O_RDWR):
    def set_up(place):
        fd = os.open(name, how)
        return lambda: [flags(fd), link(fd), os.fstat(fd).st_rdev]
    return set_up


for name in ("null", "zero", "full", "random", "urandom"):
    row(KINDS, f"/dev/{name}")(device(f"/dev/{name}"))
row(KINDS, "a block device", needs="a loop device",
    outcome=Refused("file_unsupported", "of a kind that CRIU does not know"))(
    device("/dev/loop0", os.O_RDONLY))
row(KINDS, "/dev/kmsg", needs="a log of the kernel")(device("/dev/kmsg", os.O_RDONLY))
row(KINDS, "/dev/fuse", needs="FUSE",
    outcome=Refused("holds_fuse_device", "FUSE server's device"))(device("/dev/fuse"))
row(KINDS, "/dev/kvm", needs="KVM",
    outcome=Refused("holds_virtual_machine", "virtual machine"))(device("/dev/kvm"))


@row(KINDS, "a file of /proc of its own")
def proc_file(place):
    fd = os.open("/proc/self/comm", os.O_RDONLY)
    return lambda: [os.pread(fd, 99, 0) == text("/proc/self/comm").encode(), flags(fd)]


@row(KINDS, "a file of /proc of a child")
def proc_of_child(place):
    other = child(lambda: None)
    fd = os.open(f"/proc/{other.pid}/stat", os.O_RDONLY)
    return lambda: [os.pread(fd, 999, 0).split()[0].decode() == str(other.pid), flags(fd)]


@row(KINDS, "a directory of /proc")
def proc_directory(place):
    fd = os.open("/proc/self/fd", os.O_RDONLY)
    return lambda: [str(fd) in os.listdir(fd), flags(fd)]


@row(KINDS, "a file of /proc of the machine")
def proc_of_machine(place):
    fd = os.open("/proc/sys/kernel/ostype", os.O_RDONLY)
    return lambda: [os.pread(fd, 99, 0).decode(), flags(fd)]


@row(KINDS, "a file of /sys")
def sys_file(place):
    fd = os.open("/sys/kernel/mm/transparent_hugepage/enabled", os.O_RDONLY)
    return lambda: [os.pread(fd, 99, 0).decode(), flags(fd)]


shown(KINDS, "a file that others make longer or shorter", "cluster/test_thaw_trial.py::"
      "test_a_file_that_others_make_longer_or_shorter_is_the_same_file")
shown(KINDS, "the list of its CPUs (/proc/cpuinfo)", "cluster/test_arrays.py::"
      "test_who_holds_the_list_of_its_processors_reads_that_of_the_new_node")
shown(KINDS, "a file of its control group", "cluster/test_descriptors.py::"
      "test_files_of_its_control_groups_stay_open_and_are_of_those_it_is_in")
shown(KINDS, "a file of /proc that is read in part", "cluster/test_attributes.py::"
      "test_who_has_read_a_part_of_a_file_of_proc_reads_on_in_what_it_says")


@row(KINDS, "what lies below /run, a locked file too", alone=True)
def below_run(place):
    top = f"/run/row-{os.getpid()}"
    os.mkdir(top), os.mkdir(f"{top}/directory", 0o711), os.mkfifo(f"{top}/fifo", 0o620)
    os.symlink("of", f"{top}/link")
    file = open(f"{top}/pid", "w+")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.write("42"), file.flush()

    def look():
        with open(f"{top}/pid") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = True
            except BlockingIOError:
                free = False
            return [other.read(), free, os.path.samestat(os.fstat(other.fileno()),
                                                         os.fstat(file.fileno())),
                    [[name, oct(os.lstat(f"{top}/{name}").st_mode)] for name in
                     sorted(os.listdir(top))]]
    return look


@row(KINDS, "a file in /dev/shm")
def in_shm(place):
    path = f"/dev/shm/row-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"kept")
    return lambda: [text(path), link(fd) == path]


def memory_file(how, seals=0, size=10000):
    def set_up(place):
        fd = os.memfd_create("memory", how)
        os.ftruncate(fd, size)
        if how & 4:
            mmap.mmap(fd, size)[0] = 1
        else:
            os.pwrite(fd, b"kept", 5000)
        if seals:
            fcntl.fcntl(fd, 1033, seals)
        return lambda: [fcntl.fcntl(fd, 1034), os.fstat(fd).st_size, link(fd), flags(fd),
                        oct(os.fstat(fd).st_mode),
                        os.pread(fd, 4, 5000).decode() if size < 1 << 20 else ""]
    return set_up


row(KINDS, "memory (memfd_create)")(memory_file(0))
for word, seals in {"F_SEAL_SEAL": 1, "F_SEAL_SHRINK": 3, "F_SEAL_GROW": 5, "F_SEAL_WRITE": 9,
                    "F_SEAL_FUTURE_WRITE": 17, "F_SEAL_EXEC": 33}.items():
    row(KINDS, f"memory with {word}")(memory_file(2, seals))
row(KINDS, "memory that is never run (MFD_NOEXEC_SEAL)")(memory_file(8))
row(KINDS, "memory of huge pages (MFD_HUGETLB)", needs="huge pages")(
    memory_file(4, size=2 << 20))


def namespace(kind):
    def set_up(place):
        fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
        return lambda: link(fd) == os.readlink(f"/proc/self/ns/{kind}")
    return set_up


for kind in ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"):
    row(KINDS, f"its namespace ({kind})")(namespace(kind))


@row(KINDS, "a file system that is configured (fsopen)",
     outcome=Refused("holds_unsupported", "fscontext"))
def configured(place):
    fd = syscall(430, b"tmpfs", 0)
    return lambda: link(fd)


@row(KINDS, "a tree that is mounted nowhere (open_tree)",
     outcome=Refused("file_mount_unknown", "not mounted for it any more"))
def tree(place):
    fd = syscall(428, -100, place.encode(), 1)
    return lambda: [flags(fd), link(fd)]


# ---- pipes and FIFOs

def pipe(how=0, data=b"", size=0, close=None):
    def set_up(place):
        ends = os.pipe2(how)
        if size:
            fcntl.fcntl(ends[1], 1031, size)
        if data:
            os.write(ends[1], data)
        if close is not None:
            os.close(ends[close])

        def look():
            fd = ends[0] if close != 0 else ends[1]
            poll = select.poll()
            poll.register(fd)
            waits = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
            got = b""
            if close is None and waits:
                got = os.read(fd, waits)
                os.write(ends[1], got)
            return [flags(fd), fcntl.fcntl(fd, 1032), waits, got[:20].decode(), poll.poll(0)[-1:]]
        return look
    return set_up


row(QUEUES, "a pipe")(pipe())
row(QUEUES, "a pipe with data")(pipe(data=b"in a pipe"))
row(QUEUES, "a full pipe")(pipe(data=bytes(65536)))
row(QUEUES, "a pipe of another size")(pipe(size=1 << 20, data=b"x" * 300000))
row(QUEUES, "a pipe that does not block")(pipe(how=os.O_NONBLOCK))
row(QUEUES, "a pipe that nobody writes to any more")(pipe(close=1, data=b"the last"))
row(QUEUES, "a pipe that nobody reads any more")(pipe(close=0))
row(QUEUES, "a pipe of packets (O_DIRECT)",
    outcome=Refused("holds_packet_pipe", "pipe of packets"))(
    pipe(how=os.O_DIRECT, data=b"packet"))


@row(QUEUES, "a FIFO")
def fifo(place):
    os.mkfifo(f"{place}/fifo")
    fd = os.open(f"{place}/fifo", os.O_RDWR)
    os.write(fd, b"in a fifo")

    def look():
        got = os.read(fd, 99)
        os.write(fd, got)
        return [flags(fd), got.decode(), link(fd)]
    return look


@row(QUEUES, "a FIFO that was deleted")
def deleted_fifo(place):
    os.mkfifo(f"{place}/fifo")
    fd = os.open(f"{place}/fifo", os.O_RDWR)
    os.unlink(f"{place}/fifo")
    os.write(fd, b"no name")

    def look():
        got = os.read(fd, 99)
        os.write(fd, got)
        return [flags(fd), got.decode()]
    return look


@row(QUEUES, "two readers of a FIFO")
def fifo_readers(place):
    os.mkfifo(f"{place}/fifo")
    ends = [os.open(f"{place}/fifo", os.O_RDONLY | os.O_NONBLOCK) for _ in range(2)]
    writer = os.open(f"{place}/fifo", os.O_WRONLY)

    def look():
        os.write(writer, b"ab")
        return [os.read(fd, 1).decode() for fd in ends], [flags(fd) for fd in ends]
    return look


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
