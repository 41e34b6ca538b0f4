# SPDX-License-Identifier: GPL-2.0-or-later
"""What a job may have of its node: memory as `srun -m` says, a number of processes; the same
wherever it has moved to."""
import os
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
    (node, _, _), = until("one capsule",
                          lambda: len(found := market.capsules(id)) == 1 and found)
    found = [p for group in market.groups(id, node) for f in files
             if os.path.exists(p := f"{group}/{f}")]
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
    for answers in (1, 2):
        ask(job, 15)
        job.printed(answers)
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


WHERE = "\nprint(open('/proc/self/cgroup').read(), flush=True)\n"


def test_the_control_groups_of_a_job_serve_the_next_which_finds_nothing_of_it(market):
    if not mount_points(("cgroup2",)):
        pytest.skip("no cgroup v2: each job has new groups")
    for node in ("n2", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")

    def groups_of(code):
        """Of a job that does this, and has ended."""
        job = market.srun("-p", 50, "/usr/bin/python3", "-c", WHERE + code)
        assert job.wait() == 0, job.words
        until("nothing of it is left", lambda: not market.capsules(job.id, empty=True))
        return bytes(job.out)

    groups = groups_of("")
    assert groups_of("import time\nwhile time.process_time() < 0.5: pass") == groups
    # The CPU time of the job before is not charged, also where a new daemon finds the job.
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", WHERE + "input()", stdin=subprocess.PIPE)
    job.printed(len(groups.splitlines()))
    assert bytes(job.out) == groups
    market.kill_daemon("n1")
    job.process.stdin.write(b"\n")
    job.process.stdin.close()
    assert job.wait() == 0
    market.until_job(job.id, "is paid for", lambda j: j["status"] == "finish")
    receipts = until("its receipt is there",
                     lambda: market.ctl("marketctl", "receipts", "--job", job.id))
    assert sum(float(r["cpu_s"]) for r in receipts) < 0.4, receipts
    until("nothing of it is left", lambda: not market.capsules(job.id, empty=True))
    # Of groups that are kept none outlives a daemon that dies.
    kept = groups_of("")
    assert market.kept_groups("n1") > 0
    market.kill_daemon("n1")
    assert market.kept_groups("n1") == 0
    assert groups_of("") != kept
    # A job of root changes a setting of its own group: nobody else gets that.
    changed = groups_of("""
path = [p.split("::")[1] for p in open("/proc/self/cgroup").read().split() if "::" in p][0]
mount = [m.split()[1] for m in open("/proc/mounts") if m.split()[2] == "cgroup2"][0]
with open(mount + path + "/cgroup.max.depth", "w") as f:
    f.write("3")
""")
    assert groups_of("") != changed
