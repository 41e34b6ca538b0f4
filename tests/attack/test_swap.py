# SPDX-License-Identifier: GPL-2.0-or-later
"""A user changes a directory on the path of a job's open file while the job is frozen or moved, so
that the name leads to somebody else's file. CRIU opens files by their names."""
import ctypes
import os
import random
import shutil
import threading

import pytest

from cluster import until

PAYLOAD = b"ATTACK"
# Opens its files, says so, and at a word writes to what it holds.
HOLDER = """
import mmap, os, socket, sys
way, path = sys.argv[1:3]
if way == "file": held = os.open(path, os.O_RDWR)
if way == "map":
    fd = os.open(path, os.O_RDWR)
    held = mmap.mmap(fd, 0)
    os.close(fd)
if way == "cwd": os.chdir(os.path.dirname(path))
if way == "socket":
    held = socket.socket(socket.AF_UNIX)
    held.bind(path)
    held.listen()
os.write(1, b"ready\\n")
while not os.path.exists(sys.argv[3]): os.system("sleep 0.05")
if way == "file": os.pwrite(held, b"ATTACK", 0)
if way == "map": held[0:6] = b"ATTACK"
if way == "cwd":
    fd = os.open("passwd", os.O_WRONLY)
    os.write(fd, b"ATTACK")
os.write(1, b"done\\n")
"""


@pytest.fixture
def place():
    """The victim's directory and the user's, alike in what CRIU compares."""
    top = f"/var/tmp/souk-attack-{os.getpid()}"
    shutil.rmtree(top, ignore_errors=True)
    for who in ("victim", "user"):
        os.makedirs(f"{top}/{who}")
        with open(f"{top}/{who}/passwd", "wb") as f:
            f.write(b"as it was " * 10)
    yield top
    shutil.rmtree(top)


def swap(place):
    os.rename(f"{place}/user", f"{place}/away")
    os.symlink(f"{place}/victim", f"{place}/user")


def unswap(place):
    os.unlink(f"{place}/user")
    os.rename(f"{place}/away", f"{place}/user")


def begin(market, place, way, *how):
    job = market.srun("-p", 50, *how, "/usr/bin/python3", "-c", HOLDER, way,
                      f"{place}/user/passwd", f"{place}/go")
    job.printed(1)
    return job, market.until_runs(job.id)["where"]


def victim(place):
    with open(f"{place}/victim/passwd", "rb") as f:
        return f.read()


def freeze(market, job):
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")


def go_on(place, job):
    with open(f"{place}/go", "w"):
        pass
    job.printed(2)


@pytest.mark.parametrize("way", ["file", "map", "cwd"])
def test_a_directory_swapped_while_a_job_was_frozen_gives_it_no_other_file(market, place, way):
    job, _ = begin(market, place, way)
    freeze(market, job)
    swap(place)
    market.tool("marketctl", "release", job.id)
    said = until("the thaw has an end", lambda: "runs" if market.job(job.id)["status"] == "run" else
                 next((w for w in job.words if "is another" in w), None))
    if said == "runs":
        go_on(place, job)
    assert PAYLOAD not in victim(place)
    # Once the directory is there again, so is the job.
    assert said != "runs"
    unswap(place)
    market.until_runs(job.id)
    go_on(place, job)
    assert PAYLOAD not in victim(place)
    job.wait()


def test_a_frozen_job_that_goes_on_elsewhere_gets_no_other_file_either(market, place):
    job, where = begin(market, place, "file")
    freeze(market, job)
    swap(place)
    market.tool("pvdctl", "--node", where, "market", "off")
    market.tool("marketctl", "release", job.id)
    said = until("the thaw has an end", lambda: "runs" if market.job(job.id)["status"] == "run" else
                 next((w for w in job.words if "is another" in w), None))
    if said == "runs":
        go_on(place, job)
    assert PAYLOAD not in victim(place) and said != "runs"
    unswap(place)
    market.until_runs(job.id)
    go_on(place, job)
    job.wait()


# The same file from its start, in whatever form it is moved.
WRITER = """
import os, sys, time
block = bytearray(int(sys.argv[3]) << 20)
for at in range(0, len(block), 4096): block[at] = 1
held = os.open(sys.argv[1], os.O_RDWR)
os.write(1, b"ready\\n")
while not os.path.exists(sys.argv[2]):
    os.pwrite(held, b"ATTACK", 0)
    time.sleep(0.01)
"""


class Swapper(threading.Thread):
    """Exchanges the directory and the link again and again, in no time."""

    def __init__(self, place):
        super().__init__(daemon=True)
        self.place, self.over = place, threading.Event()
        os.symlink(f"{place}/victim", f"{place}/other")
        self.libc = ctypes.CDLL(None, use_errno=True)

    def exchange(self):
        names = [f"{self.place}/{n}".encode() for n in ("user", "other")]
        assert self.libc.renameat2(-100, names[0], -100, names[1], 2) == 0

    def run(self):
        rng = random.Random(7)
        while not self.over.wait(rng.uniform(0.005, 0.05)):
            self.exchange()

    def stop(self):
        self.over.set()
        self.join()
        if os.path.islink(f"{self.place}/user"):
            self.exchange()


@pytest.mark.parametrize("form, megabytes, moves", [("auto", 0, 30), ("safe", 24, 20),
                                                    ("fast", 24, 20)])
def test_a_directory_that_is_swapped_during_moves_gives_the_job_no_other_file(market, place, form,
                                                                              megabytes, moves):
    job = market.srun("-p", 50, "--move", form, "/usr/bin/python3", "-c", WRITER,
                      f"{place}/user/passwd", f"{place}/go", megabytes)
    job.printed(1)
    where = market.until_runs(job.id)["where"]
    swapper = Swapper(place)
    swapper.start()
    try:
        for _ in range(moves):
            there, failed = "n2" if where == "n1" else "n1", market.job(job.id)["failed_moves"]
            market.tool("marketctl", "--hold", "move", job.id, there)
            where = market.until_job(job.id, "is no longer on its way", lambda j: (
                j["status"] == "run" and "going_to" not in j and
                (j["where"] == there or j["failed_moves"] > failed)))["where"]
            assert PAYLOAD not in victim(place)
    finally:
        swapper.stop()
    with open(f"{place}/go", "w"):
        pass
    assert job.wait() == 0
