# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-handshake does TLS handshakes in a process of its own. These tests look at its rights, at
what is left when it dies, and at how far an attacker gets who has taken it over."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import authority
import client as c
import cluster
import taken_over
from client import Connection, Refused, command, hello
from cluster import read_text, until
from no_rights import check_rights, echoes, ends_well, goes_with_its_agentd, root_of, write
from records import Records

HERE = os.path.dirname(os.path.abspath(__file__))
HOME, PROVIDER, MARKET, OWNER = 1, 2, 4, 16


def of(market, node):
    """The number of that node's souk-handshake; 0: it is not there."""
    root = root_of(market, node)
    found = [int(p) for p in os.listdir("/proc") if p.isdigit()
             and read_text(f"/proc/{p}/comm").startswith("souk-handshake")
             and f"\nPPid:\t{root}\n" in read_text(f"/proc/{p}/status")]
    return found[0] if found else 0


def kill(market, node):
    """Returns when another one is there."""
    old = until("it is there", lambda: of(market, node))
    os.kill(old, signal.SIGKILL)
    until("another one is there", lambda: of(market, node) not in (0, old))


def test_it_has_no_rights(market):
    pid = of(market, "n1")
    _, limits = check_rights(market, pid, "anon_inode:[eventpoll]")
    assert os.statvfs(f"/proc/{pid}/root/").f_flag & os.ST_RDONLY
    assert re.search(r"^Max core file size +0 +0 ", limits, re.M)


def test_it_dies_alone_and_never_outlives_agentd(market):
    job = echoes(market)
    where = market.until_runs(job.id)["where"]
    for node in ("n1", "n2"):
        kill(market, node)
    # Connections of before stand, and new ones are made.
    write(job, b"still\n")
    job.printed(1)
    there = "n2" if where == "n1" else "n1"
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    goes_with_its_agentd(market, "n1", of(market, "n1"))
    write(job, b"again\n")
    job.printed(2)
    ends_well(job, "still", "again")


# ---- taken over

@pytest.fixture(scope="module")
def taken(fit, tmp_path_factory):  # noqa: F811
    """A market whose node n2 believes a liar."""
    place = tmp_path_factory.mktemp("taken")
    own = cluster.BIN
    for name in os.listdir(own):
        shutil.copy(f"{own}/{name}", place / name)
    os.rename(place / "souk-handshake", place / "souk-handshake.real")
    shutil.copy(f"{HERE}/taken_over.py", place / "souk-handshake")
    os.chmod(place / "souk-handshake", 0o755)
    cluster.BIN = str(place)
    try:
        for market in cluster.bring_up(cluster.Market("--nodes", "2", "--speeds", "100,80")):
            (place / "claim").write_text("n1 3")
            kill(market, "n2")
            yield market, place
            (place / "claim").unlink()
            kill(market, "n2")
    finally:
        cluster.BIN = own


class AsClaimed(Connection):
    """A connection to n2 with the session keys that the liar has given it."""

    def __init__(self, address, greet):
        host, port = address.rsplit(":", 1)
        raw = socket.create_connection((host, int(port)), 20)
        self.socket, self.limit = Records(raw, taken_over.FROM_PEER, taken_over.TO_PEER), 20
        if greet is not None:
            self.say(c.HELLO, greet)
            self.wait_for(c.WELCOME)


def asks(taken, name, roles, role, talk, place_on_net="fabric"):
    """Connects as somebody whom n2 believes to have this name and these roles, and returns the
    answer that `talk` gets."""
    market, place = taken
    (place / "claim").write_text(f"{name} {roles}")

    def meet():
        with AsClaimed(market.daemon("n2")["address"], hello(name, role)) as line:
            return talk(line)
    try:
        return market.in_netns(place_on_net, meet)
    except Refused as e:
        return f"refused: {e}"


def starts(command_bytes):
    """The state by number and why; a job that runs is what an attacker wants."""
    def talk(line):
        state, why = line.asks(command_bytes)
        assert state not in (c.STARTING, c.RUNNING, c.PREPARED), (state, why)
        return why
    return talk


def ticket(taken, **how):
    """The market's own: what a taken-over process might have seen go by."""
    market, _ = taken
    signer = c.Signer(f"{market.run_dir}/state/market/identity/ticket.keys")
    return signer.ticket("n1", **{"number": 9_000_001, "destination": "n2", "seq": 900, **how})


NODE = HOME | PROVIDER
ATTEMPTS = [
    ("starts a job of root without a ticket", "wants the market's ticket",
     lambda t: asks(t, "n1", NODE, c.AGENT, starts(command("n1", c.START, seq=900)))),
    ("makes ready for an image of its own without a ticket", "wants the market's ticket",
     lambda t: asks(t, "n1", NODE, c.AGENT, starts(command("n1", c.PREPARE, seq=900)))),
    ("signs a ticket with a key of its own", "does not use",
     lambda t: asks(t, "n1", NODE, c.AGENT, starts(command(
         "n1", c.START, seq=900, ticket=c.Signer().ticket("n1", 9_000_001, "n2", seq=900))))),
    ("starts root with the ticket of a plain user", "of user 1000, not of user 0",
     lambda t: asks(t, "n1", NODE, c.AGENT, starts(command(
         "n1", c.START, seq=900, ticket=ticket(t, uid=1000))))),
    ("starts a job here with the ticket for another node", "the ticket is for node n1",
     lambda t: asks(t, "n1", NODE, c.AGENT, starts(command(
         "n1", c.START, seq=900, ticket=ticket(t, destination="n1"))))),
    ("starts another job than that of the ticket", "the ticket is for job n1.900",
     lambda t: asks(t, "n1", NODE, c.AGENT, starts(command(
         "n1", c.START, seq=901, ticket=ticket(t))))),
    ("says that it is this node, whose own jobs need no ticket", "says it is this node",
     lambda t: asks(t, "n2", NODE, c.AGENT, starts(command("n2", c.START, seq=900)))),
    ("brings an image in this node's name", "no image is expected",
     lambda t: asks(t, "n2", NODE, c.IMAGE, lambda line: (
         line.say(c.IMAGE_BEGIN, c.pb(f1=c.job_id("n2", 900), f2=2, f3=1, f4="n2", f5=1)),
         line.wait_for(c.IMAGE_RESULT)))),
    ("brings an image that nobody waits for", "no image is expected",
     lambda t: asks(t, "n1", NODE, c.IMAGE, lambda line: (
         line.say(c.IMAGE_BEGIN, c.pb(f1=c.job_id("n1", 900), f2=2, f3=1, f4="n1", f5=1)),
         line.wait_for(c.IMAGE_RESULT)))),
    ("commands guests as the market", "its certificate is of a market",
     lambda t: asks(t, "market", MARKET, c.AGENT, starts(command("n1", c.START, seq=900)))),
    ("greets under a name that is a path", "'../n1' is no name",
     lambda t: (asks(t, "../n1", NODE, c.AGENT, lambda line: "greeted"), logged(t))[1]),
]


def logged(taken):
    """Why its process was ended."""
    market, _ = taken
    said = "'../n1' is no name"
    until(said, lambda: said in read_text(f"{market.run_dir}/n2/log"))
    return said


@pytest.mark.parametrize("what,got,run", ATTEMPTS, ids=[a[0].replace(" ", "_") for a in ATTEMPTS])
def test_a_taken_over_process_gets(taken, what, got, run):
    assert got in str(run(taken)), what
    market, _ = taken
    assert market.capsules(node="n2") == []


# ---- taken over, and it plays the market

class FalseMarket:
    """Listens on the market's address inside n2's own network, and tells n2's agentd false
    things."""

    def __init__(self, market):
        self.market, self.node = market, f"{market.tag}-n2"
        host, port = market.daemon("market")["address"].rsplit(":", 1)
        self.address = f"{host}/32"
        self.ip("addr", "add", self.address, "dev", "lo")
        os.kill(market.daemon("n2")["pid"], signal.SIGKILL)  # the next one connects to this

        def listen():
            return socket.create_server((host, int(port)))
        self.listener = market.in_netns("n2", listen)
        self.listener.settimeout(20)

    def ip(self, *words):
        subprocess.run(["ip", "-n", self.node, *words], check=True)

    def tells(self, *frames):
        """Sends the frames on n2's next connection to the market that it has not given up yet."""
        while True:
            raw, _ = self.listener.accept()
            raw.settimeout(20)
            line = object.__new__(AsClaimed)
            line.socket, line.limit = Records(raw, taken_over.FROM_PEER, taken_over.TO_PEER), 20
            try:
                line.wait_for(c.HELLO)
                line.say(c.WELCOME, c.pb(f1=2, f2="market", f6=1))
                line.wait_for(c.PROVIDER_REPORT)
                for kind, body in frames:
                    line.say(kind, body)
                return line
            except Refused:
                raw.close()

    def end(self):
        self.listener.close()
        self.ip("addr", "del", self.address, "dev", "lo")


@pytest.fixture(scope="module")
def false_market(taken):
    market, place = taken
    identity = f"{market.run_dir}/state/n2/identity"
    until("n2 has the market's list", lambda: os.path.exists(f"{identity}/ticket-list"))
    (place / "market").write_text(f"n2 {NODE} {authority.key_of(identity)}")
    false = FalseMarket(market)
    try:
        yield false
    finally:
        (place / "market").unlink()
        false.end()


def since(market, words, call):
    """Returns the new part of n2's log, after these words have appeared in it again."""
    path = f"{market.run_dir}/n2/log"
    before = len(read_text(path))
    line = call()
    until(words, lambda: words in read_text(path)[before:])
    line.socket.close()
    return read_text(path)[before:]


def told(own, signed=b""):
    return c.TICKET_KEYS, c.pb(f1=own.public_line(), f2=int(time.time() * c.SECOND), f3=signed)


def starts_by(taken, own):
    return asks(taken, "n1", NODE, c.AGENT, starts(command(
        "n1", c.START, seq=900, ticket=own.ticket("n1", 9_000_002, "n2", seq=900))), "n1")


@pytest.mark.parametrize("what,why", [
    ("no signature", "is not signed"), ("a signature of its own", "has not signed"),
    ("an authority of its own", "is not of this market")])
def test_one_that_plays_the_market_gives_no_ticket_keys(taken, false_market, what, why):
    market, _ = taken
    own, ca = c.Signer(), authority.Authority()
    frames = [told(own)]
    if what != "no signature":
        frames = [told(own, ca.ticket_list(own.public_line()))]
    if what == "an authority of its own":
        chain = ca.chain(f"{market.run_dir}/state/n2/identity")
        frames.insert(0, (c.CERTIFIED, c.pb(f1=chain, f3=ca.ticket_list(own.public_line()))))
    said = since(market, why, lambda: false_market.tells(*frames))
    assert "ticket keys are not taken" in said or "certificate of the market is not taken" in said
    assert "does not use" in str(starts_by(taken, own))
    assert market.capsules(node="n2") == []
