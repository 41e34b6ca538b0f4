# SPDX-License-Identifier: GPL-2.0-or-later
"""A suspended job first only stops, goes on where it stands within milliseconds, and goes to disk
when its memory is wanted or it has a place elsewhere (docs/market.md)."""
import signal
import subprocess
import time

import pytest

from conftest import kill, own_number, until
from test_checkpoints import configured
from test_owner import python, stands
from test_presence import HOG, LEAVE

AT = "n1"
OTHERS = ("n2", "n3")
COUNT = """
import time
for i in range(10**9):
    print(i, flush=True)
    time.sleep(0.05)
"""
SLEEP = ["sleep", "1000"]
SMALL = "64M"


@pytest.fixture(autouse=True)
def two_stage(market):
    market.tool("marketctl", "set", "stand-max", "1h")
    # A write of 64 MB takes ten minutes by this, so nobody has stood long enough.
    market.tool("marketctl", "set", "link", "100000")
    yield
    market.tool("marketctl", "set", "link", "default")
    market.tool("marketctl", "set", "stand-max", "default")


@pytest.fixture
def one_place(market):
    """Nobody here pays what the owners of the other nodes ask."""
    for node in OTHERS:
        market.tool("pvdctl", "--node", node, "set", "price", "10000")
    yield
    for node in OTHERS:
        market.tool("pvdctl", "--node", node, "unset", "price")


def stood(market, *options, program=COUNT):
    """A job that ran on AT, and stands there, and the one that has its place."""
    low = market.srun("-p", 20, "-m", SMALL, *options, *python(program))
    low.printed(3)
    market.until_runs(low.id, AT)
    high = market.srun("-p", 500, "-m", SMALL, *SLEEP)
    market.until_runs(high.id, AT)
    assert until_stands(market, low)["where"] == AT
    return low, high


def until_stands(market, job):
    return market.until_job(job.id, "stands", lambda j: j.get("stopped_in_place"))


def until_on_disk(market, job):
    return market.until_job(
        job.id, "is on disk",
        lambda j: j["status"] == "suspend" and not j.get("stopped_in_place") and j["freezes"] > 0)


def steps(market, job):
    return market.ctl("marketctl", "job", job.id, "--story")["steps"]


def in_order(job):
    """Checks that the job has printed every number once and in order."""
    lines = [int(line) for line in job.out.decode().split()[:job.lines()]]
    assert lines == list(range(len(lines)))


def test_it_stands_for_nothing_and_goes_on_in_place(market, one_place):
    low, high = stood(market)
    told = market.job(low.id)
    assert told["status"] == "suspend" and told["can_move"], told
    shown = market.tool("marketctl", "list-jobs").stdout
    assert any(low.id in line and "stands" in line for line in shown.splitlines()), shown
    why = market.ctl("marketctl", "why", low.id)["reasons"]
    assert any((r["code"], r.get("node")) == ("stands_here", AT) for r in why), why
    assert stands(market, low, AT)
    cost = market.job(low.id)["cost"]
    assert stands(market, low, AT) and market.job(low.id)["cost"] == cost
    market.until_step(low.id, step="stopped", node=AT)
    for daemon in (AT, "market"):  # its node and home; it stands on
        market.kill_daemon(daemon)
        market.until_up()
        assert until_stands(market, low)["where"] == AT
        # A record rounds the cost by a millisecond at most. The job has stood for a hundred times
        # that.
        assert stands(market, low, AT)
        assert 0 <= market.job(low.id)["cost"] - cost < 20 * 0.001 / 3600
    market.tool("marketctl", "cancel", high.id)
    market.until_runs(low.id, AT)
    low.printed(low.lines() + 3)
    told = market.job(low.id)
    assert told["freezes"] == told["thaws"] == told["migrations"] == 0, told
    story = steps(market, low)
    assert [s["step"] for s in story if s["step"] in ("stopped", "resumed", "frozen")] == [
        "stopped", "resumed"]
    resumed = next(s for s in story if s["step"] == "resumed")
    assert resumed["node"] == AT and 0 < resumed["total_ms"] < 5_000, resumed
    in_order(low)


def test_its_memory_goes_to_who_wins_it_and_it_is_thawed_from_disk(market, one_place):
    low, high = stood(market)
    offered = next(p for p in market.providers() if p["node"] == AT)["memory_mb"]
    # The job asks for all memory but that of one small job, so it does not fit beside a job that
    # stands.
    large = market.srun("-p", 900, "-m", f"{offered - 32}M", *SLEEP)
    market.until_runs(large.id, AT)
    assert until_on_disk(market, low)["where"] == AT
    until("its capsule is gone", lambda: not market.capsules(low.id))
    story = steps(market, low)
    assert [s["step"] for s in story if s["step"] in ("stopped", "resumed", "frozen")] == [
        "stopped", "frozen"]
    for job in (large, high):
        market.tool("marketctl", "cancel", job.id)
    market.until_runs(low.id, AT)
    low.printed(low.lines() + 3)
    in_order(low)


def test_who_has_stood_long_enough_goes_to_disk(market, one_place):
    low, _ = stood(market)
    market.tool("marketctl", "set", "stand-max", "1s")
    assert until_on_disk(market, low)["where"] == AT
    assert market.job(low.id)["thaws"] == 0
    in_order(low)


def test_a_place_elsewhere_takes_it_over_the_disk(market, one_place):
    low, _ = stood(market)
    before = low.lines()
    market.tool("pvdctl", "--node", "n2", "unset", "price")
    market.until_runs(low.id, "n2")
    low.printed(before + 3)
    told = market.job(low.id)
    assert told["freezes"] == told["thaws"] == 1, told
    assert [s["step"] for s in steps(market, low) if s["step"] in ("stopped", "frozen", "thawed")
            ] == ["stopped", "frozen", "thawed"]
    in_order(low)


def test_an_owner_who_comes_back_and_an_operator_have_it_on_disk(market, one_place):
    low, high = stood(market)
    market.tool("marketctl", "freeze", low.id)
    assert until_on_disk(market, low)["where"] == AT
    for job in (low, high):
        market.tool("marketctl", "cancel", job.id)
    again, _ = stood(market)
    assert not market.ctl("pvdctl", "--node", AT, "market", "off")["on_market"]
    until_on_disk(market, again)
    market.tool("pvdctl", "--node", AT, "market", "on")


def test_a_signal_waits_for_one_that_stands_and_a_cancel_does_not(market, one_place):
    low, high = stood(market, program="""
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
for i in range(10**9):
    print(i, flush=True)
    time.sleep(0.05)
""")
    low.process.send_signal(signal.SIGUSR1)
    assert stands(market, low, AT) and b"heard" not in low.out
    market.tool("marketctl", "cancel", high.id)
    until("the signal has come", lambda: b"heard" in low.out)
    high = market.srun("-p", 500, "-m", SMALL, *SLEEP)
    until_stands(market, low)
    since = time.monotonic()
    market.tool("marketctl", "cancel", low.id)
    assert low.wait() != 0 and time.monotonic() - since < 5
    until("nothing of it is left", lambda: not market.capsules(low.id))
    again = market.srun("-p", 20, "-m", SMALL, *python(COUNT))
    market.tool("marketctl", "cancel", high.id)
    again.printed(3)
    market.srun("-p", 500, "-m", SMALL, *SLEEP)
    until_stands(market, again)
    again.process.send_signal(signal.SIGTERM)  # to its srun: it is cancelled, as any that is frozen
    assert again.wait() == 128 + signal.SIGTERM


def test_what_stands_has_no_new_checkpoint_and_goes_back_to_the_last_when_it_is_lost(market):
    for node in ("n1", "n3"):
        market.tool("pvdctl", "--node", node, "set", "price", "10000")
    try:
        low = market.srun("-p", 20, "-m", SMALL, "--checkpoint-every", "1s", *python(COUNT))
        market.until_runs(low.id, "n2")
        market.until_job(low.id, "has a checkpoint", lambda j: j.get("checkpoint_node"))
        market.srun("-p", 500, "-m", SMALL, *SLEEP)
        until_stands(market, low)
        told = market.job(low.id)["checkpoint_age_s"]
        time.sleep(2)
        assert market.job(low.id)["checkpoint_age_s"] > told  # no newer one
        for _, _, pids in market.capsules(low.id):
            kill(sorted(pids, key=own_number))
        market.until_job(low.id, "is its checkpoint",
                         lambda j: j["status"] == "suspend" and not j.get("stopped_in_place"))
    finally:
        for node in ("n1", "n3"):
            market.tool("pvdctl", "--node", node, "unset", "price")
    market.until_runs(low.id)
    low.printed(low.lines() + 3)


def test_an_owner_who_uses_his_machine_has_the_memory_of_what_stands(market, one_place):
    low, high = stood(market)
    hog = subprocess.Popen(HOG)
    try:
        with configured(market, AT, lambda text: LEAVE + "free_memory_s = 30\n" + text):
            market.until_up()
            until_on_disk(market, low)
            until("no guest holds memory", lambda: "free_memory_ms" in market.ctl(
                "pvdctl", "--node", AT, "history", "1")["returns"][0])
            back = market.ctl("pvdctl", "--node", AT, "history", "1")["returns"][0]
            assert not back["missed"], back
            assert not market.capsules(low.id) and not market.capsules(high.id)
    finally:
        hog.kill()
        hog.wait()
    market.tool("marketctl", "cancel", high.id)
    market.until_runs(low.id)
    low.printed(low.lines() + 3)
    in_order(low)


def test_turns_of_proportional_share_are_stops(market):
    """Two users have half of the machines each."""
    market.tool("marketctl", "set", "quantum", "2s")
    market.tool("marketctl", "set", "solver", "proportional_share")
    other = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    try:
        jobs = [market.srun("-p", 20, "-m", SMALL, *python(COUNT), **who)
                for who in ({}, other) for _ in range(3)]
        resumed = lambda: sum(s["step"] == "resumed" for job in jobs for s in steps(market, job))
        until("turns have ended", lambda: resumed() >= 4)
        # Only a job whose next turn is on another node goes over the disk.
        frozen = sum(market.job(job.id)["freezes"] for job in jobs)
        assert frozen < resumed(), frozen
        for job in jobs:
            in_order(job)
    finally:
        market.tool("marketctl", "set", "solver", "default")
        market.tool("marketctl", "set", "quantum", "default")
