# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of a job's connections when it moves: srun --tcp."""
import socket
import subprocess

import pytest
from conftest import until

FABRIC = "10.79.0.1"
# Says over a connection what it reads, and prints what comes back: what the peer says, or that there is no connection.
ASK = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        print(s.recv(100).decode() or 'closed', flush=True)
    except OSError:
        print('closed', flush=True)
"""


def listener(market):
    """In the namespace that is on no node."""
    return market.in_netns("fabric", lambda: socket.create_server((FABRIC, 0)))


def asker(market, *options):
    """A job that is connected to us, with our end."""
    with listener(market) as door:
        job = market.srun("-p", 50, *options, "/usr/bin/python3", "-c", ASK, FABRIC, str(door.getsockname()[1]), stdin=subprocess.PIPE)
        door.settimeout(40)
        peer, _ = door.accept()
    peer.settimeout(40)
    job.printed(1)
    return job, peer


def ask(job, word):
    job.process.stdin.write(word.encode() + b"\n")
    job.process.stdin.flush()


def elsewhere(market, job):
    return next(n for n in market.nodes() if n != market.job(job.id)["where"])


def test_a_job_that_refuses_to_lose_its_connections_does_not_move_and_goes_on(market):
    job, peer = asker(market, "--tcp=refuse")
    with peer:
        where = market.until_runs(job.id)["where"]
        here = "%s:%d" % peer.getsockname()
        market.tool("marketctl", "--hold", "move", job.id, elsewhere(market, job))
        told = market.until_job(job.id, "it is refused", lambda j: j["failed_moves"] >= 1)
        assert "(python3) is connected to " + here in told["comment"], told
        # Known without an order too, and for a freeze.
        told = market.until_job(job.id, "it is known", lambda j: not j.get("can_move", True), 90)
        assert here in told["cannot_move"] and told["where"] == where and told["migrations"] == 0
        ask(job, "word")
        assert peer.recv(100) == b"word\n"
        peer.sendall(b"answer")
        job.printed(2)
        assert bytes(job.out) == b"connected\nanswer\n"
    ask(job, "more")
    until("it sees the end", lambda: b"closed" in job.out)
    job.process.stdin.close()
    assert job.wait() == 0


@pytest.mark.parametrize("verb", ["move", "freeze"])
def test_a_move_closes_a_connection_cleanly_and_the_job_goes_on(market, verb):
    job, peer = asker(market)
    with peer:
        there = elsewhere(market, job)
        if verb == "freeze":
            market.tool("marketctl", "--hold", "freeze", job.id)
            market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "--hold", "move" if verb == "move" else "thaw", job.id, there)
        # The peer is told; nothing that the job says or is told is lost on the way to a dead end.
        try:
            assert peer.recv(100) == b""
        except ConnectionResetError:
            pass
        market.until_runs(job.id, there)
    ask(job, "word")
    until("it sees the end", lambda: b"closed" in job.out)
    job.process.stdin.close()
    assert job.wait() == 0
    assert market.job(job.id)["failed_moves"] == 0
