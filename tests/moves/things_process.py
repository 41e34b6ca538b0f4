# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of what a process is and was given."""
import ctypes
import os
import resource
import signal
import struct
import time

from rows import (LIBC, Differs, Refused, call, child, comes, prctl, row, shown, status, syscall,
                  text, threads)

SCHEDULE = "process: how it is scheduled"
FLAGS = "process: what it has set of itself"
RIGHTS = "process: its user and rights"
PLACE = "process: its place and names"
LIMITS = "process: its limits"
COUNTS = "process: what the kernel counts"
ARCH = "process: its processor"


WHERE = "where its memory is to be (`set_mempolicy`, `mbind`)"


# ---- how it is scheduled

@row(SCHEDULE, "nice", alone=True)
def nice(place):
    os.nice(7)
    return lambda: os.nice(0)


def policy(number, priority, needs=""):
    def set_up(place):
        os.sched_setscheduler(0, number, os.sched_param(priority))
        return lambda: [os.sched_getscheduler(0), os.sched_getparam(0).sched_priority]
    return set_up


for word, number in {"SCHED_BATCH": 3, "SCHED_IDLE": 5}.items():
    row(SCHEDULE, word, alone=True)(policy(number, 0))
shown(SCHEDULE, "SCHED_FIFO, SCHED_RR, reset on fork",
      "cluster/test_state.py::test_a_real_time_policy")


@row(SCHEDULE, "SCHED_BATCH, reset on fork", alone=True)
def reset(place):
    os.sched_setscheduler(0, 3 | 0x40000000, os.sched_param(0))
    return lambda: os.sched_getscheduler(0)


def attributes():
    buffer = ctypes.create_string_buffer(56)
    syscall(315, 0, buffer, 56, 0)
    return struct.unpack("IIQiIQQQII", buffer.raw)


@row(SCHEDULE, "SCHED_DEADLINE", alone=True, needs="time for it",
     outcome=Refused("dump_refused", "runs by deadlines"))
def deadline(place):
    syscall(314, 0, struct.pack("IIQiIQQQII", 56, 6, 0, 0, 0, 10 ** 6, 10 ** 8, 10 ** 8, 0, 0), 0)
    return lambda: attributes()[1:8]


@row(SCHEDULE, "how long it runs at once (a slice of its own)", alone=True,
     outcome=Differs("a slice of its own (`sched_setattr`)"), needs="slices of its own")
def slice_(place):
    syscall(314, 0, struct.pack("IIQiIQQQII", 56, 0, 0, 0, 0, 5 * 10 ** 6, 0, 0, 0, 0), 0)
    assert attributes()[5] == 5 * 10 ** 6
    return lambda: attributes()[5]


@row(SCHEDULE, "a bound of its use of a processor (utilization clamp)", alone=True,
     needs="such bounds")
def clamp(place):
    syscall(314, 0, struct.pack("IIQiIQQQII", 56, 0, 0x60, 0, 0, 0, 0, 0, 100, 700), 0)
    return lambda: attributes()[8:10]


@row(SCHEDULE, "processors (taskset)", alone=True)
def affinity(place):
    os.sched_setaffinity(0, {1})
    return lambda: sorted(os.sched_getaffinity(0))


@row(SCHEDULE, "processors of each thread", alone=True)
def affinity_of_threads(place):
    found = threads(2, lambda i: os.sched_setaffinity(0, {i}))
    return lambda: [sorted(os.sched_getaffinity(t)) for t in found]


for word, value in {"real-time": 1 << 13 | 3, "best effort": 2 << 13 | 6, "idle": 3 << 13}.items():
    @row(SCHEDULE, f"priority of input and output: {word}", alone=True)
    def ioprio(place, value=value):
        syscall(251, 1, 0, value)
        return lambda: syscall(252, 1, 0)


@row(SCHEDULE, "timer slack", alone=True)
def slack(place):
    prctl(29, 123456)
    return lambda: LIBC.prctl(30, 0, 0, 0, 0)


@row(SCHEDULE, "a group that shares no core (PR_SCHED_CORE)", alone=True, needs="core scheduling")
def core(place):
    prctl(62, 1, 0, 0, 0)

    def look():
        cookie = ctypes.c_uint64()
        call("prctl", 62, 0, 0, 0, ctypes.byref(cookie))
        return cookie.value != 0
    return look


@row(SCHEDULE, "a nice value of its session (autogroup)", alone=True, needs="groups of sessions",
     outcome=Differs("nice value of their own (`/proc/PID/autogroup`)"))
def autogroup(place):
    def work():
        os.setsid()
        with open("/proc/self/autogroup", "w") as f:
            f.write("7")
        return lambda: text("/proc/self/autogroup").split()[2]
    return child(work).ask


@row(SCHEDULE, "where its memory is to be (set_mempolicy)", alone=True, needs="NUMA",
     outcome=Differs(WHERE))
def mempolicy(place):
    syscall(238, 3, struct.pack("Q", 1), 64)

    def look():
        mode, mask = ctypes.c_int(), ctypes.c_uint64()
        syscall(239, ctypes.byref(mode), ctypes.byref(mask), 64, 0, 0)
        return [mode.value, mask.value]
    return look


# ---- what it has set of itself

def flag(name, setter, getter, value, **how):
    @row(FLAGS, name, alone=True, **how)
    def set_up(place):
        prctl(setter, value)
        return lambda: prctl(getter)


flag("no core dumps (PR_SET_DUMPABLE 0)", 4, 3, 0)
flag("no new rights (no_new_privs)", 38, 39, 1)
flag("no huge pages (PR_SET_THP_DISABLE)", 41, 42, 1)


@row(FLAGS, "huge pages where they are asked for (PR_THP_DISABLE_EXCEPT_ADVISED)", alone=True,
     needs="Linux 6.18", outcome=Differs("`PR_THP_DISABLE_EXCEPT_ADVISED`"))
def thp_advised(place):
    prctl(41, 1, 2)
    return lambda: prctl(42)


@row(FLAGS, "numbers of its timers that it chooses (PR_TIMER_CREATE_RESTORE_IDS)", alone=True,
     needs="Linux 6.15", outcome=Differs("`PR_TIMER_CREATE_RESTORE_IDS`"))
def timer_numbers(place):
    prctl(77, 1)
    return lambda: prctl(77, 2)


@row(FLAGS, "a table of futexes of its own (PR_FUTEX_HASH)", alone=True, needs="Linux 6.16",
     outcome=Differs("`PR_FUTEX_HASH`"))
def futex_hash(place):
    prctl(78, 1, 64)
    return lambda: prctl(78, 2)


flag("keeps rights (PR_SET_KEEPCAPS)", 8, 7, 1)
flag("ends by faults of memory early (PR_MCE_KILL)", 33, 34, 1,
     outcome=Differs("`PR_MCE_KILL`"))
flag("writes out pages of others (PR_SET_IO_FLUSHER)", 57, 58, 1, needs="CAP_SYS_RESOURCE")
flag("merges equal pages (PR_SET_MEMORY_MERGE)", 67, 68, 1, needs="KSM",
     outcome=Differs("`PR_SET_MEMORY_MERGE`"))
flag("no memory that is written and executed (PR_SET_MDWE)", 65, 66, 1, needs="PR_SET_MDWE")


def out(option):
    def look():
        value = ctypes.c_int()
        call("prctl", option, ctypes.byref(value), 0, 0, 0)
        return value.value
    return look


@row(FLAGS, "takes in daemons (PR_SET_CHILD_SUBREAPER)", alone=True)
def subreaper(place):
    prctl(36, 1)
    return out(37)


@row(FLAGS, "signal at the end of its parent (PR_SET_PDEATHSIG)", alone=True)
def pdeath(place):
    return child(lambda: (prctl(1, 10), out(2))[1]).ask


@row(FLAGS, "reading the time stamp counter ends it (PR_SET_TSC)", alone=True,
     outcome=Differs("`PR_SET_TSC`"))
def tsc(place):
    return child(lambda: (prctl(26, 2), out(25))[1]).ask


@row(FLAGS, "who may trace it (PR_SET_PTRACER)", alone=True, needs="Yama")
def ptracer(place):
    prctl(0x59616d61, 1)
    return lambda: True


for word, kind in {"of stores": 0, "of branches": 1, "of L1": 2}.items():
    @row(FLAGS, f"speculation {word} is off", alone=True, needs="a processor that can",
         outcome=Differs("speculation (`PR_SET_SPECULATION_CTRL`)"))
    def speculation(place, kind=kind):
        prctl(53, kind, 4)
        return lambda: prctl(52, kind)


@row(FLAGS, "a filter of core dumps", alone=True)
def core_filter(place):
    with open("/proc/self/coredump_filter", "w") as f:
        f.write("0x5a")
    return lambda: text("/proc/self/coredump_filter")


@row(FLAGS, "who ends first without memory (oom_score_adj)", alone=True, needs="CAP_SYS_RESOURCE")
def oom(place):
    needs_resource()
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write("345")
    return lambda: text("/proc/self/oom_score_adj")


for word, value in {"addresses as they come (ADDR_NO_RANDOMIZE)": 0x40000,
                    "32 bits (PER_LINUX32)": 8, "read means execute": 0x400000}.items():
    @row(FLAGS, f"personality: {word}", alone=True, outcome=Differs("`READ_IMPLIES_EXEC`")
         if value == 0x400000 else None)
    def personality(place, value=value):
        call("personality", value)
        return lambda: call("personality", 0xffffffff)


@row(FLAGS, "system calls that its own code makes (PR_SET_SYSCALL_USER_DISPATCH)", alone=True,
     needs="that dispatch", outcome=Refused("dump_refused", "PR_SET_SYSCALL_USER_DISPATCH"))
def dispatch(place):
    here = ctypes.create_string_buffer(b"\0")
    kept.append(here)
    other = child(lambda: prctl(59, 1, 0, 4096, ctypes.addressof(here)))

    def look():  # who traces it is told
        found = ctypes.create_string_buffer(32)
        syscall(101, 0x4206, other.pid, 0, 0)
        syscall(101, 0x4207, other.pid, 0, 0)
        os.waitpid(other.pid, 0x40000000)
        syscall(101, 0x4211, other.pid, 32, ctypes.cast(found, ctypes.c_void_p))
        syscall(101, 17, other.pid, 0, 0)
        return found.raw.hex()
    return look


kept = []


@row(FLAGS, "seccomp: a filter", alone=True)
def seccomp(place):
    def work():
        prctl(38, 1)
        code = (struct.pack("HBBI", 0x20, 0, 0, 0) + struct.pack("HBBI", 0x15, 0, 1, 83) +
                struct.pack("HBBI", 6, 0, 0, 0x50000 | 77) +
                struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
        filter_ = ctypes.create_string_buffer(code)
        syscall(317, 1, 0, struct.pack("HxxxxxxQ", 4, ctypes.addressof(filter_)))

        def look():
            try:
                os.mkdir(f"{place}/made")
            except OSError as e:
                return e.errno, status("Seccomp", "Seccomp_filters")
        return look
    return child(work).ask


@row(FLAGS, "seccomp: strict", alone=True)
def strict(place):
    ends, back = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        prctl(22, 1)
        while LIBC.read(ends[0], ctypes.create_string_buffer(1), 1) == 1:
            LIBC.write(back[1], b"x", 1)
        os.kill(os.getpid(), 9)

    def look():
        os.write(ends[1], b"?")
        return [os.read(back[0], 1).decode(), status("Seccomp", pid=pid)]
    time.sleep(0.05)
    return look


shown(FLAGS, "Landlock", "cluster/test_ipc.py::test_a_thread_that_has_shut_itself_in_stays",
      outcome=Refused("dump_refused", "Landlock"))


@row(FLAGS, "an area that the kernel writes its processor into (rseq)", alone=True)
def rseq(place):
    def registered():
        address = ctypes.c_long.in_dll(LIBC, "__rseq_offset").value
        return ctypes.c_uint.in_dll(LIBC, "__rseq_size").value, address

    def look():
        try:  # it is registered already, which the kernel says of the same area alone
            syscall(334, 4096, 32, 0, 0x53053053)
        except OSError as e:
            return [registered(), e.errno]
    return look


@row(FLAGS, "a list of robust futexes", alone=True)
def robust(place):
    head = ctypes.create_string_buffer(24)
    kept.append(head)
    syscall(273, head, 24)

    def look():
        found, size = ctypes.c_uint64(), ctypes.c_uint64()
        syscall(274, 0, ctypes.byref(found), ctypes.byref(size))
        return [found.value == ctypes.addressof(head), size.value]
    return look


# ---- its user and rights

def needs_resource():
    """Without that right no agentd moves jobs of others than root, nor sets all that root may."""
    if not int(status("CapBnd")[0], 16) >> 24 & 1:
        raise OSError("no CAP_SYS_RESOURCE")


@row(RIGHTS, "users: real, effective, saved, of files", alone=True, needs="CAP_SYS_RESOURCE")
def users(place):
    needs_resource()

    def work():
        os.setresgid(101, 102, 103)
        os.setresuid(201, 202, 203)
        return lambda: status("Uid", "Gid")
    return child(work).ask


@row(RIGHTS, "the user of files alone (setfsuid)", alone=True)
def fsuid(place):
    LIBC.setfsuid(1234)
    LIBC.setfsgid(1235)
    return lambda: status("Uid", "Gid")


@row(RIGHTS, "groups", alone=True)
def groups(place):
    os.setgroups([5, 77, 4000000])
    return lambda: os.getgroups()


@row(RIGHTS, "users of each thread", alone=True)
def users_of_threads(place):
    found = threads(2, lambda i: syscall(117, -1, 300 + i, -1))
    return lambda: [status("Uid", pid=f"{os.getpid()}/task/{t}") for t in found]


CAPS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


@row(RIGHTS, "rights: permitted, effective, inheritable", alone=True)
def capabilities(place):
    head = struct.pack("Ii", 0x20080522, 0)
    mask, permitted = 1 << 7, 1 << 7 | 1 << 12 | 1 << 6
    syscall(126, head, struct.pack("6I", mask, permitted, 1 << 12, 0, 0, 0))
    return lambda: status(*CAPS)


@row(RIGHTS, "rights: the bound (PR_CAPBSET_DROP)", alone=True)
def bound(place):
    prctl(24, 22)
    return lambda: status(*CAPS)


@row(RIGHTS, "rights: ambient", alone=True)
def ambient(place):
    head = struct.pack("Ii", 0x20080522, 0)
    syscall(126, head, struct.pack("6I", 1 << 12, 1 << 12, 1 << 12, 0, 0, 0))
    prctl(47, 2, 12)
    return lambda: status(*CAPS)


for word, bits in {"SECBIT_NOROOT": 1, "SECBIT_NO_SETUID_FIXUP": 4, "SECBIT_KEEP_CAPS": 16,
                   "all, locked": 0x2f | 0xc0}.items():
    @row(RIGHTS, f"bits of security: {word}", alone=True)
    def securebits(place, bits=bits):
        prctl(28, bits)
        return lambda: prctl(27)


def keys(place):
    """A key in the session keyring."""
    key = syscall(248, b"user", b"souk-row", b"kept", 4, -3)

    def look():
        found = syscall(250, 10, -3, b"user", b"souk-row", 0)
        buffer = ctypes.create_string_buffer(9)
        return [found == key, syscall(250, 11, found, buffer, 9), buffer.value.decode()]
    return look


row(RIGHTS, "a key in its keyring (keyctl)", alone=True, needs="keyrings",
    outcome=Differs("Keys in a keyring of the kernel"))(keys)


# ---- its place and names

@row(PLACE, "its name (PR_SET_NAME)", alone=True)
def name(place):
    ctypes.CDLL(None).prctl(15, b"a row's name", 0, 0, 0)
    return lambda: text("/proc/self/comm")


@row(PLACE, "names of its threads", alone=True)
def names_of_threads(place):
    found = threads(3, lambda i: LIBC.prctl(15, f"thread {i}".encode(), 0, 0, 0))
    return lambda: [text(f"/proc/self/task/{t}/comm") for t in found]


@row(PLACE, "its words (/proc/self/cmdline), environment, program", alone=True)
def words(place):
    return lambda: [text("/proc/self/cmdline"), len(text("/proc/self/environ")),
                    os.readlink("/proc/self/exe")]


@row(PLACE, "words that it has changed (PR_SET_MM_ARG_START)", alone=True,
     needs="CAP_SYS_RESOURCE")
def changed_words(place):
    buffer = ctypes.create_string_buffer(b"another name\0")
    kept.append(buffer)
    prctl(35, 8, ctypes.addressof(buffer))
    prctl(35, 9, ctypes.addressof(buffer) + 13)
    return lambda: text("/proc/self/cmdline")


@row(PLACE, "vectors of its program (/proc/self/auxv)", alone=True)
def auxv(place):
    def look():
        with open("/proc/self/auxv", "rb") as f:
            return f.read().hex()
    return look


@row(PLACE, "a program that was deleted", alone=True)
def deleted_program(place):
    import shutil
    import subprocess
    shutil.copy("/bin/sleep", f"{place}/program")
    p = subprocess.Popen([f"{place}/program", "100000"])
    time.sleep(0.1)
    os.unlink(f"{place}/program")
    return lambda: [os.readlink(f"/proc/{p.pid}/exe"), p.poll()]


@row(PLACE, "umask", alone=True)
def umask(place):
    os.umask(0o137)
    return lambda: status("Umask")


@row(PLACE, "its directory", alone=True)
def directory(place):
    os.chdir(place)
    return lambda: os.getcwd()


@row(PLACE, "a directory that was deleted", alone=True)
def deleted_directory(place):
    os.mkdir(f"{place}/gone")
    os.chdir(f"{place}/gone")
    os.rmdir(f"{place}/gone")
    return lambda: os.readlink("/proc/self/cwd")


@row(PLACE, "a root of its own (chroot)", alone=True)
def root(place):
    def work():
        os.mkdir(f"{place}/inside")
        os.chroot(place)
        os.chdir("/")
        return lambda: [os.getcwd(), sorted(os.listdir("/"))]
    return child(work).ask


@row(PLACE, "the numbers that new processes get (ns_last_pid)", alone=True)
def numbers_of_new(place):
    last = [number_of_child()]

    def look():
        before, last[0] = last[0], number_of_child()
        return before < last[0] < before + 1000
    return look


def number_of_child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


# ---- its limits

for number, limit in enumerate((
        "CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS", "LOCKS",
        "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME")):
    @row(LIMITS, f"RLIMIT_{limit}", alone=True)
    def rlimit(place, number=number):
        most = resource.getrlimit(number)[1]
        high = {6: 4000, 7: 900, 13: 20, 14: 5}.get(number, 1 << 33)
        high = high if most == resource.RLIM_INFINITY else min(high, most)
        resource.setrlimit(number, (high // 2, high))
        return lambda: resource.getrlimit(number)
shown(LIMITS, "a limit that is reached",
      "cluster/test_ipc.py::test_at_a_limit_that_may_be_raised_it_moves")
shown(LIMITS, "the CPU time that is left",
      "cluster/test_attributes.py::test_a_limit_of_cpu_time_counts_what_was_used_before_a_move")


@row(LIMITS, "no signal may wait (RLIMIT_SIGPENDING 0)", alone=True)
def no_pending(place):
    resource.setrlimit(resource.RLIMIT_SIGPENDING if hasattr(resource, "RLIMIT_SIGPENDING") else 11,
                       (0, 0))
    return lambda: resource.getrlimit(11)


@row(LIMITS, "no signal may wait (RLIMIT_SIGPENDING 0), and a timer runs", alone=True,
     outcome=Refused("dump_refused", "RLIMIT_SIGPENDING"))
def no_pending_with_timer(place):
    event = ctypes.create_string_buffer(struct.pack("qiii", 0, 40, 0, 0) + bytes(44))
    timer = ctypes.c_int()
    syscall(222, 1, event, ctypes.byref(timer))
    syscall(223, timer.value, 0, struct.pack("4q", 60, 0, 5000, 0), 0)
    resource.setrlimit(11, (0, 0))

    def look():
        now = ctypes.create_string_buffer(32)
        syscall(224, timer.value, now)
        return [resource.getrlimit(11), struct.unpack_from("q", now.raw)]
    return look


@row(LIMITS, "no signal may wait (RLIMIT_SIGPENDING 0), and one waits", alone=True,
     outcome=Refused("dump_refused", "RLIMIT_SIGPENDING"))
def no_pending_with_signal(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [10, 40])
    os.kill(os.getpid(), 10)
    LIBC.sigqueue(os.getpid(), 40, ctypes.c_void_p(7))
    resource.setrlimit(11, (0, 0))
    return lambda: status("SigPnd", "ShdPnd")


@row(LIMITS, "a descriptor with the highest number that it may have (RLIMIT_NOFILE)", alone=True)
def last_descriptor(place):
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
    for number in range(380, 400):
        os.dup2(0, number)
    return lambda: [resource.getrlimit(resource.RLIMIT_NOFILE), os.fstat(399).st_mode]


# ---- what the kernel counts

BEGINS = "The counters of a process begin anew, since no kernel lets them be set"


@row(COUNTS, "CPU time (times, /proc/PID/stat)", alone=True, outcome=Differs(BEGINS))
def cpu_time(place):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    before = time.process_time()
    return lambda: time.process_time() >= before


@row(COUNTS, "CPU time of children that have ended", alone=True, outcome=Differs(BEGINS))
def children_time(place):
    pid = os.fork()
    if pid == 0:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    return lambda: os.times().children_user + os.times().children_system > 0.1


@row(COUNTS, "when it began (/proc/PID/stat)", alone=True, outcome=Differs(BEGINS))
def began(place):
    return lambda: text("/proc/self/stat").rpartition(")")[2].split()[19]


@row(COUNTS, "bytes that it has read and written (/proc/PID/io)", alone=True,
     outcome=Differs(BEGINS))
def io(place):
    with open("/dev/zero", "rb") as f:
        for _ in range(600):
            f.read(1 << 20)
    return lambda: int(text("/proc/self/io").split()[1]) > 600 << 20


@row(COUNTS, "the most memory that it had (VmHWM)", alone=True, outcome=Differs(BEGINS))
def most(place):
    bytearray(64 << 20)
    return lambda: int(status("VmHWM")[0].split()[0]) > 64 << 10


@row(COUNTS, "faults of pages (getrusage)", alone=True, outcome=Differs(BEGINS))
def faults(place):
    bytearray(200 << 20)
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt > 40000


# ---- its processor

@row(ARCH, "entries of a local table (modify_ldt)", alone=True,
     outcome=Differs("entries of a local table of segments (`modify_ldt`)"))
def ldt(place):
    syscall(154, 1, struct.pack("IIII", 3, 0x1000, 0xfffff, 0x51), 16)

    def look():
        buffer = ctypes.create_string_buffer(64)
        return [syscall(154, 0, buffer, 64), buffer.raw.hex()]
    return look


@row(ARCH, "CPUID ends it (ARCH_SET_CPUID)", alone=True, needs="a processor that can",
     outcome=Differs("faults of CPUID (`ARCH_SET_CPUID`)"))
def cpuid(place):
    syscall(158, 0x1012, 0)
    return lambda: syscall(158, 0x1011, 0)


@row(ARCH, "tiles for matrices (AMX, ARCH_REQ_XCOMP_PERM)", alone=True,
     needs="a processor with AMX")
def tiles(place):
    syscall(158, 0x1023, 18)

    def look():
        may = ctypes.c_uint64()
        syscall(158, 0x1022, ctypes.byref(may))
        return may.value >> 18 & 1
    return look


@row(ARCH, "a process without the kernel's code (vDSO)", alone=True,
     outcome=Refused("dump_refused", "vDSO"))
def no_vdso(place):
    line, = [line for line in text("/proc/self/maps").splitlines() if line.endswith("[vdso]")]
    begin, end = [int(number, 16) for number in line.split()[0].split("-")]
    pid = os.fork()
    if pid == 0:  # what it calls must not ask for the time
        LIBC.munmap(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin))
        LIBC.pause()
        os._exit(9)
    comes(lambda: "[vdso]" not in text(f"/proc/{pid}/maps"))
    return lambda: ["[vdso]" in text(f"/proc/{pid}/maps"), os.waitpid(pid, os.WNOHANG)]


@row(ARCH, "keys of memory (pkey_alloc)", alone=True, needs="a processor that can")
def pkeys(place):
    key = syscall(330, 0, 1)
    return lambda: key


@row(ARCH, "registers of each thread: FS, GS")
def segments(place):
    def look():
        value = ctypes.c_uint64()
        syscall(158, 0x1003, ctypes.byref(value))
        return value.value
    return look


shown(PLACE, "what setarch, ionice, nice and taskset have given it",
      "cluster/test_attributes.py::test_what_was_set_of_a_process_is_as_before")
