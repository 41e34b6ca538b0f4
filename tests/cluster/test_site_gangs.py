# SPDX-License-Identifier: GPL-2.0-or-later
"""Gangs over sites (docs/sites.md): three markets on this host with a node each. A gang of which
each component takes a whole node finds room at none of them alone."""
import contextlib
import subprocess

import pytest

from conftest import BIN, LIMIT, until
from test_gangs import gang
from test_site_jobs import Wide
from test_sites import wire

COMPONENTS = 3


@pytest.fixture(scope="module")
def three(fit):
    with contextlib.ExitStack() as stack:
        lab, uni, far = (stack.enter_context(Wide(name, i, 1))
                         for i, name in enumerate(("lab", "uni", "far")))
        wire([lab, uni, far])
        for site in (lab, uni, far):
            site.configure()
            site.spread(f"{lab.market.tag}-fabric")
        for other in (uni, far):
            other.add(lab.card())
            lab.add(other.card())
        for other in (uni, far):
            lab.until_connected(other.name)
            other.until_connected("lab")
            other.terms("lab", "--most-cpus", "8")
        yield lab, uni, far


@pytest.fixture
def idle(three):
    yield three
    for site in three:
        site.market.clear()


def begin(lab, tmp_path, *words):
    """A gang that marks each beginning, and ends well when there is a file `stop`."""
    script = (f"echo x >> {tmp_path}/ran; echo up; "
              f"until [ -e {tmp_path}/stop ]; do sleep 0.1; done; echo down")
    env = {**lab.market.env, "SOUK_NODE": "n1"}
    cpus = str(lab.market.ctl("marketctl", "list-providers")[0]["cpus"])
    return subprocess.Popen([f"{BIN}/srun", "-p", "20", "--sites", "any", "-N", str(COMPONENTS),
                             "-c", cpus, "--net=host", *words, "sh", "-c", script],
                            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def components(lab):
    live = [j for j in lab.market.live() if not j["id"].count(":")]
    return gang(lab.market, live[0]["id"]) if live else []


def until_all(lab, what, status, limit=LIMIT * 4):
    def seen():
        jobs = components(lab)
        good = len(jobs) == COMPONENTS and all(j["status"] == status for j in jobs)
        return jobs if good else None
    return until(what, seen, limit)


def sites_of(jobs):
    return sorted(j["where"].split(":")[0] if ":" in j["where"] else "lab" for j in jobs)


def nothing_is_left(sites):
    for site in sites:
        until(f"{site.name} has nothing of it", lambda s=site: not s.market.live(), LIMIT * 2)


def test_a_gang_runs_over_three_sites_together_and_ends_as_one(idle, tmp_path):
    lab, uni, far = idle
    job = begin(lab, tmp_path, "-l")
    jobs = until_all(lab, "all run", "run")
    assert sites_of(jobs) == ["far", "lab", "uni"], jobs
    until("all have begun", lambda: (tmp_path / "ran").exists() and
          (tmp_path / "ran").read_text() == "x\n" * COMPONENTS)
    (tmp_path / "stop").touch()
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert sorted(out.split("\n")[:-1]) == sorted(
        f"{n}: {word}" for n in range(COMPONENTS) for word in ("up", "down"))
    nothing_is_left(idle)


@pytest.mark.parametrize("victim", ["lab", "uni"])
def test_a_market_that_dies_before_the_release_leaves_all_or_none(idle, tmp_path, victim):
    lab, uni, _ = idle
    job = begin(lab, tmp_path)
    until("a component goes", lambda: any(
        j["status"] != "wait" or (j.get("reason") or {}).get("code") == "at_site"
        for j in components(lab)), LIMIT * 2)
    {"lab": lab, "uni": uni}[victim].market.kill_daemon("market")
    lab.until_connected("uni")
    until_all(lab, "all run", "run", LIMIT * 8)
    until("all have begun once", lambda: (tmp_path / "ran").read_text() == "x\n" * COMPONENTS)
    (tmp_path / "stop").touch()
    assert job.wait(60) == 0
    nothing_is_left(idle)


def test_an_owner_who_is_back_freezes_all_and_a_cancel_ends_all(idle, tmp_path):
    lab, uni, _ = idle
    job = begin(lab, tmp_path)
    jobs = until_all(lab, "all run", "run")
    uni.market.tool("pvdctl", "--node", "n1", "market", "off")
    until_all(lab, "all are frozen", "suspend")
    uni.market.tool("pvdctl", "--node", "n1", "market", "on")
    until_all(lab, "all run again", "run", LIMIT * 8)
    until("none began anew", lambda: (tmp_path / "ran").read_text() == "x\n" * COMPONENTS)
    lab.market.tool("marketctl", "cancel", jobs[2]["id"])
    assert job.wait(60) != 0
    nothing_is_left(idle)
