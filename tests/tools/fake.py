# SPDX-License-Identifier: GPL-2.0-or-later
"""An agentd of the tests' own: frames and protobuf by hand, scripted by the test. Every
wait has a limit."""
import json
import os
import select
import socket
import struct
import time

from protobuf import MAGIC, decode, encode, frame

LIMIT = 60.0
VERSION = 2
TYPES = {
    "hello": 1, "welcome": 2, "error": 3, "ok": 4, "ctl_request": 5, "ctl_reply": 6, "submit": 80,
    "submitted": 81, "attach": 82, "attached": 83, "change": 84, "output": 85, "output_ack": 86,
    "input": 87, "input_ack": 88, "winch": 89, "signal": 90, "notice": 91, "exit": 92,
    "meter": 93,
}
NAMES = {number: name for name, number in TYPES.items()}
# home::Tell::What
STARTED, FROZEN, MOVED, COMMENT, STOPPED, CONTINUED, FINISHED = range(7)
WAITING, RUNNING, FINISHED_PHASE = 1, 3, 8
PROVIDER = {"node": "n1", "status": "on market, busy", "on_market": True, "reserve": 24.5,
            "current_price": 100, "next_price": 0.25, "speed": 100, "cpus": 2, "memory_mb": 4096,
            "free_mb": 1000, "guests": 1, "earned": 3.5, "load_permille": 415, "wait_permille": 4,
            "load_source": "bpf", "frames": "always", "cannot": "", "market": True}


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(LIMIT)
        self.buffer = b""

    def _fill(self, n):
        while len(self.buffer) < n:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError("the tool closed the connection")
            self.buffer += data

    def receive(self):
        self._fill(8)
        n, number, flags = struct.unpack_from("<IHH", self.buffer)
        assert flags == 0
        self._fill(8 + n)
        body, self.buffer = self.buffer[8:8 + n], self.buffer[8 + n:]
        return NAMES[number], decode(body)

    def expect(self, name):
        """The next frame of this type; acknowledgements of output are passed over."""
        while True:
            kind, fields = self.receive()
            if kind == name:
                return fields
            assert kind == "output_ack", f"{kind} {fields} instead of {name}"

    def send(self, name, fields=None):
        self.tell((name, fields))

    def tell(self, *frames):
        """All of them at once: what the tool says when a second passes between them is not said."""
        self.sock.sendall(b"".join(frame(TYPES[name], encode(fields or {}))
                                   for name, fields in frames))

    def welcome(self, node="n1"):
        hello = self.expect("hello")
        assert hello[1] == [MAGIC] and hello[2] == [VERSION] and hello[3] == [2]
        self.send("welcome", {1: VERSION, 2: node})

    def accept_job(self, running=True, then=()):
        """Takes a submission as job n1.7; returns it. `then`: frames that follow at once."""
        self.welcome()
        submit = self.expect("submit")
        frames = [("submitted", {1: {1: "n1", 2: 7}})]
        if 4 in submit:  # else srun ends when it has the id
            tty = 10 in decode(submit[1][0])
            frames.append(("attached", {1: {1: "n1", 2: 7}, 2: WAITING, 3: tty}))
            if running:
                frames.append(("notice", {1: STARTED, 2: "started on n2 at 24.5"}))
        self.tell(*frames, *then)
        return submit

    def output(self, stream, offset, data):
        self.send("output", {1: stream, 2: offset, 3: data})

    def exit(self, status=0, why="", cancelled=False, summary='{"id":"n1.7"}'):
        self.send("exit", {1: status, 2: cancelled, 3: why, 4: summary})

    def close(self):
        self.sock.close()


class Agentd:
    def __init__(self, path):
        self.path = str(path)
        self.connections = []
        self.listen()

    def listen(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(self.path)
        self.sock.listen(16)
        self.sock.settimeout(LIMIT)

    def accept(self):
        connection = Connection(self.sock.accept()[0])
        self.connections.append(connection)
        return connection

    def die(self):
        """As after kill -9: every connection is gone, nobody listens."""
        self.close()
        os.unlink(self.path)

    def close(self):
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self.sock.close()


def answer(agentd, process, reply=None, error=None, parts=None, code=0):
    """Serves one question; returns [verb, arguments]. parts: {after: (reply, next)}, of an answer
    that comes in several."""
    connection = agentd.accept()
    connection.welcome()
    after = ""
    while True:
        request = connection.expect("ctl_request")
        assert request.get(5, [b""]) == [after.encode()]
        if parts:
            reply, after = parts[after]
        if error:
            connection.send("ctl_reply", {1: request[1][0], 3: error, 7: code})
        else:
            connection.send("ctl_reply",
                            {1: request[1][0], 2: True, 4: json.dumps(reply), 5: after})
        if not after:
            return [request[3][0].decode(), *(arg.decode() for arg in request.get(4, []))]


def read_until(fd, wanted, limit=LIMIT):
    """Reads until `wanted` (bytes) has come, or the end when it is None."""
    data, until = b"", time.monotonic() + limit
    while wanted is None or wanted not in data:
        left = until - time.monotonic()
        assert (left > 0 and
                select.select([fd], [], [], left)[0]), f"still waiting for {wanted} after {data}"
        try:
            piece = os.read(fd, 65536)
        except OSError:  # a terminal whose other side is gone
            piece = b""
        if not piece:
            assert wanted is None, f"ended without {wanted}: {data}"
            break
        data += piece
    return data
