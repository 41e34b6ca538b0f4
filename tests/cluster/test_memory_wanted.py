# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that stand while the owner uses the machine leave it when he wants their memory, and not
before: to another node or to the disk."""
import subprocess

import pytest

from conftest import until
from test_checkpoints import configured, images
from test_leave_rate import (  # noqa: F401 (fixtures)
    AT, HERE, nowhere_else, on_node, owner, places, status)
from test_wake import reloaded

# They stand, and nothing but their memory makes them leave.
STOP = HERE.replace('"leave"', '"stop"') + "leave_mb_per_s = 0\nowner_free_mb = 0\n"
HAS = """
import sys
held = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
print("has it", flush=True)
sys.stdin.read()
"""
WANTS_MB = 1500


def available_mb():
    with open("/proc/meminfo") as file:
        return next(int(x.split()[1]) for x in file if x.startswith("MemAvailable:")) >> 10


@pytest.fixture
def wants_memory():
    """The owner's program that takes WANTS_MB, once it is begun."""
    running = []

    def begin():
        running.append(subprocess.Popen(["/usr/bin/python3", "-c", HAS, str(WANTS_MB)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert running[-1].stdout.readline() == b"has it\n"
    if available_mb() < 3 * WANTS_MB:
        pytest.skip(f"{available_mb()} MB are available")
    yield begin
    for process in running:
        process.kill()
        process.communicate()


def state(market, job):
    return next((g["state"] for g in status(market)["here"] if g["job"] == job.id), "gone")


def stand(market, jobs):
    until("they stand", lambda: all(state(market, j) == "paused" for j in jobs))


def want_most(market):
    """From now on he wants to have, free, all but half of what his program will take. Some time
    passes, and nobody leaves for that."""
    assert reloaded(market, AT, "owner_free_mb", str(available_mb() - WANTS_MB // 2)) == "in_force"
    until("some seconds have been looked at", lambda: subprocess.run(["sleep", "2.5"]))


def ends(market, job):
    market.until_runs(job.id)
    job.process.stdin.close()
    assert job.wait() == 0


def test_who_stands_goes_to_the_disk_when_the_owner_wants_his_memory(
        market, owner, wants_memory):  # noqa: F811
    job = on_node(market, 100)
    with configured(market, AT, lambda text: STOP + text):
        market.until_up()
        owner()
        stand(market, [job])
        want_most(market)
        assert state(market, job) == "paused"
        wants_memory()
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        until("its memory is his", lambda: not market.capsules(job.id, AT))
        assert state(market, job) == "frozen"
        assert images(market, job, AT) and not images(market, job)  # nor does the image leave
        assert status(market)["presence"]["guests"] == "stopped"
    places(market)
    ends(market, job)


def test_who_has_a_place_elsewhere_goes_on_there(wide, market, owner):  # noqa: F811
    """A mark above what the machine has wants all that there is; a lower one, nothing more."""
    jobs = [on_node(market, mb) for mb in (60, 10)]
    with configured(market, AT, lambda text: STOP + text):
        market.until_up()
        owner()
        stand(market, jobs)
        # A slower one: the market does not move anybody there from where he stands.
        market.tool("pvdctl", "--node", "n3", "market", "on")
        assert reloaded(market, AT, "owner_free_mb", "100000000") == "in_force"
        limits = market.ctl("pvdctl", "--node", AT, "limits")
        assert limits["owner_free_mb"] == 100_000_000, limits
        assert ", else who stands leaves" in market.tool("pvdctl", "--node", AT, "limits").stdout
        for job in jobs:
            market.until_job(job.id, "runs elsewhere",
                             lambda j: j["status"] == "run" and j["where"] != AT)
        until("nothing of them is there", lambda: not status(market)["here"])
        assert status(market)["presence"]["guests"] == "stopped"
    for job in jobs:
        ends(market, job)
