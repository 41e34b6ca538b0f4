# SPDX-License-Identifier: GPL-2.0-or-later
"""Three sites whose markets move jobs that wait, and jobs that run, between them for a gain
(docs/sites.md): each market with its own root of trust, its nodes in namespaces of their own on one
wire. Peers die while a job moves: it runs once, and nothing of it is lost."""
import contextlib
import glob
import subprocess
import time

import pytest

from conftest import LIMIT, read_text, until
from test_site_jobs import Wide, in_order, settled
from test_site_moves import WORK, end, goes_on, same
from test_sites import wire
from test_schemas import fits

SPEEDS = {"lab": 50, "uni": 100, "far": 200}


@pytest.fixture(scope="module")
def joined(fit):
    with contextlib.ExitStack() as stack:
        sites = {}
        for number, (name, nodes) in enumerate({"lab": 2, "uni": 1, "far": 1}.items()):
            speeds = ",".join([str(SPEEDS[name])] * nodes)
            sites[name] = stack.enter_context(Wide(name, number, nodes, "--speeds", speeds))
        wire(list(sites.values()))
        for site in sites.values():
            site.configure()
            site.spread(f"{sites['lab'].market.tag}-fabric")
        for one in ("uni", "far"):
            sites[one].add(sites["lab"].card())
            sites["lab"].add(sites[one].card())
        for one in ("uni", "far"):
            sites[one].until_connected("lab")
            sites[one].terms("lab", "--most-cpus", "4")
        sites["lab"].until_connected("uni", "far")
        until("lab has heard their terms", lambda: all(
            sites["lab"].peers()[n].get("told", {}).get("most_cpus") for n in ("uni", "far")))
        yield sites


@pytest.fixture
def sites(joined):
    yield joined
    joined["lab"].market.tool("pvdctl", "--node", "n2", "set", "speed", SPEEDS["lab"])
    for site in joined.values():
        site.market.clear()


def begin(lab, *words):
    """A job that runs at lab, and has said nothing of other sites yet."""
    job = lab.market.srun("-p", "20", "-m", "200M", *words, "python3", "-c", WORK,
                          stdin=subprocess.PIPE, env={**lab.market.env, "SOUK_NODE": "n1"})
    lab.market.until_runs(job.id)
    job.printed(10)
    return job


def wish(lab, id, *words):
    """Other terms: its market asks about it at once."""
    lab.market.tool("srun", "-J", id, *words)


def until_at(lab, id, site):
    return lab.market.until_job(id, f"runs at {site}", lambda j: j["status"] == "run" and
                                j.get("where", "").startswith(site), LIMIT * 3)


def why(lab, id):
    return lab.market.tool("marketctl", "why", id).stdout


def copies(id):
    """The processes of the job, wherever they are."""
    return [p for p in glob.glob("/proc/[0-9]*/environ")
            if f"SOUK_JOB_ID={id}\0" in read_text(p) + "\0" and
            "hashlib.sha256(kept)" in read_text(p.replace("environ", "cmdline"))]


def test_a_waiting_and_a_running_job_go_where_they_gain_and_come_back(sites):
    lab, far = sites["lab"], sites["far"]
    job = begin(lab)
    id = job.id
    wish(lab, id, "--sites", "any", "--prefer", "stay")
    time.sleep(4)
    assert lab.where(id) in lab.market.nodes() and lab.offers(id)["prefer"] == "stay"
    wish(lab, id, "--sites", "any", "--prefer", "finish")
    until_at(lab, id, "far:")
    assert "moved for a gain: far saves" in why(lab, id)
    goes_on(job)
    offers = lab.offers(id)
    fits("offers", offers)
    by_site = {o["site"]: o for o in offers["offers"]}
    assert offers["best"] == "far" and offers["here"]["speed"] == SPEEDS["lab"]
    assert by_site["far"]["gain_s"] > by_site["uni"]["gain_s"] > by_site["uni"]["cost_s"] >= 60
    text = lab.market.tool("marketctl", "offers", id).stdout
    assert "where it runs" in text and "the best is that of far" in text
    # A job that waits goes to the best of what is left.
    lab.crowd()
    lab.crowd()
    waits = lab.wait_at("--sites", "any", "--prefer", "finish")
    until_at(lab, waits, "uni:")
    lab.market.tool("marketctl", "cancel", waits)
    # Home is faster than far now, and its bid wins a place there.
    for other in lab.market.live():
        if other["id"] not in (id, waits):
            lab.market.tool("marketctl", "cancel", other["id"])
    lab.market.tool("pvdctl", "--node", "n2", "set", "speed", "800")
    wish(lab, id, "-p", "21")
    until_at(lab, id, "n2")
    goes_on(job)
    assert "moved for a gain: its own site saves" in why(lab, id)
    shown = lab.market.job(id)
    assert shown["migrations"] == 2 and shown["freezes"] == 0
    same(lab, far, id)
    # uni would be slower: it says so, and the job stays.
    wish(lab, id, "--sites", "uni", "--prefer", "finish")
    until("it is said why", lambda: "no other site is worth a move: uni loses" in why(lab, id),
          LIMIT)
    assert lab.where(id) == "n2"
    end(job)


def test_a_job_that_is_frozen_at_home_goes_on_at_a_peer(sites):
    lab, far = sites["lab"], sites["far"]
    job = begin(lab, "--sites", "far", "--prefer", "stay")
    for other in far.market.nodes():
        far.market.tool("pvdctl", "--node", other, "market", "off")
    lab.crowd()
    lab.crowd()
    lab.market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend", LIMIT * 2)
    for other in far.market.nodes():
        far.market.tool("pvdctl", "--node", other, "market", "on")
    wish(lab, job.id, "-p", "22")
    until_at(lab, job.id, "far:")
    goes_on(job)
    assert lab.market.job(job.id)["freezes"] == 1
    end(job)
    ours, theirs = settled(lab, far, job.id)
    assert ours == pytest.approx(theirs, rel=0.05, abs=0.0002)


@pytest.mark.parametrize("victim", ["far market", "far n1", "lab market"])
def test_a_job_that_moves_for_a_gain_runs_once_whoever_dies(sites, victim):
    lab, far = sites["lab"], sites["far"]
    site, daemon = victim.split()
    for pause in (0, 0.2, None):
        job = begin(lab)
        id = job.id
        wish(lab, id, "--sites", "far", "--prefer", "finish")
        until("far is asked, or has it", lambda: lab.offers(id).get("age_s") is not None, LIMIT)
        if pause is None:  # it goes for the gain, or has gone
            lab.market.until_job(id, "is on its way", lambda j: j["status"] == "moving" or
                                 j.get("where", "").startswith("far:"), LIMIT * 3)
        else:
            time.sleep(pause)
        sites[site].market.kill_daemon(daemon)
        lab.until_connected("far")
        lab.market.until_job(id, "runs", lambda j: j["status"] == "run", LIMIT * 3)
        goes_on(job)
        until("it runs once", lambda: len(copies(id)) == 1, LIMIT)
        # both say the same, whichever it is
        until("both sites say the same", lambda: lab.where(id) and (
            lab.where(id).startswith("far:") ==
            (far.guests().get(f"lab:{id}", {}).get("status") == "run")), LIMIT)
        wish(lab, id, "--sites", "own")
        end(job)
        in_order(job)  # two copies at any time would have written lines twice
