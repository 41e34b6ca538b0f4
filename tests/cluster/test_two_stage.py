# SPDX-License-Identifier: GPL-2.0-or-later
"""A suspended job first only stops, goes on where it stands within milliseconds, and goes to disk
when its memory is wanted or it has a place elsewhere (docs/market.md)."""
import pytest

from conftest import until
from test_owner import python, stands

NODES = ["n1", "n2", "n3"]
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
    yield
    market.tool("marketctl", "set", "stand-max", "default")


def stood(market):
    """A job that ran on the best node, and stands there; those who have the places, by node."""
    low = market.srun("-p", 20, "-m", SMALL, *python(COUNT))
    low.printed(3)
    at = market.until_runs(low.id)["where"]
    high = [market.srun("-p", 500, "-m", SMALL, *SLEEP) for _ in NODES]
    places = {market.until_runs(job.id)["where"]: job for job in high}
    until_stands(market, low)
    assert market.job(low.id)["where"] == at
    return low, at, places


def until_stands(market, job):
    return market.until_job(job.id, "stands", lambda j: j.get("stopped_in_place"))


def until_on_disk(market, job):
    return market.until_job(
        job.id, "is on disk",
        lambda j: j["status"] == "suspend" and not j.get("stopped_in_place") and j["freezes"] > 0)


def steps(market, job):
    return market.ctl("marketctl", "job", job.id, "--story")["steps"]


def in_order(job):
    """What it printed, without a gap or anything twice."""
    lines = [int(line) for line in job.out.decode().split()[:job.lines()]]
    assert lines == list(range(len(lines)))


def test_it_stands_for_nothing_and_goes_on_in_place(market):
    low, at, places = stood(market)
    told = market.job(low.id)
    assert told["status"] == "suspend" and told["can_move"], told
    shown = market.tool("marketctl", "list-jobs").stdout
    assert any(low.id in line and "stands" in line for line in shown.splitlines()), shown
    why = market.tool("marketctl", "why", low.id).stdout
    assert f"stands in memory on {at}" in why, why
    assert stands(market, low)
    cost = market.job(low.id)["cost"]
    assert stands(market, low) and market.job(low.id)["cost"] == cost
    low.said(rf"stopped on {at}, in memory")
    for daemon in (at, "market", "n1"):  # its node, the market, its home: it stands on
        market.kill_daemon(daemon)
        market.until_up()
        assert until_stands(market, low)["where"] == at
        assert stands(market, low) and market.job(low.id)["cost"] == cost
    market.tool("marketctl", "cancel", places[at].id)
    market.until_runs(low.id, at)
    low.printed(low.lines() + 3)
    told = market.job(low.id)
    assert told["freezes"] == told["thaws"] == told["migrations"] == 0, told
    story = steps(market, low)
    assert [s["step"] for s in story if s["step"] in ("stopped", "resumed", "frozen")] == [
        "stopped", "resumed"]
    resumed = next(s for s in story if s["step"] == "resumed")
    assert resumed["node"] == at and 0 < resumed["total_ms"] < 5_000, resumed
    said = market.tool("marketctl", "job", low.id, "--story").stdout
    assert f"resumed on {at}, in " in said, said
    in_order(low)


def test_its_memory_goes_to_who_wins_it_and_it_is_thawed_from_disk(market):
    low, at, places = stood(market)
    offered = next(p for p in market.providers() if p["node"] == at)["memory_mb"]
    # All but what one small job has: it does not fit beside one that stands.
    large = market.srun("-p", 900, "-m", f"{offered - 32}M", *SLEEP)
    market.until_runs(large.id, at)
    assert until_on_disk(market, low)["where"] == at
    assert stands(market, low)
    story = steps(market, low)
    assert [s["step"] for s in story if s["step"] in ("stopped", "resumed", "frozen")] == [
        "stopped", "frozen"]
    market.tool("marketctl", "cancel", large.id)
    for job in places.values():
        market.tool("marketctl", "cancel", job.id)
    market.until_runs(low.id)
    low.printed(low.lines() + 3)
    in_order(low)


def test_a_place_elsewhere_takes_it_over_the_disk(market):
    low, at, places = stood(market)
    other = next(name for name in places if name != at)
    before = low.lines()
    market.tool("marketctl", "cancel", places[other].id)
    market.until_runs(low.id, other)
    low.printed(before + 3)
    told = market.job(low.id)
    assert told["freezes"] == told["thaws"] == 1, told
    assert [s["step"] for s in steps(market, low) if s["step"] in ("stopped", "frozen", "thawed")
            ] == ["stopped", "frozen", "thawed"]
    in_order(low)


def test_an_owner_who_comes_back_and_an_operator_have_it_on_disk(market):
    low, at, _ = stood(market)
    market.tool("marketctl", "freeze", low.id)
    assert until_on_disk(market, low)["where"] == at
    market.tool("marketctl", "cancel", low.id)
    again, at, _ = stood(market)
    said = market.tool("pvdctl", "--node", at, "market", "off").stdout
    assert f"{at} is off the market" in said, said
    until_on_disk(market, again)
    market.tool("pvdctl", "--node", at, "market", "on")


def test_turns_of_proportional_share_are_stops(market):
    market.tool("marketctl", "set", "quantum", "2s")
    market.tool("marketctl", "set", "solver", "proportional_share")
    try:
        jobs = [market.srun("-p", 20, "-m", SMALL, *python(COUNT)) for _ in range(5)]
        for job in jobs:
            until("it has had its turns",
                  lambda job=job: sum(s["step"] == "resumed" for s in steps(market, job)) >= 1)
            in_order(job)
        assert all(market.job(job.id)["freezes"] == 0 for job in jobs)
    finally:
        market.tool("marketctl", "set", "solver", "default")
        market.tool("marketctl", "set", "quantum", "default")
