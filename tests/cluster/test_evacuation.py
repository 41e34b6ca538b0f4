# SPDX-License-Identifier: GPL-2.0-or-later
"""An owner who takes his node back is rid of frozen jobs too: their images go to their homes, and
he may switch off. The jobs stay frozen, and go on later with all that they had, whoever dies
meanwhile."""
import subprocess

import pytest

from conftest import BIN, until
from test_checkpoints import images
from test_crash import Absence, kill_for_now
from test_encrypted import SIZES, begin, check_goes_on, end, stores_with_pattern
from test_progress import slow  # noqa: F401 (a fixture)


@pytest.fixture
def only_n2(market):
    """n2 alone takes jobs."""
    for node in ("n1", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")
    yield
    for node in ("n1", "n2", "n3"):
        market.tool("pvdctl", "--node", node, "market", "on")


def switch(market, node, on):
    return market.tool("pvdctl", "--node", node, "market", "on" if on else "off").stdout


def on_n2(market, size):
    job = begin(market, size, "--node", "n1")
    market.until_runs(job.id, "n2")
    return job


def is_home(market, job):
    """Its image is on n1 alone; the job is frozen, and its home and the market say where."""
    told = market.until_job(job.id, "is frozen at home",
                            lambda j: j["status"] == "suspend" and j["where"] == "n1")
    until("nothing of it is on n2", lambda: not images(market, job, "n2") and
          market.ctl("pvdctl", "--node", "n2", "status")["empty"])
    image, = images(market, job)
    assert not image.endswith(".part") and "image_stays" not in told, told
    story = market.ctl("marketctl", "job", job.id, "--story")["steps"]
    step = next(s for s in story if s["step"] == "evacuated")
    assert (step["from"], step["node"]) == ("n2", "n1") and step["bytes"] > 0, step


def goes_on(market, job, size, node="n3"):
    switch(market, node, True)
    market.until_runs(job.id, node)
    until("no image of it is at home", lambda: not images(market, job))
    check_goes_on(job, size, 2)
    end(job)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_what_is_frozen_goes_home_when_its_node_is_taken_back(market, only_n2, size):
    job = on_n2(market, size)
    # No other node takes it: it is frozen, and its image leaves.
    assert switch(market, "n2", False) == "n2 is off the market; empty: you may switch off\n"
    assert any("its image came home from n2" in w for w in job.words), job.words
    is_home(market, job)
    assert not stores_with_pattern(market)
    goes_on(market, job, size)


def test_what_was_frozen_before_goes_home_and_wakes_there(market, only_n2):
    size = SIZES["in CRIU's image"]
    job = on_n2(market, size)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    until("it lies on n2", lambda: images(market, job, "n2"))
    assert "empty: you may switch off" in switch(market, "n2", False)
    is_home(market, job)
    market.tool("marketctl", "release", job.id)
    goes_on(market, job, size, "n1")


def test_an_image_waits_for_a_home_that_is_away_and_its_node_says_so(market, only_n2):
    size = SIZES["in CRIU's image"]
    job = on_n2(market, size)
    with Absence(market):
        kill_for_now(market, "n1")
        said = switch(market, "n2", False)
        assert "it waits: no connection from its home n1" in said, said
        assert not market.ctl("pvdctl", "--node", "n2", "status")["empty"]
        here, = market.ctl("pvdctl", "--node", "n2", "status")["here"]
        assert (here["job"], here["state"]) == (job.id, "frozen"), here
        image, = images(market, job, "n2")
        assert not image.endswith(".part")
    market.until_up()
    is_home(market, job)
    goes_on(market, job, size)


# The source, the home with its own disk, and both.
@pytest.mark.parametrize("who", [["n2"], ["n1"], ["n1", "n2"]], ids=" ".join)
def test_whoever_dies_while_an_image_goes_home_it_gets_there(market, only_n2, slow,  # noqa: F811
                                                             who):
    size = SIZES["in a file of pages"]
    job = on_n2(market, size)
    off = subprocess.Popen([f"{BIN}/pvdctl", "--node", "n2", "market", "off"], env=market.env,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def sent():
        here = market.ctl("pvdctl", "--node", "n2", "status")["here"]
        return next((g for g in here if g["state"] == "frozen" and g.get("sent_bytes")), None)
    part = until("some of it is sent", sent, 40)
    assert part["image"] == "is sent to n1" and part["sent_bytes"] < part["sending_bytes"], part
    for node in who:
        market.kill_daemon(node)
    off.wait(60)
    assert images(market, job, "n2")  # that counts until the home has decided
    until("its image is at home", lambda: market.job(job.id).get("where") == "n1", 90)
    is_home(market, job)
    goes_on(market, job, size)


def test_a_home_whose_disk_is_full_leaves_the_image_and_says_why(market, only_n2):
    size = SIZES["in CRIU's image"]
    job = on_n2(market, size)
    keep = f"{market.run_dir}/state/n1/images"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "souk-test", keep],
                   check=True)
    market.kill_daemon("n1")  # it keeps the directory open
    try:
        assert "frozen to the disk of this node" in switch(market, "n2", False)
        told = market.until_job(job.id, "says why", lambda j: "image_stays" in j)
        assert told["where"] == "n2" and told["image_stays_code"] == "image_stays", told
        assert any(r["code"] == "image_waits"
                   for r in market.ctl("marketctl", "why", job.id)["reasons"])
        assert images(market, job, "n2")
    finally:
        subprocess.run(["umount", "-l", keep], check=True)
    market.kill_daemon("n1")
    is_home(market, job)
    goes_on(market, job, size)
