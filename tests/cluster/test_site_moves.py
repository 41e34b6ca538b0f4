# SPDX-License-Identifier: GPL-2.0-or-later
"""A job that runs moves to a node of another site by hand, and back, as it moves within its own
(docs/sites.md): live, with its memory and its output, and whatever dies meanwhile."""
import subprocess
import time

import pytest

from conftest import LIMIT, until
from test_site_jobs import in_order, peers, settled

# It counts, checks its memory, and ends with 5 when it is told to.
WORK = """import hashlib, select, sys, time
kept = bytearray(range(256)) * 131072
sum = hashlib.sha256(kept).digest()
for i in range(100000):
    print(i, flush=True)
    time.sleep(0.05)
    if i % 20 == 0 and hashlib.sha256(kept).digest() != sum:
        sys.exit(9)
    if sys.stdin in select.select([sys.stdin], [], [], 0)[0]:
        sys.exit(5)
"""


@pytest.fixture(scope="module")
def pair(fit):
    with peers(2) as both:
        yield both


@pytest.fixture
def idle(pair):
    yield pair
    for site in pair:
        site.market.clear()


def begin(lab, node):
    """A job of n1 that runs on that node of its own site."""
    job = lab.market.srun("-p", "20", "-m", "200M", "python3", "-c", WORK, stdin=subprocess.PIPE,
                          env={**lab.market.env, "SOUK_NODE": "n1"})
    lab.market.until_runs(job.id)
    if lab.where(job.id) != node:
        lab.market.tool("marketctl", "move", job.id, node)
        lab.market.until_job(job.id, f"runs on {node}",
                             lambda j: j["status"] == "run" and j["where"] == node)
    job.printed(10)
    return job


def move(lab, id, to, check=True):
    return lab.market.tool("marketctl", "--wait", "60s", "move", id, to, check=check,
                           limit=LIMIT * 3)


def goes_on(job):
    count = in_order(job)
    job.printed(count + 20, LIMIT * 2)
    in_order(job)


def end(job):
    job.process.stdin.close()
    assert job.wait(LIMIT * 2) == 5
    in_order(job)


def same(lab, uni, id):
    ours, theirs = settled(lab, uni, id)
    assert ours == pytest.approx(theirs, rel=0.05, abs=0.0002)


@pytest.mark.parametrize("source, to, back", [("n2", "uni:n2", "n1"), ("n1", "uni", "n2")])
def test_a_running_job_moves_to_a_peer_and_back(idle, source, to, back):
    lab, uni = idle
    job = begin(lab, source)
    id = job.id
    said = move(lab, id, to)
    assert "runs on uni:" in said.stdout and "it stood still for" in said.stdout
    where = lab.where(id)
    assert where.startswith(to)
    assert uni.guests()[f"lab:{id}"]["status"] == "run"
    goes_on(job)
    again = move(lab, id, "uni", check=False)
    assert again.returncode == 1 and "site uni has job" in again.stderr
    # among the nodes of the peer, as its owner wants it gone
    name = where.split(":")[1]
    uni.market.tool("pvdctl", "--node", name, "market", "off")
    lab.market.until_job(id, "is on another node there", lambda j: j["status"] == "run" and
                         j["where"].startswith("uni:") and j["where"] != where, LIMIT * 2)
    uni.market.tool("pvdctl", "--node", name, "market", "on")
    goes_on(job)
    said = move(lab, id, back)
    assert f"runs on {back}" in said.stdout and lab.where(id) == back
    goes_on(job)
    shown = lab.market.job(id)
    assert shown["migrations"] >= 3 and shown["freezes"] == 0
    same(lab, uni, id)
    again = move(lab, id, to)  # once more
    assert "runs on uni:" in again.stdout and lab.where(id).startswith(to)
    goes_on(job)
    end(job)
    until("uni has closed it", lambda: f"lab:{id}" not in uni.guests(), LIMIT)


def test_a_move_to_a_peer_that_cannot_be_is_refused_in_words(idle):
    lab, uni = idle
    job = begin(lab, "n1")
    for to, why in (("far:n1", "there is no peer far"), ("uni:n9", "it has no node n9")):
        done = move(lab, job.id, to, check=False)
        assert done.returncode == 1 and why in done.stderr
    done = lab.market.tool("marketctl", "--hold", "move", job.id, "uni:n1", check=False)
    assert done.returncode == 1 and "its own site alone" in done.stderr
    uni.terms("lab", "--none")
    done = move(lab, job.id, "uni:n1", check=False)
    assert done.returncode == 1 and "nothing may come from your site" in done.stderr
    uni.terms("lab", "--most-cpus", "4")
    move(lab, job.id, "uni:n1")
    goes_on(job)
    end(job)
    same(lab, uni, job.id)


@pytest.mark.parametrize("victim", ["lab market", "uni market", "uni n1", "lab n1", "lab n2"])
def test_a_job_runs_once_whoever_dies_while_it_moves(idle, victim):
    lab, uni = idle
    site, daemon = victim.split()
    for pause in (None, 0.02, 0.3):
        job = begin(lab, "n2")
        for to in ("uni:n1", "n2"):
            if pause is None and to == "uni:n1":  # it has come
                move(lab, job.id, to)
                assert lab.where(job.id) == to
            else:
                lab.market.tool("marketctl", "move", job.id, to)
                time.sleep(pause or 0.1)
            {"lab": lab, "uni": uni}[site].market.kill_daemon(daemon)
            lab.until_connected("uni")
            lab.market.until_job(job.id, "runs", lambda j: j["status"] == "run", LIMIT * 3)
            goes_on(job)
        away = lab.where(job.id).startswith("uni:")
        until("both sites say the same", lambda: away == (
            uni.guests().get(f"lab:{job.id}", {}).get("status") == "run"), LIMIT)
        end(job)
