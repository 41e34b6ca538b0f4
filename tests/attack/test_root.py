# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-root, which starts every process of a node for agentd: what agentd has given up for it, and
what whoever has taken agentd over gets from it. That one is played here against the real program,
by a client that shares no code with Souk (agentd/root/requests.hpp has the packets)."""
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile

import pytest

from cluster import BIN, alive, read_text, until
from no_rights import echoes, ends_well, root_of, write

PROGRAM, CAPSULE, CRIU, STARTED, REFUSED = 1, 2, 3, 16, 17
HANDSHAKE, INSPECT, FILES = 1, 2, 3
STARTS = {"setpcap": 8, "setuid": 7, "setgid": 6, "sys_chroot": 18, "sys_time": 25, "mknod": 27,
          "sys_module": 16, "sys_boot": 22}


# ---- what agentd has given up

def test_agentd_can_start_nothing_itself(market):
    pid = market.daemon("n1")["pid"]
    fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", read_text(f"/proc/{pid}/status"), re.M))
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    for mask in ("CapPrm", "CapEff", "CapBnd"):
        left = [name for name, bit in STARTS.items() if int(fields[mask], 16) >> bit & 1]
        assert left == [], mask
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        assert f.read().split() == [str(root_of(market, "n1"))]


def test_a_job_and_its_move_inherit_nothing_of_that(market):
    """It is root's: nothing is taken from it."""
    has = re.compile(r"^(?:Seccomp_filters|CapBnd):.*$", re.M)
    own = has.findall(read_text("/proc/self/status"))
    job = market.srun("--node", "n1", "-p", 50, "/bin/sh", "-c",
                      "while read x; do grep -E '^(Seccomp_filters|CapBnd):' /proc/self/status; "
                      "echo said; done", stdin=subprocess.PIPE)
    market.until_runs(job.id, "n1")
    write(job, b"x\n")
    job.printed(3)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    write(job, b"x\n")
    job.printed(6)
    job.process.stdin.close()
    assert job.wait() == 0
    here, there, _ = bytes(job.out).decode().split("said\n")
    assert here.splitlines() == there.splitlines() == sorted(own)


def test_agentd_ends_with_souk_root_and_its_jobs_run_on(market):
    job = echoes(market, "--node", "n1")
    agent = market.daemon("n1")["pid"]
    root = root_of(market, "n1")
    os.kill(root, signal.SIGKILL)
    until("agentd has ended with it", lambda: not alive(agent))
    until("another one is there", lambda: market.daemon("n1")["pid"] != agent
          and root_of(market, "n1") not in (0, root))
    write(job, b"still\n")
    job.printed(1)
    ends_well(job, "still")


# ---- who plays agentd

def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def words(*all_):
    return struct.pack("<I", len(all_)) + b"".join(map(text, all_))


def program(which, *said, session=False):
    return bytes([PROGRAM, which]) + words(*said) + bytes([session])


def capsule(files=False, cgroup=False, over=()):
    return bytes([CAPSULE, 0, 0, 0, 0, files, cgroup]) + words(*over) + words() + text("")


def criu(restores=False, cgroup=False, ends=0, uid=1000):
    return bytes([CRIU, restores, cgroup, ends]) + struct.pack("<III", uid, 1000, 0)


class Root:
    """A souk-root, and this end of its socket."""
    def __init__(self):
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = theirs.fileno()
        self.process = subprocess.Popen([f"{BIN}/souk-root", "/"], pass_fds=(3,),
                                        preexec_fn=lambda: os.dup2(number, 3))
        theirs.close()
        self.line.settimeout(20)
        assert self.answer()[0] == STARTED

    def answer(self):
        packet, fds, _, _ = socket.recv_fds(self.line, 1 << 17, 4)
        for fd in fds:
            os.close(fd)
        if packet and packet[0] == REFUSED:
            return REFUSED, packet[9:].decode()
        return packet[0] if packet else None, len(fds)

    def ask(self, packet, *fds):
        socket.send_fds(self.line, [packet], fds)
        return self.answer()

    def end(self):
        self.line.close()
        assert self.process.wait(20) == 0


@pytest.fixture(scope="module")
def root():
    one = Root()
    yield one
    one.end()


def refused(root, why, packet, *fds):
    kind, said = root.ask(packet, *fds)
    assert kind == REFUSED and why in said, said
    # It has done nothing, and serves on.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            assert root.ask(program(INSPECT), theirs.fileno()) == (STARTED, 1)
        ours.settimeout(20)
        assert ours.recv(64)  # it has begun


def test_a_packet_that_is_no_request_is_refused(root):
    one = program(INSPECT)
    with open("/dev/null") as null:
        for noise in (b"\0", b"\4", b"\xff" * 40, one[:-1], one + b"\0", one[:1], b"\1\7" + one[2:],
                      program(FILES, "a\0b"), capsule() + b"x", criu()[:9], b"\1" * (130 << 10),
                      bytes([PROGRAM, FILES]) + struct.pack("<I", 1 << 30)):
            refused(root, "no request", noise, null.fileno())


def test_it_starts_its_own_programs_alone(root):
    with open("/dev/null") as null:
        fd = null.fileno()
        for said in ((), ("try", "/", "/mnt"), ("serve", "/", "0", "0"), ("client", "-1", "0"),
                     ("client", "4294967295", "0"), ("store", "many"), ("store", "1", "2"),
                     ("serve", "etc", "1", "1", "", "/proc"), ("sh", "-c", "id")):
            refused(root, "is not started so", program(FILES, *said), fd, fd)
        refused(root, "is not started so", program(FILES, "store", "1"), fd)
        refused(root, "takes no words", program(HANDSHAKE, "now"), fd)
        refused(root, "takes no words", program(INSPECT), fd, fd)


def test_a_capsule_is_made_in_roots_own_directory_and_real_groups(root):
    with tempfile.TemporaryDirectory() as place:
        own = os.open(place, os.O_RDONLY)
        swaps, file, null = os.open("/tmp", os.O_RDONLY), os.open("/etc/passwd", os.O_RDONLY), \
            os.open("/dev/null", os.O_RDWR)
        try:
            refused(root, "its descriptors", capsule(files=True), own)
            refused(root, "is not root's alone", capsule(), swaps)
            refused(root, "another kind of file", capsule(), file)
            refused(root, "no control group", capsule(cgroup=True), own, own)
            refused(root, "no control group", capsule(), own, file)
            refused(root, "another kind of file", capsule(files=True), own, file, file)
            refused(root, "another device", capsule(files=True), own, null, file)
            refused(root, "does not begin at the root", capsule(over=("../etc",)), own)
        finally:
            for fd in (own, swaps, file, null):
                os.close(fd)


def test_criu_goes_into_capsules_alone(root):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as place, ours, theirs:
        images, host = os.open(place, os.O_RDONLY), os.pidfd_open(os.getpid())
        line = theirs.fileno()
        try:
            refused(root, "its descriptors", criu(), host, line)
            refused(root, "no PID 1 of a capsule", criu(), host, line, images, line)
            refused(root, "no process of a capsule", criu(), images, line, images, line)
            refused(root, "that many ends", criu(restores=True), host, line, images)
            refused(root, "nobody in particular", criu(uid=0xffffffff), host, line, images, line)
        finally:
            os.close(images)
            os.close(host)


def test_it_ends_with_agentd():
    one = Root()
    pid = one.process.pid
    one.end()
    assert not alive(pid)
