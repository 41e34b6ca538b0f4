# SPDX-License-Identifier: GPL-2.0-or-later
"""A job of one site runs at another one (docs/sites.md): two markets on this host, each with its
own root of trust, whose nodes reach each other over one wire. What is given away waits at home
first, as its own site is full."""
import contextlib
import re
import subprocess
import time

import pytest

from conftest import LIMIT, Market, read_text, until
from test_sites import Site, ip, wire


class Wide(Site):
    """A site whose nodes are reached over the wire, too, and let users of the other site in."""
    def __init__(self, name, number, nodes, *options):
        super().__init__(name, number)
        self.market, self.number = Market("--nodes", str(nodes), *options), number

    def net(self, node):
        return f"{self.market.tag}-{node}"

    def spread(self, hub):
        for i, node in enumerate(self.market.nodes()):
            link, address = f"x{self.number}{i}", f"192.0.2.{100 + 10 * self.number + i}"
            ip("-n", hub, "link", "add", link, "type", "veth", "peer", "name", "wan", "netns",
               self.net(node))
            ip("-n", hub, "link", "set", link, "master", "wan", "up")
            ip("-n", self.net(node), "addr", "add", f"{address}/24", "dev", "wan")
            ip("-n", self.net(node), "link", "set", "wan", "up")
            where = f"{self.market.run_dir}/{node}"
            text = re.sub(r'^listen = ".*:', f'listen = "{address}:',
                          read_text(f"{where}/agentd.conf"), flags=re.M)
            with open(f"{where}/users.map", "w") as f:
                f.write("lab/* = *\nuni/* = *\nfar/* = *\n")
            with open(f"{where}/agentd.conf", "w") as f:
                f.write(text + f'user_map = "{where}/users.map"\n')
            self.market.kill_daemon(node)

    def cut(self, node, on):
        ip("-n", self.net(node), "link", "set", "wan", "down" if on else "up")

    def begin(self, *words, **how):
        return self.market.srun("-p", "20", "--sites", "any", *words,
                                env={**self.market.env, "SOUK_NODE": "n1"}, **how)

    def where(self, id):
        return self.market.job(id).get("where")

    def guests(self):
        return {j["id"]: j for j in self.market.ctl("marketctl", "list-jobs")
                if j["id"].startswith("lab:")}


@contextlib.contextmanager
def peers(lab_nodes):
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Wide("lab", 0, lab_nodes))
        uni = stack.enter_context(Wide("uni", 1, 2))
        wire([lab, uni])
        for site in (lab, uni):
            site.configure()
            site.spread(f"{lab.market.tag}-fabric")
        uni.add(lab.card())
        lab.add(uni.card())
        for a, b in ((lab, uni), (uni, lab)):
            a.until_connected(b.name)
        uni.terms("lab", "--most-cpus", "4")
        yield lab, uni


@pytest.fixture(scope="module")
def pair(fit):
    with peers(1) as both:
        yield both


@pytest.fixture
def full(pair):
    """The first site has no room for a job that bids less than 50."""
    lab, uni = pair
    lab.crowd()
    yield lab, uni
    for site in pair:
        site.market.clear()


def away(lab, id):
    """Waits until the job runs at the other site."""
    return lab.market.until_job(id, "runs at uni", lambda j: j["status"] == "run" and
                                j.get("where", "").startswith("uni:"), LIMIT * 2)


def settled(lab, uni, id):
    """Waits until uni has closed the account of the job's stay there; returns what each side's
    receipts say that it cost."""
    def sums():
        ours = [r for r in lab.market.ctl("marketctl", "receipts")
                if r["job"] == id and r["node"].startswith(uni.name + ":")]
        theirs = [r for r in uni.market.ctl("marketctl", "receipts") if r["job"] == f"lab:{id}"]
        assert all(r["user"].startswith("lab/") for r in theirs)
        return (sum(r["run_s"] for r in theirs) > 0 and f"lab:{id}" not in uni.guests() and
                (sum(r["paid"] for r in ours), sum(r["paid"] for r in theirs)))
    return until("its account is closed", sums, LIMIT)


COUNT = """import sys, time
for i in range(100000):
    print(i, flush=True)
    time.sleep(0.05)
    if len(sys.argv) > 1 and sys.stdin in __import__("select").select([sys.stdin], [], [], 0)[0]:
        sys.exit(5)
"""


def in_order(job):
    """Its output is whole and in order, each line once."""
    numbers = [int(n) for n in bytes(job.out).split(b"\n")[:-1]]
    assert numbers == list(range(len(numbers))), numbers[-5:]
    return len(numbers)


def test_a_job_that_finds_no_place_at_home_runs_at_a_peer_to_its_end(full):
    lab, uni = full
    job = lab.begin("sh", "-c", "echo begins; read x; echo got $x; exit 7",
                    stdin=subprocess.PIPE)
    id = job.id
    shown = away(lab, id)
    guest = until("uni shows it", lambda: uni.guests().get(f"lab:{id}"))
    assert guest["status"] == "run" and f"uni:{guest['where']}" == shown["where"]
    assert "sh" not in guest.get("command", "")
    job.printed(1)
    job.process.stdin.write(b"word\n")
    job.process.stdin.close()
    assert job.wait() == 7 and bytes(job.out) == b"begins\ngot word\n"
    assert lab.market.job(id)["status"] == "finish"
    ours, theirs = settled(lab, uni, id)
    assert ours == pytest.approx(theirs, rel=0.02, abs=0.0001)


def test_a_job_is_not_lost_when_its_places_at_the_peer_are_wanted_back(full):
    lab, uni = full
    job = lab.begin("python3", "-c", COUNT)
    id = job.id
    node = away(lab, id)["where"].split(":")[1]
    job.printed(20)
    for name in uni.market.nodes():  # no owner at uni lends any more
        uni.market.tool("pvdctl", "--node", name, "market", "off")
    lab.market.until_job(id, "has come home", lambda j: j["status"] == "suspend" and
                         j["where"] == "n1", LIMIT * 2)
    ours, theirs = settled(lab, uni, id)
    assert ours == pytest.approx(theirs, rel=0.02, abs=0.0001), node
    count = in_order(job)
    for other in lab.market.live():
        if other["id"] != id:
            lab.market.tool("marketctl", "cancel", other["id"])
    lab.market.until_runs(id, "n1", LIMIT * 2)
    job.printed(count + 20)
    in_order(job)
    for name in uni.market.nodes():
        uni.market.tool("pvdctl", "--node", name, "market", "on")


def test_a_job_runs_on_when_markets_die_and_is_ended_by_its_own_site(full):
    lab, uni = full
    job = lab.begin("python3", "-c", COUNT)
    id = job.id
    away(lab, id)
    job.printed(5)
    uni.market.kill_daemon("market")
    lab.market.kill_daemon("market")
    lab.until_connected("uni")
    until("uni has it again", lambda: uni.guests().get(f"lab:{id}", {}).get("status") == "run")
    count = in_order(job)
    job.printed(count + 20)
    in_order(job)
    away(lab, id)
    lab.market.tool("marketctl", "cancel", id)
    assert job.wait(LIMIT * 2) != 0
    settled(lab, uni, id)


def test_a_job_whose_home_is_cut_off_runs_once(full):
    lab, uni = full
    job = lab.begin("python3", "-c", COUNT)
    id = job.id
    away(lab, id)
    job.printed(5)
    lab.cut("n1", True)
    for other in lab.market.live():  # there is room at home now
        if other["id"] != id:
            lab.market.tool("marketctl", "cancel", other["id"])
    time.sleep(5)
    assert lab.where(id).startswith("uni:")
    lab.cut("n1", False)
    count = in_order(job)
    job.printed(count + 20, LIMIT * 2)
    in_order(job)


def test_what_may_not_come_is_refused_and_waits_at_home(full):
    lab, uni = full
    uni.terms("lab", "--none")
    job = lab.begin("true")
    time.sleep(5)
    assert lab.market.job(job.id)["status"] == "wait"
    uni.terms("lab", "--most-cpus", "4")
    assert job.wait(LIMIT * 2) == 0
    job = lab.begin("sleep", "1000")
    away(lab, job.id)
    lab.market.tool("marketctl", "freeze", job.id)
    lab.market.until_job(job.id, "has come home",
                         lambda j: j["status"] == "suspend" and j["where"] == "n1", LIMIT * 2)
