# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of a home's files that dies between any two of its steps: what it was about to do is
written into the table of requests that outlives it (slots.hpp), and the next one goes on."""
import errno
import os
import random
import signal
import struct
import subprocess
import time

import pytest

from conftest import LIMIT, until
from files_tree import Doing, needs_fuse, own_tree

pytestmark = needs_fuse
tree = pytest.fixture(own_tree)
FREE, READING, TAKEN = 0, 1, 2
ENDED = 3  # Slot::ended
LOOKUP, OPEN, WRITE, INTERRUPT = 1, 14, 16, 36


class Table:
    """The requests of a client that stands."""
    slot, head = struct.Struct("=IIQIIq"), struct.Struct("=IIQQIIIHH")
    bytes_each = (1 << 20) + 8192

    def __init__(self, tree):
        self.tree = tree
        fds = f"/proc/{tree.process.pid}/fd"
        fd = next(n for n in os.listdir(fds) if "memfd:souk-files" in os.readlink(f"{fds}/{n}"))
        self.file = os.open(f"{fds}/{fd}", os.O_RDWR)

    def stop(self):
        client = self.tree.clients[-1]
        os.kill(client, signal.SIGSTOP)
        stat = f"/proc/{client}/stat"
        until("it stands", lambda: open(stat).read().rpartition(")")[2].split()[0] == "T")

    def kill(self):
        self.tree.kill_client()
        os.close(self.file)

    def state(self, n):
        return struct.unpack("=I", os.pread(self.file, 4, 16 + n * self.slot.size))[0]

    def request(self, n):
        return self.head.unpack(os.pread(self.file, self.head.size, 8192 + n * self.bytes_each))

    def last(self, opcode):
        """The slot with the last request of a kind."""
        found = [(self.request(n)[2], n) for n in range(64) if self.request(n)[1] == opcode]
        return max(found)[1]

    def set(self, n, state, dropped=0, signalled=0):
        at = 16 + n * self.slot.size
        _, size, seq, _, _, since = self.slot.unpack(os.pread(self.file, self.slot.size, at))
        os.pwrite(self.file, self.slot.pack(state, size, seq, dropped, signalled, since), at)

    def put(self, n, request):
        os.pwrite(self.file, request, 8192 + n * self.bytes_each)


def held_look(tree):
    """A call whose answer is held on the link, and the table of its client, which stands."""
    tree.link.hold()
    look, table = Doing(os.stat, tree.here / "f"), Table(tree)
    until("it is asked", lambda: any(
        table.state(n) == TAKEN and table.request(n)[1] == LOOKUP for n in range(64)))
    table.stop()
    return look, table


def test_what_the_kernel_has_an_answer_to_is_not_taken_back(tree):
    """It died between the answer and its note of that: the open file is the program's."""
    (tree.home / "f").write_bytes(b"old")
    f = os.open(tree.here / "f", os.O_RDWR)
    table = Table(tree)
    n = table.last(OPEN)
    until("it is noted that the open was answered", lambda: table.state(n) == FREE)
    table.stop()
    table.set(n, TAKEN)
    table.kill()
    assert os.pwrite(f, b"new", 0) == 3
    os.fsync(f)
    os.close(f)
    assert (tree.home / "f").read_bytes() == b"new"


def test_what_was_read_in_part_is_not_done(tree):
    """The kernel ends a request whose reader is killed meanwhile. The rest is what lay there."""
    f = os.open(tree.here / "f", os.O_RDWR | os.O_CREAT)
    assert os.pwrite(f, b"a" * 300_000, 0) == 300_000
    table = Table(tree)
    n = table.last(WRITE)  # before another request has its slot
    until("it is noted that the write was answered", lambda: table.state(n) == FREE)
    (tree.home / "f").write_bytes(b"b" * 300_000)
    table.stop()
    table.set(n, READING)
    table.kill()
    os.fsync(f)
    assert (tree.home / "f").read_bytes() == b"b" * 300_000
    os.close(f)


def test_what_was_just_read_is_done(tree):
    (tree.home / "f").write_bytes(b"there")
    look, table = held_look(tree)
    table.set(table.last(LOOKUP), READING)
    table.kill()
    tree.link.let()
    assert look.end() == 0 and look.value.st_size == 5


def test_a_signal_that_was_just_read_is_no_request_of_the_homes(tree):
    table = Table(tree)
    table.stop()
    n = next(n for n in range(64) if table.state(n) == FREE)
    table.put(n, table.head.pack(48, INTERRUPT, 7, 0, 0, 0, 0, 0, 0) + struct.pack("=Q", 6))
    table.set(n, READING)
    table.kill()
    look = Doing(os.listdir, tree.here)
    assert look.end() == 0


def test_a_call_that_was_about_to_end_by_a_signal_ends(tree):
    look, table = held_look(tree)
    table.set(table.last(LOOKUP), TAKEN, ENDED, 1)
    table.kill()
    assert look.end() == errno.EINTR
    tree.link.let()


WRITER = r"""
import os, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND)
print("begun", flush=True)
for i in range(1 << 30):
    data = bytes([i % 255 + 1]) * 300_000
    assert os.write(f, data) == len(data), i
    if i % 8 < 7: continue
    os.fsync(f)
    with open(sys.argv[2], "rb") as at_home:
        wanted = b"".join(bytes([k % 255 + 1]) * 300_000 for k in range(i - 7, i + 1))
        assert at_home.read() == wanted, i
    os.ftruncate(f, 0)
    if os.path.exists(sys.argv[3]): sys.exit(0)
"""


def test_a_program_that_writes_hears_nothing_of_clients_that_are_killed(tree, tmp_path):
    """Each time at another point of a write of many pages: whole, at its place, and no error."""
    over = tmp_path / "over"
    work = subprocess.Popen(["python3", "-c", WRITER, tree.here / "f", tree.home / "f", over],
                            stdout=subprocess.PIPE, text=True)
    assert work.stdout.readline() == "begun\n"
    when = random.Random(1)
    for _ in range(80):
        tree.kill_client()
        time.sleep(when.uniform(0, 0.02))  # no wait for something: where it strikes
    over.touch()
    work.communicate(timeout=LIMIT)
    assert work.returncode == 0
