# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of mappings and what they are marked with."""
import ctypes
import os

from rows import LIBC, Differs, Refused, call, child, row, shown, syscall, text

MAPPINGS = "memory: mappings"
ADVICE = "memory: what it is marked with"
LIBC.mmap.restype = ctypes.c_void_p
PAGE = 4096
SIZE = 8 * PAGE
READ, WRITE, EXEC = 1, 2, 4
SHARED, PRIVATE, ANONYMOUS = 1, 2, 0x20


# Flags of soft-dirty pages, of what may be set later, and of memory that is accounted for, which is
# what may be written, or could be once.
AT_FIRST = {"sd", "mr", "mw", "me", "ms", "ac"}


def mapped(protection=READ | WRITE, how=PRIVATE | ANONYMOUS, fd=-1, offset=0, size=SIZE):
    address = LIBC.mmap(None, ctypes.c_size_t(size), protection, how, fd, ctypes.c_long(offset))
    if address in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, f"mmap: {os.strerror(number)}")
    return address


def areas(begin, size=SIZE):
    """Each area there: where in the range, its rights, its name, its flags."""
    found, area = [], None
    for line in text("/proc/self/smaps").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            first, last = (int(x, 16) for x in words[0].split("-"))
            area = None
            if first < begin + size and last > begin:
                area = [max(first - begin, 0), min(last - begin, size), words[1], words[5:6]]
        elif area and words[0] == "VmFlags:":
            found.append([*area, " ".join(sorted(set(words[1:]) - AT_FIRST))])
    return found


def put(address, what=b"kept"):
    ctypes.memmove(address, what, len(what))
    return ctypes.string_at(address, len(what)).decode()


def held(address, size=4):
    return ctypes.string_at(address, size).decode(errors="replace")


# ---- mappings

for word, protection in {"PROT_NONE": 0, "read": 1, "read and written": 3, "read and executed": 5,
                         "read, written, executed": 7}.items():
    @row(MAPPINGS, f"private, {word}")
    def private(place, protection=protection):
        address = mapped()
        put(address + PAGE)
        call("mprotect", ctypes.c_void_p(address), ctypes.c_size_t(SIZE), protection)
        return lambda: [areas(address), protection and held(address + PAGE)]


@row(MAPPINGS, "three rights in one mapping (mprotect)")
def parts(place):
    address = mapped()
    put(address + 7 * PAGE)
    for page, protection in ((1, 1), (2, 0), (4, 5)):
        call("mprotect", ctypes.c_void_p(address + page * PAGE), ctypes.c_size_t(PAGE), protection)
    return lambda: [areas(address), held(address + 7 * PAGE)]


@row(MAPPINGS, "shared with a child, without a file")
def shared(place):
    address = mapped(how=SHARED | ANONYMOUS)
    other = child(lambda: lambda: put(address + PAGE, b"from the child"))
    return lambda: [other.ask(), held(address + PAGE, 14), areas(address)[0][2]]


def file(place):
    fd = os.open(f"{place}/file", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"0123456789" * 4000)
    return fd


@row(MAPPINGS, "a file, shared")
def file_shared(place):
    fd = file(place)
    address = mapped(how=SHARED, fd=fd)
    return lambda: [put(address + 5000, b"new"), os.pread(fd, 3, 5000).decode(), areas(address)]


@row(MAPPINGS, "a file, private, changed")
def file_private(place):
    fd = file(place)
    address = mapped(how=PRIVATE, fd=fd)
    put(address + 5000, b"new")
    return lambda: [held(address + 5000), os.pread(fd, 3, 5000).decode(), areas(address)]


@row(MAPPINGS, "a file, from an offset, its descriptor closed")
def file_offset(place):
    fd = file(place)
    address = mapped(how=SHARED, fd=fd, offset=PAGE, size=PAGE)
    os.close(fd)
    return lambda: [held(address), areas(address, PAGE)]


@row(MAPPINGS, "a file that was deleted")
def file_deleted(place):
    fd = file(place)
    address = mapped(how=SHARED, fd=fd)
    os.unlink(f"{place}/file")
    return lambda: [held(address), areas(address)[0][2:3]]


@row(MAPPINGS, "memory of memfd_create")
def memory_file(place):
    fd = os.memfd_create("row")
    os.ftruncate(fd, SIZE)
    address = mapped(how=SHARED, fd=fd)
    put(address)
    return lambda: [held(address), os.pread(fd, 4, 0).decode(), areas(address)]


@row(MAPPINGS, "/dev/zero")
def zero(place):
    fd = os.open("/dev/zero", os.O_RDWR)
    address = mapped(how=PRIVATE, fd=fd)
    put(address)
    return lambda: [held(address), areas(address)[0][2:4]]


@row(MAPPINGS, "a stack that grows (MAP_GROWSDOWN)")
def grows(place):
    address = mapped(how=PRIVATE | ANONYMOUS | 0x100)
    put(address)
    return lambda: [held(address), [a[2:] for a in areas(address)]]


@row(MAPPINGS, "reserved without room (MAP_NORESERVE)")
def unreserved(place):
    address = mapped(how=PRIVATE | ANONYMOUS | 0x4000)
    return lambda: areas(address)


@row(MAPPINGS, "huge pages (MAP_HUGETLB)", needs="huge pages")
def hugetlb(place):
    address = mapped(how=PRIVATE | ANONYMOUS | 0x40000, size=2 << 20)
    put(address)
    return lambda: [held(address), areas(address, 2 << 20)]


@row(MAPPINGS, "memory that the kernel may drop (MAP_DROPPABLE)", needs="such memory")
def droppable(place):
    address = mapped(how=0x8 | ANONYMOUS)
    return lambda: areas(address)


@row(MAPPINGS, "pages of a file in another order (remap_file_pages)")
def remapped(place):
    fd = file(place)
    address = mapped(how=SHARED, fd=fd)
    syscall(216, address, PAGE, 0, 3, 0)
    return lambda: [held(address, 10), held(address + PAGE, 10)]


@row(MAPPINGS, "memory that nobody may read (memfd_secret)", needs="secret memory",
     outcome=Refused("holds_secret_memory", "secret memory"))
def secret(place):
    fd = syscall(447, 0)
    os.ftruncate(fd, SIZE)
    address = mapped(how=SHARED, fd=fd)
    put(address)
    return lambda: held(address)


@row(MAPPINGS, "a key of memory (pkey_mprotect)", needs="a processor that can")
def pkey(place):
    key = syscall(330, 0, 0)
    address = mapped()
    syscall(329, address, SIZE, 3, key)
    return lambda: [key, areas(address)]


shown(MAPPINGS, "sealed (mseal)", "cluster/test_ipc.py::test_sealed_memory_stays_sealed")
shown(MAPPINGS, "terabytes that are reserved", "cluster/test_job_parts.py::"
      "test_two_terabytes_that_are_reserved_and_hardly_touched")


# ---- what it is marked with

def advised(name, advice, **how):
    @row(ADVICE, name, **how)
    def set_up(place):
        address = mapped(size=4 << 20)
        put(address)
        call("madvise", ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE * 4), advice)
        return lambda: [held(address), areas(address, 4 << 20)]


for name, advice in {"MADV_RANDOM": 1, "MADV_SEQUENTIAL": 2, "MADV_DONTFORK": 10,
                     "MADV_MERGEABLE": 12, "MADV_HUGEPAGE": 14, "MADV_NOHUGEPAGE": 15,
                     "MADV_DONTDUMP": 16, "MADV_WIPEONFORK": 18}.items():
    advised(name, advice, needs="KSM" if advice == 12 else "")


@row(ADVICE, "MADV_DONTNEED, MADV_FREE: pages that are gone")
def gone(place):
    address = mapped()
    put(address), put(address + 2 * PAGE)
    call("madvise", ctypes.c_void_p(address), ctypes.c_size_t(PAGE), 4)
    return lambda: [held(address), held(address + 2 * PAGE)]


@row(ADVICE, "pages that end who touches them (MADV_GUARD_INSTALL)", needs="such pages", alone=True)
def guard(place):
    address = mapped()
    put(address), put(address + 2 * PAGE)
    call("madvise", ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE), 102)

    def look():
        pid = os.fork()
        if pid == 0:
            held(address + PAGE)
            os._exit(0)
        return [os.waitpid(pid, 0)[1], held(address + 2 * PAGE)]
    return look


@row(ADVICE, "locked (mlock)")
def locked(place):
    address = mapped()
    call("mlock", ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE))
    return lambda: areas(address)


@row(ADVICE, "locked when it is touched (MLOCK_ONFAULT)", outcome=Differs("`MLOCK_ONFAULT`"))
def locked_on_fault(place):
    address = mapped()
    syscall(325, address, SIZE, 1)
    return lambda: areas(address)


@row(ADVICE, "all of it locked (mlockall)", alone=True)
def all_locked(place):
    call("mlockall", 1)
    address = mapped()
    return lambda: ["lo" in text("/proc/self/smaps"), areas(address)]


@row(ADVICE, "a name (PR_SET_VMA_ANON_NAME)", needs="names of memory")
def named(place):
    address = mapped()
    call("prctl", 0x53564d41, ctypes.c_ulong(0), ctypes.c_ulong(address), ctypes.c_ulong(SIZE),
         b"a row's memory")
    return lambda: areas(address)


@row(ADVICE, "its node (mbind)", needs="NUMA",
     outcome=Differs("where its memory is to be (`set_mempolicy`, `mbind`)"))
def bound(place):
    import struct
    address = mapped()
    syscall(237, address, SIZE, 2, struct.pack("Q", 1), 64, 0)

    def look():
        mode = ctypes.c_int()
        syscall(239, ctypes.byref(mode), 0, 0, address, 2)
        return mode.value
    return look


@row(ADVICE, "that others have written it (mincore)")
def resident(place):
    address = mapped()
    put(address), put(address + 3 * PAGE)
    found = ctypes.create_string_buffer(8)

    def look():
        call("mincore", ctypes.c_void_p(address), ctypes.c_size_t(SIZE), found)
        return [held(address), held(address + 3 * PAGE)]
    return look
