# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks of files that a home serves: they hold among jobs on several nodes and programs at home,
and stay their holder's while it moves or lies frozen. The home is n1."""
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import LIMIT, Market, bring_up, until
from test_locks import LOCK, Other, end, order

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")

WAYS = ["flock rw", "posix rw", "ofd rw"]
# Goes into the lock and out of it again and again, for the most part within. Whoever is inside has
# made a file that nobody else may find, and counts one up. Prints how often it was inside.
COUNT = """
import fcntl, os, random, struct, sys, time
way, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR)
inside, enough = path + ".inside", path + ".enough"
def lock(type):
    if way == "flock rw":
        return fcntl.flock(fd, fcntl.LOCK_EX if type == fcntl.F_WRLCK else fcntl.LOCK_UN)
    command = fcntl.F_SETLKW if way == "posix rw" else fcntl.F_OFD_SETLKW
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", type, os.SEEK_SET, 7, 90, 0))
times = 0
while not os.path.exists(enough):
    lock(fcntl.F_WRLCK)
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    count = int.from_bytes(os.pread(fd, 8, 0), "little")
    time.sleep(random.uniform(0, 0.03))
    os.pwrite(fd, (count + 1).to_bytes(8, "little"), 0)
    os.unlink(inside)
    times += 1
    lock(fcntl.F_UNLCK)
    time.sleep(0.001)
    if times == 1: print("begun", flush=True)
print(times, flush=True)
"""


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "3", "--speeds", "60,100,80", "--cpus", "2",
                               "--private-files"))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    return path


def start(market, program, way, path, where, **how):
    job = market.srun("-p", 50, "--node", "n1", sys.executable, "-c", program, way, path,
                      cwd=path.parent, **how)
    job.printed(1)
    if market.job(job.id)["where"] != where:
        order(market, job, "move", where)
    return job


@pytest.mark.parametrize("way", WAYS)
def test_nobody_is_inside_with_another_one(market, file, way):
    jobs = [start(market, COUNT, way, file, where) for where in ("n2", "n3")]
    here = subprocess.Popen([sys.executable, "-c", COUNT, way, file], stdout=subprocess.PIPE)
    try:
        for turn in range(20):
            job = jobs[turn % 2]
            if turn % 4 < 2:
                other = "n3" if market.job(job.id)["where"] == "n2" else "n2"
                order(market, job, "move", other)
            else:
                order(market, job, "freeze")
                time.sleep(0.1)
                order(market, job, "thaw", "n3" if turn % 3 else "n2")
    finally:
        (file.parent / "file.enough").touch()
        told = here.communicate(timeout=LIMIT)[0]
    counts = [int(told.split()[-1])]
    for job in jobs:
        assert job.wait(LIMIT) == 0, job.told
        counts.append(int(bytes(job.out).split()[-1]))
    assert here.returncode == 0 and min(counts) > 5, counts
    assert int.from_bytes(file.read_bytes()[:8], "little") == sum(counts)


@pytest.mark.parametrize("way", ["flock ro", "flock rw", "posix rw", "posix wo", "posix rw range",
                                 "ofd rw", "ofd wo", "flock rw shared", "posix rw shared range"])
def test_a_holder_keeps_it_on_its_way(market, file, way):
    job = start(market, LOCK, way, file, "n2", stdin=subprocess.PIPE)
    with Other(way, file, "waits") as waits, Other(way, file, "again") as again:
        for step in (("move", "n3"), ("freeze",), ("thaw", "n2"), ("freeze",), ("thaw", "n2"),
                     ("move", "n1"), ("freeze",), ("thaw", "n3"), ("move", "n1"), ("move", "n2")):
            order(market, job, *step)
            assert not waits.has_it() and not again.has_it(), step
        assert end(job) == ["has it", "end"]
        until("somebody else has it", lambda: waits.has_it() or again.has_it())


def test_who_waits_for_it_moves_and_gets_it(market, file):
    with Other("posix rw", file, "waits") as other:
        until("it has the lock", other.has_it)
        job = market.srun("-p", 50, "--node", "n1", sys.executable, "-c",
                          "import sys; print('begins', flush=True)\n" + LOCK, "posix rw", file,
                          cwd=file.parent, stdin=subprocess.PIPE)
        job.printed(1)
        for step in (("move", "n3"), ("freeze",), ("thaw", "n2"), ("move", "n3")):
            order(market, job, *step)
            assert b"has it" not in job.out
    until("it has the lock", lambda: b"has it" in job.out)
    with Other("posix rw", file, "waits") as other:
        order(market, job, "move", "n2")
        assert not other.has_it()
        assert end(job) == ["begins", "has it", "end"]
        until("somebody else has it", other.has_it)


# A thread waits for a lock. Meanwhile another closes the same file.
CLOSES = """
import fcntl, os, sys, threading
path = sys.argv[2]
fd = os.open(path, os.O_RDWR)
def wait():
    fcntl.lockf(fd, fcntl.LOCK_EX)
    print("has it", flush=True)
thread = threading.Thread(target=wait)
fcntl.lockf(fd, fcntl.LOCK_EX, 10, 1000)
thread.start()
print("begun", flush=True)
sys.stdin.readline()
os.close(os.open(path, os.O_RDONLY))
print("closed", flush=True)
thread.join()
sys.stdin.readline()
fcntl.lockf(fd, fcntl.LOCK_UN)
print("let go", flush=True)
sys.stdin.readline()
"""


def say(job):
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()


def test_a_thread_that_waits_gets_it_though_another_closes_the_file(market, file):
    with Other("posix rw range", file, "waits") as first:
        until("it has the lock", first.has_it)
        job = start(market, CLOSES, "-", file, "n2", stdin=subprocess.PIPE)
        say(job)
        until("it has closed", lambda: b"closed" in job.out)
        assert b"has it" not in job.out
    until("it has the lock", lambda: b"has it" in job.out)
    with Other("posix rw", file, "waits") as second:
        order(market, job, "move", "n3")
        assert not second.has_it()
        say(job)
        until("it has let go", lambda: b"let go" in job.out)
        until("somebody else has it", second.has_it)
        say(job)
    assert job.wait(LIMIT) == 0, job.told


# Shares a lock, and has it alone now and then, until a signal has given that up.
UPGRADES = """
import fcntl, os, signal, sys
def stop(*_): raise InterruptedError
signal.signal(signal.SIGALRM, stop)
fd = os.open(sys.argv[2], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_SH)
print("begun", flush=True)
while True:
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except InterruptedError:
        break
    fcntl.lockf(fd, fcntl.LOCK_SH)
print("interrupted", flush=True)
sys.stdin.readline()
"""


def test_who_gives_up_to_have_it_alone_shares_it_still(market, file):
    """The home is away when the signal comes. What it then grants, nobody hears of."""
    def is_free(type):
        with open(file, "r+b") as f:
            try:
                fcntl.lockf(f, type | fcntl.LOCK_NB)
                return True
            except OSError:
                return False

    job = start(market, UPGRADES, "-", file, "n2", stdin=subprocess.PIPE)
    home = market.daemon("n1")["pid"]
    for _ in range(20):  # it may have asked for something else just then
        os.kill(home, signal.SIGSTOP)
        time.sleep(2)
        os.kill(home, signal.SIGCONT)
        job.printed(1)
        time.sleep(0.3)
        if b"interrupted" in job.out:
            break
    until("it was interrupted", lambda: b"interrupted" in job.out)
    until("others can share it", lambda: is_free(fcntl.LOCK_SH))
    assert not is_free(fcntl.LOCK_EX)
    say(job)
    assert job.wait(LIMIT) == 0, job.told
    assert is_free(fcntl.LOCK_EX)


def test_a_frozen_job_that_is_cancelled_lets_go_of_it(market, file):
    job = start(market, LOCK, "posix rw", file, "n2", stdin=subprocess.PIPE)
    order(market, job, "freeze")
    with Other("posix rw", file, "waits") as other:
        assert not other.has_it()
        market.tool("marketctl", "cancel", job.id)
        until("somebody else has it", other.has_it)


# Each line of its input is one transaction; it says what became of it.
WAL = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[2], isolation_level=None, timeout=0.5)
for line in sys.stdin:
    try:
        base.execute("insert into t values (?)", (line.strip(),))
        print("ok", flush=True)
    except sqlite3.OperationalError as e:
        print("refused:", e, flush=True)
print(base.execute("select group_concat(v) from (select v from t order by rowid)").fetchone()[0],
      base.execute("pragma integrity_check").fetchone()[0], flush=True)
"""


class Writer:
    def __init__(self, process, printed):
        self.process, self.printed, self.said = process, printed, 0

    def write(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        self.said += 1
        until("it has answered", lambda: len(self.printed()) >= self.said)
        return self.printed()[self.said - 1]


def test_a_write_ahead_log_is_one_machine_s_at_a_time(market, tmp_path):
    """SQLite maps the index of such a log, which no two machines can have at once."""
    base = tmp_path / "base"
    made = sqlite3.connect(base, isolation_level=None)
    made.execute("pragma journal_mode = wal")
    made.execute("create table t (v text)")
    made.close()
    job = market.srun("-p", 50, "--node", "n1", sys.executable, "-c", WAL, "-", base,
                      cwd=tmp_path, stdin=subprocess.PIPE)
    market.until_runs(job.id, "n2")
    mine = Writer(job.process, lambda: bytes(job.out).decode().splitlines())
    assert mine.write("a") == "ok"
    with subprocess.Popen([sys.executable, "-uc", WAL, "-", base], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as here:
        os.set_blocking(here.stdout.fileno(), False)
        out = bytearray()
        other = Writer(here, lambda: (out.extend(here.stdout.read() or b""),
                                      bytes(out).decode().splitlines())[1])
        for step in ((), ("move", "n3"), ("freeze",), ("thaw", "n2")):
            if step:
                order(market, job, *step)
            assert other.write("x") in ("refused: locking protocol",
                                        "refused: database is locked")
            if step != ("freeze",):
                assert mine.write("b") == "ok"
        order(market, job, "move", "n1")  # both are at home
        assert [mine.write("c"), other.write("d"), mine.write("e")] == ["ok"] * 3
        here.stdin.close()
        until("it has ended", lambda: here.poll() is not None)
        lines = other.printed()
        assert lines[-1] == "a,b,b,b,c,d,e ok"
    order(market, job, "move", "n2")
    assert mine.write("f") == "ok"
    job.process.stdin.close()
    assert job.wait(LIMIT) == 0, job.told
    assert mine.printed()[-1] == "a,b,b,b,c,d,e,f ok"
