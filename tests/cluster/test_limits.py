# SPDX-License-Identifier: GPL-2.0-or-later
"""What a job may have of its node: memory as `srun -m` says, a number of processes; the same
wherever it has moved to."""
import glob
import subprocess

import pytest

from conftest import mount_points, read_text, until

EATER = """
import sys
held = bytearray(16 << 20)
for line in sys.stdin:
    more = bytearray(int(line) << 20)
    for i in range(0, len(more), 4096): more[i] = 1
    print(len(more) >> 20, flush=True)
"""


def move(market, id):
    here = market.until_runs(id)["where"]
    there = next(n for n in market.nodes() if n != here)
    market.tool("marketctl", "--hold", "move", id, there)
    market.until_runs(id, there)


def limit_of(market, id, *files):
    """What stands in the control group of its capsule, in whichever hierarchy has one of these
    files."""
    # Where it came from its capsule may still stand for a moment.
    (node, capsule, _), = until("one capsule",
                                lambda: len(found := market.capsules(id)) == 1 and found)
    found = [p for root in mount_points(("cgroup", "cgroup2")) for f in files
             for p in glob.glob(f"{root}/{market.tag}/{node}/jobs/{capsule}/{f}")]
    return read_text(found[0]).strip() if found else None


@pytest.mark.parametrize("form", ["auto", "safe", "fast"])
def test_a_job_has_the_memory_that_it_asked_for_and_no_more_also_where_it_has_moved_to(market,
                                                                                       form):
    def start(*options):
        job = market.srun("--move", form, "-p", 50, *options, "/usr/bin/python3", "-c", EATER,
                          stdin=subprocess.PIPE)
        market.until_runs(job.id)
        return job

    def ask(job, megabytes):
        job.process.stdin.write(b"%d\n" % megabytes)
        job.process.stdin.flush()
    job = start("-m", 64)
    memory = ("memory.max", "memory.limit_in_bytes")
    if limit_of(market, job.id, *memory) is None:
        pytest.skip("no memory controller")
    for _ in range(2):
        ask(job, 15)
        job.printed(job.lines() + 1)
        move(market, job.id)
        assert int(limit_of(market, job.id, *memory)) == 64 << 20
    other = start()
    ask(other, 200)
    other.printed(1)
    ask(job, 200)
    assert job.wait() == 128 + 9 == market.job(job.id)["exit"]
    job.said(r"killed: it may have 64 MB of memory \(srun -m\)")
    assert bytes(job.out) == b"15\n15\n" and not job.told
    other.process.stdin.close()
    assert other.wait() == 0


def test_the_processes_of_a_job_are_counted_and_limited_wherever_it_is(market):
    job = market.srun("-p", 50, "sleep", 1000)
    market.until_runs(job.id)
    if limit_of(market, job.id, "pids.max") is None:
        pytest.skip("no pids controller")
    for _ in range(2):
        assert limit_of(market, job.id, "pids.max") == "4096"
        assert int(limit_of(market, job.id, "pids.current")) == 2  # it and its PID 1
        move(market, job.id)
