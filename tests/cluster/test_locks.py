# SPDX-License-Identifier: GPL-2.0-or-later
"""A lock of a file stays its holder's at each moment of a move and of a freeze to disk, whoever
waits for it or asks again and again."""
import glob
import os
import subprocess
import sys

import pytest

from conftest import LIMIT, read_text, until

# Takes a lock in one of the ways, as `python3 -c LOCK WAY FILE [try]`.
LOCK = """
import errno, fcntl, mmap, os, struct, sys, time
way, path, *tries = sys.argv[1:]
kind, how, *rest = way.split()
flags = {"ro": os.O_RDONLY, "wo": os.O_WRONLY, "rw": os.O_RDWR}[how]
fd = os.open(path, flags)
alone = "shared" not in rest or tries
start, length = (100, 50) if "range" in rest else (0, 0)
def take(wait):
    if kind == "flock":
        return fcntl.flock(fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) |
                           (0 if wait else fcntl.LOCK_NB))
    command = {"posix": fcntl.F_SETLKW if wait else fcntl.F_SETLK,
               "ofd": fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK}[kind]
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", fcntl.F_WRLCK if alone else fcntl.F_RDLCK,
                                         os.SEEK_SET, start, length, 0))
if "mapped" in rest:
    other = os.open(path, os.O_RDWR)
    area = mmap.mmap(other, 4096)
if tries == ["again"]:
    while True:
        try:
            take(False)
            break
        except OSError as e:
            assert e.errno in (errno.EAGAIN, errno.EACCES)
        time.sleep(0)
else:
    take(True)
print("has it", flush=True)
sys.stdin.readline()
print("end", flush=True)
"""
WAYS = ["flock ro", "flock rw", "flock rw shared", "posix rw", "posix wo", "posix rw shared range",
        "posix rw range", "posix rw mapped", "ofd rw", "ofd wo", "ofd rw range"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    return path


class Other:
    """A program on the machine that wants the lock for itself."""
    def __init__(self, way, path, how):
        self.process = subprocess.Popen([sys.executable, "-c", LOCK, way.replace("ro", "rw"), path,
                                         how], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def has_it(self):
        os.set_blocking(self.process.stdout.fileno(), False)
        return (self.process.stdout.read() or b"").startswith(b"has it")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def keepers(path):
    """The processes that keep locks of that file."""
    found = set()
    for comm in glob.glob("/proc/[0-9]*/comm"):
        try:
            if read_text(comm) == "souk-locks\n" and any(
                    os.readlink(fd) == str(path) for fd in
                    glob.glob(f"{os.path.dirname(comm)}/fd/*")):
                found.add(int(comm.split("/")[2]))
        except OSError:
            pass  # it has ended
    return found


def order(market, job, *words, check=True):
    return market.tool("marketctl", "--hold", "--wait", "60s", words[0], job.id, *words[1:],
                       check=check)


def end(job):
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait(LIMIT) == 0, job.told
    return bytes(job.out).decode().splitlines()


def hold(market, way, path, *options):
    job = market.srun("-p", 50, *options, sys.executable, "-c", LOCK, way, path,
                      stdin=subprocess.PIPE)
    job.printed(1)
    return job


@pytest.mark.parametrize("way", WAYS)
def test_nobody_else_gets_a_lock_while_its_holder_moves_or_lies_frozen(market, file, way):
    job = hold(market, way, file)
    with Other(way, file, "waits") as waits, Other(way, file, "again") as again:
        for step in (("move", "n2"), ("freeze",), ("thaw", "n3"), ("move", "n1"), ("freeze",),
                     ("thaw", "n1"), ("move", "n3")):
            order(market, job, *step)
            assert not waits.has_it() and not again.has_it(), step
        assert end(job) == ["has it", "end"]
        until("somebody else has it", lambda: waits.has_it() or again.has_it())
    until("nothing keeps it any more", lambda: not keepers(file))


def test_a_frozen_job_that_is_cancelled_lets_go_of_it(market, file):
    job = hold(market, "posix rw", file)
    order(market, job, "freeze")
    with Other("posix rw", file, "waits") as other:
        assert len(keepers(file)) == 1 and not other.has_it()
        market.tool("marketctl", "cancel", job.id)
        until("somebody else has it", other.has_it)
    until("nothing keeps it any more", lambda: not keepers(file))


def test_it_is_kept_while_agentd_is_killed_and_comes_back(market, file):
    job = hold(market, "flock rw", file)
    order(market, job, "move", "n2")
    order(market, job, "freeze")
    with Other("flock rw", file, "waits") as other:
        market.kill_daemon("n2")
        assert not other.has_it()
        order(market, job, "thaw", "n3")
        assert not other.has_it()
        assert end(job) == ["has it", "end"]
        until("somebody else has it", other.has_it)


def test_the_lock_of_a_child_that_shares_its_parent_s_descriptor(market, file):
    """CRIU alone takes it for the parent's, and loses it."""
    script = ("import fcntl, os, sys\nf = open(sys.argv[1], 'r+')\npid = os.fork()\n"
              "if pid == 0:\n fcntl.lockf(f, fcntl.LOCK_EX)\n print('has it', flush=True)\n"
              " sys.stdin.readline()\n os._exit(0)\nos.waitpid(pid, 0)\nprint('end')")
    job = market.srun("-p", 50, sys.executable, "-c", script, file, stdin=subprocess.PIPE)
    job.printed(1)
    with Other("posix rw", file, "waits") as other:
        for step in (("move", "n2"), ("freeze",), ("thaw", "n3")):
            order(market, job, *step)
            assert not other.has_it(), step
        assert end(job) == ["has it", "end"]
        until("the other one has it", other.has_it)


def test_one_that_is_lost_all_the_same_keeps_the_job_from_going_on(market, file):
    """As after the end of a machine: who kept it is gone, and somebody else has it."""
    job = hold(market, "posix rw", file)
    order(market, job, "freeze")
    [keeper] = keepers(file)
    os.kill(keeper, 9)
    with Other("posix rw", file, "waits") as other:
        until("the other one has it", other.has_it)
        refused = order(market, job, "thaw", "n2", check=False)
        assert refused.returncode != 0
        until("why is said", lambda: "another program has it now" in
              market.tool("marketctl", "--verbose", "job", job.id, "--story").stdout)
    order(market, job, "thaw", "n2")
    assert end(job) == ["has it", "end"]
