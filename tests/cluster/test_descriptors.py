# SPDX-License-Identifier: GPL-2.0-or-later
"""Sockets and other descriptors are as their program has set them, wherever it runs."""
import json
import os
import re
import socket
import subprocess

import pytest

from conftest import read_text, until
from moving import check_ended, move_about

HEADER = os.path.join(os.path.dirname(__file__), "../../kernel/sys/process/socket_options.h")

# On sockets of each kind each option of the table (argument 1) gets a value that it has not in a
# new one. Each line: what differs from how it was then.
OPTIONS = """
import ctypes, json, select, socket, struct, sys
I = lambda *v: struct.pack("i" * len(v), *v)
S, D, R = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW
kinds = [(f, t, 0) for f in (2, 10) for t in (S, D)] + [(1, S, 0), (1, D, 0), (16, R, 0),
         (2, D, 136), (10, D, 136), (2, R, 1), (10, R, 58), (17, R, 0)]
all_ = {}
for kind in kinds:
    try: all_[str(kind)] = socket.socket(*kind)
    except OSError: pass
l = all_["listener"] = socket.create_server(("127.0.0.1", 0))
if "connected" in sys.argv:
    all_["client"] = socket.create_connection(l.getsockname()); all_["server"] = l.accept()[0]
rows = json.loads(sys.argv[1])
values = [I(n) for n in (1, 0, 2, 3, 5, 7, 40, 900, 1500, 4096, 70000)] + [
    b"reno", I(1, 1), I(1, 0), I(20000 | 30000 << 16), b"\\1" * 4, b"k" * 16, bytes((127, 0, 0, 1)),
    struct.pack("!I", 1), struct.pack("L", 99999)]
def of(s, row):
    try: return s.getsockopt(row[0], row[1], 256).hex()
    except OSError: return None
touched = set()
for kind, s in all_.items():
    for row in rows:
        was = of(s, row)
        for value in values if was is not None else []:
            try: s.setsockopt(row[0], row[1], value)
            except OSError: continue
            if of(s, row) != was:
                touched.add((kind, *row))
                break
groups = []
def join(s, level, group, name=42, more=b""):
    device = socket.if_nameindex()[-1][0]
    request = struct.pack("I4x", device) + group.ljust(128, b"\\0")
    try: s.setsockopt(level, name, request + more)
    except OSError as e: return print("cannot join", e, file=sys.stderr)
    groups.append((s, level, group))
v4 = lambda text: struct.pack("HH", 2, 0) + socket.inet_aton(text)
v6 = lambda text: struct.pack("HHI", 10, 0, 0) + socket.inet_pton(10, text)
join(all_[str((2, D, 0))], 0, v4("239.1.2.3"))
join(all_[str((2, D, 0))], 0, v4("239.1.2.4"), 46, v4("10.9.8.7").ljust(128, b"\\0"))
join(all_[str((10, D, 0))], 41, v6("ff02::1:2345"))
libc = ctypes.CDLL(None)
def member(s, level, group):
    for device, name in socket.if_nameindex():
        b = ctypes.create_string_buffer(struct.pack("I4x", device) + group.ljust(128, b"\\0") +
                                        I(0, 5) + bytes(640))
        n = ctypes.c_uint(len(b) - 1)
        if libc.getsockopt(s.fileno(), level, 48, b, ctypes.byref(n)) == 0:
            return b.raw[136:n.value].hex()
def look():
    found = {f"{kind} {name}": of(all_[kind], (level, row)) for kind, level, row, name in touched}
    return found | {f"group {i}": member(*g) for i, g in enumerate(groups)}
first = look()
print(len(groups), *sorted({name for *_, name in touched}), flush=True)
while not select.select([0], [], [], 0.05)[0]:
    now = look()
    print({k: (first[k], now[k]) for k in first if now[k] != first[k]} or "same", flush=True)
print("end", flush=True)
"""


def table():
    levels = dict(re.findall(r"(souk_\w+) = (\d+)", read_text(HEADER)))
    return [(int(levels[level]), int(name), word) for level, name, word in
            re.findall(r"^    ROW\((\w+), (\d+), (\w+), ", read_text(HEADER), re.M)]


@pytest.mark.parametrize("net", ["host", "own"])
def test_each_option_of_a_socket_is_as_before(market, net):
    rows = table()
    assert len(rows) > 100
    job = market.srun("-p", 50, f"--net={net}", "/usr/bin/python3", "-c", OPTIONS,
                      json.dumps(rows), *(["connected"] if net == "own" else []),
                      stdin=subprocess.PIPE)
    job.printed(2)
    move_about(market, job, "auto")
    job.printed(job.lines() + 2)
    first, *lines, end = check_ended(market, job)
    groups, *touched = first.split()
    # Some need rights, or a device that can do it, or a newer kernel.
    assert groups == "3" and len(touched) > 80, first
    assert end == "end" and set(lines) == {"same"}, set(lines)


# A process that forks and closes what its child serves; the number is another file's then. Each
# line: what the epoll tells, of both.
EPOLL = """
import os, select, socket
e = select.epoll()
a, b = socket.socketpair()
c, d = socket.socketpair()
number = a.fileno()
e.register(number, select.EPOLLIN)
go, gone = os.pipe()
if os.fork() == 0:
    c.close(); os.close(gone)
    os.read(go, 1)
    os._exit(0)
os.close(go)
a.close()
os.dup2(c.fileno(), number)
e.register(number, select.EPOLLOUT)
b.send(b"x")
print(number, flush=True)
while not select.select([0], [], [], 0.05)[0]:
    print(sorted(e.poll(0)), flush=True)
print("end", flush=True)
"""


def moved_about(market, program):
    """The lines of that program, which was moved while it printed them."""
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", program, stdin=subprocess.PIPE)
    job.printed(2)
    move_about(market, job, "auto")
    job.printed(job.lines() + 2)
    return check_ended(market, job)


def test_an_epoll_tells_of_a_file_that_another_process_has_open(market):
    number, *lines, end = moved_about(market, EPOLL)
    assert end == "end" and set(lines) == {f"[({number}, 1), ({number}, 4)]"}, lines


# A server that has left many files to its child, of two kinds: sockets, each of which has an inode
# of its own, and eventfds, which share one. Each line: how many tell.
MANY = """
import ctypes, os, resource, select, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
e = select.epoll()
pairs = [socket.socketpair() for _ in range(300)]
events = [ctypes.CDLL(None).eventfd(1, 0) for _ in range(300)]
for n in [a.fileno() for a, _ in pairs] + events: e.register(n, select.EPOLLIN)
go, gone = os.pipe()
if os.fork() == 0:
    os.close(gone)
    os.read(go, 1)
    os._exit(0)
os.close(go)
for _, b in pairs: b.send(b"x")
for n in events: os.close(n)
for a, b in pairs: a.close(), b.close()
while not select.select([0], [], [], 0.05)[0]:
    print(len({n for n, _ in e.poll(0)}), flush=True)
print("end", flush=True)
"""


def test_an_epoll_tells_of_many_files_that_another_process_has_open(market):
    *lines, end = moved_about(market, MANY)
    assert end == "end" and set(lines) == {"600"}, lines


# A program whose notices wait, or are lost since it stands, or neither. It is told of the loss.
NOTICES = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(os.O_NONBLOCK)
watch = libc.inotify_add_watch(fd, sys.argv[1].encode(), 0xfff)
if sys.argv[2] == "waits": open(sys.argv[1] + "/before", "w").close()
print("watches", flush=True)
sys.stdin.readline()
if sys.argv[2] != "nothing":
    b = os.read(fd, 65536)
    assert struct.unpack_from("iI", b) == (-1, 0x4000) and len(b) == 16, b
os.mkdir(sys.argv[1] + "/after")
b = os.read(fd, 65536)
assert struct.unpack_from("iI", b) == (watch, 0x40000100) and b[16:].strip(b"\\0") == b"after", b
assert libc.inotify_add_watch(fd, b"/", 0x100) == watch + 1
print("end", flush=True)
"""


@pytest.mark.parametrize("what", ["waits", "comes", "nothing"])
def test_who_watches_a_directory_hears_when_notices_are_lost(market, tmp_path, what):
    (tmp_path / "file").write_text("as it was")
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", NOTICES, tmp_path, what,
                      stdin=subprocess.PIPE)
    job.printed(1)
    if what == "comes":
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        (tmp_path / "file").write_text("written while it is frozen")
    market.tool("marketctl", "--hold", "thaw" if what == "comes" else "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait() == 0, job.told
    assert bytes(job.out) == b"watches\nend\n"


# A server that is busy with one connection while others wait for it to accept them.
SERVER = """
import socket, sys
s = socket.create_server(("0.0.0.0", 7200))
print("listens", flush=True)
c, _ = s.accept()
print("accepted", flush=True)
sys.stdin.readline()
c.send(c.recv(10))
c.close()
print("end", flush=True)
"""


def test_who_waits_to_be_accepted_hears_that_the_connection_is_gone(market):
    job = market.srun("-p", 50, "--net=own", "/usr/bin/python3", "-c", SERVER,
                      stdin=subprocess.PIPE)
    job.printed(1)
    at = market.until_job(job.id, "runs", lambda j: j["status"] == "run" and j.get("address"))
    clients = [market.in_netns("n3", lambda: socket.create_connection((at["address"], 7200), 10))
               for _ in range(3)]
    for client in clients:
        client.sendall(b"asks")
    job.printed(2)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    for client in clients[1:]:
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert clients[0].recv(10) == b"asks"
    assert job.wait() == 0


# Urgent data that has come, in connections of the job with itself: unread; read, with more behind
# it; in line; the first byte of all. Each line: the urgent byte, what is before it and behind it.
URGENT = """
import select, socket, sys
l = socket.create_server(("127.0.0.1", 0))
def pair(before, behind, in_line=0):
    a = socket.create_connection(l.getsockname()); b = l.accept()[0]
    b.setsockopt(1, 10, in_line)
    a.sendall(before); a.send(b"!", socket.MSG_OOB); a.sendall(behind)
    select.select([], [], [b], 10)
    return a, b
long = b"x" * 50000
ends = [pair(b"abc", b"def"), pair(b"abc", b"def"), pair(b"abc", b"def", 1), pair(b"", long),
        pair(b"abc", b"")]
assert ends[1][1].recv(1, socket.MSG_OOB) == b"!"
assert ends[4][1].recv(1, socket.MSG_OOB) == b"!"
print("ready", flush=True)
sys.stdin.readline()
for i, (a, b) in enumerate(ends):
    b.settimeout(5)
    oob = b.recv(1, socket.MSG_OOB) if i in (0, 3) else b""
    wanted = (b"abc", b"abc", b"abc!", long, b"abc")[i] + (b"def" if i < 3 else b"")
    got = []
    while len(b"".join(got)) < len(wanted): got.append(b.recv(100000))
    assert b"".join(got) == wanted, (i, got)
    a.sendall(b"more")
    print(i, oob, got[0][:9], b.recv(10), flush=True)
"""


def test_urgent_data_that_waits_is_as_it_was(market):
    job = market.srun("-p", 50, "--net=own", "/usr/bin/python3", "-c", URGENT,
                      stdin=subprocess.PIPE)
    job.printed(1)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.tool("marketctl", "--hold", "thaw", job.id, "n3")
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait() == 0, job.told
    assert bytes(job.out).decode().splitlines()[1:] == [
        "0 b'!' b'abc' b'more'", "1 b'' b'abc' b'more'", "2 b'' b'abc' b'more'",
        "3 b'!' b'xxxxxxxxx' b'more'", "4 b'' b'abc' b'more'"]


# A program that holds each file of its control groups open, found as Go and Java find them. Each
# line: how many cannot be read any more or are deleted, how many groups have this process in them,
# by a list that was opened at the start, where its groups are, and its limits of memory.
GROUPS = """
import os, re, select, sys
mounts = [line.split() for line in open("/proc/self/mountinfo")]
held = {}
def directories():
    for line in open("/proc/self/cgroup"):
        _, controllers, group = line.strip().split(":", 2)
        for m in mounts:
            kind, _, options = m[m.index("-") + 1:][:3]
            if (kind == "cgroup2" if not controllers else
                kind == "cgroup" and controllers.split(",")[0] in options.split(",")):
                if m[3] == "/" or group.startswith(m[3]):
                    yield m[4] + group[len(m[3].rstrip("/")):], m[4]
for directory, top in directories():
    for d in {directory, top}:
        for name in os.listdir(d) if os.path.isdir(d) else []:
            path = os.path.normpath(f"{d}/{name}")
            if os.path.isfile(path):
                try:
                    fd = os.open(path, os.O_RDONLY)
                    os.pread(fd, 4096, 0)
                    held[path] = fd
                except OSError: pass
def read(fd):
    try: return os.pread(fd, 1 << 20, 0).decode()
    except OSError: return None
def look():
    bad = [p for p, fd in held.items()
           if read(fd) is None or os.readlink(f"/proc/self/fd/{fd}") != p]
    own = [p for p, fd in held.items()
           if p.endswith("/cgroup.procs") and str(os.getpid()) in read(fd).split()]
    limits = [read(fd).strip() for p, fd in sorted(held.items())
              if re.search("/memory.(max|limit_in_bytes)$", p)]
    groups = {g.split(":", 1)[1] for g in open("/proc/self/cgroup").read().split()}
    return len(bad), len(own), *sorted(g for g in groups if "=" not in g), "limits", *limits
print(len(held), flush=True)
while not select.select([0], [], [], 0.05)[0]:
    print(*look(), flush=True)
print("end", flush=True)
"""


def test_files_of_its_control_groups_stay_open_and_are_of_those_it_is_in(market):
    job = market.srun("-p", 50, "-m", 200, "/usr/bin/python3", "-c", GROUPS,
                      stdin=subprocess.PIPE)
    job.printed(2)
    limited = (os.path.exists("/sys/fs/cgroup/memory") or
               "memory" in read_text("/sys/fs/cgroup/cgroup.controllers").split())
    for steps in ([("move", "n2")], [("move", "n3")], [("freeze",), ("thaw", "n1")],
                  [("move", "n2")]):
        for verb, *node in steps:
            market.tool("marketctl", "--hold", verb, job.id, *node)
            if verb == "freeze":
                market.until_job(job.id, verb, lambda j: j["status"] == "suspend")
            else:
                market.until_runs(job.id, *node)
        seen = job.lines()
        job.printed(seen + 2)
        # The limit is set again as soon as it runs.
        until("it reads the limit of its group", lambda: not limited or any(
            line.endswith(f" {200 << 20}") for line in
            bytes(job.out).decode().splitlines()[seen:]))
    job.process.stdin.close()
    assert job.wait() == 0, job.told
    held, *lines, end = bytes(job.out).decode().splitlines()
    views = {line.split(" limits")[0] for line in lines}
    assert int(held) > 10 and end == "end"
    assert len(views) == 1 and re.match(r"0 [1-9]\d* ", views.pop()), lines
