# SPDX-License-Identifier: GPL-2.0-or-later
"""A job that is frozen to disk was restored for trial beside itself first. One that could not thaw
stands in memory instead, and nobody sees anything of the trial. Files that others change meanwhile
are the same files."""
import fcntl
import os
import subprocess
import threading
import time

import pytest

from conftest import LIMIT

# It has of each kind what a restore makes, takes or changes outside of its processes. In the end it
# says what of that is not as it was.
PROGRAM = """
import fcntl, os, socket, sys
d, way = sys.argv[1:]
os.chdir(d)
def at(name, kind):
    s = socket.socket(socket.AF_UNIX, kind)
    s.bind(d + "/" + name)
    return s
listens = at("listens", socket.SOCK_STREAM)
listens.listen(5)
one, other = at("one", socket.SOCK_DGRAM), at("other", socket.SOCK_DGRAM)
one.connect(d + "/other"), other.connect(d + "/one")
server = socket.create_server(("127.0.0.1", 0))
gone, linked = open("gone", "w+"), open("linked", "w+")
for f in gone, linked:
    f.write("as it was"), f.flush()
os.unlink("gone")
os.link("linked", "its other name"), os.unlink("linked")
locked = open("locked", "w")
fcntl.flock(locked, fcntl.LOCK_EX)
os.mkfifo("fifo")
fifo = os.open("fifo", os.O_RDWR)
os.write(fifo, b"once")
if way == "could not thaw":  # its working directory is gone, and its name is a file's
    os.mkdir("work"), os.chdir("work"), os.rmdir("../work")
    open(d + "/work", "w").close()
print("has all", flush=True)
sys.stdin.readline()
client = socket.socket(socket.AF_UNIX)
client.connect(d + "/listens"), listens.accept()
one.send(b"x"), other.send(b"y")
assert other.recv(9) == b"x" and one.recv(9) == b"y"
with socket.create_connection(server.getsockname()):
    server.accept()
assert all(f.seek(0) == 0 and f.read() == "as it was" for f in (gone, linked))
os.set_blocking(fifo, False)
assert os.read(fifo, 99) == b"once"
print("has all", flush=True)
"""
NAMES = ["fifo", "its other name", "listens", "locked", "one", "other"]
SOCKETS = ["listens", "one", "other"]


class Watch:
    """Looks again and again at what others see, until it is told to stop."""
    def __init__(self, directory):
        self.directory = str(directory)
        self.inodes = self.look()
        self.seen, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def look(self):
        return [os.lstat(f"{self.directory}/{name}").st_ino for name in SOCKETS]

    def run(self):
        with open(f"{self.directory}/locked") as file:
            while not self.over.is_set():
                try:
                    if self.look() != self.inodes:
                        self.seen.append("the name of a socket is another one's")
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.seen.append("somebody else has its lock")
                    fcntl.flock(file, fcntl.LOCK_UN)
                except FileNotFoundError as e:
                    self.seen.append(str(e))
                except BlockingIOError:
                    pass

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@pytest.mark.parametrize("way", ["thaws", "could not thaw"])
def test_a_freeze_to_disk_is_tried_first_and_nobody_sees_it(market, tmp_path, way):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", PROGRAM, tmp_path, way,
                      stdin=subprocess.PIPE)
    job.printed(1)
    with Watch(tmp_path) as watch:
        done = market.tool("marketctl", "--hold", "--wait", "60s", "freeze", job.id, check=False)
    assert done.returncode == (way != "thaws"), done  # it is not on a disk
    assert not watch.seen, watch.seen[:3]
    told = market.job(job.id)
    assert told["status"] == "suspend" and bool(told.get("stopped_in_place")) == (way != "thaws")
    if way != "thaws":
        assert told["cannot_move_code"] == "file_changed", told
        assert told["cannot_move"].startswith("it could not thaw: "), told
    market.tool("marketctl", "--hold", "--wait", "60s", "thaw", job.id, told["where"])
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait(LIMIT) == 0, job.told
    assert bytes(job.out).decode().splitlines() == ["has all"] * 2
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES + ["work"] * (way != "thaws"))


# For each line of its input it says what it finds in a file that it has open twice and mapped.
SHARES = """
import mmap, os, sys
a, b = os.open("shared", os.O_RDWR), os.open("shared", os.O_RDONLY)
mapped = mmap.mmap(a, 4096)
print("has all", flush=True)
while sys.stdin.readline():
    st = os.fstat(a)
    print(st.st_size, oct(st.st_mode), os.pread(b, 9, st.st_size - 4), mapped[:4], flush=True)
"""


class Sharer:
    """A job that shares a file with others, and whom its thaws ask what it finds there."""
    def __init__(self, market, top, *options):
        self.market, self.file = market, top / "shared"
        self.file.write_bytes(b"0" * 6000)
        self.job = market.srun("-p", 50, *options, "/usr/bin/python3", "-c", SHARES, cwd=top,
                               stdin=subprocess.PIPE)
        self.job.printed(1)

    def order(self, verb, *where, check=True):
        return self.market.tool("marketctl", "--hold", "--wait", "60s", verb, self.job.id, *where,
                                check=check, limit=80)

    def finds(self):
        """It says what is in the file now."""
        before = self.job.lines()
        self.job.process.stdin.write(b"\n")
        self.job.process.stdin.flush()
        self.job.printed(before + 1)
        st, data = self.file.stat(), self.file.read_bytes()
        assert bytes(self.job.out).decode().splitlines()[-1] == (
            f"{st.st_size} {oct(st.st_mode)} {data[-4:]} {data[:4]}")

    def frozen_while(self, change, node):
        self.order("freeze")
        change()
        self.order("thaw", node)
        self.finds()


def changes_of(file):
    def longer():
        file.write_bytes(b"more" * 5000)

    def shorter():
        os.truncate(file, 4100)

    def closed():
        file.chmod(0o600)
    return longer, shorter, closed


def test_a_file_that_others_make_longer_or_shorter_is_the_same_file(market, tmp_path):
    sharer = Sharer(market, tmp_path)
    for node, change in zip(("n2", "n3", "n2"), changes_of(sharer.file)):
        sharer.frozen_while(change, node)
    over = threading.Event()

    def grow():
        with open(sharer.file, "ab", buffering=0) as f:
            while not over.is_set():
                f.write(b"grow")
                time.sleep(0.001)
    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for node in ("n3", "n2") * 3:
            sharer.order("move", node)
        sharer.order("freeze")
        assert not market.job(sharer.job.id).get("stopped_in_place"), market.job(sharer.job.id)
        sharer.order("thaw", "n1")
    finally:
        over.set()
        thread.join()
    sharer.finds()
    assert market.job(sharer.job.id)["failed_moves"] == 0


@pytest.mark.parametrize("length", [6000, 7000])
def test_another_file_under_that_name_is_refused_in_words(market, tmp_path, length):
    sharer = Sharer(market, tmp_path)
    sharer.order("freeze")
    os.rename(sharer.file, tmp_path / "kept")
    sharer.file.write_bytes(b"1" * length)
    done = sharer.order("thaw", "n2", check=False)
    assert done.returncode != 0 and "is another file now" in done.stderr, done
    assert str(sharer.file) in done.stderr, done
    os.rename(tmp_path / "kept", sharer.file)
    sharer.order("thaw", "n2")
    sharer.finds()
