# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs are moved and frozen at any moment (moving.py) while they have memory that is only reserved,
locks of files, threads that end, answers of the kernel, and daemons. A job that has something that
cannot move is refused with the reason, and goes on."""
import fcntl
import subprocess

import pytest

from conftest import read_text, until
from moving import FORMS, ROUNDS, check_ended, check_lines, compiled, forms, move_about


RESERVER = """
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
enum { TOUCHED = 1 << 23, FAR = 100 };
int main(void) {
    const size_t tb = (size_t)1 << 40, step = tb / FAR & ~(size_t)4095;
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *none = mmap(0, tb, PROT_NONE, how, -1, 0);
    unsigned char *far = mmap(0, tb, PROT_READ | PROT_WRITE, how, -1, 0);
    unsigned char *near = calloc(TOUCHED, 1);
    if (none == MAP_FAILED || (void *)far == MAP_FAILED) return 3;
    struct pollfd in = {0, POLLIN, 0};
    for (unsigned n = 0; poll(&in, 1, 1) <= 0; ++n) {
        unsigned sum = 0;
        for (unsigned i = 0; i < TOUCHED; i += 512) sum = sum * 31 + (near[i] += i / 512 + n);
        for (unsigned i = 0; i < FAR; ++i) sum = sum * 31 + ++far[i * step];
        printf("%u %u\\n", n, sum);
        fflush(stdout);
    }
    return 0;
}
"""


@pytest.mark.parametrize("form", FORMS)
def test_two_terabytes_that_are_reserved_and_hardly_touched(market, tmp_path, form):
    def moved_as_a_small_one(job):
        market.tool("marketctl", "--hold", "move", job.id,
                    next(n for n in ("n1", "n2") if n != market.until_runs(job.id)["where"]))
        return market.until_job(job.id, "has moved", lambda j: j["status"] == "run" and
                                j["migrations"] > 0)["last_move"] == "stop-and-copy"
    check_lines(market, form, compiled(tmp_path, RESERVER), also=moved_as_a_small_one)


def python_in(market, form, path, source, *args):
    """A job of that text of python, in that directory."""
    (path / "job.py").write_text(source)
    return market.srun("--move", form, "-p", 50, "bash", "-c",
                       'cd "$1"; shift; exec /usr/bin/python3 job.py "$@"', "bash", path, *args,
                       stdin=subprocess.PIPE)


LOCKER = """
import fcntl, select, sys
held = bytearray(int(sys.argv[2]) << 20)
f = open("lock", "w")
getattr(fcntl, sys.argv[1])(f, fcntl.LOCK_EX)
n = 0
while not select.select([0], [], [], 0.01)[0]:
    print(n, flush=True)
    n += 1
"""


@pytest.mark.parametrize("kind, size, form",
                         [("lockf", 1, "auto"), ("flock", 32, "safe"), ("lockf", 32, "fast")])
def test_locks_of_files_go_along(market, tmp_path, kind, size, form):
    job = python_in(market, form, tmp_path, LOCKER, kind, str(size))
    job.printed(3)
    move_about(market, job, form)
    market.until_runs(job.id, "n1")  # where it goes by itself: on the way nobody has the lock
    job.printed(job.lines() + 3)
    with open(tmp_path / "lock", "w") as f, pytest.raises(BlockingIOError):
        getattr(fcntl, kind)(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lines = check_ended(market, job)
    assert lines == [str(i) for i in range(len(lines))]


BLINKER = """
import fcntl, sys, threading, time
over, n = [], 0
threading.Thread(target=lambda: (sys.stdin.read(), over.append(1)), daemon=True).start()
held = bytearray(32 << 20)
with open("lock", "w") as f:
    while not over:
        for kind in fcntl.LOCK_EX, fcntl.LOCK_UN:
            fcntl.flock(f, kind)
            until = time.monotonic() + 0.002
            while time.monotonic() < until: pass
        n += 1
        if n % 20 == 0: print(n, flush=True)
"""


@forms(0)
def test_locks_that_come_and_go_refuse_no_move(market, tmp_path, form):
    # Between the look that plans the move and the stop: about one move in four.
    job = python_in(market, form, tmp_path, BLINKER)
    job.printed(1)
    for _ in range(4):
        move_about(market, job, form)
    lines = check_ended(market, job)
    assert lines == [str(20 * i) for i in range(1, len(lines) + 1)]


LEAVERS = """
#include <pthread.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *p) { return memset(p, 1, 96 << 20); }
static void *wait_for_ever(void *p) { for (;;) pause(); return p; }
int main(void) {
    pthread_t t[3];
    pthread_create(&t[0], 0, work, malloc(96 << 20));
    pthread_join(t[0], 0);
    for (int i = 0; i < 3; ++i) pthread_create(&t[i], 0, wait_for_ever, 0);
    return 0;
}
"""


def rounds_of(market, tmp_path, form, program):
    """A job that runs that program again and again."""
    compiled(tmp_path, program, "-pthread")
    return market.srun("--move", form, "-p", 50, "bash", "-c", ROUNDS.format("./job; echo $?"),
                       "bash", tmp_path, stdin=subprocess.PIPE)


def each_ended_well(market, job):
    *lines, end = check_ended(market, job)
    assert end == "end" and set(lines) == {"0"}


@forms(2)
def test_threads_that_end_just_then_refuse_no_move(market, tmp_path, form):
    # For some milliseconds of each round the first thread has ended, and another one gives back the
    # memory of the threads.
    job = rounds_of(market, tmp_path, form, LEAVERS)
    job.printed(1)
    for _ in range(4):
        move_about(market, job, form)
    each_ended_well(market, job)


QUITTERS = """
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>
static void *wait_for_ever(void *p) { for (;;) pause(); return p; }
int main(void) {
    pthread_t t;
    for (int i = 0; i < 200; ++i) pthread_create(&t, 0, wait_for_ever, 0);
    struct epoll_event none;
    epoll_wait(epoll_create1(0), &none, 1, 5000);  // ends as well when this process was stopped
    return 0;
}
"""


@forms(0)
def test_processes_that_end_as_soon_as_they_go_on_refuse_no_move(market, tmp_path, form):
    # CRIU lets go of one thread after another, and fails on one that is not there any more.
    job = rounds_of(market, tmp_path, form, QUITTERS)
    job.said("started on")
    move_about(market, job, form)
    each_ended_well(market, job)


ASKER = """
import ctypes, os, select, socket, struct, time
libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(12)
e = libc.epoll_create1(0)
libc.epoll_ctl(e, 1, 0, struct.pack("=IQ", select.EPOLLIN, 0))
print("ready", flush=True)
ends = False
while not ends:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("=IHHIIB3xHHII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0))  # RTM_GETLINK
        ends = libc.epoll_wait(e, buffer, 1, 100) > 0
        s.recv(1 << 16)
    time.sleep(0.15)
print("end")
"""


@forms(2)
def test_an_answer_of_the_kernel_that_is_not_read_yet_refuses_no_move(market, tmp_path, form):
    job = python_in(market, form, tmp_path, ASKER)
    job.printed(1)
    for _ in range(3):
        move_about(market, job, form)
    assert check_ended(market, job) == ["ready", "end"]


DAEMON = """
import os, select, sys, time
def daemonize(work):
    if os.fork(): return os.wait()
    os.setsid()
    if os.fork(): os._exit(0)
    work()
def stat(pid): return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
def above(pid): return stat(pid)[1:4]  # parent, group, session
def job_ends():  # its first process has ended, and all else is about to be
    try: return stat(2)[0] in "ZX"
    except OSError: return True
def write():
    # One of its own.
    daemonize(lambda: (print(*above(os.getpid())[1:], file=open("second", "w")),
                       time.sleep(10**6)))
    reader, writer = os.pipe()
    if os.fork():
        me = above(os.getpid())
        with os.fdopen(writer, "w", buffering=1) as f:
            for i in range(10**9):
                now = above(os.getpid())
                assert now == me or job_ends(), (me, now)
                print(i, file=f)
                time.sleep(0.005)
    with os.fdopen(reader) as f, open("daemon", "w", buffering=1) as out:
        for line in f: out.write(line)
daemonize(write)
i = 0
while not select.select([0], [], [], 0.02)[0]:
    print(i, flush=True)
    i += 1
"""


@forms(1)
def test_daemons_that_forked_twice_go_along(market, tmp_path, form):
    """One that was left by its parent is the first process's, on every node; so is one that such a
    one left."""
    job = python_in(market, form, tmp_path, DAEMON)
    job.printed(3)
    until("both daemons have begun",
          lambda: read_text(tmp_path / "daemon") and read_text(tmp_path / "second"))
    move_about(market, job, form)
    assert not market.job(job.id).get("cannot_move")
    lines = read_text(tmp_path / "daemon").count("\n")
    until("the daemon goes on", lambda: read_text(tmp_path / "daemon").count("\n") > lines + 3)
    assert check_ended(market, job) == [str(i) for i in range(job.lines())]
    written = read_text(tmp_path / "daemon").splitlines()
    assert written[:-1] == [str(i) for i in range(len(written) - 1)]


# ---- jobs that cannot move

def check_refused(market, job, reason):
    """A move is refused with that reason, a freeze too, and the job goes on where it is."""
    here = market.until_runs(job.id)["where"]
    failed = market.job(job.id)["failed_moves"]
    for verb in ("move", "freeze"):
        said = len(job.words)
        args = [job.id] + ([next(n for n in ("n1", "n2", "n3") if n != here)] if verb == "move"
                           else [])
        market.tool("marketctl", "--hold", verb, *args)
        job.said(reason, after=said)
        market.tool("marketctl", "release", job.id)
        assert market.until_runs(job.id)["where"] == here
        job.printed(job.lines() + 3)
    assert market.job(job.id)["failed_moves"] > failed


URING = """
#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct io_uring_params p = {0};
    if (syscall(SYS_io_uring_setup, 8, &p) < 0) return 3;
    for (int i = 0;; ++i) { printf("%d\\n", i); fflush(stdout); usleep(20000); }
}
"""


def test_a_program_with_io_uring_is_refused_and_goes_on(market, tmp_path):
    program = compiled(tmp_path, URING)
    job = market.srun("-p", 50, program)
    job.printed(3)
    check_refused(market, job, "io_uring")
