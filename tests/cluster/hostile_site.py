# SPDX-License-Identifier: GPL-2.0-or-later
"""A market that says to another one what it likes, with Python's own TLS and the key of a real one,
for tests of peers."""
import json
import socket
import ssl
import struct

from codes import CAUSES
from conftest import LIMIT, read_text, until
from protobuf import MAGIC, decode, encode, frame

HELLO, WELCOME, ERROR, REQUEST, REPLY, TERMS, ASK, OFFER = 1, 2, 3, 5, 6, 40, 41, 42
JOB, FAILED, ORDER, NOTE, ACCOUNT = 44, 45, 46, 47, 48
SITE = 5  # wire::Role


class Hostile:
    """A market that speaks for itself: the key and certificate are those of a real one."""

    def __init__(self, site, towards):
        self.site, self.towards = site, towards

    def talk(self, say, answers=2):
        """Sends these bytes, and returns the frames that come, and how it ended."""
        identity = f"{self.site.market.run_dir}/state/market/identity"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        chain = f"{identity}/whole.pem"
        with open(chain, "w") as f:
            f.write(read_text(f"{identity}/certificate.pem") + read_text(f"{identity}/root.pem"))
        context.load_cert_chain(chain, f"{identity}/key.pem")

        def conversation():
            frames = []
            with socket.create_connection((self.towards.address, 7070), LIMIT / 2) as raw:
                with context.wrap_socket(raw) as s:
                    s.sendall(say)
                    while len(frames) < answers:
                        if len(head := self.read(s, 8)) < 8:
                            break
                        length, kind, _ = struct.unpack("<IHH", head)
                        body = self.read(s, length)
                        if kind not in (TERMS, ACCOUNT):  # what it lets this site do, what is owed
                            frames.append((kind, decode(body)))
            return frames
        return self.site.market.in_netns("fabric", conversation)

    @staticmethod
    def read(s, count):
        got = b""
        while len(got) < count and (part := s.recv(count - len(got))):
            got += part
        return got


def hello(site, role=SITE, node=None):
    more = {4: node, 5: "192.0.2.66:7071"} if node else {}
    return frame(HELLO, encode({1: float(MAGIC), 2: 2, 3: role, **more, 9: site}))


def question(verb, *args, number=7):
    return frame(REQUEST, encode({1: number, 3: verb, 4: list(args)}))


def tries_money(hostile):
    """Its word of debts and payments is a word alone, and it sees its own entries alone."""
    towards = hostile.towards

    def account(entries=0, head="", owed=0, paid=None, answered=0, confirmed=0):
        return encode({1: entries, 2: head, 3: owed, **({4: paid} if paid else {}), 5: answered,
                       6: confirmed})

    def says(word):
        """It hears that when its share of words is back."""
        def heard():
            kind, body = hostile.talk(hello("uni") + frame(ACCOUNT, word) + question("status"))[1]
            if kind == ERROR:
                return CAUSES[body.get(2, [0])[0]] != "too_many" and "ends"
            return 2 in body and "goes on"
        return until("its share of words is back", heard)
    receipts = towards.market.ctl("marketctl", "receipts")
    later = 10 ** 16  # than the moment when it became a peer
    assert says(account(owed=10 ** 15, paid={1: later, 2: 5 * 10 ** 6, 3: "a note"}, answered=99,
                        confirmed=1)) == "goes on"
    known = towards.peers()["uni"]
    assert known["it_paid"] == {"amount": 5, "note": "a note"} and known["owes"] == 0
    assert known["owes_by_its_word"] == -10 ** 9
    # no amounts, notes or books
    for bad in (account(owed=2 * 10 ** 18), account(paid={1: 8, 2: -1}), b"\xff" * 40):
        assert says(bad) == "ends", bad
    note = "\x1b[2J" + "x" * 200
    assert says(account(entries=5, head="\x1b[2J", paid={1: later + 1, 2: 1, 3: note})
                ) == "goes on"
    said = towards.market.tool("souk", "peer", "status", "uni").stdout
    assert "it says: 0.000001 (" in said and "\x1b" not in said, said
    assert says(account(entries=10 ** 9, head="f" * 64)) == "goes on"
    assert says(account(entries=1, head="0" * 64)) == "goes on"  # another book: it is logged
    assert "is not the one that it has told of" in read_text(
        f"{towards.market.run_dir}/market/log")
    assert towards.market.ctl("marketctl", "receipts") == receipts
    kind, body = hostile.talk(hello("uni") + frame(ACCOUNT, account()) * 1000)[1]
    assert kind == ERROR and CAUSES[body[2][0]] == "too_many", body
    # questions that are too many are refused, and take nothing from its words
    asks = b"".join(question("plan", number=n) for n in range(300)) + question("status")
    for word in (frame(ACCOUNT, account()), frame(TERMS, encode({1: 1}))):
        def goes_on(word=word):
            frames = hostile.talk(hello("uni") + asks + word + question("status"), 303)
            return [kind for kind, _ in frames] == [WELCOME] + [REPLY] * 302 and frames
        frames = until("its share of words is back", goes_on)
        assert CAUSES[frames[-2][1][7][0]] == "too_many"
    # its own entries, and those of nobody else

    def entries(*words, after=None):
        def said():
            more = {5: after} if after else {}
            ask = frame(REQUEST, encode({1: 7, 3: "site-entries", 4: list(words), **more}))
            kind, body = hostile.talk(hello("uni") + ask)[1]
            assert kind == REPLY, body
            return 2 in body and json.loads(body[4][0]) or (
                CAUSES[body[7][0]] != "too_many" and CAUSES[body[7][0]])
        return until("its share of questions is back", said)
    mine = entries()
    assert (mine["site"], mine["peer"], mine["entries"]) == ("lab", "uni", [])
    assert "told" not in mine and "open" not in mine
    assert isinstance(entries("far"), str)
    for after in ("x", "-1", "9" * 30):
        assert isinstance(entries(after=after), str), after
    towards.market.tool("souk", "peer", "settle", "uni", "--refuse", check=False)
