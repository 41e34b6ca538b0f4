# SPDX-License-Identifier: GPL-2.0-or-later
"""A gateway, and nodes at one, by hand: Python's own TLS with the keys of real nodes, for tests of
gateways. The gateway does what its mode says: `honest`, `alter` (changes a byte of what an asker
says), `wrong` (brings him to another node), `mute` (answers nothing) or `idle` (passes nothing
on)."""
import contextlib
import socket
import ssl
import struct
import threading

from conftest import LIMIT, read_text
from protobuf import MAGIC, decode, encode, frame

HELLO, WELCOME, ERROR, OFFER, ASK, ANSWER, CALL = 1, 2, 3, 72, 73, 74, 75
PING, PONG = 0xff00, 0xff01
RELAY = 6  # wire::Role
MARK, PREAMBLE = b"SOUK-PASS ", 42


def identity(market, node):
    return f"{market.run_dir}/state/{node}/identity"


def context(of, server=False):
    """TLS with what lies in that directory; None: without a certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    if not server:
        made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if of:
        with open(f"{of}/whole.pem", "w") as f:
            f.write(read_text(f"{of}/certificate.pem") + read_text(f"{of}/root.pem"))
        made.load_cert_chain(f"{of}/whole.pem", f"{of}/key.pem")
    return made


def exactly(s, count):
    got = b""
    while len(got) < count and (part := s.recv(count - len(got))):
        got += part
    return got


def hear(s):
    """The next frame; None: the other end has closed the connection."""
    head = exactly(s, 8)
    if len(head) < 8:
        return None
    length, kind, _ = struct.unpack("<IHH", head)
    body = decode(exactly(s, length))
    if kind == PING:
        s.sendall(frame(PONG, b""))
        return hear(s)
    return kind, body


def hello(node):
    return frame(HELLO, encode({1: float(MAGIC), 2: 2, 3: RELAY, 4: node}))


class Talk:
    """A connection to a gateway of whoever has that identity."""

    def __init__(self, address, of, node):
        host, port = address.split(":")
        self.socket = context(of).wrap_socket(
            socket.create_connection((host, int(port)), LIMIT / 2))
        self.socket.sendall(hello(node))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def said(self):
        """The next word of the gateway; the text of a refusal."""
        heard = hear(self.socket)
        return heard[1][1][-1].decode() if heard and heard[0] == ERROR else heard

    def ask(self, node, number=1, onward=""):
        self.socket.sendall(frame(ASK, encode({1: number, 2: node, 3: onward})))
        kind, answer = self.said()
        assert kind == ANSWER and answer[1] == [number]
        return answer.get(2, [b""])[0], answer.get(3, [b""])[0].decode()


class HostileGateway:
    def __init__(self, market, node, address):
        self.market, self.node = market, node
        self.mode, self.alter_at, self.done = "honest", 100, 0
        self.offers, self.waiting, self.number = {}, {}, 0
        self.open = []
        host, port = address.split(":")
        self.listener = market.in_netns(node, lambda: socket.create_server((host, int(port))))
        self.tls = context(identity(market, node), server=True)
        self.run(self.accept)

    @staticmethod
    def run(what, *args):
        def quietly():
            with contextlib.suppress(OSError, ssl.SSLError, TypeError, ValueError):
                what(*args)
        threading.Thread(target=quietly, daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.open:
            with contextlib.suppress(OSError):
                s.close()

    def accept(self):
        while True:
            s, _ = self.listener.accept()
            self.open.append(s)
            self.run(self.serve, s)

    def serve(self, s):
        if s.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL) == MARK[:4]:
            return self.come(exactly(s, PREAMBLE)[len(MARK):], s)
        s = self.tls.wrap_socket(s, server_side=True)
        self.open.append(s)
        name = hear(s)[1][4][0].decode()
        s.sendall(frame(WELCOME, encode({1: 2, 2: self.node})))
        while heard := hear(s):
            kind, body = heard
            if kind == OFFER:
                self.offers[name] = s
            if kind == ASK:
                self.ask(s, body[1][0], body[2][0].decode())

    def ask(self, s, number, node):
        if self.mode == "mute":
            self.done += 1
            return
        if self.mode == "wrong":
            node = "n2" if node == "n1" else "n1"
        self.number += 1
        called, asked = (b"%032x" % (2 * self.number + i) for i in (0, 1))
        here = threading.Event()
        self.waiting[called] = (here, [])
        self.waiting[asked] = (threading.Event(), [])
        self.offers[node].sendall(frame(CALL, encode({1: called})))
        assert here.wait(LIMIT)
        s.sendall(frame(ANSWER, encode({1: number, 2: asked})))
        self.run(self.join, called, asked)

    def come(self, with_pass, s):
        event, box = self.waiting[with_pass]
        box.append(s)
        event.set()

    def join(self, called, asked):
        (_, to), (event, of) = self.waiting[called], self.waiting[asked]
        assert event.wait(LIMIT)
        if self.mode == "idle":
            self.done += 1
            return
        if self.mode == "wrong":
            self.done += 1
        self.run(self.pump, of[0], to[0], self.mode == "alter")
        self.run(self.pump, to[0], of[0], False)

    def pump(self, of, to, alters):
        sent = 0
        while data := bytearray(of.recv(65536)):
            if alters and sent <= self.alter_at < sent + len(data):
                data[self.alter_at - sent] ^= 0x20
                self.done += 1
            to.sendall(data)
            sent += len(data)
        to.shutdown(socket.SHUT_WR)
