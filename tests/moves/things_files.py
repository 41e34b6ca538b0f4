# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of files and other descriptors."""
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import termios

from rows import (LIBC, Differs, Refused, Uncheckpointed, child, fdinfo, flags, link, row, shown,
                  syscall, text)

O_TMPFILE, O_PATH = 0o20200000, 0o10000000
OPENED = "files: how a file is open"
KINDS = "files: kinds of files"
QUEUES = "files: pipes and FIFOs"


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
    for i in range(300):
        made(place, f"name{i:03}")
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    buffer = ctypes.create_string_buffer(1024)
    assert LIBC.getdents64(fd, buffer, 1024) > 0

    def look():
        """It stands there, and these names are left."""
        at, names = os.lseek(fd, 0, os.SEEK_CUR), []
        while (found := LIBC.getdents64(fd, buffer, 1024)) > 0:
            entry = 0
            while entry < found:  # ino64, off64, its length as a short, its type, its name
                length, = struct.unpack_from("H", buffer, entry + 16)
                names.append(buffer.raw[entry + 19:entry + length].partition(b"\0")[0].decode())
                entry += length
        os.lseek(fd, at, os.SEEK_SET)
        return [at, found, names]
    return look


@row(KINDS, "a directory that was deleted, while another one has its name", alone=True,
     outcome=Refused("restore_failed", "another one has its name", check=False))
def deleted_directory_replaced(place):
    os.mkdir(f"{place}/build")
    fd = os.open(f"{place}/build", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir(f"{place}/build")
    os.mkdir(f"{place}/build")
    return lambda: [os.fstat(fd).st_nlink, os.path.isdir(f"{place}/build")]


@row(KINDS, "a directory that was deleted with the one above it")
def deleted_with_parent(place):
    os.makedirs(f"{place}/above/gone/inside")
    fd = os.open(f"{place}/above/gone/inside", os.O_RDONLY)
    os.rmdir(f"{place}/above/gone/inside"), os.rmdir(f"{place}/above/gone")
    os.rmdir(f"{place}/above")
    return lambda: [os.fstat(fd).st_nlink, os.path.exists(f"{place}/above")]


@row(KINDS, "two directories that were deleted, one in the other", alone=True)
def deleted_directories(place):
    os.makedirs(f"{place}/gone/inside")
    above = os.open(f"{place}/gone", os.O_RDONLY)
    fd = os.open(f"{place}/gone/inside", os.O_RDONLY)
    os.chdir(f"{place}/gone/inside")
    os.rmdir(f"{place}/gone/inside"), os.rmdir(f"{place}/gone")
    return lambda: [os.fstat(fd).st_nlink, os.fstat(above).st_nlink, os.readlink("/proc/self/cwd")]


@row(KINDS, "a deleted directory with a deleted file in it, the directory opened first", alone=True)
def deleted_file_in_deleted_directory(place):
    gone = f"{place}/above/gone"
    os.makedirs(gone)
    directory, file = os.open(gone, os.O_RDONLY), os.open(f"{gone}/out", os.O_RDWR | os.O_CREAT)
    os.unlink(f"{gone}/out"), os.rmdir(gone), os.rmdir(f"{place}/above")
    return lambda: [os.fstat(file).st_nlink, os.fstat(directory).st_nlink, os.listdir(place),
                    link(directory)]


NUMBERS = "The number of a file (`st_ino`) and of its device (`st_dev`)"


@row(KINDS, "the number of a file without a name (st_ino)", outcome=Differs(NUMBERS, drawn=True))
def number_of_deleted(place):
    fd = os.open(made(place), os.O_RDWR)
    os.unlink(f"{place}/file")
    return lambda: os.fstat(fd).st_ino


@row(KINDS, "the number of a pipe (st_ino)", outcome=Differs(NUMBERS, drawn=True))
def number_of_pipe(place):
    ends = os.pipe()
    return lambda: os.fstat(ends[0]).st_ino


@row(KINDS, "the number of a file in memory (st_ino)", outcome=Differs(NUMBERS, drawn=True))
def number_of_memory(place):
    fd = os.memfd_create("number")
    return lambda: os.fstat(fd).st_ino


@row(KINDS, "times of a file in memory (memfd_create)",
     outcome=Differs("A file in memory (`memfd_create`) is as old as"))
def times_of_memory(place):
    fd = os.memfd_create("times")
    os.utime(fd, (1000, 2000))
    return lambda: [os.fstat(fd).st_atime, os.fstat(fd).st_mtime]


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
