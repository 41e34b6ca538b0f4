# SPDX-License-Identifier: GPL-2.0-or-later
"""Two versions in one market, one step apart: 20 jobs run, wait and are frozen, one of them
moves between the two, and every daemon becomes the new one meanwhile. Nothing of any job is lost,
and the ledger is whole."""
import os
import subprocess

import pytest

import programs
from cluster import Market, bring_up, read_text, until
from conftest import NEW, OLD, PLACE

NODES = ["n1", "n2", "n3"]
USER = "64990"


@pytest.fixture(scope="module")
def standing(fit):
    for who in ("market", *NODES, "tools"):
        (PLACE / "use" / who).write_text(OLD)
    yield from bring_up(Market("--nodes", "3", "--speeds", "100,100,100", "--cpus", "2"))


def runs_from(market, who):
    """The directory of the program that this daemon is."""
    return os.path.dirname(os.readlink(f"/proc/{market.daemon(who)['pid']}/exe"))


def says_user(path, name=None):
    lines = [line for line in read_text(path).splitlines() if not line.startswith("user = ")]
    lines += [f'user = "{name}"'] if name else []
    with open(path, "w") as f:
        f.write("\n".join([*lines, ""]))


def becomes(market, who, directory):
    """The newer agentd is a user of its own from then on, where the older one was root; before the
    older one comes back, it takes all back to root."""
    own = f"{market.run_dir}/{who}/agentd.conf"
    if who in NODES and directory == OLD and "\nuser = " in read_text(own):
        says_user(own, "root")
        market.kill_daemon(who)
        says_user(own)
    if who in NODES and directory == NEW:
        says_user(own, USER)
    (PLACE / "use" / who).write_text(directory)
    market.kill_daemon(who)
    assert os.path.samefile(runs_from(market, who), directory)
    if who in NODES:
        uid = USER if directory == NEW else "0"
        assert f"\nUid:\t{uid}\t" in read_text(f"/proc/{market.daemon(who)['pid']}/status")


def chain(market, bid, *options):
    return market.srun("-p", bid, "-m", 60, *options, *programs.chain_job(), stdin=subprocess.PIPE)


def end_whole(*jobs):
    for job in jobs:
        job.process.stdin.close()
    for job in jobs:
        assert job.wait() == 7
        programs.check_chain(job.out)


def move(market, job, there):
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    job.printed(job.lines() + 3)


def test_jobs_move_between_the_versions_in_each_role_and_every_daemon_is_upgraded_under_jobs(
        market):
    # More than there are places: some run, some wait, and those that make room are frozen.
    others = [chain(market, 50 + i) for i in range(18)]
    kept = chain(market, 90, "--checkpoint-every", "1s")
    moving = chain(market, 100)
    for job in (kept, moving):
        job.printed(3)

    becomes(market, "n2", NEW)
    for there in ("n2", "n3", "n2", "n1"):  # old to new, new to old; the home is old
        move(market, moving, there)
    market.tool("marketctl", "freeze", moving.id, "--hold")
    market.until_job(moving.id, "is frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "thaw", moving.id, "n2")  # an image of the old, restored by the new
    market.until_runs(moving.id)

    becomes(market, "n1", NEW)  # the home
    for there in ("n3", "n2", "n3", "n1"):
        move(market, moving, there)
    until("it is written down", lambda: market.job(kept.id).get("checkpoint_node") == "n1")

    becomes(market, "market", NEW)
    move(market, moving, "n3")
    becomes(market, "n3", NEW)
    move(market, moving, "n2")
    until("each node's version is told",
          lambda: all(p.get("version") and "market_version" not in p for p in market.providers()))

    assert all(os.path.samefile(runs_from(market, who), NEW) for who in ("market", *NODES))
    kept.printed(kept.lines() + 3)
    end_whole(moving, kept, *others)
    market.tool("marketctl", "ledger", "verify")


def test_a_market_that_is_newer_takes_nodes_of_the_version_before(market):
    becomes(market, "market", NEW)
    for node in NODES:
        becomes(market, node, OLD)
    job = chain(market, 50)
    job.printed(3)
    for there in ("n2", "n3"):
        move(market, job, there)
    end_whole(job)
