# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-root changes the network of the machine for jobs. These tests look at how far an attacker in
agentd's place gets by the interfaces of jobs."""
import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess

import pytest

from cluster import AGENT_USER, until
from root_client import (
    ABANDON, ACT, ANNOUNCE, ARM, DISARM, DONE, FROM_JOB, HELD, HOLD, KEEP, Root, SAY, SEE, STARTED,
    TO_JOB, WITHIN, capsule, feed, of_agentd, pid_of, port, refused, release)

NETWORK = ("br0", "10.79.64.0/18", "10.79.64.1")
NAME, OTHER = "sj0123456789ab", "sjba9876543210"
JOB = bytes([2, 0x53, 10, 79, 64, 70])  # the hardware address of 10.79.64.70
MARK = b"souk-attack-mark"
# Prints every packet with the mark that comes or goes, on all interfaces, until it is told to end.
LISTENS = """import select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("listens", flush=True)
while True:
    ready = select.select([s, sys.stdin], [], [])[0]
    if s in ready:
        frame, at = s.recvfrom(2048)
        if sys.argv[1].encode() in frame: print(at[0], frame.hex(), flush=True)
    elif sys.stdin in ready: break
"""


def ip(root, *words):
    subprocess.run(["nsenter", f"--net=/proc/{root.process.pid}/ns/net", "ip", *words], check=True,
                   timeout=20)


@pytest.fixture
def root():
    with of_agentd(NETWORK) as one:
        ip(one, "link", "add", "br0", "type", "bridge")
        ip(one, "addr", "add", "10.79.64.1/18", "dev", "br0")
        ip(one, "link", "set", "br0", "up")
        yield one


@contextlib.contextmanager
def made_capsule(root, name, net=True):
    """A pidfd of its souk-init."""
    path, kept = f"{root.place}/state/guests/{name}", []
    os.mkdir(path, 0o700)
    os.chown(path, int(AGENT_USER), int(AGENT_USER))
    directory = os.open(path, os.O_RDONLY)
    assert root.ask(capsule(net=net), directory, kept=kept) == (STARTED, 2)
    yield kept[0]
    signal.pidfd_send_signal(kept[0], signal.SIGKILL)
    assert select.select([kept[0]], [], [], 20)[0]
    for fd in (directory, *kept):
        os.close(fd)


@contextlib.contextmanager
def made_port(root, init, **how):
    kept = []
    shut = how.get("shut", False)
    assert root.ask(port(**how), init, kept=kept) == (DONE, 3 if shut else 1)
    yield kept
    for fd in kept:
        os.close(fd)


def frames_file(*frames, sealed=True):
    fd = os.memfd_create("frames", os.MFD_ALLOW_SEALING)
    os.write(fd, b"".join(struct.pack("<I", len(f)) + f for f in frames))
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 15)
    return fd


def frame(to, source=b"\x02\x53\x0a\x4f\x40\x01"):
    """A frame as it is held, behind ten bytes of the kernel's."""
    return bytes(10) + to + source + b"\x88\xb5" + MARK + bytes(46)


def test_an_interface_is_made_in_a_capsule_of_its_own_network_alone(root):
    machine = os.pidfd_open(os.getpid())
    refused(root, "no process of a capsule", port(), machine)
    os.close(machine)
    other = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read x"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    theirs = os.pidfd_open(other.pid)
    refused(root, "no process of a capsule", port(), theirs)
    os.close(theirs)
    other.communicate()
    with made_capsule(root, "shares", net=False) as init:
        for found in (False, True):
            refused(root, "the machine's own network", port(found=found), init)
    with made_capsule(root, "own") as init:
        for name in ("br0", "eth0", "sj", NAME + "c", NAME[:-1] + "/", "../" + NAME):
            refused(root, "no request", port(name=name), init)
        for address in ("10.79.63.255", "10.79.128.0", "127.0.0.1", "192.0.2.1"):
            refused(root, "not of this node's network", port(address=address), init)
        refused(root, NAME, port(found=True), init)  # there is none
        with made_port(root, init):
            pass


def test_nobody_elses_interface_is_touched(root):
    """Souk touches no interface of the machine and none of another job, whether it is named by a
    name that is Souk's or by a number."""
    ip(root, "link", "add", NAME, "type", "bridge")
    ip(root, "link", "add", OTHER, "type", "veth", "peer", "name", "theirs")
    with made_capsule(root, "one") as one, made_capsule(root, "two") as two:
        for name in (NAME, OTHER):
            refused(root, "is an interface of somebody else", port(name=name), one)
            refused(root, "No such device", port(name=name, found=True), one)
        ip(root, "link", "show", NAME)
        ip(root, "link", "show", "theirs")
        ip(root, "link", "delete", NAME)
        ip(root, "link", "delete", OTHER)
        with made_port(root, one) as first, made_port(root, two, name=OTHER, address="10.79.64.71"):
            why = "is not the interface of that job"
            refused(root, why, port(name=OTHER, found=True), one)
            refused(root, why, port(name=NAME, found=True), two)
            refused(root, why, port(found=True, address="10.79.64.71"), one)
            with made_port(root, one, found=True):
                pass
            # A connection that has ended does nothing any more.
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs, open("/dev/null") as null:
                for fd in (ours.fileno(), null.fileno(), one, root.line.fileno()):
                    for packet in (bytes([ARM, 0]), bytes([ACT, DISARM]), bytes([HELD]),
                                   bytes([HOLD, TO_JOB, 1]), feed(), release()):
                        refused(root, "no interface of a job", packet, fd)
            for act in (ANNOUNCE, ABANDON, DISARM):
                assert root.ask(bytes([ACT, act]), first[0]) == (DONE, 0)


def test_what_agentd_gets_of_an_interface_reaches_no_network(root):
    """A socket that says which one is meant, and the maps of its gates; frames alone as text."""
    with made_capsule(root, "one") as init, made_port(root, init, shut=True) as fds:
        assert [os.readlink(f"/proc/self/fd/{fd}") for fd in fds[1:]] == ["anon_inode:bpf-map"] * 2
        with socket.socket(fileno=os.dup(fds[0])) as line:
            assert (line.family, line.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        refused(root, "nothing is held", bytes([HELD]), fds[0])
        refused(root, "nothing is held", feed(), fds[0])
        for hold in (bytes([HOLD, TO_JOB, 1]), bytes([HOLD, FROM_JOB, 0])):
            assert root.ask(hold, fds[0]) == (DONE, 0)
        refused(root, "nothing is held", bytes([HELD]), fds[0])  # since when is not said
        assert root.ask(feed(), fds[0]) == (DONE, 0)
        kept = []
        assert root.ask(bytes([HELD]), fds[0], kept=kept) == (DONE, 1)
        assert os.readlink(f"/proc/self/fd/{kept[0]}").startswith("/memfd:souk-frames")
        os.close(kept[0])
        assert root.ask(release(), fds[0]) == (DONE, 0)


def test_frames_go_to_the_job_and_to_nobody_else(root):
    net = f"--net=/proc/{root.process.pid}/ns/net"
    with made_capsule(root, "one") as init, made_port(root, init) as fds:
        ears = [subprocess.Popen(["nsenter", where, "/usr/bin/python3", "-c", LISTENS,
                                  MARK.decode()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)
                for where in (net, f"--net=/proc/{pid_of(init)}/ns/net")]
        for ear in ears:
            assert ear.stdout.readline() == "listens\n"
        to_job, others = frame(JOB), [frame(bytes([2, 0x53, 10, 79, 64, 71])), frame(b"\xff" * 6)]
        away = bytes([0x45, 0, 0, 20 + len(MARK), 0, 0, 0, 0, 9, 253, 0, 0]) + \
            socket.inet_aton("10.79.64.1") + socket.inet_aton("10.79.64.1") + MARK
        with os.fdopen(os.open("/dev/null", os.O_RDONLY)) as null:
            refused(root, "no file of frames", bytes([SAY, TO_JOB]), fds[0], null.fileno())
        for packet, sent in ((bytes([SAY, TO_JOB]), [*others, b"x" * 5]),
                             (bytes([SAY, WITHIN]), [bytes(14) + away, frame(JOB)]),
                             (bytes([SAY, TO_JOB]), [to_job])):
            loose, file = frames_file(*sent, sealed=False), frames_file(*sent)
            refused(root, "no file of frames", packet, fds[0], loose)
            assert root.ask(packet, fds[0], file) == (DONE, 0)
            os.close(loose)
            os.close(file)
        # Held frames go to the job that now runs elsewhere, and to nobody else.
        assert root.ask(bytes([HOLD, TO_JOB, 1]), fds[0]) == (DONE, 0)
        file = frames_file(*others)
        assert root.ask(feed(frames=True), fds[0], file) == (DONE, 0)
        assert root.ask(release(), fds[0]) == (DONE, 0)
        os.close(file)
        wanted = to_job[10:].hex()
        heard = ears[1].stdout.readline().split()
        assert heard == ["eth0", wanted]
        said = [ear.communicate("\n", timeout=20)[0].splitlines() for ear in ears]
        assert said == [[f"{NAME} {wanted}"], []]


def test_who_sees_packets_is_said_once():
    one = Root()
    refused(one, "no programs that see packets", bytes([SEE]))
    refused(one, "other descriptors", bytes([SEE]), 0)
    assert one.ask(bytes([KEEP, 0])) == (DONE, 0)
    with open("/dev/null") as null:
        refused(one, "is said already", bytes([KEEP, 1]), null.fileno(), null.fileno())
    refused(one, "is said already", bytes([KEEP, 0]))
    refused(one, "no programs that see packets", bytes([SEE]))
    one.end()


def program_of_packets():
    """A program for packets that lets all of them pass."""
    code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, 1, 0x95, 0, 0, 0))
    licence = ctypes.create_string_buffer(b"GPL")
    asked = struct.pack("<IIQQIIQI64x", 8, 2, ctypes.addressof(code), ctypes.addressof(licence),
                        0, 0, 0, 0)
    bpf, load = 321, 5  # of x86-64
    fd = ctypes.CDLL(None, use_errno=True).syscall(bpf, load, asked, len(asked))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


def links_of(pid):
    return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")].count(
        "anon_inode:bpf_link")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call has another number")
def test_the_programs_that_were_named_see_packets_as_long_as_agentd_wants():
    one, programs, kept = Root(), [program_of_packets(), program_of_packets()], []
    assert one.ask(bytes([KEEP, 1]), *programs) == (DONE, 0)
    assert one.ask(bytes([SEE]), kept=kept) == (DONE, 2)
    assert [os.readlink(f"/proc/self/fd/{fd}") for fd in kept] == ["anon_inode:bpf_link"] * 2
    until("souk-root keeps none", lambda: links_of(one.process.pid) == 0)
    for fd in (*programs, *kept):
        os.close(fd)
    one.end()
