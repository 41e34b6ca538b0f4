# SPDX-License-Identifier: GPL-2.0-or-later
"""The configuration says how many frozen jobs of a home may wake at one time."""
import contextlib
import os
import re
import signal

import pytest

from conftest import Market, bring_up, read_text, until


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "2", "--speeds", "100,90", "--cpus", "3"))


@contextlib.contextmanager
def stopped(market, node):
    """Stops that node's agentd, so that messages and jobs for it stay on their way."""
    pid = market.daemon(node)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def reloaded(market, node, key, value):
    """Gives the running agentd another value of a key, and returns its answer: the value is in
    force, or comes into force at the next start."""
    path, log = f"{market.run_dir}/{node}/agentd.conf", f"{market.run_dir}/{node}/log"
    text = re.sub(rf"^{key} = .*\n", "", read_text(path), flags=re.M)
    with open(path, "w") as f:
        f.write(f"{text}{key} = {value}\n")
    seen = len(read_text(log))
    os.kill(market.daemon(node)["pid"], signal.SIGHUP)
    told = rf"(in_force|the next start).*\b{key}\b"
    return until("the reload is told", lambda: re.search(told, read_text(log)[seen:]))[1]


def frozen(market):
    """Two jobs of n1, frozen there."""
    jobs = [market.srun("-p", 40, "sleep", "1000") for _ in range(2)]
    for job in jobs:
        market.until_runs(job.id, "n1")
        market.tool("marketctl", "freeze", job.id, "--hold")
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    return jobs


def view(market, job):
    """Returns the record of the job that n1 holds as its home."""
    held = market.ctl("pvdctl", "--node", "n1", "guests", job.id)
    return next(h for h in held if h["kind"] == "job")


def test_a_home_wakes_one_job_at_a_time_and_all_when_its_owner_says_so(market):
    assert reloaded(market, "n1", "wake", '"one"') == "in_force"
    first, second = frozen(market)
    with stopped(market, "n2"):
        market.tool("marketctl", "thaw", first.id, "n2")
        until("the first begins", lambda: view(market, first)["phase"] == "thawing")
        market.tool("marketctl", "thaw", second.id, "n2")
        until("the second waits", lambda: view(market, second).get("wakes_later") == "n2")
        assert view(market, second)["phase"] == "frozen"
    for job in (first, second):
        market.until_runs(job.id)
        market.tool("marketctl", "cancel", job.id)

    first, second = frozen(market)
    with stopped(market, "n2"):
        for job in (first, second):
            market.tool("marketctl", "thaw", job.id, "n2")
        until("the second waits", lambda: view(market, second).get("wakes_later") == "n2")
        assert reloaded(market, "n1", "wake", '"all"') == "in_force"
        until("both wake", lambda: view(market, second)["phase"] == "thawing")
    for job in (first, second):
        market.until_runs(job.id)


def test_a_reload_says_which_key_counts_from_the_next_start(market):
    assert reloaded(market, "n1", "lease_s", "700") == "the next start"
