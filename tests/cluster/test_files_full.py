# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs whose home has no more room, or none for its user by a quota, with writes that were answered
before the home had them (docs/files.md, Writes ahead): each hears of it, and nothing else is hurt.
The home is n1, the job runs on n2."""
import contextlib
import errno
import os
import shutil
import subprocess

import pytest

from conftest import Market, bring_up, until
from test_home_files import begin, check_end, until_it_works

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")
SPARE, PIECE = 64 << 10, 128 << 10  # what room there is, and what is written into it

WRITES = r"""
import errno, os, sys, time
then, piece = sys.argv[1], bytes(range(256)) * 512
def told(call, *words):
    try:
        call(*words)
        return "nothing"
    except OSError as e:
        return errno.errorcode[e.errno]
def wait(name):
    while not os.path.exists(f"../{name}"): time.sleep(0.05)
def after_a_while():
    for _ in range(400):
        if (word := told(os.pwrite, f, b"y", 0)) != "nothing": return word
        time.sleep(0.05)
    return "nothing"
other = open("../other", "wb", buffering=0)
other.write(piece)
f = os.open("full", os.O_RDWR | os.O_CREAT, 0o644)
print("write", told(os.write, f, piece), flush=True)
if then == "wait":
    wait("heard")
    then = "close"
print(then, {"close": lambda: told(os.close, f), "fsync": lambda: told(os.fsync, f),
             "next": after_a_while}[then](), flush=True)
if then != "close": print("fsync", told(os.fsync, f), "close", told(os.close, f), flush=True)
other.write(piece)
print("other", told(os.fsync, other.fileno()), told(other.close), flush=True)
wait("room")
with open("again", "wb") as g:
    g.write(piece)
    g.flush()
    os.fsync(g.fileno())
print("again", open("again", "rb").read() == piece, flush=True)
"""


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "3", "--speeds", "60,100,80", "--cpus", "2",
                               "--private-files"))


def command(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Small:
    """A file system with some room, mounted on `at`; `says` is the error when there is none."""

    def __init__(self, kind, top):
        self.kind, self.at = kind, top / "small"
        self.says = errno.EDQUOT if kind == "quota" else errno.ENOSPC
        self.at.mkdir()
        if kind == "tmpfs":
            command("mount", "-t", "tmpfs", "-o", "size=2m", "none", self.at)
            return
        make = {"ext4": ["mkfs.ext4", "-q", "-m", "0"], "quota": ["mkfs.btrfs", "-q"]}[kind]
        if not shutil.which(make[0]):
            pytest.skip(f"{make[0]} is needed")
        with open(top / "image", "wb") as f:
            f.truncate((4 if kind == "ext4" else 120) << 20)
        command(*make, top / "image")
        if subprocess.run(["mount", "-o", "loop", top / "image", self.at],
                          check=False).returncode != 0:
            pytest.skip(f"no loop device here, or no file system of {make[0]}")
        if kind == "quota":
            command("btrfs", "quota", "enable", self.at)
            command("btrfs", "qgroup", "limit", "2M", self.at)

    def fill(self):
        """But for SPARE."""
        with open(self.at / "spare", "wb") as f:
            f.write(os.urandom(SPARE))
            os.fsync(f.fileno())
        with open(self.at / "filler", "wb", buffering=0) as f, contextlib.suppress(OSError):
            for _ in range(64 << 10):
                f.write(os.urandom(4096))
                os.fsync(f.fileno())
        os.unlink(self.at / "spare")
        command("sync", "-f", self.at)

    def empty(self):
        os.unlink(self.at / "filler")
        if self.kind == "quota":
            command("btrfs", "qgroup", "limit", "none", self.at)
        command("sync", "-f", self.at)

    def unmount(self):
        subprocess.run(["umount", "-l", self.at], check=True)


@pytest.fixture(params=["tmpfs", "ext4", "quota"])
def small(request, tmp_path):
    small = Small(request.param, tmp_path)
    try:
        small.fill()
        yield small
    finally:
        small.unmount()


def writes(market, small, then):
    job = market.srun("-p", 50, "--files=home", "--node", "n1", "python3", "-c", WRITES, then,
                      cwd=small.at)
    job.printed(1)
    assert job.out.splitlines()[0] == b"write nothing"  # its home has yet to say no
    return job


def ends_well(market, small, job, top, heard):
    """It heard what it has to, once; what it wrote elsewhere, and then here, is at home."""
    job.printed(1 + len(heard) + 1)
    small.empty()
    (top / "room").touch()
    assert job.wait() == 0, job.told
    assert bytes(job.out).decode().splitlines()[1:] == [
        *heard, "other nothing nothing", "again True"]
    piece = bytes(range(256)) * (PIECE // 256)
    assert (top / "other").read_bytes() == 2 * piece
    assert (small.at / "again").read_bytes() == piece
    seen = market.job(job.id)
    assert "n1" not in seen["places"], seen


@pytest.mark.parametrize("then", ["close", "fsync", "next"])
def test_a_job_that_wrote_ahead_hears_that_its_home_has_no_room(market, small, tmp_path, then):
    job = writes(market, small, then)
    heard = [f"{then} {errno.errorcode[small.says]}"]
    ends_well(market, small, job, tmp_path,
              heard + (["fsync nothing close nothing"] if then != "close" else []))


def test_a_full_home_costs_no_other_job_of_its_user_anything(market, small, tmp_path):
    (tmp_path / "beside").mkdir()
    beside = begin(market, tmp_path / "beside", node="n1")
    market.until_runs(beside.id)
    until_it_works(tmp_path / "beside")
    job = writes(market, small, "close")
    until_it_works(tmp_path / "beside")
    ends_well(market, small, job, tmp_path, [f"close {errno.errorcode[small.says]}"])
    check_end(market, beside, tmp_path / "beside")


def test_a_job_that_has_yet_to_hear_is_not_moved_nor_frozen_until_it_has(market, small, tmp_path):
    job = writes(market, small, "wait")
    size = os.stat(small.at / "full").st_size
    assert size <= SPARE
    for verb, *where in (("move", "n3"), ("freeze",)):
        market.tool("marketctl", "--wait", "10s", verb, job.id, *where, check=False)
        until("it goes on where it was", lambda: (seen := market.job(job.id))["status"] == "run" and
              seen["where"] == "n2" and "going_to" not in seen and seen["failed_moves"] >= 1)
        assert len(job.out.splitlines()) == 1
    (tmp_path / "heard").touch()
    job.printed(3)
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    ends_well(market, small, job, tmp_path, [f"close {errno.errorcode[small.says]}"])
