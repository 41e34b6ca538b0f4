# SPDX-License-Identifier: GPL-2.0-or-later
"""An owner keeps a part of his machine while he is here: guests run on with the rest."""
import subprocess
import time

import pytest

from codes import refused
from conftest import until
from test_owner import group_file, python
from test_presence import HOG

# Two processes that use what they get, and tell how much that was by their own accounts.
BURN = """
import os, time
os.fork()
while True:
    until = time.monotonic() + 0.25
    while time.monotonic() < until: pass
    os.write(1, b"%d %f %f\\n" % (os.getpid(), time.monotonic(), time.process_time()))
"""


def accounts(job):
    """Reads the job's output: for each of its processes, a list of (time, CPU time that it had
    used)."""
    told = {}
    for line in bytes(job.out).decode().splitlines(keepends=True):
        words = line.split()
        if line.endswith("\n") and len(words) == 3:
            told.setdefault(words[0], []).append((float(words[1]), float(words[2])))
    return told


def used_share(job, since):
    """CPUs that it used from then on, all its processes together, and over which time."""
    parts, spans = [], []
    for told in accounts(job).values():
        told = [t for t in told if t[0] >= since]
        if len(told) > 1 and told[-1][0] - told[0][0] >= 3:
            spans.append(told[-1][0] - told[0][0])
            parts.append((told[-1][1] - told[0][1]) / spans[-1])
    return (sum(parts), min(spans)) if len(parts) == 2 else None


@pytest.fixture
def hog():
    process = subprocess.Popen(HOG)
    yield process
    process.kill()
    process.wait()


def quota(market, node):
    return int(group_file(market, node, "", "cpu.max", "cpu.cfs_quota_us"))


def provider(market, node):
    return next(p for p in market.ctl("marketctl", "list-providers") if p["node"] == node)


@pytest.fixture
def dear_elsewhere(market):
    """Makes all other nodes ask for more than these jobs bid, so that a job stays though its node
    is slower now."""
    def set_prices(at):
        for node in {"n1", "n2", "n3"} - {at}:
            market.tool("pvdctl", "--node", node, "set", "price", "70")
    yield set_prices
    for node in ("n1", "n2", "n3"):
        market.tool("pvdctl", "--node", node, "unset", "price")


def test_guests_get_no_more_than_the_share_while_the_owner_is_here_and_run_on_with_it(
        market, hog, dear_elsewhere):
    job = market.srun("-p", 50, "-m", 60, *python(BURN))
    at = market.until_runs(job.id)["where"]
    pv = lambda *args: market.ctl("pvdctl", "--node", at, *args)
    dear_elsewhere(at)
    whole = provider(market, at)
    job.printed(4)
    try:
        told = pv("share", "here", "=", "0.2 cpus")
        assert told["rules"] == ["here = 0.2 cpus"], told
        # The hog is what shows that he is here.
        until("it is in force", lambda: quota(market, at) == 20_000)
        assert pv("share")["holds"] == "here = 0.2 cpus" and pv("status")["lent_cpus"] == 0.2
        begins = time.monotonic()  # of all processes here: some of what it told is still on its way
        used, span = until("it has run on for some seconds", lambda: used_share(job, begins))
        # The job may run for one more period of the scheduler at each end.
        assert 0 < used <= 0.2 + 0.2 * 0.2 / span + 0.01, (used, span)
        # The market sees only the part of the node that is still lent.
        until("the market knows", lambda: provider(market, at)["speed"] == whole["speed"] // 5)
        assert provider(market, at)["cpus"] == 1 and provider(market, at)["on_market"]
        why = market.tool("pvdctl", "--node", at, "why").stdout
        assert "0.2 CPUs" in why and "the share 'here = 0.2 cpus'" in why, why
        assert "Lent:" in market.tool("pvdctl", "--node", at, "status").stdout
        newest = pv("history")["returns"][0]
        assert newest["open"] and newest["share"] == "here = 0.2 cpus", newest
        # A daemon that comes back lends no more.
        market.kill_daemon(at)
        market.until_up()
        until("it is in force", lambda: pv("share")["holds"] and quota(market, at) == 20_000)
        refused(market.tool("pvdctl", "--node", at, "share", "here = 150%", check=False), "invalid")
        assert pv("share")["rules"] == ["here = 0.2 cpus"] and quota(market, at) == 20_000
    finally:
        market.tool("pvdctl", "--node", at, "unset", "share")
    assert quota(market, at) == 100_000  # one CPU is offered
    until("the market knows", lambda: provider(market, at)["speed"] == whole["speed"])
    lines = job.lines()
    job.printed(lines + 2)


def test_guests_that_have_no_room_in_the_share_leave_by_value_and_the_others_stay(
        market, hog, dear_elsewhere):
    """Two guests fit the machine, but only one of them fits the share that is left while the owner
    is here."""
    at = "n1"
    pv = lambda *args: market.ctl("pvdctl", "--node", at, *args)
    bound = lambda: int(group_file(market, at, "/jobs", "memory.max", "memory.limit_in_bytes"))
    holds = "a = bytearray(%d << 20)\nprint('held', flush=True)\nimport time\ntime.sleep(1000)"
    cpus = pv("limits")["machine_cpus"]
    if cpus < 2:
        pytest.skip("two CPUs are wanted")
    pv_set = lambda *args: market.tool("pvdctl", "--node", at, *args)
    pv_set("set", "cpus", "2")
    try:
        dear_elsewhere(at)
        dear = market.srun("-p", 60, "-m", 60, *python(holds % 20))
        cheap = market.srun("-p", 40, "-m", 300, *python(holds % 200))
        for job in (dear, cheap):
            job.printed(1)
            market.until_runs(job.id, at)
        pv_set("share", "here = 100M memory; daily 0:00-24:00 = 90% memory")
        market.until_job(cheap.id, "has left", lambda j: j["where"] != at or
                         j["status"] == "suspend")
        until("the bound is in force", lambda: bound() == 132 << 20)  # and 32 MB for CRIU
        assert market.job(dear.id)["where"] == at and market.job(dear.id)["status"] == "run"
        until("the return says so",
              lambda: "free_memory_ms" in pv("history", "1")["returns"][0])
        assert provider(market, at)["memory_mb"] == 100
        for job in (dear, cheap):
            assert job.process.poll() is None
    finally:
        pv_set("unset", "share")
        pv_set("unset", "cpus")
