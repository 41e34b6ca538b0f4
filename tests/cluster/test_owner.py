# SPDX-License-Identifier: GPL-2.0-or-later
"""An owner gets back what is his also from jobs that cannot be dumped; what he offers bounds all
guests together; the edges of his time frames come by themselves."""
import os
import pwd
import re
import subprocess
import time

import pytest

from codes import refused
from conftest import mount_points, read_text, until
from test_leases import stands as frozen
from test_local_paths import configure, reload

NODES = ["n1", "n2", "n3"]

# Counts aloud, with a POSIX message queue open, which CRIU does not dump.
QUEUE = """
import ctypes, os, sys, time
libc = ctypes.CDLL("libc.so.6", use_errno=True)
q = libc.mq_open(b"/souk-test", os.O_CREAT | os.O_RDWR, 0o600, None)
if q < 0: sys.exit("mq_open: " + os.strerror(ctypes.get_errno()))
for i in range(10**9):
    print(i, flush=True)
    time.sleep(0.05)
"""

# The same with an established connection, both ends its own.
CONNECTED = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
for i in range(10**9):
    print(i, flush=True)
    time.sleep(0.05)
"""


def python(text):
    return ["/usr/bin/python3", "-c", text]


def stands(market, job, at):
    """Its processes are frozen and stay so, and it does not print any more. (What it has printed
    before that may still be on its way.)"""
    until("its processes are frozen", lambda: frozen(market, job.id, at))

    def is_silent():
        before = job.lines()
        until("some time has passed for a program that runs beside it",
              lambda: subprocess.run(["sleep", "0.3"]))
        return job.lines() == before
    until("it does not print any more", is_silent)
    return frozen(market, job.id, at)


def stopped(market, job):
    return market.until_job(job.id, "is stopped where it is", lambda j: j.get("stopped_in_place"))


def test_a_job_that_cannot_be_dumped_gives_its_cpu_to_a_better_bid_and_goes_on_after_it(market):
    low = market.srun("-p", 2, *python(QUEUE))
    low.printed(3)
    at = market.until_runs(low.id)["where"]
    high = [market.srun("-p", 500, "sleep", "1000") for _ in NODES]
    for job in high:
        market.until_runs(job.id)
    told = stopped(market, low)
    assert told["where"] == at and told["cannot_move"], told
    assert (told["reason"]["code"], told["reason"]["node"]) == ("stopped_here", at), told
    assert told["failed_moves"] <= 3, told
    assert stands(market, low, at)
    cost = market.job(low.id)["cost"]
    assert stands(market, low, at) and market.job(low.id)["cost"] == cost
    for job in high:
        market.tool("marketctl", "cancel", job.id)
    market.until_runs(low.id, at)
    low.printed(low.lines() + 3)


def test_an_owner_is_rid_of_a_job_that_cannot_be_dumped_and_told_so(market):
    job = market.srun("-p", 2, *python(QUEUE))
    job.printed(3)
    at = market.until_runs(job.id)["where"]
    for verb in (["market", "off"], ["status"]):
        told = market.ctl("pvdctl", "--node", at, *verb)
        assert not told["on_market"], told
        assert [(g["job"], g["state"]) for g in told["here"]] == [(job.id, "stopped")], told
        assert told["here"][0]["cannot_move"] and stands(market, job, at), told
    told = stopped(market, job)
    assert told["reason"]["code"] == "stopped_here", told
    market.kill_daemon(at)  # a daemon that is started again finds it so
    assert stopped(market, job)["where"] == at and stands(market, job, at)
    market.tool("pvdctl", "--node", at, "market", "on")
    market.until_runs(job.id, at)
    job.printed(job.lines() + 3)


def test_an_owner_is_rid_of_a_job_whose_connection_keeps_it(market):
    job = market.srun("-p", 2, "--tcp", "refuse", *python(CONNECTED))
    job.printed(3)
    at = market.until_runs(job.id)["where"]
    told = market.ctl("pvdctl", "--node", at, "market", "off")
    assert [(g["job"], g["state"]) for g in told["here"]] == [(job.id, "stopped")], told
    assert market.job(job.id)["cannot_move_code"] == "holds_connection"
    assert stands(market, job, at)
    market.tool("pvdctl", "--node", at, "market", "on")
    job.printed(job.lines() + 3)


def test_market_off_waits_until_guests_have_left(market):
    job = market.srun("-p", 2, "sleep", "1000")
    at = market.until_runs(job.id)["where"]
    told = market.ctl("pvdctl", "--node", at, "market", "off")
    assert told["empty"] or [g["state"] for g in told["here"]] == ["frozen"], told
    # A source that has given its job away does not run, and is dropped when that runs elsewhere.
    until("nothing of it is there", lambda: not market.capsules(job.id, at))


def test_a_job_that_must_be_able_to_move_is_refused_if_it_cannot(market):
    job = market.srun("-p", 2, "--must-migrate", "--tcp", "refuse", *python(CONNECTED))
    assert job.wait() == 1
    market.until_job(job.id, "has ended", lambda j: j.get("why_code") == "must_migrate")


def group_file(market, node, group, *names):
    """The first of these files of a control group, with its text."""
    for root in mount_points(("cgroup", "cgroup2")):
        for name in names:
            path = f"{root}/{market.tag}/{node}{group}/{name}"
            if os.path.exists(path):
                return read_text(path).split()[0]
    return pytest.skip("no such controller on this machine")


def test_a_job_has_the_cpus_that_it_asked_for_and_no_more_wherever_it_goes(market):
    job = market.srun("-p", 50, *python("""
import threading, time, os
for _ in range(4):
    if os.fork() == 0:
        while True: pass
print("go", flush=True)
time.sleep(1000)
"""))
    job.printed(1)
    at = market.until_runs(job.id)["where"]

    def quota():
        node = market.until_runs(job.id)["where"]
        group = os.path.basename(market.groups(job.id, node)[0])
        return group_file(market, node, f"/jobs/{group}", "cpu.max", "cpu.cfs_quota_us")

    if os.cpu_count() == 1:
        pytest.skip("one CPU: nothing to limit")
    assert quota() == "100000"
    there = next(n for n in NODES if n != at)
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    until("its limit is set there", lambda: quota() == "100000")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "release", job.id)
    until("its limit is set again", lambda: quota() == "100000")


def test_what_an_owner_offers_bounds_all_guests_and_lowering_it_kills_nobody(market):
    job = market.srun("-p", 50, "-m", "300",
                      *python("a = bytearray(200 << 20)\nprint('held', flush=True)\ninput()"),
                      stdin=subprocess.PIPE)
    job.printed(1)
    at = market.until_runs(job.id)["where"]
    bound = lambda: int(group_file(market, at, "/jobs", "memory.max", "memory.limit_in_bytes"))
    assert bound() > 400 << 20
    market.tool("pvdctl", "--node", at, "set", "memory", "100")
    market.until_job(job.id, "has left", lambda j: j["where"] != at and j["status"] == "run")
    until("the bound is in force", lambda: bound() == 132 << 20)  # and 32 MB for CRIU
    # One CPU is offered.
    assert int(group_file(market, at, "", "cpu.max", "cpu.cfs_quota_us")) == 100000
    full = market.ctl("pvdctl", "--node", next(n for n in NODES if n != at), "status")["memory_mb"]
    market.tool("pvdctl", "--node", at, "set", "memory", full)
    until("the bound is lifted", lambda: bound() > 400 << 20)
    job.process.stdin.write(b"\n")
    job.process.stdin.close()
    assert job.wait() == 0


def test_a_job_that_does_not_say_its_memory_has_the_default_and_is_told(market):
    job = market.srun("-p", 2, "sleep", "1000")
    told = market.until_runs(job.id)
    assert 0 < told["memory_mb"] <= 1024 and told["memory_by_default"], told
    other = market.srun("-p", 2, "-m", 50, "sleep", "1000")
    told = market.until_runs(other.id)
    assert told["memory_mb"] == 50 and "memory_by_default" not in told, told


def test_the_edges_of_frames_that_were_set_come_by_themselves(market):
    def clock(minutes):
        return time.strftime("%H:%M", time.localtime(time.time() + 60 * minutes))

    until("the minute has just begun, or is well before its end",
          lambda: time.localtime().tm_sec < 50, pause=1)
    market.tool("pvdctl", "--node", "n3", "set", "frames", f"daily {clock(1)}-{clock(3)}")
    on_market = lambda: market.ctl("pvdctl", "--node", "n3", "status")["on_market"]
    try:
        assert not on_market()
        until("the frame has begun", on_market, 80, pause=0.5)
    finally:
        market.tool("pvdctl", "--node", "n3", "set", "frames", "always")


def test_who_is_named_owns_the_node_beside_root_and_no_job_of_his_does(market):
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    order = ("pvdctl", "--node", "n1", "set", "price", "3")
    refused(market.tool(*order, check=False, **nobody), "not_allowed")
    file = f"{market.run_dir}/n1/agentd.conf"
    kept = read_text(file)
    configure(market, "n1", f'owners = "{pwd.getpwuid(65534).pw_name}"')
    try:
        market.tool(*order, **nobody)
        assert market.ctl("pvdctl", "--node", "n1", "status")["reserve"] == 3
        job = market.srun("-p", 50, *order[:-1], "4", **nobody)
        assert job.wait() == 1, job.told
        assert market.ctl("pvdctl", "--node", "n1", "status")["reserve"] == 3
        # of the market he is no operator
        refused(market.tool("marketctl", "node", "lost", "n2", check=False, **nobody),
                "not_allowed")
    finally:
        with open(file, "w") as f:
            f.write(kept)
        reload(market, "n1")
        market.tool("pvdctl", "--node", "n1", "unset", "price")


def test_the_log_of_a_node_names_the_guests_that_came_and_went(market):
    job = market.srun("-p", "40", "sleep", "1000")
    market.until_runs(job.id)
    first = market.job(job.id)["where"]
    other = next(n for n in market.nodes() if n != first)
    market.tool("marketctl", "move", job.id, other, "--hold")
    market.until_runs(job.id, other)
    market.tool("marketctl", "cancel", job.id)

    def steps(node):
        text = read_text(f"{market.run_dir}/{node}/log")
        return re.findall(rf'agentd: guest JOB={job.id} EPOCH=\d+ STEP="?([^"\n]+)', text)
    until("the first has had it", lambda: steps(first) == ["started here", "is gone"])
    came = ["came, and runs", "ended here", "is gone"]
    until("the other has had it", lambda: steps(other) == came)
