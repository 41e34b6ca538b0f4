# SPDX-License-Identifier: GPL-2.0-or-later
"""A small client of Souk's protocol that shares no code with it: frames over TLS by
tests/protobuf.py. It says whatever an attacker wants to."""
import base64
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import time

from protobuf import MAGIC, decode, encode, frame

AGENT, TOOL, IMAGE, JOINER = 1, 2, 3, 4
HELLO, WELCOME, ERROR, CTL_REQUEST, CTL_REPLY = 1, 2, 3, 5, 6
JOB_REPORT, PROVIDER_REPORT, JOIN, RENEW, ORDER, REVOKED = 16, 17, 19, 20, 32, 38
GUEST_COMMAND, GUEST_EVENT, STDIO_INPUT, HEARTBEAT = 48, 49, 53, 56
CERTIFIED, TICKET_KEYS = 37, 39
IMAGE_BEGIN, IMAGE_RESULT, PRECOPY_BEGIN, SUBMIT = 64, 65, 67, 80
QUERY, START, PREPARE, PREPARE_DUMP, SHIP, FREEZE = 1, 2, 3, 4, 5, 6
DROP, KILL, SIGNAL, KEEP, CHECKPOINT = 11, 12, 13, 14, 15
UNKNOWN, STARTING, RUNNING, PREPARED, EXITED, KILLED, FAILED = 1, 2, 3, 8, 10, 11, 12
SECOND = 1_000_000_000


# ---- messages

def pb(**fields):
    """A message: f3=5 is field 3 as a number, f3=b'..' or 'text' as bytes, f3=[...] repeated."""
    return encode({int(name[1:]): value for name, value in fields.items()})


def parse(body):
    """{field: its last value} of a message."""
    return {number: values[-1] for number, values in decode(body).items()}


def job_id(home, seq=1):
    return pb(f1=home, f2=seq)


def hello(node, role=AGENT, version=2, address="10.0.0.9:7071", magic=MAGIC):
    return pb(f1=float(magic), f2=version, f3=role, f4=node, f5=address)


# ---- a connection

class Refused(Exception):
    """What the other end said, or how it ended the connection."""


class Connection:
    """Opened by name of its peer (as hello() has it), over TLS with that identity's certificate."""

    def __init__(self, address, identity=None, greet=None, limit=20, context=None):
        host, port = address.rsplit(":", 1)
        raw = socket.create_connection((host, int(port)), limit)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if identity:
                context.load_cert_chain(f"{identity}/certificate.pem", f"{identity}/key.pem")
        self.socket = self.quietly(context.wrap_socket, raw)
        self.limit = limit
        if greet is not None:
            self.say(HELLO, greet)
            self.wait_for(WELCOME)

    @staticmethod
    def quietly(call, *args):
        try:
            return call(*args)
        except (ssl.SSLError, OSError) as e:
            raise Refused(str(e)) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def answers_within(self, limit):
        self.limit = limit
        self.socket.settimeout(limit)

    def raw(self, data):
        self.quietly(self.socket.sendall, data)

    def say(self, kind, body=b""):
        self.raw(frame(kind, body))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.quietly(self.socket.recv, count - len(data))
            if not part:
                raise Refused("the connection was closed")
            data += part
        return data

    def hear(self):
        length, kind, _ = struct.unpack("<IHH", self.exactly(8))
        body = self.exactly(length)
        if kind == 0xff00:  # a ping
            self.say(0xff01)
            return self.hear()
        if kind == ERROR:
            raise Refused(parse(body).get(1, b"").decode(errors="replace"))
        return kind, body

    def wait_for(self, *kinds):
        end = time.monotonic() + self.limit
        while time.monotonic() < end:
            kind, body = self.hear()
            if kind in kinds:
                return parse(body)
        raise Refused("no answer")

    def asks(self, command):
        """The answer of a guest to a command: its state by number, and why."""
        self.say(GUEST_COMMAND, command)
        event = self.wait_for(GUEST_EVENT)
        return event.get(3, 0), event.get(7, b"").decode(errors="replace")


# ---- what a home says

def spec(uid=0, argv=("sleep", "60"), **more):
    return pb(f1=list(argv), f2="/usr/bin/" + argv[0], f3=["PATH=/usr/bin:/bin"], f4="/", f5=0o22,
              f7=uid, f8=uid, **more)


def command(home, verb, epoch=1, seq=1, ticket=b"", dest="", address="", new_epoch=0, uid=0,
            source="", **more):
    needs_spec = verb in (START, PREPARE, KEEP)
    return pb(f1=job_id(home, seq), f2=epoch, f3=verb, f4=new_epoch, f5=dest, f6=address,
              **({"f7": spec(uid)} if needs_spec else {}), f8=64, f9=1, f12=source, f13=ticket,
              **more)


# ---- tickets

class Signer:
    """Signs tickets: with the market's own key, as somebody could who had it, or with another."""
    MARK = b"souk ticket 1\n"

    def __init__(self, ring=None):
        if ring:
            with open(ring) as f:
                self.private = bytes.fromhex(f.read().splitlines()[-1].split()[1])
        else:
            self.private = os.urandom(32)
        der = bytes.fromhex("302e020100300506032b657004220420") + self.private
        self.pem = ("-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(der).decode() +
                    "\n-----END PRIVATE KEY-----\n")
        public = self.openssl("pkey", "-pubout", "-outform", "DER")[-32:]
        self.name = __import__("hashlib").sha256(public).digest()[:8]
        self.public = public

    def public_line(self):
        """As the market tells it to its nodes."""
        return f"key {self.public.hex()}\n"

    def openssl(self, verb, *words, data=None):
        with tempfile.TemporaryDirectory() as d:
            with open(f"{d}/key", "w") as f:
                f.write(self.pem)
            more = []
            if data is not None:
                with open(f"{d}/data", "wb") as f:
                    f.write(data)
                more = ["-in", f"{d}/data", "-inkey", f"{d}/key"]
            else:
                more = ["-in", f"{d}/key"]
            return subprocess.run(["openssl", verb, *words, *more], check=True,
                                  capture_output=True).stdout

    def seal(self, body, name=None):
        signature = self.openssl("pkeyutl", "-sign", "-rawin", data=self.MARK + body)
        return self.MARK + (name or self.name) + signature + body

    def ticket(self, home, number, destination="", source="", seq=1, uid=0, keys=(), age=0,
               life=600, name=None):
        issued = int((time.time() - age) * SECOND)
        return self.seal(pb(f1=job_id(home, seq), f2=number, f3=uid, f4="root", f5=source,
                            f6=destination, f7="10.0.0.9:7071", f8=1, f9=64,
                            f10=[k.encode() for k in keys], f11=issued,
                            f12=issued + life * SECOND), name)
