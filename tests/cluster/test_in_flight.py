# SPDX-License-Identifier: GPL-2.0-or-later
"""A node does not run a job that was damaged on its way. One bit of a move is flipped: in the
image, in memory that is sent before the copy runs, or in memory that follows it. The move fails
and says so, the job goes on where it was, and moves when the way is clean. TLS finds it first;
without certificates the digests of images and pages do."""
import functools
import os
import random
import selectors
import signal
import socket
import subprocess
import threading

import pytest

from conftest import BIN, read_text, until

SMALL = 60_000  # no connection but that of an image or of pages carries so much


class Wire:
    """Stands in front of one node, at the address that the others know. When it is armed, it flips
    a bit."""

    def __init__(self, market, node, port):
        self.market, self.node, self.armed, self.flipped = market, node, None, threading.Event()
        self.config = f"{market.run_dir}/{node}/agentd.conf"
        self.before = read_text(self.config)
        self.real = next(line.split('"')[1] for line in self.before.splitlines()
                         if line.startswith("listen"))
        host = self.real.rsplit(":", 1)[0]
        self.listener = market.in_netns(node, lambda: socket.create_server((host, port)))
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wake, told = socket.socketpair()
        self.selector.register(told, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._relay, args=(told,), daemon=True)
        self.thread.start()
        with open(self.config, "a") as f:
            f.write(f'address = "{host}:{port}"\n')
        market.kill_daemon(node)

    def arm(self, at):
        self.flipped.clear()
        self.armed = at

    def _relay(self, told):
        other, carried, ends = {}, {}, []
        while True:
            for key, _ in self.selector.select():
                s = key.fileobj
                if s is told:
                    for end in [self.listener, *ends]:
                        end.close()
                    return
                if s is self.listener:
                    here = s.accept()[0]
                    host, port = self.real.rsplit(":", 1)
                    try:
                        there = self.market.in_netns(
                            self.node, lambda: socket.create_connection((host, int(port))))
                    except OSError:  # its daemon is just being started
                        here.close()
                        continue
                    other[here], other[there], carried[here] = there, here, 0
                    ends += [here, there]
                    for end in (here, there):
                        self.selector.register(end, selectors.EVENT_READ)
                    continue
                try:
                    bytes_ = bytearray(s.recv(1 << 16))
                except OSError:
                    bytes_ = b""
                if not bytes_:
                    for end in (s, other[s]):
                        if end.fileno() >= 0:
                            if end in self.selector.get_map():
                                self.selector.unregister(end)
                            end.close()
                    continue
                if s in carried:
                    at = self.armed
                    if at is not None and carried[s] <= at < carried[s] + len(bytes_):
                        bytes_[at - carried[s]] ^= 1 << at % 8
                        self.armed = None
                        self.flipped.set()
                    carried[s] += len(bytes_)
                try:
                    other[s].sendall(bytes_)
                except OSError:  # what that end has still to say comes first
                    self.selector.unregister(s)

    def close(self):
        self.wake.close()
        self.thread.join(20)
        with open(self.config, "w") as f:
            f.write(self.before)
        self.market.kill_daemon(self.node)


@pytest.fixture
def plain(market):
    """Runs all daemons without certificates, so that only the digests of images protect them."""
    names = ["market", *market.nodes()]
    paths = [f"{market.run_dir}/{n}/{'marketd' if n == 'market' else 'agentd'}.conf" for n in names]
    before = [read_text(path) for path in paths]

    def restart(texts):
        for path, text in zip(paths, texts):
            with open(path, "w") as f:
                f.write(text)
        pids = {n: market.daemon(n)["pid"] for n in names}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        until("all are started again",
              lambda: all(market.daemon(n)["pid"] not in (0, pids[n]) for n in names))
        market.until_up()
    restart([text + "insecure = true\n" for text in before])
    yield
    restart(before)


@pytest.fixture
def wire(market):
    w = Wire(market, "n3", 7391)
    yield w
    market.clear()
    w.close()


SIZES = [(2, "auto"), (64, "safe"), (64, "fast")]


@pytest.mark.parametrize("size, policy", SIZES)
def test_a_bit_that_flips_on_the_way_fails_the_move_and_not_the_job(market, plain, wire, tmp_path,
                                                                    size, policy):
    job = flips(market, wire, tmp_path / "enough", size, policy)
    assert any("came damaged" in line for line in job.words), job.words


@pytest.mark.parametrize("size, policy", SIZES[1:])
def test_a_bit_that_flips_under_tls_ends_the_connection_and_not_the_job(market, wire, tmp_path,
                                                                        size, policy):
    job = flips(market, wire, tmp_path / "enough", size, policy)
    assert any("came damaged" in line or "the connection broke" in line
               for line in job.words), job.words


LINES = 120  # that the job prints; with the last of them its work is done


def working(size):
    return [f"{BIN}/testload", "--steps", str(50 * LINES), "--print-every", "50", "--digest",
            "--memory", str(size)]


@functools.cache
def unmoved(size):
    return subprocess.run(working(size), capture_output=True, timeout=120, check=True).stdout


def flips(market, wire, enough, size, policy):
    """A job that one flipped bit after the other keeps from moving, and then moves; it has ended
    well."""
    r = random.Random(size)
    work = working(size)
    job = market.srun("--node", "n1", "--move", policy, "-p", 50, *work, "--until", enough)
    job.printed(1)
    where = market.until_runs(job.id)["where"]
    if where == "n3":
        market.tool("marketctl", "--hold", "move", job.id, "n1")
        where = market.until_runs(job.id, "n1")["where"]
    for _ in range(3):
        failed = market.job(job.id)["failed_moves"]
        wire.arm(r.randrange(SMALL, size << 20))
        market.tool("marketctl", "--hold", "move", job.id, "n3")
        until("a bit was flipped", wire.flipped.is_set)
        market.until_job(job.id, "has not moved", lambda j: j["failed_moves"] > failed)
        market.tool("marketctl", "--hold", "move", job.id, where)
        market.until_runs(job.id, where)
        job.printed(min(job.lines() + 1, LINES - 1))
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    form = market.until_runs(job.id, "n3")["last_move"]
    assert form == {"auto": "stop-and-copy", "safe": "pages-first", "fast": "post-copy"}[policy]
    market.tool("marketctl", "release", job.id)
    enough.touch()
    assert job.wait(90) == 0, job.told
    assert bytes(job.out) == unmoved(size)
    return job
