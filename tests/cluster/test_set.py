# SPDX-License-Identifier: GPL-2.0-or-later
"""marketctl set: how a running market decides is changed, told in status and log, and kept."""
import os
import re

import pytest

from codes import refused
from conftest import read_text, until

SLEEP = ["sleep", "1000"]


@pytest.fixture(autouse=True)
def as_configured(market):
    yield
    for setting in status(market)["set"]:
        market.tool("marketctl", "set", setting["what"], "default")


def status(market):
    return market.ctl("marketctl", "status")


def test_another_algorithm_takes_the_running_market_over_and_back(market):
    """balance displaces nobody and asks the reserve alone; greedy_migration takes the best bid."""
    poor = [market.srun("-p", 5, *SLEEP) for _ in range(3)]
    for job in poor:
        market.until_runs(job.id)
    said = market.tool("marketctl", "set", "solver", "balance", "a", "quiet", "week").stdout
    assert said == "solver is balance now\n"
    now = status(market)
    assert now["solver"] == "balance"
    assert [(s["what"], s["value"], s["why"], s["uid"]) for s in now["set"]] == [
        ("solver", "balance", "a quiet week", 0)]
    shown = market.tool("marketctl", "status").stdout
    assert re.search(r"Set by hand: +solver = balance, .*, user 0: a quiet week", shown), shown
    log = read_text(f"{market.run_dir}/market/log")
    assert re.search(r"way of deciding was changed what=solver value=balance .*a quiet week", log)

    rich = market.srun("-p", 50, *SLEEP)
    market.until_job(rich.id, "waits", lambda j: j["status"] == "wait")
    assert all(market.job(job.id)["status"] == "run" for job in poor)
    assert all(market.job(job.id)["price"] == 1 for job in poor)

    assert market.tool("marketctl", "set", "solver", "default").stdout == (
        "solver is greedy_migration now, as configured\n")
    market.until_runs(rich.id, "n1")
    assert status(market)["set"] == []


def test_a_queue_takes_the_running_market_over_and_serves_who_came_first(market):
    runs = [market.srun("-p", 5, *SLEEP) for _ in range(3)]
    for job in runs:
        market.until_runs(job.id)
    market.tool("marketctl", "set", "solver", "fcfs")
    first = market.srun("-p", 2, *SLEEP)
    market.until_job(first.id, "waits", lambda j: j["status"] == "wait")
    rich = market.srun("-p", 50, *SLEEP)
    market.until_job(rich.id, "waits", lambda j: j["status"] == "wait")
    market.until_reason(rich.id, "no_room")
    for job in runs:
        told = market.job(job.id)
        assert (told["status"], told["migrations"], told["freezes"]) == ("run", 0, 0)
    market.tool("marketctl", "cancel", runs[0].id)
    assert market.until_runs(first.id)["price"] == 1
    assert market.job(rich.id)["status"] == "wait"
    market.tool("marketctl", "cancel", runs[1].id)
    market.until_runs(rich.id)
    # With prices again the best bids have the best machines.
    market.tool("marketctl", "set", "solver", "default")
    market.until_runs(rich.id, "n1")


def test_a_queue_that_looks_ahead_lets_who_delays_nobody_pass(market):
    market.tool("marketctl", "set", "solver", "fcfs")
    there = market.srun("-p", 5, "--nodes", "n1", "--time", "1h", *SLEEP)
    market.until_runs(there.id, "n1")
    first = market.srun("-p", 5, "--nodes", "n1", *SLEEP)
    market.until_job(first.id, "waits", lambda j: j["status"] == "wait")
    later = market.srun("-p", 5, "--time", "30m", *SLEEP)
    market.until_job(later.id, "waits", lambda j: j["status"] == "wait")
    market.tool("marketctl", "set", "solver", "easy")
    market.until_runs(later.id, "n2")
    assert market.job(first.id)["status"] == "wait"
    market.tool("marketctl", "cancel", there.id)
    market.until_runs(first.id, "n1")


def test_what_was_set_outlives_the_market_and_a_new_value_replaces_the_old(market):
    market.tool("marketctl", "set", "min-stay", "2m")
    market.tool("marketctl", "set", "pricing", "first")
    market.tool("marketctl", "set", "min_stay_ms", "90s", "less")
    market.kill_daemon("market")
    until("the market is up", lambda: status(market)["pricing"] == "first")
    assert [(s["what"], s["value"], s["why"]) for s in status(market)["set"]] == [
        ("pricing", "first", ""), ("min-stay", "90s", "less")]
    job = market.srun("-p", 7, *SLEEP)
    market.until_runs(job.id)
    until("it pays its bid", lambda: market.job(job.id).get("price") == 7)
    for what in ("min-stay", "pricing"):
        market.tool("marketctl", "set", what, "default")
    assert status(market)["set"] == [] and status(market)["pricing"] == "critical"


def test_what_cannot_be_set_changes_nothing(market):
    before = status(market)["set"]
    for what, value, named in (("solver", "magic", "'magic'"), ("colour", "red", "'colour'"),
                               ("quantum", "0s", "quantum"), ("moves-max", "1x", "moves-max"),
                               ("byte-cost", "x", "byte-cost")):
        done = market.tool("marketctl", "set", what, value, check=False)
        assert named in refused(done, "invalid"), done
    os.chmod(market.run_dir, 0o755)
    said = market.tool("marketctl", "set", "solver", "balance", check=False, user=65534,
                       group=65534, extra_groups=[])
    refused(said, "not_allowed")
    assert status(market)["set"] == before
