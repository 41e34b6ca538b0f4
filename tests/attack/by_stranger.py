# SPDX-License-Identifier: GPL-2.0-or-later
"""Attacks of a stranger on the network."""
import contextlib
import os
import socket
import ssl
import struct
import subprocess

import client as c
from client import Connection, Refused, frame, hello, pb
from stage import attempt, refused


@attempt("stranger", "greets an agent as a node, without TLS", "does not speak TLS 1.3")
def plain_to_an_agent(s):
    return plain(s, "n3", frame(c.HELLO, hello("n1")))


@attempt("stranger", "greets the market as a node, without TLS", "does not speak TLS 1.3")
def plain_to_the_market(s):
    return plain(s, "market", frame(c.HELLO, hello("n1")))


@attempt("stranger", "speaks HTTP to an agent", "does not speak TLS 1.3")
def another_protocol(s):
    return plain(s, "n3", b"GET / HTTP/1.1\r\nHost: n3\r\n\r\n")


def plain(s, daemon, words):
    def talk():
        host, port = s.address(daemon).split(":")
        said = b""
        with socket.create_connection((host, int(port)), 20) as line:
            line.sendall(words)
            try:
                while part := line.recv(4096):
                    said += part
            except OSError:
                pass
        return said
    said = s.inside(talk)
    assert not said.startswith(frame(c.WELCOME)[4:6]) and len(said) < 4096
    return s.logged(daemon, "does not speak TLS 1.3")


@attempt("stranger", "offers TLS 1.2 and no newer", "alert protocol version")
def old_tls(s):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return s.inside(refused, Connection, s.address("n3"), context=context).lower()


@attempt("stranger", "greets an agent over TLS, without a certificate", "certificate required")
def no_certificate(s):
    return s.inside(refused, Connection, s.address("n3"), None, hello("n1")).lower()


@attempt("stranger", "says at the market that it is n1, without a certificate", "may only join")
def no_certificate_at_the_market(s):
    return s.inside(refused, Connection, s.address("market"), None, hello("n1"))


@attempt("stranger", "has a certificate of n1 by a CA of its own", "is not of this market")
def foreign_certificate(s):
    d = f"{s.place}/foreign"
    os.makedirs(d, exist_ok=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=n1", "-addext",
                    "subjectAltName=URI:souk:node/n1,URI:souk:role/home", "-keyout",
                    f"{d}/key.pem", "-out", f"{d}/certificate.pem"], check=True,
                   capture_output=True)
    s.inside(refused, Connection, s.address("n3"), d, hello("n1"))
    return s.logged("n3", "the certificate of n1 is not of this market")


@attempt("stranger", "has a certificate of this market that has ended", "expired")
def expired_certificate(s):
    d = s.leaf("old", "20200101000000Z", "20200108000000Z")
    s.inside(refused, Connection, s.address("n3"), d, hello("old"))
    s.logged("n3", "the certificate of old")
    return s.inside(refused, Connection, s.address("market"), d, hello("old"))


@attempt("stranger", "has a certificate of this market that begins next century",
         "bad certificate")
def certificate_to_come(s):
    d = s.leaf("early", "20990101000000Z", "20990108000000Z")
    s.inside(refused, Connection, s.address("n3"), d, hello("early"))
    s.logged("n3", "the certificate of early")
    return s.inside(refused, Connection, s.address("market"), d, hello("early")).replace("_", " ")


@attempt("stranger", "has a certificate that was revoked", "certificate revoked")
def revoked_certificate(s):
    gone = s.enrol("gone")
    s.market.tool("souk", "node", "revoke", "gone")
    s.inside(refused, Connection, s.address("market"), gone, hello("gone"))
    s.logged("n3", "keys are revoked")
    return s.inside(refused, Connection, s.address("n3"), gone,
                    hello("gone")).replace("_", " ").lower()


@attempt("stranger", "joins with words that are no token", "knows no such token")
def guessed_token(s):
    def talk():
        with Connection(s.address("market"), None, hello("n9", c.JOINER)) as line:
            line.say(c.JOIN, pb(f1="00000000", f2="0" * 32, f3=b"request"))
            return refused(line.hear)
    return s.inside(talk)


@attempt("stranger", "uses a join token for another name", "is for gpu-1, not for n9")
def token_of_another(s):
    return s.join(s.token("gpu-1"), "n9").stderr


@attempt("stranger", "uses a join token a second time", "was used already")
def token_twice(s):
    secret = s.token("twice-*")
    assert s.join(secret, "twice-1").returncode == 0
    return s.join(secret, "twice-2").stderr


@attempt("stranger", "uses a join token that was withdrawn", "knows no such token")
def token_late(s):
    secret = s.token("late")
    s.market.tool("souk", "token", "withdraw", secret.split(".")[1])
    return s.join(secret, "late").stderr


@attempt("stranger", "takes the name of a node with a token for any name", "there is a n1 already")
def name_of_another(s):
    return s.join(s.token("*"), "n1").stderr


@attempt("stranger", "is a market of its own to a joiner, to get his token's secret",
         "another market than the token's")
def false_market(s):
    words = s.token("mitm").split(".")
    words[3] = "0" * 64
    return s.join(".".join(words), "mitm").stderr


@attempt("stranger", "reports a job instead of joining", "unknown type")
def joiner_reports(s):
    def talk():
        with Connection(s.address("market"), None, hello("n9", c.JOINER)) as line:
            line.raw(struct.pack("<IHH", 100, c.JOB_REPORT, 0))
            return refused(line.hear)
    return s.inside(talk)


@attempt("stranger", "holds 300 connections to join with, and never joins",
         "ended for a newer one, or in time")
def idle_joiners(s):
    def hold():
        lines = []
        for _ in range(300):
            with contextlib.suppress(Refused):
                lines.append(Connection(s.address("market"), None, hello("n9", c.JOINER)))
        return lines
    held = s.inside(hold)
    try:
        assert s.join(s.token("late-comer"), "late-comer").returncode == 0
        said = refused(held[0].hear)
        assert "its place is wanted" in said or "has not said in time" in said, said
        return "ended for a newer one, or in time"
    finally:
        for line in held:
            line.socket.close()


@attempt("stranger", "begins with a hello of 4 GB", "over its limit")
def long_hello(s):
    def talk():
        line = Connection(s.address("market"))
        line.raw(struct.pack("<IHH", 0xffffffff, c.HELLO, 0))
        return refused(line.hear)
    return s.inside(talk)


@attempt("stranger", "holds 200 handshakes half open while others work",
         "no TLS handshake in time")
def half_handshakes(s):
    def hold():
        host, port = s.address("n3").split(":")
        held = [socket.create_connection((host, int(port)), 20) for _ in range(200)]
        for line in held:
            line.sendall(b"\x16\x03\x01\x02\x00\x01")
        return held
    held = s.inside(hold)
    try:
        s.market.tool("srun", "-p", 50, "--node", "n1", "true")
        for line in held:
            assert line.recv(1) == b""
    finally:
        for line in held:
            line.close()
    words = s.logged("n3", "no TLS handshake in time")
    assert s.log("n3").count(words) < 25
    return words


@attempt("stranger", "sends a handshake in a million records of one byte",
         "a TLS handshake of too many bytes")
def small_records(s):
    def talk():
        host, port = s.address("n3").split(":")
        with socket.create_connection((host, int(port)), 20) as line:
            try:
                # a ClientHello of 16 KB whose bytes come one by one, among empty ones
                line.sendall(b"\x16\x03\x01\x00\x04\x01\x00\x3f\xff")
                for _ in range(1000):
                    line.sendall(b"\x16\x03\x03\x00\x01\x00" * 1000)
                while line.recv(4096):
                    pass
            except OSError as e:
                assert not isinstance(e, TimeoutError), "it is still connected"
    s.inside(talk)
    s.market.tool("srun", "-p", 50, "--node", "n1", "true")
    return s.logged("n3", "a TLS handshake of too many bytes")
