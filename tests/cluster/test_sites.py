# SPDX-License-Identifier: GPL-2.0-or-later
"""Several markets that are peers (docs/sites.md): three of them on this host, each with its nodes
in namespaces of its own, and their markets reach each other over one wire. The third cannot be
called. What a hostile market can say is tried with Python's own TLS and the key of a real one."""
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from codes import CAUSES, refused
from conftest import BIN, LIMIT, Market, Standing, read_text, until
from hostile_site import (ASK, ERROR, FAILED, JOB, NOTE, OFFER, ORDER, REPLY, REQUEST, TERMS,
                          WELCOME, Hostile, hello, question, tries_money)
from protobuf import decode, encode, frame
from test_operators import elsewhere, made
from test_schemas import fits

NAMES = ("lab", "uni", "far")
SLEEP = ("-p", "5", "--detach", "sleep", "1000")


class Site(Standing):
    def __init__(self, name, number):
        self.name, self.address = name, f"192.0.2.{number + 1}"
        self.market = Market("--nodes", "1")

    def configure(self):
        """Gives the market its name, and has it listen on the wire too."""
        path = f"{self.market.run_dir}/market/marketd.conf"
        text = re.sub(r'^listen = ".*"$', 'listen = "0.0.0.0:7070"', read_text(path), flags=re.M)
        with open(path, "w") as f:
            f.write(text + f'site = "{self.name}"\n')
        self.market.kill_daemon("market")

    def card(self, address=None):
        done = self.market.tool("souk", "peer", "card", "--address",
                                address or f"{self.address}:7070")
        return done.stdout.strip()

    def add(self, card):
        return self.market.tool("souk", "peer", "add", card)

    def peers(self):
        return {p["site"]: p for p in json.loads(
            self.market.tool("souk", "peer", "list", "--json").stdout)["peers"]}

    def terms(self, site, *words, check=True):
        return self.market.tool("souk", "peer", "terms", site, *words, check=check)

    def offers(self, id):
        return json.loads(self.market.tool("marketctl", "--json", "offers", id).stdout)

    def until_offered(self, id, what, holds):
        """Waits for a round about the job that is over, and of which that holds."""
        def seen():
            offers = self.offers(id)
            by_site = {o["site"]: o for o in offers["offers"]}
            return offers if offers.get("open") is False and holds(offers, by_site) else None
        return until(what, seen, LIMIT * 2)

    def crowd(self):
        """Leaves no room for a job that bids less than 50."""
        node = self.market.ctl("marketctl", "list-providers")[0]
        job = self.market.tool("srun", "-p", "50", "-c", str(node["cpus"]), "--detach", "sleep",
                               "1000", env={**self.market.env, "SOUK_NODE": "n1"}).stdout.strip()
        self.market.until_runs(job)

    def wait_at(self, *words):
        return self.market.tool("srun", "-p", "20", *words, "--detach", "sleep", "1000",
                                env={**self.market.env, "SOUK_NODE": "n1"}).stdout.strip()

    def until_connected(self, *names):
        until(f"{self.name} is connected to {names}",
              lambda: all(self.peers()[n]["connected"] for n in names))

    def everywhere(self, *words, sites="all", status=0):
        done = self.market.tool("marketctl", "--json", "-X", sites, *words, check=False)
        assert done.returncode == status, done
        return {s["site"]: s for s in json.loads(done.stdout)["sites"]}, done

    def submit(self):
        return self.market.tool("srun", *SLEEP, env={**self.market.env, "SOUK_NODE": "n1"}
                                ).stdout.strip()

    def pid(self):
        return self.market.daemon("market")["pid"]


def twins(*sites):
    """A job at each of them, with the same short id."""
    def number(id):
        return int(id.rsplit(".", 1)[1])
    ids = {site: site.submit() for site in sites}
    top = max(map(number, ids.values()))
    for site in sites:
        while number(ids[site]) < top:
            site.market.tool("marketctl", "cancel", ids[site])
            ids[site] = site.submit()
    assert len(set(ids.values())) == 1, ids
    return ids[sites[0]]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def wire(sites):
    """One wire between the markets: a bridge in the first one's network."""
    hub = f"{sites[0].market.tag}-fabric"
    ip("-n", hub, "link", "add", "wan", "type", "bridge")
    ip("-n", hub, "addr", "add", f"{sites[0].address}/24", "dev", "wan")
    ip("-n", hub, "link", "set", "wan", "up")
    for i, site in enumerate(sites[1:]):
        net = f"{site.market.tag}-fabric"
        ip("-n", hub, "link", "add", f"w{i}", "type", "veth", "peer", "name", "wan", "netns", net)
        ip("-n", hub, "link", "set", f"w{i}", "master", "wan", "up")
        ip("-n", net, "addr", "add", f"{site.address}/24", "dev", "wan")
        ip("-n", net, "link", "set", "wan", "up")


@pytest.fixture(scope="module")
def three(fit):
    with contextlib.ExitStack() as stack:
        sites = [stack.enter_context(Site(name, i)) for i, name in enumerate(NAMES)]
        wire(sites)
        for site in sites:
            site.configure()
        yield dict(zip(NAMES, sites, strict=True))


@pytest.fixture(scope="module")
def joined(three):
    """All are peers of all. far calls, and nobody calls it."""
    for a in three.values():
        for b in three.values():
            if a is not b:
                a.add(b.card("none" if b.name == "far" else None))
    for a in three.values():
        a.until_connected(*(n for n in NAMES if n != a.name))
    return three


@pytest.fixture
def sites(joined):
    yield joined
    for site in joined.values():
        site.market.clear()


@contextlib.contextmanager
def stopped(site):
    """Its market says nothing for a while."""
    pid = site.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_two_markets_are_peers_when_both_operators_have_said_so(three, tmp_path):
    lab, uni = three["lab"], three["uni"]
    assert lab.peers() == {}
    alone, _ = lab.everywhere("list-jobs")
    assert list(alone) == ["lab"] and alone["lab"]["own"]
    lab.add(uni.card())
    until("the call is refused there", lambda: "not of this market" in
          read_text(f"{uni.market.run_dir}/market/log"))
    until("lab knows why", lambda: lab.peers()["uni"].get("trouble"))
    assert not lab.peers()["uni"]["connected"]
    assert "lab" not in uni.peers()
    (tmp_path / "card").write_text(lab.card() + "\n")
    uni.add(tmp_path / "card")
    for a, b in ((lab, "uni"), (uni, "lab")):
        a.until_connected(b)
    said = lab.market.tool("souk", "peer", "status", "uni").stdout
    assert "192.0.2.2:7070" in said and uni.card().rsplit("/", 1)[1] in said
    uni.market.tool("souk", "peer", "remove", "lab")
    assert uni.peers() == {}
    until("lab has noticed", lambda: not lab.peers()["uni"]["connected"])
    lab.market.tool("souk", "peer", "remove", "uni")


def test_cards_that_cannot_be_are_refused_with_a_line(three):
    lab, uni = three["lab"], three["uni"]
    root = uni.card().rsplit("/", 1)[1]

    def add(card, code):
        return refused(lab.market.tool("souk", "peer", "add", card, check=False), code)
    assert "very market" in add(lab.card(), "not_possible")
    assert "both sites are called lab" in add(f"souk-site/lab/192.0.2.2:7070/{root}",
                                              "not_possible")
    for card in (f"souk-site/uni/192.0.2.2:7070/{root[:-1]}", f"souk-site/u ni/-/{root}",
                 f"souk-site/all/-/{root}", f"souk-site/uni/192.0.2.2/{root}", "souk-site/uni/-"):
        done = lab.market.tool("souk", "peer", "add", card, check=False)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    assert lab.peers() == {}
    lab.add(uni.card())
    assert "another root" in add(f"souk-site/uni/-/{'0' * 64}", "not_possible")
    assert "root of peer uni" in add(f"souk-site/other/-/{root}", "not_possible")
    lab.market.tool("souk", "peer", "remove", "uni")
    assert "no peer" in refused(lab.market.tool("souk", "peer", "remove", "uni", check=False),
                                "not_found")
    plain = lab.market.tool("souk", "peer", "add", uni.card(), check=False, user=12345, group=12345)
    refused(plain, "not_allowed")


def test_one_question_is_answered_by_all_sites(sites):
    lab = sites["lab"]
    id = twins(*sites.values())
    for site in sites.values():
        site.market.until_runs(id)
    found, _ = lab.everywhere("list-jobs", "--state", "run")
    assert list(found) == ["lab", "far", "uni"]
    rows = {name: s["answer"][0] for name, s in found.items()}
    assert [rows[n]["id"] for n in ("lab", "uni", "far")] == [id, f"uni:{id}", f"far:{id}"]
    assert rows["lab"]["where"] == "n1" and "where" not in rows["uni"]  # as to anybody there
    text = lab.market.tool("marketctl", "-X", "all", "list-jobs").stdout
    assert all(re.search(rf"^{full} ", text, re.M)
               for full in (id, f"uni:{id}", f"far:{id}")), text
    nodes, _ = lab.everywhere("list-providers", sites="uni,far")
    assert {s["answer"][0]["node"] for s in nodes.values()} == {"uni:n1", "far:n1"}
    status = lab.market.tool("marketctl", "-X", "all", "status").stdout
    assert [line for line in status.splitlines() if line.startswith("site ")] == [
        "site lab", "site far", "site uni"]
    plan, _ = lab.everywhere("plan", sites="uni")
    assert any(r["node"] == "uni:n1" and r["job"] == f"uni:{id}"
               for r in plan["uni"]["answer"])
    # a node's agent, and an operator elsewhere, ask the same
    relayed = json.loads(lab.market.tool("marketctl", "--node", "n1", "--json", "-X", "all",
                                         "list-jobs").stdout)["sites"]
    assert [s["site"] for s in relayed] == list(found) and all(s["answer"] for s in relayed)
    fits("sites", {"sites": relayed})
    fits("peers", json.loads(lab.market.tool("souk", "peer", "list", "--json").stdout))


def test_an_operator_elsewhere_asks_all_sites(sites, tmp_path):
    lab = sites["lab"]
    cert = made(lab.market, tmp_path, "ada")
    done = elsewhere(lab.market, "marketctl", "--cert", cert, "--json", "-X", "all",
                     "list-providers")
    assert done.returncode == 0, done
    assert {s["answer"][0]["node"] for s in json.loads(done.stdout)["sites"]} == {
        "n1", "uni:n1", "far:n1"}


def test_a_job_is_named_with_its_site_and_only_its_own_market_orders_it(sites):
    lab, uni = sites["lab"], sites["uni"]
    id = twins(lab, uni)
    lab.market.until_runs(id)
    there = uni.market.until_runs(id)
    seen = lab.market.job(f"uni:{id}")
    assert seen["id"] == f"uni:{id}" and seen["uid"] == there["uid"] and seen["status"] == "run"
    assert not {"command", "where", "cost"} & set(seen)  # its user's own business, and root's there
    own = lab.market.job(f"lab:{id}")
    assert own["id"] == f"lab:{id}" and own["command"] == lab.market.job(id)["command"]
    assert re.search(rf"\buni:{id}\b", lab.market.tool("marketctl", "job", f"uni:{id}").stdout)
    assert lab.market.ctl("marketctl", "why", f"uni:{id}")["job"] == f"uni:{id}"
    assert lab.market.ctl("marketctl", "why", "uni:n1")["node"] == "uni:n1"
    for words in (("cancel", f"uni:{id}"), ("cancel", f"uni:{id}-9"), ("freeze", f"uni:{id}"),
                  ("move", f"uni:{id}", "n1"), ("hold", f"uni:{id}"),
                  ("job", f"uni:{id}", "--story")):
        said = refused(lab.market.tool("marketctl", *words, check=False), "not_allowed")
        assert f"uni:{id}" in said, words
    assert "no such job" in refused(
        lab.market.tool("marketctl", "job", "uni:n1.99999", check=False), "not_found")
    refused(lab.market.tool("marketctl", "job", f"nowhere:{id}", check=False), "not_found")
    assert lab.market.job(id)["status"] == "run" and uni.market.job(id)["status"] == "run"
    lab.market.tool("marketctl", "cancel", f"lab:{id}")
    lab.market.until_job(id, "is over", lambda j: j["status"] == "finish")
    assert uni.market.job(id)["status"] == "run"
    assert lab.market.job(f"uni:{id}")["status"] == "run"


def test_a_site_that_says_nothing_is_named_within_a_bound(sites):
    lab, uni = sites["lab"], sites["uni"]
    with stopped(uni):
        began = time.monotonic()
        found, done = lab.everywhere("list-providers", status=1)
        assert time.monotonic() - began < 15
        assert found["uni"]["code"] == "away" and "answer" not in found["uni"]
        assert found["far"]["answer"] and found["lab"]["answer"]
        assert "2 of 3 sites answered" in done.stderr and "uni" in done.stderr
        assert lab.market.tool("srun", "-p", "5", "true",
                               env={**lab.market.env, "SOUK_NODE": "n1"}).returncode == 0
        text = lab.market.tool("marketctl", "-X", "all", "status", check=False)
        assert text.returncode == 1 and "no answer: " in text.stdout
    for site in sites.values():
        site.until_connected(*(n for n in NAMES if n != site.name))
    found, _ = lab.everywhere("list-providers")
    assert all(s["answer"] for s in found.values())


def test_peers_find_each_other_again_when_a_market_was_killed(sites):
    lab, far = sites["lab"], sites["far"]
    far.market.kill_daemon("market")
    for site in sites.values():
        site.until_connected(*(n for n in NAMES if n != site.name))
    assert not lab.peers()["far"]["called"] and lab.peers()["far"]["calls"]  # far cannot be called
    found, _ = lab.everywhere("list-providers", sites="far")
    assert found["far"]["answer"][0]["node"] == "far:n1"


def test_terms_are_told_to_the_peer_and_kept(sites):
    lab, uni = sites["lab"], sites["uni"]
    assert lab.peers()["uni"]["terms"] == {"most_cpus": 0}
    until("uni has said that nothing may come",
          lambda: lab.peers()["uni"].get("told") == {"most_cpus": 0})
    assert "nothing may come" in uni.market.tool("souk", "peer", "status", "lab").stdout
    said = uni.terms("lab", "--most-cpus", "16", "--users", "ada,bob", "--projects", "atlas",
                     "--hours", "20:00-08:00", "--least", "5").stdout
    assert said == ("jobs from site lab: at most 16 CPUs; users ada, bob; projects atlas; "
                    "20:00-08:00; at least 5 per CPU-hour\n")
    terms = {"most_cpus": 16, "users": ["ada", "bob"], "projects": ["atlas"],
             "hours": "20:00-08:00", "least": 5}
    assert uni.peers()["lab"]["terms"] == terms
    until("lab hears of it", lambda: lab.peers()["uni"]["told"] == terms)
    assert "it says: at most 16 CPUs" in lab.market.tool("souk", "peer", "status", "uni").stdout
    fits("peers", json.loads(lab.market.tool("souk", "peer", "list", "--json").stdout))
    # they outlive the market and a new card
    uni.market.kill_daemon("market")
    uni.until_connected("lab", "far")
    uni.add(lab.card())
    assert uni.peers()["lab"]["terms"] == terms
    assert lab.peers()["uni"]["told"] == terms
    for words in (("--users", "ada"), ("--none", "--most-cpus", "3"), ("--most-cpus", "0"),
                  ("--most-cpus", "4", "--hours", "20-8"), ("--most-cpus", "4", "--least", "-1")):
        done = uni.terms("lab", *words, check=False)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done
    refused(uni.terms("nowhere", "--none", check=False), "not_found")
    refused(uni.market.tool("souk", "peer", "terms", "lab", "--none", check=False, user=12345,
                            group=12345), "not_allowed")
    assert uni.peers()["lab"]["terms"] == terms
    uni.terms("lab", "--none")
    until("lab hears of that too", lambda: lab.peers()["uni"]["told"] == {"most_cpus": 0})


def test_a_job_that_waits_is_offered_places_by_sites_that_let_it_come(sites):
    lab, uni, far = sites["lab"], sites["uni"], sites["far"]
    lab.crowd()
    home, id = lab.wait_at(), lab.wait_at("--sites", "any")
    assert lab.market.job(id)["sites"] == "any" and "sites" not in lab.market.job(home)
    time.sleep(4)
    assert lab.offers(home) == {"job": home, "sites": "own", "prefer": "finish", "offers": []}
    assert lab.offers(id)["offers"] == []  # all have said that nothing may come
    uni.terms("lab", "--most-cpus", "4", "--least", "7")
    far.terms("lab", "--most-cpus", "4", "--users", "nobody-here")
    offers = lab.until_offered(id, "both have answered", lambda o, by: "best" in o and "far" in by)
    by_site = {o["site"]: o for o in offers["offers"]}
    assert offers["best"] == "uni" and by_site["uni"]["price"] == 7
    assert by_site["uni"]["held_s"] == 15 and by_site["uni"]["starts_in_s"] == 0
    assert by_site["far"]["code"] == "not_allowed" and "user" in by_site["far"]["why"]
    fits("offers", offers)
    text = lab.market.tool("marketctl", "offers", id).stdout
    assert re.search(r"^uni +7 ", text, re.M) and "the best is that of uni" in text
    # It goes to uni (test_site_jobs.py), whose nodes are not reached here: it is not taken there.
    assert lab.market.job(id)["status"] in ("wait", "starting")
    # nobody else at lab sees the offers
    refused(lab.market.tool("marketctl", "offers", id, check=False, user=12345, group=12345),
            "not_allowed")
    # other terms: it is asked about anew, and elsewhere
    lab.market.tool("srun", "-J", id, "--sites", "far", "--prefer", "cost")
    lab.until_offered(id, "far alone is asked",
                      lambda o, by: (set(by), o["prefer"]) == ({"far"}, "cost") and "best" not in o)
    lab.market.tool("srun", "-J", id, "--sites", "own")
    until("it stays at home", lambda: lab.offers(id)["sites"] == "own")
    for words in (("--sites", "u ni"), ("--sites", "uni,,far"), ("--prefer", "cost"),
                  ("--sites", "any", "--prefer", "both")):
        done = lab.market.tool("srun", "-p", "5", *words, "true", check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    for site in (uni, far):
        site.terms("lab", "--none")


def test_a_silent_site_offers_nothing_and_holds_up_nobody(sites):
    lab, uni, far = sites["lab"], sites["uni"], sites["far"]
    for site in (uni, far):
        site.terms("lab", "--most-cpus", "4")
    until("lab has heard", lambda: all(lab.peers()[n]["told"]["most_cpus"] for n in ("uni", "far")))
    lab.crowd()
    with stopped(uni):
        id = lab.wait_at("--sites", "uni,far")
        offers = lab.until_offered(id, "the round is over", lambda o, by: len(by) == 2)
        by_site = {o["site"]: o for o in offers["offers"]}
        assert by_site["uni"]["code"] == "away" and offers["best"] == "far", offers
    for site in (uni, far):
        site.terms("lab", "--none")
    for site in sites.values():
        site.until_connected(*(n for n in NAMES if n != site.name))


def test_a_hostile_site_gets_what_anybody_may_see_and_nothing_else(sites):
    lab, uni = sites["lab"], sites["uni"]
    own = lab.submit()
    lab.market.until_runs(own)
    with stopped(uni):
        tries_all(Hostile(uni, lab), own)
        tries_jobs(Hostile(uni, lab), own)
        tries_money(Hostile(uni, lab))
    assert lab.market.job(own)["status"] == "run"
    # the true market comes back
    lab.until_connected("uni")
    until("uni is heard again", lambda: lab.market.tool(
        "marketctl", "-X", "uni", "status", check=False).returncode == 0)


def ask(number=7, id=1, user="ada", terms=None):
    """A question about a job, as market.proto has it."""
    return encode({1: number, 2: {1: "n1", 2: id}, 3: user, 4: terms or {1: 30_000_000, 4: 1},
                   5: 30_000_000_000})


def tries_all(hostile, own):
    frames = hostile.talk(hello("uni") + question("list-jobs"))
    assert [kind for kind, _ in frames] == [WELCOME, REPLY]
    jobs = json.loads(frames[1][1][4][0])
    mine = next(j for j in jobs if j["id"] == own)
    assert "command" not in mine and "budget" not in mine
    # orders, secrets, money, and what other sites have
    for words in (("cancel", own), ("set", "solver", "greedy", "x"), ("dump",), ("backup", "/x"),
                  ("token-create", "n9", "home", "60"), ("node-list",), ("peer-add", "x", "-"),
                  ("peer-remove", "far"), ("peer-list",), ("peer-terms", "uni", "most-cpus=9"),
                  ("peer-settle", "uni", "confirm", "1"), ("at", "far", "site-entries"),
                  ("at", "far", "list-jobs"),
                  ("job", "far:n1.1"), ("story", own), ("quote", "price=1"), ("web", "x", "status"),
                  ("transfer", "root", "1"), ("ledger-seen", "1", "x"), ("nonsense",)):
        kind, body = hostile.talk(hello("uni") + question(*words))[1]
        assert kind == REPLY and 2 not in body, (words, body)  # not ok
        assert CAUSES[body[7][0]] == "not_allowed", (words, body)
    # other roles, other names, and words of nodes
    for first in (hello("uni", 1, "n1"), hello("uni", 2), hello("far"), hello("u/ni"), hello("")):
        kind, body = hostile.talk(first)[0]
        assert kind == ERROR, (first, body)
    for kind in (16, 17, 18, 19, 20, 21, 32, 35, 38, 39, 64):
        frames = hostile.talk(hello("uni") + frame(kind, b"\x0a\x02n1"))
        assert frames[1][0] == ERROR, (kind, frames)
    # what it says of its terms is shown as its claim, and changes none of ours
    assert hostile.talk(hello("uni") + frame(TERMS, encode({1: 9, 2: ["ada"]})) +
                        question("status"))[1][0] == REPLY
    known = hostile.towards.peers()["uni"]
    assert known["told"] == {"most_cpus": 9, "users": ["ada"]}
    assert known["terms"] == {"most_cpus": 0}
    for bad in (encode({1: 65537}), encode({1: 4, 4: 1440}), encode({1: 4, 2: ["a\x1b[2J"]}),
                encode({1: 4, 2: ["a"] * 65}), b"\xff" * 40, encode({1: 4, 5: -5})):
        assert hostile.talk(hello("uni") + frame(TERMS, bad))[1][0] == ERROR, bad
    assert hostile.towards.peers()["uni"]["told"] == known["told"]
    kind, body = hostile.talk(hello("uni") + frame(TERMS, encode({1: 1})) * 1000)[1]
    assert kind == ERROR and CAUSES[body[2][0]] == "too_many", body

    # offers: none by its terms, none for words that are no job, and no flood of them
    def offered():
        """The answer, when its share of questions is back after that flood."""
        kind, body = hostile.talk(hello("uni") + frame(ASK, ask()))[1]
        assert kind == OFFER and body[1] == [7] and 4 not in body
        return CAUSES[body[3][0]] != "too_many" and body
    body = until("its share of questions is back", offered)
    assert CAUSES[body[3][0]] == "not_allowed"
    for bad in (ask(terms={1: 0}), ask(terms={1: 1, 4: 0}), ask(terms={1: 1, 3: -1}), b"\xff" * 40,
                encode({1: 7, 3: "ada"}), ask(user="a\nb"), ask() + encode({5: -1})):
        assert hostile.talk(hello("uni") + frame(ASK, bad))[1][0] == ERROR, bad
    hostile.towards.terms("uni", "--most-cpus", "1")
    asks = b"".join(frame(ASK, ask(n, id=n)) for n in range(1, 200))
    flood = hostile.talk(hello("uni") + asks, 200)
    codes = [CAUSES[b[3][0]] if 3 in b else "offer" for k, b in flood if k == OFFER]
    assert len(codes) == 199 and codes.count("too_many") > 150, codes
    assert sum(7 in b for k, b in flood if k == OFFER) <= 1  # one CPU is kept for it
    hostile.towards.terms("uni", "--none")
    for unasked in (encode({1: 1, 4: 5, 5: 100}), encode({1: 2 ** 63})):
        said = hostile.talk(hello("uni") + frame(OFFER, unasked) + question("status"))
        assert said[1][0] == REPLY
    for bad in (encode({1: 1, 4: -1}), encode({1: 1, 5: 16384}), encode({1: 1, 6: -1})):
        assert hostile.talk(hello("uni") + frame(OFFER, bad) + question("status"))[1][0] == ERROR
    # an answer that nobody has asked for, then nonsense, then a flood
    assert hostile.talk(hello("uni") + frame(REPLY, encode({1: 1, 2: 1, 4: "{}"})) +
                        question("status"))[1][0] == REPLY
    assert hostile.talk(hello("uni") + frame(REQUEST, b"\xff" * 40))[1][0] == ERROR
    flood = hostile.talk(hello("uni") + b"".join(question("plan", number=n) for n in range(300)),
                         301)
    refusals = [b for k, b in flood if k == REPLY and 2 not in b]
    assert refusals and {CAUSES[b[7][0]] for b in refusals} == {"too_many"}


def tries_jobs(hostile, own):
    """None of its own comes by these terms, none of others, and no order is heard for a job that it
    was not given."""
    def report(home, number=5, phase=1, **more):
        return encode({1: {1: {1: home, 2: number}, 2: {1: 30_000_000, 4: 1}, 4: "ada", 8: phase,
                           **more}})

    def no(job):
        """Why that job does not come, when its share of questions is back."""
        def said():
            kind, body = hostile.talk(hello("uni") + frame(JOB, job))[1]
            code = "malformed" if kind == ERROR else CAUSES[body[3][0]]
            return code != "too_many" and code
        return until("its share of questions is back", said)

    assert no(report("n1")) == "not_allowed"
    hostile.towards.terms("uni", "--most-cpus", "1")
    assert no(report("n1", phase=3)) == "not_possible"
    for home in ("far:n1", "lab:n1", "lab:n9", "a:b:c", "N1"):
        assert no(report(home)) in ("malformed", "not_allowed"), home
    hostile.towards.terms("uni", "--none")
    number = int(own.rsplit(".", 1)[1])
    for kind_of_order in (2, 3):  # suspend, abort
        kind, body = hostile.talk(hello("uni") + frame(ORDER, encode(
            {1: {1: {1: "lab:n1", 2: number}, 2: 99, 3: kind_of_order}})))[1]
        assert kind == FAILED, (kind, body)
    # a place of anybody, for that job and for none: no node comes of it
    for job in (number, 10 ** 6):
        for place in ("n77", "lab:n77", "far:n77", "uni:n77"):
            kind, body = hostile.talk(hello("uni") + frame(ORDER, encode(
                {1: {1: {1: "lab:n1", 2: job}, 2: 99, 3: 1, 4: place, 5: "192.0.2.9:7071"}})))[1]
            assert kind in (FAILED, ERROR), (place, body)
    assert not [n for n in hostile.towards.market.providers()
                if "n77" in n["node"]]
    said = hostile.talk(hello("uni") + frame(NOTE, encode(
        {1: {1: {1: "lab:n1", 2: number}, 5: 1}, 2: "gone"})) + question("status"))
    assert said[1][0] == REPLY
    assert hostile.talk(hello("uni") + frame(NOTE, b"\xff" * 40))[1][0] == ERROR
    assert not [j for j in hostile.towards.market.ctl("marketctl", "list-jobs")
                if ":" in j["id"]]


def test_a_node_of_a_peer_is_nobody_here(sites):
    lab, uni = sites["lab"], sites["uni"]
    identity = f"{uni.market.run_dir}/state/n1/identity"
    chain = f"{identity}/whole.pem"
    with open(chain, "w") as f:
        f.write(read_text(f"{identity}/certificate.pem") +
                read_text(f"{uni.market.run_dir}/state/market/identity/root.pem"))
    done = subprocess.run(
        ["nsenter", f"--net=/run/netns/{uni.market.tag}-fabric", "openssl", "s_client", "-connect",
         f"{lab.address}:7070", "-cert", chain, "-cert_chain", chain, "-key",
         f"{identity}/key.pem"], input="", capture_output=True, text=True, timeout=LIMIT)
    assert "CONNECTED" in done.stdout, done
    until("lab says who may call", lambda: "its market alone may call here" in
          read_text(f"{lab.market.run_dir}/market/log"))


def test_a_market_whose_peer_lies_shows_a_line_and_goes_on(sites):
    """far's place is taken by a program that answers nonsense to every question."""
    lab, far = sites["lab"], sites["far"]
    lies = ["[", '{"a":' * 50 + "1", '[{"id": {"id": []}}]', "\x1b[2J", "null", '"x"', "[1, null]",
            "[" * 200_000 + "]" * 200_000]
    entry = r'{"entries": ["%d\tuse\tfar:n1.1\tlab:n1\t1\t1\t1\t1\tfar\t0\t-"]}'
    lies += ['{"entries": 7}', '{"entries": [[]]}', r'{"entries": ["1\tuse"]}']
    lies += [entry % 1, entry % 2]
    identity = f"{far.market.run_dir}/state/market/identity"
    chain = f"{identity}/whole.pem"
    with open(chain, "w") as f:
        f.write(read_text(f"{identity}/certificate.pem") + read_text(f"{identity}/root.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(chain, f"{identity}/key.pem")

    def liar():
        with socket.create_connection((lab.address, 7070), LIMIT) as raw:
            with context.wrap_socket(raw) as s:
                s.sendall(hello("far"))
                seen = []
                while lies:
                    head = Hostile.read(s, 8)
                    if len(head) < 8:
                        return seen
                    length, kind, _ = struct.unpack("<IHH", head)
                    body = Hostile.read(s, length)
                    if kind == 0xff00:
                        s.sendall(struct.pack("<IHH", 0, 0xff01, 0))
                    if kind != REQUEST:
                        continue
                    seen.append(decode(body)[3][0])
                    s.sendall(frame(REPLY, encode({1: decode(body)[1][0], 2: 1,
                                                   4: lies.pop(0)})))
                return seen
    count = len(lies)
    answers = []
    with stopped(far):
        def ask():
            while lies:
                words = (("ledger", "verify", "--peer", "far") if "entries" in lies[0] else
                         ("-X", "far", "list-jobs"))
                answers.append(lab.market.tool("marketctl", *words, check=False))
        asking = threading.Thread(target=ask, daemon=True)
        threads = threading.Thread(
            target=lambda: far.market.in_netns("fabric", liar), daemon=True)
        threads.start()
        until("the liar is connected", lambda: "replaced by a newer connection" in
              read_text(f"{lab.market.run_dir}/market/log") or lab.peers()["far"]["connected"])
        asking.start()
        asking.join(LIMIT)
        assert not asking.is_alive() and len(answers) >= count
    for done in answers:
        assert "\x1b" not in done.stdout + done.stderr, done
        assert done.returncode in (0, 1), done
        assert "terminate" not in done.stderr, done
    assert sum(done.returncode == 1 for done in answers) >= count - 2
    assert any("job far:n1.1 at lab:n1: missing here" in done.stdout for done in answers)
    assert lab.market.daemon("market")["pid"] > 0
    for site in sites.values():
        site.until_connected(*(n for n in NAMES if n != site.name))


def test_a_market_without_certificates_has_no_peers(three, tmp_path):
    """marketd with insecure = true."""
    conf = tmp_path / "marketd.conf"
    conf.write_text(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\nstate = "{tmp_path}/state"\n'
                    'insecure = true\nsite = "open"\n')
    daemon = subprocess.Popen([f"{BIN}/marketd", "--config", conf], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        until("marketd listens", lambda: (tmp_path / "s").exists())
        tool = three["lab"].market.tool
        refused(tool("souk", "peer", "add", three["uni"].card(), "--socket", tmp_path / "s",
                     check=False), "not_possible")
        refused(tool("souk", "peer", "card", "--socket", tmp_path / "s", check=False),
                "not_possible")
    finally:
        daemon.terminate()
        daemon.wait(LIMIT)
