# SPDX-License-Identifier: GPL-2.0-or-later
"""Only members may take part in a market. Attackers here are strangers, holders of foreign and
revoked certificates, nodes with other names, and users of join tokens; and a market without
certificates gets some while a job runs. Each attack is tried with Python's own TLS against the real
daemons."""
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import pytest

import programs
from conftest import BIN, LIMIT, Market, bring_up, read_text, until
from codes import CAUSES, refused
from protobuf import MAGIC, decode, encode, frame

HELLO, WELCOME, ERROR = 1, 2, 3
AGENT, IMAGE, JOINER = 1, 3, 4


def hello(node, role=AGENT):
    return frame(HELLO, encode({1: float(MAGIC), 2: 2, 3: role, 4: node, 5: "10.0.0.9:7071"}))


def state(market, daemon):
    return f"{market.run_dir}/state/{daemon}/identity"


def joined(market, tmp_path, name):
    """The identity of a node that has joined and has no daemon."""
    done = joins(market, tmp_path, token(market, name), name)
    assert done.returncode == 0, done
    return f"{tmp_path}/{name}"


def call(market, daemon, say, identity=None, answers=1):
    """Sends these bytes to the daemon, over TLS with that identity, and returns its answer: the
    type of a frame, the code of an error, or the reason why there is no answer."""
    host, port = market.daemon(daemon)["address"].split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if identity:
        context.load_cert_chain(f"{identity}/certificate.pem", f"{identity}/key.pem")

    def talk():
        try:
            with socket.create_connection((host, int(port)), LIMIT / 2) as raw:
                with context.wrap_socket(raw) as s:
                    s.sendall(say)
                    for _ in range(answers):
                        head = s.recv(8)
                        if len(head) < 8:
                            return None, "closed"
                        length, kind, _ = struct.unpack("<IHH", head)
                        body = b""
                        while len(body) < length:
                            body += s.recv(length - len(body))
                    return kind, CAUSES[decode(body).get(2, [0])[0]] if kind == ERROR else ""
        except (ssl.SSLError, OSError) as e:
            return None, str(e)
    return market.in_netns("fabric", talk)


def logged(market, daemon, line):
    path = f"{market.run_dir}/{daemon}/log"
    until(f"{daemon} logs '{line}'", lambda: line in read_text(path))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """The identity of n1 in another market, made by openssl."""
    d = tmp_path_factory.mktemp("foreign")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=n1", "-addext",
                    "subjectAltName=URI:souk:node/n1,URI:souk:role/home,URI:souk:role/provider",
                    "-keyout", f"{d}/key.pem", "-out", f"{d}/certificate.pem"], check=True,
                   capture_output=True)
    return d


@pytest.mark.parametrize("daemon", ["market", "n3"])
def test_strangers_are_refused_with_a_line_and_nobody_else_notices(market, foreign, daemon):
    kind, why = call(market, daemon, hello("n1"))
    if daemon == "market":  # who has no certificate may join, and no more
        assert (kind, why) == (ERROR, "not_allowed")
    else:
        assert kind is None and "certificate required" in why.lower().replace("_", " "), why
        logged(market, daemon, "peer did not return a certificate")
    kind, why = call(market, daemon, hello("n1"), foreign)
    assert kind is None, why
    logged(market, daemon, "the certificate of n1 is not of this market")
    host, port = market.daemon(daemon)["address"].split(":")

    def plain():
        with socket.create_connection((host, int(port)), LIMIT / 2) as s:
            s.sendall(hello("n1"))
            said = b""
            while part := s.recv(4096):
                said += part
            return said
    assert b"\x02\x00\x00\x00" not in market.in_netns("fabric", plain)[:8]  # no welcome
    logged(market, daemon, "does not speak TLS 1.3")
    assert market.tool("srun", "-p", 5, "true").returncode == 0


def test_a_node_is_not_heard_under_another_name(market):
    own = state(market, "n2")
    for daemon in ("n3", "market"):
        kind, why = call(market, daemon, hello("n1"), own)
        assert (kind, why) == (ERROR, "not_allowed"), daemon
    assert call(market, "n3", hello("n1", IMAGE), own) == (ERROR, "not_allowed")
    assert call(market, "n3", hello("n2", IMAGE), own)[0] == WELCOME  # the client can do it
    assert call(market, "n3", hello("market"), state(market, "market")) == (ERROR, "not_allowed")


def test_a_peer_says_no_more_than_it_may(market, tmp_path):
    def words(daemon, first, kind, identity):
        """The hello, and then the head of a frame whose body never comes."""
        head = struct.pack("<IHH", 100, kind, 0)
        return call(market, daemon, first + head, identity, answers=2)
    report, image_begin, order = 16, 64, 32
    for daemon, first, kind, identity in (
            ("market", hello("n9", JOINER), report, None),
            ("market", hello("n9", JOINER), order, None),
            ("n3", hello("n2", IMAGE), 48, state(market, "n2")),
            ("n3", hello("n9"), image_begin, joined(market, tmp_path, "n9"))):
        kind, why = words(daemon, first, kind, identity)
        assert (kind, why) == (ERROR, "invalid"), (daemon, why)


def image_begin(job, epoch, sender):
    home, number = job.split(".")
    return frame(64, encode({
        1: {1: home, 2: int(number)}, 2: epoch, 3: epoch - 1, 4: sender, 5: 1}))


def test_an_image_comes_from_the_node_that_the_home_names_alone(market):
    """n3 holds the job and is stopped in the middle of a move: n2 waits for the image, and another
    node of the market, whose certificate is right, brings one."""
    job = market.srun("--node", "n1", "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    job.printed(3)
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    epoch = market.ctl("pvdctl", "--node", "n3", "guests")[0]["epoch"] + 1
    source = market.daemon("n3")["pid"]
    os.kill(source, signal.SIGSTOP)
    try:
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        until("n2 is ready for it", lambda: any(
            g["state"] == "prepared" for g in market.ctl("pvdctl", "--node", "n2", "guests")))
        said = call(market, "n2", hello("n1", IMAGE) + image_begin(job.id, epoch, "n1"),
                    state(market, "n1"), answers=2)
        assert said == (ERROR, "not_allowed"), said
    finally:
        os.kill(source, signal.SIGCONT)
    market.until_runs(job.id, "n2")  # the right one is taken
    job.printed(job.lines() + 3)


def test_a_job_of_root_is_not_taken_from_another_home(market):
    """The node has the guest_uid_min that it has by default; souk up sets it to 0."""
    path = f"{market.run_dir}/n2/agentd.conf"
    before = read_text(path)
    try:
        with open(path, "w") as f:
            f.write(before.replace("guest_uid_min = 0", "guest_uid_min = 1000"))
        market.kill_daemon("n2")
        job = market.srun("--node", "n1", "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
        job.printed(3)
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        logged(market, "n2", "no job of another node runs as user 0 here (guest_uid_min)")
        job.printed(job.lines() + 3)
        assert market.job(job.id)["where"] != "n2"
        job.process.stdin.close()
        assert job.wait() == 7
    finally:
        with open(path, "w") as f:
            f.write(before)
        market.kill_daemon("n2")


def test_half_a_handshake_ends_and_holds_nobody_up(market):
    host, port = market.daemon("n3")["address"].split(":")

    def half():
        held = [socket.create_connection((host, int(port)), LIMIT / 2) for _ in range(50)]
        for s in held:
            s.sendall(b"\x16\x03\x01\x02\x00\x01")
        return held
    held = market.in_netns("fabric", half)
    try:
        # Within its limit: not after each of them in turn.
        assert market.tool("srun", "-p", 5, "--node", "n1", "true").returncode == 0
        for s in held:
            s.settimeout(LIMIT)
            assert s.recv(1) == b""
        logged(market, "n3", "no TLS handshake in time")
        lines = read_text(f"{market.run_dir}/n3/log").count("no TLS handshake in time")
        assert lines < 25, f"{lines} lines for 50 connections"
    finally:
        for s in held:
            s.close()


def test_a_certificate_is_renewed_while_a_job_runs(market):
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    job.printed(3)
    path = f"{state(market, 'n1')}/certificate.pem"
    before = read_text(path)
    market.tool("souk", "node", "renew", "--node", "n1")
    until("n1 has a new certificate", lambda: read_text(path) not in ("", before))
    logged(market, "n1", "this node's certificate is renewed")
    assert re.search(r"^n1 +home,provider +good", market.tool("souk", "node", "list").stdout, re.M)
    market.kill_daemon("n1")  # comes back with it
    job.printed(job.lines() + 3)
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out)


def token(market, *words):
    return market.tool("souk", "token", "create", *words).stdout.strip()


def joins(market, tmp_path, secret, name, address=None):
    """souk setup node, from the market's own network."""
    address = address or market.daemon("market")["address"]
    enter = ["nsenter", f"--net=/run/netns/{market.tag}-fabric"]
    return subprocess.run([*enter, f"{BIN}/souk", "setup", "node", "--join", secret, "--name", name,
                           "--market", address, "--identity", f"{tmp_path}/{name}", "--config",
                           f"{tmp_path}/{name}.conf", "--no-restart"], capture_output=True,
                          text=True, env=market.env, timeout=60)


def not_joined(done, code):
    done.stdout = ""  # setup says first what it is going to do
    refused(done, code)


def test_a_join_token_lets_one_node_of_its_name_in_once(market, tmp_path):
    one = token(market, "gpu-*")
    not_joined(joins(market, tmp_path, one, "cpu-1"), "not_allowed")
    not_joined(joins(market, tmp_path, one[:-1] + ("0" if one[-1] != "0" else "1"), "gpu-1"),
               "not_allowed")
    wrong = one.split(".")
    wrong[2] = "0" * 32
    not_joined(joins(market, tmp_path, ".".join(wrong), "gpu-1"), "not_found")
    not_joined(joins(market, tmp_path, "souk1.nonsense", "gpu-1"), "invalid")
    assert not os.path.exists(f"{tmp_path}/gpu-1/certificate.pem")
    done = joins(market, tmp_path, one, "gpu-1")
    assert done.returncode == 0, done
    assert os.stat(f"{tmp_path}/gpu-1/key.pem").st_mode & 0o777 == 0o600
    conf = read_text(f"{tmp_path}/gpu-1.conf")
    assert 'node = "gpu-1"' in conf and "market = " in conf
    not_joined(joins(market, tmp_path, one, "gpu-2"), "not_possible")
    # A name that somebody has is given to no other key.
    os.rename(f"{tmp_path}/gpu-1", f"{tmp_path}/gpu-1.first")
    not_joined(joins(market, tmp_path, token(market, "*"), "gpu-1"), "not_possible")
    assert call(market, "n3", hello("gpu-1", IMAGE), f"{tmp_path}/gpu-1.first")[0] == WELCOME
    late = token(market, "gpu-9", "--minutes", "1")
    market.tool("souk", "token", "withdraw", late.split(".")[1])
    not_joined(joins(market, tmp_path, late, "gpu-9"), "not_found")
    listed = market.tool("souk", "token", "list").stdout
    assert re.search(r"gpu-\* .* used .*by gpu-1", listed), listed

    # Revoked, it is not talked to any more, by nobody.
    market.tool("souk", "node", "revoke", "gpu-1")
    for daemon in ("n3", "market"):
        until(f"{daemon} refuses it", lambda: "CERTIFICATE_REVOKED" in call(
            market, daemon, hello("gpu-1", IMAGE), f"{tmp_path}/gpu-1.first")[1])
    logged(market, "n3", "the certificate of gpu-1 was revoked")
    assert joins(market, tmp_path, token(market, "gpu-1"), "gpu-1").returncode == 0


def test_a_plain_user_makes_no_token_and_revokes_nobody(market):
    for words in (["token", "create", "x"], ["token", "list"], ["node", "list"],
                  ["node", "revoke", "n1"]):
        done = subprocess.run(["setpriv", "--reuid=12345", "--clear-groups", f"{BIN}/souk", *words],
                              capture_output=True, text=True, env=market.env, timeout=30)
        refused(done, "not_allowed")


def test_a_revoked_node_is_cut_off_and_the_others_go_on(fit):
    for market in bring_up(Market("--nodes", "2")):
        market.tool("souk", "node", "revoke", "n2")
        until("n2 is off the market", lambda: not next(
            p for p in market.providers() if p["node"] == "n2")["connected"])
        logged(market, "n2", "it was revoked")
        assert market.tool("srun", "--node", "n1", "-p", 5, "true").returncode == 0


def without_certificates(market):
    """Takes them away; the configurations by daemon."""
    confs = {d: f"{market.run_dir}/{d}/{'marketd' if d == 'market' else 'agentd'}.conf"
             for d in ("market", "n1", "n2")}
    for d, conf in confs.items():
        with open(conf, "a") as f:
            f.write("insecure = true\n")
        shutil.rmtree(state(market, d))
    for d in confs:
        os.kill(market.daemon(d)["pid"], 9)
    market.until_up()
    logged(market, "market", "insecure")
    return confs


def set_up(market, node, confs):
    """Runs souk setup node and returns its output. The node's agentd goes on as it was."""
    secret = until("a token", lambda: market.tool("souk", "token", "create", node,
                                                  check=False).stdout.strip())
    done = subprocess.run(["nsenter", f"--net=/run/netns/{market.tag}-fabric", f"{BIN}/souk",
                           "setup", "node", "--join", secret, "--config", confs[node],
                           "--no-restart"], capture_output=True, text=True, env=market.env,
                          timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def rewrite(path, pattern, to):
    text = read_text(path)
    assert re.search(pattern, text), text
    with open(path, "w") as f:
        f.write(re.sub(pattern, to, text))


def test_a_market_takes_nodes_of_both_kinds_for_as_long_as_it_is_told(fit, tmp_path):
    for market in bring_up(Market("--nodes", "2", "--speeds", "100,60")):
        confs = without_certificates(market)
        job = market.srun("--node", "n1", "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
        job.printed(3)
        market.tool("souk", "setup", "market", "--config", confs["market"], "--root-key",
                    f"{tmp_path}/root.key", "--no-restart", "--insecure-for", "1h")
        os.kill(market.daemon("market")["pid"], 9)
        market.until_up()
        assert [p["certificate"] for p in market.providers()] == [False, False]
        assert "n2: comes without a certificate" in market.tool("marketctl",
                                                                "list-providers").stdout
        logged(market, "market", "a node comes without a certificate")
        assert "talk without certificates until" in set_up(market, "n1", confs)
        market.kill_daemon("n1")
        logged(market, "n1", "until then this node talks without certificates")
        # A node that has joined and one that has not work together as before.
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        market.until_runs(job.id, "n2")
        job.printed(job.lines() + 3)
        # At this time all daemons must be connected again. The span is long enough for a busy
        # machine.
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 25))
        for d in ("market", "n1"):
            rewrite(confs[d], "insecure_until = .*", f"insecure_until = {end}")
            os.kill(market.daemon(d)["pid"], 9)
        market.until_up()

        def n1_alone():
            providers = {p["node"]: p for p in market.providers()}
            return (providers["n1"]["connected"] and "certificate" not in providers["n1"] and
                    not providers["n2"]["connected"])
        until("n1 alone is connected, with its certificate", n1_alone)
        logged(market, "n1", "agentd begins anew with its own")
        logged(market, "market", "the time without certificates is over")
        assert "talk without" not in set_up(market, "n2", confs)
        os.kill(market.daemon("n2")["pid"], 9)
        market.until_up()
        job.printed(job.lines() + 3)
        job.process.stdin.close()
        assert job.wait() == 7
        programs.check_chain(job.out)


def test_who_was_revoked_or_has_come_with_a_certificate_may_not_come_without(fit, tmp_path):
    """The market still takes nodes without certificates here."""
    for market in bring_up(Market("--nodes", "2", "--speeds", "100,60")):
        confs = without_certificates(market)
        market.tool("souk", "setup", "market", "--config", confs["market"], "--root-key",
                    f"{tmp_path}/root.key", "--no-restart", "--insecure-for", "1h")
        os.kill(market.daemon("market")["pid"], 9)
        for node in ("n1", "n2"):
            set_up(market, node, confs)
            market.kill_daemon(node)

        def connected():
            return {p["node"] for p in market.providers() if p["connected"]}
        assert connected() == {"n1", "n2"}  # both have one, and go on without
        market.tool("souk", "node", "revoke", "n2")
        until("n2 is gone", lambda: connected() == {"n1"})
        logged(market, "market", "the certificate of n2 was revoked")
        # n1 comes with its own certificate. Another node that comes without one afterwards, by its
        # name, is refused.
        rewrite(confs["n1"], "insecure_until = ", "insecure_until = 2001-01-01T00:00:00Z # ")
        os.kill(market.daemon("n1")["pid"], 9)
        until("n1 comes with it", lambda: any(
            p["connected"] and "certificate" not in p for p in market.providers()))
        os.kill(market.daemon("market")["pid"], 9)  # it is on record
        rewrite(confs["n1"], "insecure_until = .* # ", "insecure_until = ")
        os.kill(market.daemon("n1")["pid"], 9)
        logged(market, "market", "n1 has come with its certificate before")
        assert connected() == set()


def test_a_market_without_certificates_gets_them_while_a_job_runs(fit, tmp_path):
    for market in bring_up(Market("--nodes", "2", "--speeds", "100,60")):
        confs = without_certificates(market)
        job = market.srun("--node", "n1", "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
        job.printed(3)
        market.tool("souk", "setup", "market", "--config", confs["market"], "--root-key",
                    f"{tmp_path}/root.key", "--no-restart")
        os.kill(market.daemon("market")["pid"], 9)
        for node in ("n1", "n2"):
            set_up(market, node, confs)
            os.kill(market.daemon(node)["pid"], 9)
        market.until_up()
        assert "insecure" not in read_text(confs["n1"]) + read_text(confs["market"])
        job.printed(job.lines() + 3)
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        market.until_runs(job.id, "n2")
        job.printed(job.lines() + 3)
        job.process.stdin.close()
        assert job.wait() == 7
        programs.check_chain(job.out)
