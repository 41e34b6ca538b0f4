# SPDX-License-Identifier: GPL-2.0-or-later
"""A job that goes back to a checkpoint, and the files that it has written since: put back with
srun --files-snapshot, else named. The home is n1, its directory on a file system that can copy by
reference."""
import os
import shutil
import subprocess

import pytest

from codes import refused
from conftest import alive, kill, own_number, until
from test_checkpoints import checkpoint, lose
from test_crash import Absence

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")

# Its memory and its files say the same, in each round: a file that is replaced, one that grows and
# is open all the time, one that is made and one that goes.
WORK = r"""
import os, sys, time
end = sys.argv[1]
log, n = open("log", "a", buffering=1), 0
with open("state", "w") as f: f.write("0")
while not os.path.exists(end):
    with open("state") as f: there = f.read()
    size = os.stat("log").st_size
    if there != str(n) or size != os.fstat(log.fileno()).st_size or size != sum(
            len(str(i)) + 1 for i in range(n)):
        print("bad", n, there, size, flush=True)
        sys.exit(1)
    log.write(f"{n}\n")
    n += 1
    with open("state.new", "w") as f: f.write(str(n))
    os.rename("state.new", "state")
    open(f"made{n}", "w").close()
    if n > 5: os.unlink(f"made{n - 5}")
    time.sleep(0.02)
print("good", n, flush=True)
"""


@pytest.fixture(scope="module")
def by_reference(tmp_path_factory):
    """A directory on a file system of its own."""
    image = tmp_path_factory.mktemp("image") / "disk"
    made = [m for m in (["mkfs.xfs", "-q"], ["mkfs.btrfs", "-q"]) if shutil.which(m[0])]
    if not made:
        pytest.skip("mkfs.xfs or mkfs.btrfs is needed (apt-get install xfsprogs)")
    with open(image, "wb") as f:
        f.truncate(400 << 20)
    subprocess.run([*made[0], image], check=True)
    here = tmp_path_factory.mktemp("by-reference")
    if subprocess.run(["mount", "-o", "loop", image, here], check=False).returncode != 0:
        pytest.skip("no loop device, or no such file system, here")
    yield here
    subprocess.run(["umount", "-l", here], check=True)


@pytest.fixture
def top(by_reference, market, request):
    top = by_reference / request.node.name
    top.mkdir()
    shutil.copy2("/usr/bin/python3", top / "python")
    (top / "work.py").write_text(WORK)
    return top


def begin(market, top, *options):
    return market.srun("-p", 50, "--files=home", "--checkpoint-every", "1s", *options, "--node",
                       "n1", top / "python", top / "work.py", f"{top}.end", cwd=top)


def rounds(top):
    try:
        return int((top / "state").read_text() or 0)
    except OSError:
        return 0


def until_rounds(top, more):
    before = rounds(top)
    until("it works", lambda: rounds(top) > before + more)


def check_end(job, top):
    open(f"{top}.end", "w").close()
    assert job.wait() == 0, (job.told, job.out)
    assert bytes(job.out).split()[0] == b"good"
    assert (top / "log").read_text().split() == [str(i) for i in range(rounds(top))]
    until("its snapshots are gone", lambda: not (top / ".souk-snapshots").exists())


def mark(job):
    return until("the mark", lambda: [t for t in job.told if "goes on from its checkpoint" in t])[0]


def test_a_job_whose_node_is_lost_finds_its_files_as_they_were(market, top):
    job = begin(market, top, "--files-snapshot")
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    checkpoint(market, job)
    until_rounds(top, 10)
    with Absence(market):
        lose(market, "n2", job)
        market.tool("marketctl", "node", "lost", "n2")
        said = mark(job)
        assert "put back to what was there then" in said and "log" in said
        market.until_job(job.id, "runs elsewhere", lambda j: j["status"] == "run" and
                         "going_to" not in j and j["where"] != "n2")
        until_rounds(top, 5)
    market.until_up()
    check_end(job, top)
    assert market.job(job.id)["resumes"] == 1


def test_at_its_home_too(market, top):
    job = begin(market, top, "--files-snapshot")
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "move", job.id, "n1")
    market.until_runs(job.id, "n1")
    checkpoint(market, job)
    until_rounds(top, 10)
    for _, _, pids in market.capsules(job.id, "n1"):
        kill(sorted(filter(alive, pids), key=own_number))  # PID 1 first: else it tells their end
    assert "put back to what was there then" in mark(job)
    market.until_runs(job.id)
    until_rounds(top, 5)
    check_end(job, top)


def test_without_it_what_was_written_since_is_named(market, top):
    job = begin(market, top)
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    checkpoint(market, job)
    until_rounds(top, 10)
    with Absence(market):
        lose(market, "n2", job)
        market.tool("marketctl", "node", "lost", "n2")
        said = mark(job)
        assert "written since then, and not put back" in said and "log" in said
        assert not (top / ".souk-snapshots").exists()
        # A file that it had open may be gone, and it waits; else it goes on, and ends as soon as it
        # finds in its files what it has no memory of.
        done = market.tool("marketctl", "cancel", job.id, check=False)
        if done.returncode != 0:
            refused(done, "not_possible")
            assert job.wait() == 1, (job.told, job.out)  # by its own check, or an exception
    market.until_up()


def test_what_cannot_be_is_refused_in_a_line(market, by_reference):
    every = ("--checkpoint-every", "1m")
    home = ("--files=home", "--files-snapshot")
    for where, code, *options in (
            (by_reference, "invalid", *home),
            (by_reference, "invalid", "--files=local", "--files-snapshot", *every),
            ("/dev/shm", "not_possible", *home, *every)):
        refused(market.tool("srun", "-p", "50", "--detach", "--node", "n1", *options, "/bin/true",
                            check=False, cwd=where), code)
