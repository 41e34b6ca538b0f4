# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes that others do not reach, and their gateway (docs/sites.md): three sites on this host. The
nodes of one are behind NAT, in a network whose addresses are also those of the others' own nodes,
and its market takes no calls. Only its gateway is reached from outside."""
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request

import pytest

from conftest import LIMIT, read_text, until
from hostile_gateway import (ASK, MARK, OFFER, WELCOME, HostileGateway, Talk, context, identity)
from protobuf import encode, frame
from test_site_jobs import Wide
from test_site_moves import WORK, end, goes_on, move
from test_sites import ip, wire

pytestmark = pytest.mark.skipif(not shutil.which("nft"), reason="no nft here: no NAT can be made")

FABRIC = "10.79.0.1"
MASQUERADE = """table ip nat {
    chain out { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }
}"""


def figures(site, node):
    """A gateway's figures of itself, by name."""
    text = site.market.in_netns(node, lambda: urllib.request.urlopen(
        "http://127.0.0.1:7078/metrics", timeout=LIMIT).read().decode())
    return {name: float(value) for name, value in re.findall(
        r"^souk_gateway_(\w+) (\S+)$", text, re.M)}


class Everywhere(Wide):
    """Its nodes listen everywhere, also at the addresses that the nodes behind NAT have there."""
    def spread(self, hub):
        super().spread(hub)
        for node in self.market.nodes():
            where = f"{self.market.run_dir}/{node}/agentd.conf"
            text = re.sub('^listen = "(.*)"$', r'listen = "0.0.0.0:7071"\naddress = "\1"',
                          read_text(where), flags=re.M)
            with open(where, "w") as f:
                f.write(text)
            self.market.kill_daemon(node)


class Behind(Wide):
    """A site whose nodes n1 and n2 can only dial out. n3 is their gateway, and takes no jobs."""
    gateway = "192.0.2.202:7071"

    def spread(self, hub):
        net = f"{self.market.tag}-fabric"
        for words in (("sysctl", "-qw", "net.ipv4.ip_forward=1"), ("nft", MASQUERADE)):
            subprocess.run(["ip", "netns", "exec", net, *words], check=True)
        ip("-n", hub, "link", "add", "gw", "type", "veth", "peer", "name", "wan", "netns",
           self.net("n3"))
        ip("-n", hub, "link", "set", "gw", "master", "wan", "up")
        ip("-n", self.net("n3"), "addr", "add", self.gateway.split(":")[0] + "/24", "dev", "wan")
        ip("-n", self.net("n3"), "link", "set", "wan", "up")
        for node in ("n3", "n1", "n2"):
            where = f"{self.market.run_dir}/{node}"
            with open(f"{where}/users.map", "w") as f:
                f.write("lab/* = *\nuni/* = *\n")
            text = read_text(f"{where}/agentd.conf") + f'user_map = "{where}/users.map"\n'
            if node == "n3":
                text = re.sub('^listen = ".*"', f'listen = "{self.gateway}"', text, flags=re.M)
                text += "relay = true\non_market = false\nmetrics = \"127.0.0.1:7078\"\n"
            else:
                text += f'gateway = "{self.gateway}"\n'
            with open(f"{where}/agentd.conf", "w") as f:
                f.write(text)
            self.market.kill_daemon(node)

    def until_offered_nodes(self, *nodes):
        """Waits until their gateway has heard of the nodes since it was started last."""
        until(f"{nodes} are connected to their gateway", lambda: all(
            read_text(f"{self.market.run_dir}/{n}/log").count("is reached through its gateway")
            > self.heard.get(n, 0) for n in nodes))

    def figures(self):
        return figures(self, "n3")

    def count_offers(self):
        self.heard = {n: read_text(f"{self.market.run_dir}/{n}/log").count(
            "is reached through its gateway") for n in ("n1", "n2")}

    heard = {}

    def guests(self, of="lab"):
        return {j["id"]: j for j in self.market.ctl("marketctl", "list-jobs")
                if j["id"].startswith(of + ":")}


@pytest.fixture(scope="module")
def sites(fit):
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Everywhere("lab", 0, 2))
        uni = stack.enter_context(Wide("uni", 1, 1))
        far = stack.enter_context(Behind("far", 2, 3, "--private-files"))
        wire([lab, uni, far])
        for site in (lab, uni, far):
            site.configure()
            site.spread(f"{lab.market.tag}-fabric")
        far.add(lab.card())
        lab.add(far.card("none"))
        uni.add(lab.card())
        lab.add(uni.card())
        lab.until_connected("far", "uni")
        for a, b in ((lab, far), (far, lab), (uni, lab), (lab, uni)):
            a.terms(b.name, "--most-cpus", "4")
        far.until_offered_nodes("n1", "n2")
        yield lab, uni, far


@pytest.fixture
def idle(sites):
    yield sites
    for site in sites:
        site.market.clear()


def begin(site, node, python="/usr/bin/python3"):
    """A job of n1 that runs on that node of its own site; the second node of far has nothing but
    what a machine has."""
    job = site.market.srun("-p", "20", "-m", "200M", python, "-c", WORK, stdin=subprocess.PIPE,
                           env={**site.market.env, "SOUK_NODE": "n1"},
                           cwd="/")  # the directory of the tests may be one that far:n2 has not
    site.market.until_runs(job.id)
    if site.where(job.id) != node:
        move(site, job.id, node)
    job.printed(10)
    return job


def at_far(lab, id, node=None):
    return lab.market.until_job(id, "runs at far", lambda j: j["status"] == "run" and j.get(
        "where", "").startswith(f"far:{node or ''}"), LIMIT * 2)


def test_nobody_outside_reaches_a_node_behind_nat(idle):
    lab, _, far = idle
    told = {p["node"]: p["address"] for p in far.market.ctl("marketctl", "list-providers")}
    assert told["n1"] == f"10.79.0.11:7071 via {far.gateway}"
    assert told["n2"] == f"10.79.0.12:7071 via {far.gateway}"
    tried = subprocess.run(
        ["ip", "netns", "exec", lab.net("n1"), "python3", "-c",
         "import socket; socket.create_connection(('192.0.2.3', 7071), 2)"], capture_output=True)
    assert tried.returncode == 1


def test_a_job_of_another_site_runs_behind_nat_with_its_terminal_and_files(idle, tmp_path):
    lab, _, far = idle
    for _ in lab.market.nodes():
        lab.crowd()
    (tmp_path / "in").write_text("what is at home\n")
    job = lab.begin("--files=home", "--sites", "far", "sh", "-c",
                    "cat in; read x; echo got $x > out; echo $x; exit 7",
                    stdin=subprocess.PIPE, cwd=tmp_path)
    at_far(lab, job.id)
    job.printed(1, LIMIT * 2)
    job.process.stdin.write(b"42\n")
    job.process.stdin.flush()
    assert job.wait(LIMIT * 2) == 7
    assert bytes(job.out) == b"what is at home\n42\n"
    assert (tmp_path / "out").read_text() == "got 42\n"


def test_a_job_finds_its_home_s_files_behind_nat(idle, tmp_path):
    lab, _, far = idle
    job = lab.market.srun("-p", "20", "--files=home", "sh", "-c",
                          "echo ready; while read x; do echo $x >> out; echo $x; done",
                          stdin=subprocess.PIPE, cwd=tmp_path,
                          env={**lab.market.env, "SOUK_NODE": "n1"})
    job.printed(1)
    for turn, to in enumerate(("far:n2", "n1", "far:n2")):  # n2 has another /tmp than its host
        move(lab, job.id, to)
        job.process.stdin.write(b"%d\n" % turn)
        job.process.stdin.flush()
        job.printed(turn + 2, LIMIT * 2)
        assert (tmp_path / "out").read_text().split() == [str(n) for n in range(turn + 1)]
    job.process.stdin.close()
    assert job.wait(LIMIT * 2) == 0
    shown = lab.market.until_job(job.id, "was counted", lambda j: j["status"] == "finish" and j.get(
        "files_requests", 0) > 0)
    assert shown["files_sent_bytes"] > 0 and shown["failed_moves"] == 0


def test_a_running_job_moves_behind_nat_and_back(idle):
    lab, _, far = idle
    before = far.figures()
    job = begin(lab, "n2")
    for to, back in (("far:n2", "n1"), ("far:n1", "n2")):
        said = move(lab, job.id, to)
        assert f"runs on {to}" in said.stdout and "it stood still for" in said.stdout
        goes_on(job)
        said = move(lab, job.id, back)
        assert f"runs on {back}" in said.stdout
        goes_on(job)
    figures = far.figures()
    assert figures["nodes"] == 2 and figures["relays"] > 0
    assert figures["relayed_bytes_total"] > before["relayed_bytes_total"] + 2 * (32 << 20)
    shown = lab.market.job(job.id)
    assert shown["freezes"] == 0 and shown["failed_moves"] == 0
    end(job)


def test_a_job_whose_home_is_behind_nat_runs_elsewhere_and_comes_home(idle):
    lab, _, far = idle
    job = begin(far, "n1")
    before = far.figures()
    move(far, job.id, "n2")  # these two reach each other
    goes_on(job)
    move(far, job.id, "n1")
    assert far.figures()["relayed_total"] == before["relayed_total"]
    for to in ("lab:n1", "n1", "lab:n2", "n2"):  # the other node of its site is behind NAT, too
        said = move(far, job.id, to)
        assert f"runs on {to}" in said.stdout
        goes_on(job)
    assert far.market.job(job.id)["failed_moves"] == 0
    end(job)


def test_a_gateway_dies_while_a_job_runs(idle):
    lab, _, far = idle
    job = begin(lab, "n2")
    move(lab, job.id, "far:n2")
    for _ in range(2):
        far.count_offers()
        far.market.kill_daemon("n3")
        goes_on(job)
        far.until_offered_nodes("n1", "n2")
    far.market.tool("pvdctl", "--node", "n2", "market", "off")  # from one node behind it to another
    at_far(lab, job.id, "n1")
    far.market.tool("pvdctl", "--node", "n2", "market", "on")
    goes_on(job)
    move(lab, job.id, "n1")
    goes_on(job)
    end(job)


@pytest.fixture
def shut_in(idle):
    """The home lab:n1 cannot even connect to the gateway of far; lab:n2 is a gateway, too."""
    lab, _, far = idle
    paths = {node: f"{lab.market.run_dir}/{node}/agentd.conf" for node in ("n1", "n2")}
    before = {node: read_text(path) for node, path in paths.items()}
    more = {"n1": 'gateway = "192.0.2.101:7071"\n',
            "n2": 'relay = true\nrelay_out = true\nmetrics = "127.0.0.1:7078"\n'}

    def configure(text):
        for node in ("n2", "n1"):
            with open(paths[node], "w") as f:
                f.write(text[node])
            lab.market.kill_daemon(node)
    wall = ("-n", lab.net("n1"), "route")
    ip(*wall, "add", "blackhole", far.gateway.split(":")[0])
    try:
        configure({node: before[node] + more[node] for node in paths})
        yield lab, far
    finally:
        ip(*wall, "del", "blackhole", far.gateway.split(":")[0])
        configure(before)


def test_a_home_that_cannot_dial_out_goes_by_two_gateways(shut_in):
    lab, far = shut_in
    until("lab:n1 is connected to its gateway", lambda: "is reached through its gateway" in
          read_text(f"{lab.market.run_dir}/n1/log"))
    job = begin(lab, "n2")
    move(lab, job.id, "far:n2")
    goes_on(job)
    assert figures(lab, "n2")["relays"] > 0
    move(lab, job.id, "n2")
    goes_on(job)
    end(job)


def test_a_gateway_dies_in_the_middle_of_a_move(idle):
    lab, _, far = idle
    job = begin(lab, "n2")
    for pause in (0, 0.05, 0.2):
        there = lab.where(job.id).startswith("far:")
        lab.market.tool("marketctl", "move", job.id, "n2" if there else "far:n2")
        until("the move is under way", lambda: lab.market.job(job.id).get("going_to") or
              lab.where(job.id).startswith("far:") != there, LIMIT)
        time.sleep(pause)  # where in the move it is
        far.count_offers()
        far.market.kill_daemon("n3")
        far.until_offered_nodes("n1", "n2")
        lab.market.until_job(job.id, "runs", lambda j: j["status"] == "run" and
                             not j.get("going_to"), LIMIT * 3)
        goes_on(job)
    end(job)


def nowhere(what):
    """Without a certificate that counts there, nothing is answered."""
    with pytest.raises((ssl.SSLError, OSError, AssertionError, TypeError)):
        heard = what()
        assert heard and heard[0] == WELCOME


def test_who_may_not_use_a_gateway_gets_nothing(idle):
    lab, uni, far = idle

    def on_the_wire(what):
        return lab.market.in_netns("fabric", what)

    def talk(of, node):
        return Talk(far.gateway, of, node)

    def first_word(of, node, say=b""):
        with talk(of, node) as t:
            t.socket.sendall(say)
            return t.said() if not say else (t.said(), t.said())[1]
    of_lab, of_uni = identity(lab.market, "n1"), identity(uni.market, "n1")
    on_the_wire(lambda: nowhere(lambda: first_word(None, "n1")))
    on_the_wire(lambda: nowhere(lambda: first_word(of_uni, "n1")))  # uni is no peer of far
    said = on_the_wire(lambda: first_word(of_lab, "n2"))
    assert said == "the peer says it is n2, its certificate that it is n1"
    said = on_the_wire(lambda: first_word(of_lab, "n1", frame(OFFER, b"")))
    assert said == "a gateway is for the nodes of its own site"
    with pytest.raises(AssertionError, match="n2 is no gateway"):
        on_the_wire(lambda: refused_by(lab, of_lab))

    def asks():
        with talk(of_lab, "n1") as t:
            assert t.said()[0] == WELCOME
            assert t.ask("n9") == (b"", "n9 is not connected to its gateway")
            # not even itself, and no address
            assert t.ask("n3", 2) == (b"", "n3 is not connected to its gateway")
            assert t.ask("n1", 3, onward="192.0.2.2:7070") == (
                b"", "a gateway asks others for its own site alone")
            t.socket.sendall(frame(ASK, encode({1: 4, 2: "192.0.2.2:22"})))
            assert t.said() == "GatewayAsk: node: not a node name"
    on_the_wire(asks)


def refused_by(lab, of):
    with Talk("192.0.2.101:7071", of, "n1") as t:
        raise AssertionError(t.said())


def is_closed(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:  # what was sent has not been read
        return True


def begins(far, preamble):
    host, port = far.gateway.split(":")
    s = socket.create_connection((host, int(port)), LIMIT)
    s.sendall(preamble)
    return s


def test_a_pass_is_good_once_and_leads_to_that_node_alone(idle):
    lab, uni, far = idle
    of_lab = identity(lab.market, "n1")

    def tries():
        for bad in (MARK + b"0" * 32, MARK + b"x" * 32, MARK):  # the last is never whole
            with begins(far, bad) as s:
                assert is_closed(s)
        with Talk(far.gateway, of_lab, "n1") as t:
            assert t.said()[0] == WELCOME
            got, _ = t.ask("n1")
            with begins(far, MARK + got) as s:
                with begins(far, MARK + got) as again:
                    assert is_closed(again)
                # It is n1 that answers, and it wants to know who asks, as ever.
                nobody = context(identity(uni.market, "n1")).wrap_socket(s)
                with pytest.raises(ssl.SSLError, match="(?i)unknown.ca"):
                    nobody.recv(1)
    lab.market.in_netns("fabric", tries)


@pytest.fixture
def hostile(idle):
    """Somebody with the gateway's own key is at its address."""
    lab, _, far = idle
    where = f"{far.market.run_dir}/n3/agentd.conf"
    before = read_text(where)
    with open(where, "w") as f:
        f.write(before.replace(far.gateway, "10.79.0.13:7071"))
    far.count_offers()
    far.market.kill_daemon("n3")
    played = HostileGateway(far.market, "n3", far.gateway)
    try:
        far.until_offered_nodes("n1", "n2")
        yield lab, far, played
    finally:
        played.close()
        with open(where, "w") as f:
            f.write(before)
        far.count_offers()
        far.market.kill_daemon("n3")
        far.until_offered_nodes("n1", "n2")


def test_a_hostile_gateway_gets_nothing_but_broken_connections(hostile):
    lab, far, played = hostile
    job = begin(lab, "n2")
    move(lab, job.id, "far:n1")  # by this one, too
    goes_on(job)
    move(lab, job.id, "n2")
    for mode, at in (("alter", 20_000), ("alter", 100), ("wrong", 0), ("idle", 0), ("mute", 0)):
        played.mode, played.alter_at, played.done = mode, at, 0
        # The connections of before are gone.
        lab.market.kill_daemon("n1")
        lab.market.kill_daemon("n2")
        done = move(lab, job.id, "far:n1", check=False)
        assert done.returncode == 1 and played.done > 0, (mode, done, played.done)
        lab.market.until_job(job.id, "runs at home",
                             lambda j: j["status"] == "run" and j["where"] == "n2", LIMIT * 2)
        goes_on(job)
    played.mode = "honest"
    until("it moves again", lambda: move(lab, job.id, "far:n1", check=False).returncode == 0,
          LIMIT * 2)
    goes_on(job)
    end(job)
