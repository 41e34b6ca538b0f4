# SPDX-License-Identifier: GPL-2.0-or-later
"""A job has limits on its node: the memory that `srun -m` says, and a number of processes. They
stay the same wherever the job moves."""
import os
import subprocess

import pytest

from conftest import mount_points, read_text, until
from test_checkpoints import checkpoint, configured

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
    """Reads one of these files in the control group of the job's capsule, in whichever hierarchy
    has one of them."""
    # The node that the job came from may have its old capsule for a moment.
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
    assert market.job(job.id)["why_code"] == "memory_limit"
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
        # The processes that have restored the job may still be ending in its group.
        until("it and its PID 1", lambda: int(limit_of(market, job.id, "pids.current")) == 2)
        move(market, job.id)


def test_a_guest_has_the_swap_and_the_disk_that_the_owner_leaves_it_and_no_more(market):
    with configured(market, "n1", lambda text: "swap_mb = 16\ndisk_mb_per_s = 7\n" + text):
        market.until_up()
        job = market.srun("--node", "n1", "-p", 50, "-m", 64, "sleep", 1000)
        market.until_runs(job.id, "n1")
        limits = market.ctl("pvdctl", "--node", "n1", "limits")
        assert limits["swap_mb_each"] == 16 and limits["disk_mb_per_s_each"] == 7, limits
        said = market.tool("pvdctl", "--node", "n1", "limits").stdout
        assert "16 MB of one guest" in said and "7 MB/s of one guest" in said, said
        swap = limit_of(market, job.id, "memory.swap.max", "memory.memsw.limit_in_bytes")
        if swap is not None:
            assert int(swap) >> 20 in (16, 64 + 16)  # v1: memory and swap together
        disk = limit_of(market, job.id, "io.max", "blkio.throttle.write_bps_device")
        if disk is not None and disks():
            assert str(7 << 20) in disk and disk.split()[0] in disks(), disk
        if (other := limit_of(market, job.id, "blkio.throttle.read_bps_device")) is not None:
            assert other == disk
        market.tool("marketctl", "--hold", "move", job.id, "n2")  # there is no such limit
        market.until_runs(job.id, "n2")
        assert limit_of(market, job.id, "io.max", "blkio.throttle.write_bps_device") in (None, "")
    assert "swap_mb_each" not in market.ctl("pvdctl", "--node", "n1", "limits")


def disks():
    return [read_text(f"/sys/block/{name}/dev").strip() for name in os.listdir("/sys/block")
            if not name.startswith(("loop", "ram", "zram"))]


# Each group has a number, which no other gets; its name the job does not see.
WHERE = """
import os
mount = [m.split()[1] for m in open("/proc/mounts") if m.split()[2] == "cgroup2"][0]
print(os.stat(mount).st_ino, flush=True)
"""


def test_the_control_groups_of_a_job_serve_the_next_which_finds_nothing_of_it(market):
    if not mount_points(("cgroup2",)):
        pytest.skip("no cgroup v2: each job has new groups")
    for node in ("n2", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")

    def groups_of(code):
        """Runs a job with this code, waits for its end, and returns the number of the control group
        that it was in."""
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
    # A daemon keeps some empty groups for its next jobs. When it dies, none of them may be left.
    kept = groups_of("")
    assert market.kept_groups("n1") > 0
    market.kill_daemon("n1")
    assert market.kept_groups("n1") == 0
    assert groups_of("") != kept
    # A job of root changes a setting of its own group: nobody else gets that.
    changed = groups_of("""
path = [p.split("::")[1] for p in open("/proc/self/cgroup").read().split() if "::" in p][0]
with open(mount + path + "/cgroup.max.depth", "w") as f:
    f.write("3")
""")
    assert groups_of("") != changed


SHARER = """
import sys
from multiprocessing import shared_memory
held = shared_memory.SharedMemory(create=True, size=40 << 20)
for at in range(0, 40 << 20, 4096): held.buf[at] = at >> 12 & 255
for line in sys.stdin:
    print(all(held.buf[at] == at >> 12 & 255 for at in range(0, 40 << 20, 4096)), flush=True)
held.close(), held.unlink()
"""


@pytest.mark.parametrize("way", ["moved", "frozen", "checkpointed"])
def test_a_job_with_much_in_its_own_dev_shm_is_not_killed_for_its_copy(market, way):
    options = ["--checkpoint-every", "1s"] if way == "checkpointed" else []
    job = market.srun("-m", 64, "-p", 50, *options, "/usr/bin/python3", "-c", SHARER,
                      stdin=subprocess.PIPE)

    def ask(answers):
        job.process.stdin.write(b"\n")
        job.process.stdin.flush()
        job.printed(answers)
    ask(1)
    memory = ("memory.max", "memory.limit_in_bytes")
    if limit_of(market, job.id, *memory) is None:
        pytest.skip("no memory controller")
    if way == "moved":
        move(market, job.id)
    elif way == "frozen":
        market.tool("marketctl", "--hold", "--wait", "60s", "freeze", job.id)
        market.tool("marketctl", "--hold", "--wait", "60s", "thaw", job.id, "n1")
    else:
        checkpoint(market, job)
    ask(2)
    until("its limit", lambda: int(limit_of(market, job.id, *memory)) == 64 << 20)
    job.process.stdin.close()
    assert job.wait() == 0, job.told
    assert bytes(job.out).decode().split() == ["True"] * 2
