# SPDX-License-Identifier: GPL-2.0-or-later
"""A job of one site runs at another one (docs/sites.md): two markets on this host, each with its
own root of trust, whose nodes reach each other over one wire. What is given away waits at home
first, as its own site is full."""
import contextlib
import json
import re
import subprocess
import time

import pytest

from codes import refused
from conftest import LIMIT, Market, read_text, until
from test_schemas import fits
from test_sites import Site, ip, stopped, wire


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


def owes(site, peer, key="owes"):
    return site.peers()[peer].get(key)


def compare(site, peer, *words, status=0):
    done = site.market.tool("marketctl", "--json", "ledger", "verify", "--peer", peer, *words,
                            check=False)
    assert done.returncode == status, done
    return json.loads(done.stdout), done


def payments(site):
    return [r["paid"] for r in site.market.ctl("marketctl", "receipts")
            if r["kind"] == "settlement"]


def test_both_books_agree_and_a_payment_is_in_both_when_both_say_so(full, tmp_path):
    lab, uni = full
    job = lab.begin("sh", "-c", "echo begins; read x", stdin=subprocess.PIPE)
    away(lab, job.id)
    job.printed(1)
    # while it runs its stay is open, on either side
    for site, peer in ((lab, "uni"), (uni, "lab")):
        assert compare(site, peer)[0]["differences"] == []
    assert lab.peers()["uni"]["lent"] == 1 and uni.peers()["lab"]["guests"] == 1
    board = lab.market.tool("mmon", "--once").stdout
    assert "uni connected: 0 jobs of it here, 1 of ours there, we owe it " in board
    time.sleep(2)  # so that it costs something
    job.process.stdin.close()
    assert job.wait() == 1
    settled(lab, uni, job.id)
    for site, peer in ((lab, "uni"), (uni, "lab")):
        seen, _ = until("its stay is over in both books",
                        lambda s=site, p=peer: compare(s, p) if compare(s, p)[0]["open"] == 0
                        else None)
        assert seen["stays"] >= 1 and seen["differences"] == []
        fits("ledger-peer", seen)
    due = owes(uni, "lab")
    assert due > 0 and owes(lab, "uni") == pytest.approx(-due, rel=0.05)
    until("each has the other's word", lambda: owes(lab, "uni", "owes_by_its_word") ==
          pytest.approx(-due, rel=0.05) and owes(uni, "lab", "owes_by_its_word") ==
          pytest.approx(due, rel=0.05))
    fits("peers", json.loads(lab.market.tool("souk", "peer", "list", "--json").stdout))

    def settle(site, *words, check=True):
        return site.market.tool("souk", "peer", "settle", *words, check=check)
    amount = f"{due:.6f}"
    refused(settle(uni, "lab", "--confirm", amount, check=False), "not_found")
    settle(lab, "uni", "--amount", amount, "--note", "invoice 7")
    until("uni hears of it", lambda: uni.peers()["lab"].get("it_paid"))
    assert "invoice 7" in uni.market.tool("souk", "peer", "status", "lab").stdout
    assert owes(uni, "lab") == due and payments(lab) == payments(uni) == []
    refused(settle(uni, "lab", "--confirm", "1", check=False), "invalid")
    refused(settle(lab, "uni", "--amount", "1", check=False), "not_possible")
    settle(uni, "lab", "--confirm", amount)
    assert payments(uni) == [-due] and owes(uni, "lab") == pytest.approx(0, abs=1e-6)
    until("lab has booked it", lambda: payments(lab) == [due])
    assert "we_paid" not in lab.peers()["uni"]
    lab.market.kill_daemon("market")
    uni.market.kill_daemon("market")
    lab.until_connected("uni")
    uni.until_connected("lab")
    assert payments(lab) == [due] and payments(uni) == [-due]
    for site, peer in ((lab, "uni"), (uni, "lab")):
        assert compare(site, peer)[0]["differences"] == []
        site.market.tool("marketctl", "ledger", "verify")
    # a statement that is refused, and one that is taken back
    settle(lab, "uni", "--amount", "3")
    until("uni hears of it", lambda: uni.peers()["lab"].get("it_paid"))
    settle(uni, "lab", "--refuse")
    until("lab hears no", lambda: "we_paid" not in lab.peers()["uni"])
    settle(lab, "uni", "--amount", "4")
    until("uni hears of it", lambda: uni.peers()["lab"].get("it_paid"))
    settle(lab, "uni", "--withdraw")
    until("it is gone", lambda: "it_paid" not in uni.peers()["lab"] and
          "we_paid" not in lab.peers()["uni"])
    assert payments(lab) == [due] and payments(uni) == [-due]
    killed_between(lab, uni, settle, due)
    books_as_files(lab, uni, tmp_path)
    begins_anew(lab, uni, settle)


def killed_between(lab, uni, settle, due):
    """Both markets die between the payee's word and the payer's hearing of it."""
    settle(lab, "uni", "--amount", "2")
    until("uni hears of it", lambda: uni.peers()["lab"].get("it_paid"))
    with contextlib.suppress(ProcessLookupError), stopped(lab):
        settle(uni, "lab", "--confirm", "2")
        uni.market.kill_daemon("market")
        lab.market.kill_daemon("market")
    until("lab has booked it", lambda: sum(payments(lab)) == pytest.approx(due + 2))
    assert sum(payments(uni)) == pytest.approx(-due - 2)
    for site, peer in ((lab, "uni"), (uni, "lab")):
        site.until_connected(peer)
        assert compare(site, peer)[0]["differences"] == []


def begins_anew(lab, uni, settle):
    """A peer that is removed and added again owes nothing of before."""
    settled_before = payments(lab)
    lab.market.tool("souk", "peer", "remove", "uni")
    uni.market.tool("souk", "peer", "remove", "lab")
    refused(settle(lab, "uni", "--amount", "1", check=False), "not_found")
    cards = {s.name: s.card() for s in (lab, uni)}
    lab.add(cards["uni"])
    refused(settle(lab, "uni", "--amount", "1", check=False), "away")
    uni.add(cards["lab"])
    for site, peer in ((lab, "uni"), (uni, "lab")):
        site.until_connected(peer)
        assert owes(site, peer) == 0 and "it_paid" not in site.peers()[peer]
        seen = compare(site, peer)[0]
        assert seen["entries"] == seen["entries_there"] == 0
    assert payments(lab) == settled_before
    uni.terms("lab", "--most-cpus", "4")


def books_as_files(lab, uni, tmp_path):
    """The other's book in a file: as it is, and changed."""
    text = uni.market.tool("marketctl", "ledger", "export", "lab").stdout
    (tmp_path / "lab.book").write_text(text)
    time.sleep(1)
    assert compare(lab, "uni", "--file", tmp_path / "lab.book")[0]["differences"] == []
    refused(uni.market.tool("marketctl", "ledger", "verify", "--peer", "lab", "--file",
                            tmp_path / "lab.book", check=False), "invalid")
    # what it has since told of cannot be dropped
    page = json.loads(text.splitlines()[0])
    page["entries"].pop()
    page["at_unix_s"] += 1000  # so that nothing is open
    (tmp_path / "short.book").write_text(json.dumps(page))
    # nothing is hidden by a file that says that it is of an earlier time
    (tmp_path / "old.book").write_text(json.dumps({**page, "at_unix_s": 1}))
    refused(lab.market.tool("marketctl", "ledger", "verify", "--peer", "uni", "--file",
                            tmp_path / "old.book", check=False), "unsound")
    seen, done = compare(lab, "uni", "--file", tmp_path / "short.book", status=1)
    assert any("changed or dropped" in line for line in seen["differences"]), seen
    assert any("missing there" in line for line in seen["differences"]), seen
    assert "differ in 2 places" in done.stderr, done
    # nobody but root sees it
    for words in (("ledger", "verify", "--peer", "uni"), ("ledger", "export", "uni")):
        refused(lab.market.tool("marketctl", *words, user=12345, group=12345, check=False),
                "not_allowed")
    mine = json.loads(lab.market.tool("souk", "peer", "list", "--json", user=12345,
                                      group=12345).stdout)["peers"][0]
    assert "owes" not in mine and "lent" in mine and "credit" not in mine["terms"]


def test_a_peer_that_owes_too_much_gets_its_jobs_back_and_may_come_again_when_it_has_paid(full):
    lab, uni = full
    job = lab.begin("python3", "-c", COUNT)
    id = job.id
    away(lab, id)
    job.printed(5)
    said = uni.terms("lab", "--most-cpus", "4", "--credit", "0").stdout
    assert said == "jobs from site lab: at most 4 CPUs; may owe 0 at most\n"
    until("lab hears of it", lambda: "credit" in lab.peers()["uni"]["told"])
    lab.market.until_job(id, "has come home", lambda j: j["status"] == "suspend" and
                         j["where"] == "n1", LIMIT * 2)
    in_order(job)
    other = lab.begin("sleep", "1000")
    offers = lab.until_offered(other.id, "uni says why not",
                               lambda o, by: "owes" in by.get("uni", {}).get("why", ""))
    assert offers["offers"][0]["code"] == "not_allowed"
    settled(lab, uni, id)
    due = f"{owes(uni, 'lab') + 0.01:.6f}"
    lab.market.tool("souk", "peer", "settle", "uni", "--amount", due)
    until("uni hears of it", lambda: uni.peers()["lab"].get("it_paid"))
    uni.market.tool("souk", "peer", "settle", "lab", "--confirm", due)
    away(lab, other.id)
    uni.terms("lab", "--most-cpus", "4")
