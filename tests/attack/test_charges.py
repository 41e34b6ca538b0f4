# SPDX-License-Identifier: GPL-2.0-or-later
"""A hostile home and a hostile provider: what the money of users is safe from. A node that has
joined says by itself, over TLS, what no agentd would say."""
import socket
import ssl
import struct
import subprocess
import time

from cluster import BIN, LIMIT, Market, bring_up, read_text, until
from protobuf import MAGIC, encode, frame

HELLO, WELCOME, AGENT, ORDER = 1, 2, 1, 32
JOB_REPORT, PROVIDER_REPORT, USE_REPORT = 16, 17, 21
WAITING, RUNNING, FINISHED = 1, 3, 8
YEAR = 365 * 86_400 * 10**9


def hello(node):
    return frame(HELLO, encode({1: float(MAGIC), 2: 2, 3: AGENT, 4: node, 5: "10.0.0.9:7071"}))


def job(home, seq, uid, phase, where, run_ns, epoch=1):
    return frame(JOB_REPORT, encode({
        1: {1: home, 2: seq}, 2: {1: 50_000_000, 4: 1}, 3: uid, 4: f"user{uid}",
        7: int(time.time() * 10**9), 8: phase, 9: where, 11: epoch, 14: {5: run_ns}}))


def offer(node, price):
    """The report of a provider that offers one CPU at that price per CPU-hour."""
    return frame(PROVIDER_REPORT, encode({
        1: node, 2: 1, 3: price * 1_000_000, 4: 100, 5: 1, 6: 1000, 7: 1000}))


def use(home, seq, run_ns, ended, epoch=1):
    return frame(USE_REPORT, encode({
        1: {1: {1: home, 2: seq}, 2: epoch, 3: run_ns, 5: ended}}))


class Node:
    """A node that has joined, and is connected to the market as an agent."""

    def __init__(self, market, tmp_path, name, *token_words):
        secret = market.tool("souk", "token", "create", name, *token_words).stdout.strip()
        address = market.daemon("market")["address"]
        subprocess.run(["nsenter", f"--net=/run/netns/{market.tag}-fabric", f"{BIN}/souk", "setup",
                        "node", "--join", secret, "--name", name, "--market", address,
                        "--identity", f"{tmp_path}/{name}", "--config", f"{tmp_path}/{name}.conf",
                        "--no-restart"], env=market.env, capture_output=True, timeout=60,
                       check=True)
        host, port = address.split(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(f"{tmp_path}/{name}/certificate.pem", f"{tmp_path}/{name}/key.pem")
        raw = market.in_netns("fabric", lambda: socket.create_connection((host, int(port)), LIMIT))
        self.tls = context.wrap_socket(raw)
        self.tls.sendall(hello(name))
        assert self.hear()[0] == WELCOME

    def say(self, *frames):
        for f in frames:
            self.tls.sendall(f)

    def hear(self):
        def exactly(count):
            data = b""
            while len(data) < count:
                part = self.tls.recv(count - len(data))
                assert part, "the connection was closed"
                data += part
            return data
        length, kind, _ = struct.unpack("<IHH", exactly(8))
        return kind, exactly(length)

    def close(self):
        self.tls.close()


def cost(market, name):
    told = market.job(name)
    return float(told["cost"]) if told else None


def test_a_home_brings_only_jobs_of_its_own_users(market, tmp_path):
    node = Node(market, tmp_path, "h1", "--users", "9000-9009")
    try:
        node.say(job("h1", 1, 4321, RUNNING, "n3", 0), job("h1", 2, 9005, RUNNING, "n3", 0))
        until("its own user's is known", lambda: cost(market, "h1.2") is not None)
        assert cost(market, "h1.1") is None
        assert "takes no job of user 4321 from h1, which speaks for users 9000-9009" in read_text(
            f"{market.run_dir}/market/log")
        node.say(job("h1", 2, 9005, FINISHED, "n3", 0))
        until("it is finished", lambda: market.job("h1.2")["status"].startswith("finish"))
    finally:
        node.close()


def ordered(market, node, home, uid, user):
    """The order of the market for a new job of that user of this home, with its ticket."""
    node.say(frame(JOB_REPORT, encode({
        1: {1: home, 2: uid}, 2: {1: 50_000_000, 4: 1}, 3: uid, 4: user,
        7: int(time.time() * 10**9), 8: WAITING})))
    found = []

    def has_come():
        kind, body = node.hear()
        if kind == ORDER:
            found.append(body)
        return bool(found)
    until("an order comes", has_come)
    node.say(job(home, uid, uid, FINISHED, "", 0))
    return found[0]


def test_a_name_counts_as_the_market_knows_it(market, tmp_path):
    """A guest's map of users may name them: whoever calls himself alice is nobody's alice."""
    named = Node(market, tmp_path, "h3", "--users", "9200-9209,alice=9201")
    ranged = Node(market, tmp_path, "h4", "--users", "9210-9219")
    free = Node(market, tmp_path, "h5")
    try:
        assert b"alice" in ordered(market, named, "h3", 9201, "alice")
        assert b"alice" not in ordered(market, named, "h3", 9202, "alice")
        assert b"alice" not in ordered(market, ranged, "h4", 9211, "alice")
        assert b"bob" not in ordered(market, ranged, "h4", 9212, "bob")
        assert b"carol" in ordered(market, free, "h5", 9301, "carol")
        assert b"alice" not in ordered(market, free, "h5", 9302, "alice")
        assert b"mallory" not in ordered(market, free, "h5", 9201, "mallory")
    finally:
        for node in named, ranged, free:
            node.close()
    done = market.tool("souk", "token", "create", "h6", "--users", "alice=9999", check=False)
    assert done.returncode == 1 and "alice is user 9201" in done.stderr, done
    market.tool("souk", "token", "create", "h6", "--users", "erin=9500")
    done = market.tool("souk", "token", "create", "h6", "--users", "erin=9501", check=False)
    assert done.returncode == 1 and "erin is user 9500" in done.stderr, done
    done = market.tool("souk", "token", "create", "h6", "--users", "al ice", check=False)
    assert done.returncode == 1 and "is no user" in done.stderr, done


def test_numbers_of_another_realm_are_that_realms_alone(market, tmp_path):
    far = Node(market, tmp_path, "h7", "--realm", "far", "--users", "9400-9409")
    free = Node(market, tmp_path, "h8")
    try:
        free.say(job("h8", 1, 9405, RUNNING, "n3", 0), job("h8", 2, 9410, RUNNING, "n3", 0))
        until("one is known", lambda: cost(market, "h8.2") is not None)
        assert cost(market, "h8.1") is None
        far.say(job("h7", 1, 9405, RUNNING, "n3", 0))
        until("his own home's is known", lambda: cost(market, "h7.1") is not None)
        far.say(job("h7", 1, 9405, FINISHED, "n3", 0))
        free.say(job("h8", 2, 9410, FINISHED, "n3", 0))
    finally:
        far.close()
        free.close()


def test_no_job_comes_from_who_is_no_home_and_none_of_roots(fit, tmp_path):
    for market in bring_up(Market("--nodes", "1")):
        only_of_homes(market, tmp_path)


def only_of_homes(market, tmp_path):
    path = f"{market.run_dir}/market/marketd.conf"
    text = read_text(path).replace("nodes_operate = true", "nodes_operate = false")
    with open(path, "w") as f:
        f.write("metered = true\n" + text)
    market.kill_daemon("market")
    until("the market is up", lambda: market.ctl("marketctl", "status")["metered"])
    for name, uid, words in (("lends", 4321, ("--roles", "provider")), ("evil", 0, ())):
        market.tool("marketctl", "deposit", str(uid), "1000")
        node = Node(market, tmp_path, name, *words)
        try:
            node.say(offer(name, 1_000_000), job(name, 1, uid, RUNNING, name, 0))
            until("it is refused", lambda: f"takes no job of user {uid} from {name}" in
                  read_text(f"{market.run_dir}/market/log"))
        finally:
            node.close()
        assert cost(market, f"{name}.1") is None
        assert float(market.ctl("marketctl", "account", str(uid))[0]["balance"]) == 1000


def test_a_home_of_another_realm_must_have_numbers_of_its_own(market):
    done = market.tool("souk", "token", "create", "far-1", "--realm", "far", check=False)
    assert done.returncode == 1 and "--users" in done.stderr, done


def test_years_of_run_time_are_not_believed(market, tmp_path):
    """Twenty years at 1 an hour were 175,200."""
    node = Node(market, tmp_path, "h2")
    try:
        began = time.monotonic()
        node.say(job("h2", 1, 9105, RUNNING, "h2", 0))
        until("the job is known", lambda: cost(market, "h2.1") is not None)
        for n in range(1, 20):
            node.say(job("h2", 1, 9105, RUNNING, "h2", n * YEAR, epoch=n + 1))
        node.say(job("h2", 1, 9105, FINISHED, "h2", 20 * YEAR, epoch=21))
        until("it is finished", lambda: market.job("h2.1")["status"].startswith("finish"))
        most = 50 * (time.monotonic() - began + 1) / 3600
        assert float(market.job("h2.1")["cost"]) <= most, market.job("h2.1")
    finally:
        node.close()
    market.tool("marketctl", "ledger", "verify")


def test_what_the_place_has_not_measured_is_given_back(fit, tmp_path):
    """The home says that it runs; its place says that it does not."""
    for market in bring_up(Market("--nodes", "1")):
        gives_back(market, tmp_path)


def gives_back(market, tmp_path):
    home = Node(market, tmp_path, "h3")
    place = Node(market, tmp_path, "p3")

    def paid():
        return [float(r["paid"]) for r in market.ctl("marketctl", "receipts", "--job", "h3.1")]
    try:
        place.say(offer("p3", 50))
        began = time.monotonic()
        home.say(job("h3", 1, 9205, RUNNING, "p3", 0))
        place.say(use("h3", 1, 0, 0))  # it has it: a home alone is not believed
        until("it costs more than the tolerance of 5 s", lambda: (cost(market, "h3.1") or 0) > 0.11)
        place.say(use("h3", 1, 1_000_000_000, 0))
        until("it is given back", lambda: any(p < 0 for p in paid()))
        # The payments now amount to that one second. The cost grows on meanwhile, because the job
        # runs.
        assert sum(paid()) < 0.06, paid()
        log = f"{market.run_dir}/market/log"
        until("both words are on record", lambda: "do not agree on how long a job has run" in
              read_text(log))
        # A provider that says too much gets nothing for it.
        place.say(use("h3", 1, YEAR, 1))
        home.say(job("h3", 1, 9205, FINISHED, "p3", 8_000_000_000))
        until("it is finished", lambda: market.job("h3.1")["status"].startswith("finish"))
        back = -sum(p for p in paid() if p < 0)
        most = 50 * (time.monotonic() - began + 1) / 3600 - back
        assert back > 0.09 and float(market.job("h3.1")["cost"]) <= most, (market.job("h3.1"), most)
    finally:
        home.close()
        place.close()
    market.tool("marketctl", "ledger", "verify")
