# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections of a job are tested while it moves: srun --tcp, srun --net."""
import contextlib
import ipaddress
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from codes import refused
from conftest import LIMIT, gang, read_text, until
from test_checkpoints import newest_image

FABRIC = "10.79.0.1"
# The job says over a connection what it reads, and prints the answer of the peer, or that there is
# no connection.
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
        job = market.srun("-p", 50, *options, "/usr/bin/python3", "-c", ASK, FABRIC,
                          str(door.getsockname()[1]), stdin=subprocess.PIPE)
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
        # While the move is tried again, this is the reason that users are told.
        told = market.until_job(job.id, "it is refused", lambda j: j["failed_moves"] >= 1 and
                                j["reason"].get("cause_code") == "holds_connection" and
                                here in j["reason"]["cause"])
        # The cause is also known without an order, and for a freeze.
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


# ---- a network of its own

# Serves echoes over TCP and UDP; the last word of its line is its address. Checks its memory with
# each answer.
ECHO = """
import fcntl, selectors, socket, struct, sys
memory = bytearray(range(256)) * (int(sys.argv[1]) << 12)
if sys.argv[2:]: lock = open(sys.argv[3], 'w'); fcntl.flock(lock, fcntl.LOCK_EX)
door = socket.create_server(('0.0.0.0', 7000))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('0.0.0.0', 7000))
mine = fcntl.ioctl(udp, 0x8915, struct.pack('256s', b'eth0'))[20:24]
print('address', socket.inet_ntoa(mine), flush=True)
s = selectors.DefaultSelector()
for x in (door, udp, sys.stdin): s.register(x, selectors.EVENT_READ)
n = 0
while True:
    for key, _ in s.select():
        n += 1
        assert memory[n * 4099 % len(memory)] == n * 4099 % 256
        if key.fileobj is sys.stdin: sys.exit(5)
        elif key.fileobj is door: s.register(door.accept()[0], selectors.EVENT_READ)
        elif key.fileobj is udp: udp.sendto(*udp.recvfrom(2000))
        elif d := key.fileobj.recv(65536): key.fileobj.sendall(d)
        else: s.unregister(key.fileobj); key.fileobj.close()
"""


def echo(market, *options, memory=1, more=()):
    """A job that serves echoes, and its address."""
    job = market.srun("-p", 50, "--net=own", *options, "/usr/bin/python3", "-c", ECHO, str(memory),
                      *more, stdin=subprocess.PIPE)
    job.printed(1)
    return job, bytes(job.out).split()[1].decode()


class Client:
    """Asks over one connection, again and again, and checks each answer. Ends with a word of why,
    or when it is told to."""

    def __init__(self, market, address, ask, port=7000, kind=socket.SOCK_STREAM):
        def connect():
            s = socket.socket(socket.AF_INET, kind)
            s.settimeout(LIMIT)
            s.connect((address, port))
            return s
        self.socket, self._ask = market.in_netns("fabric", connect), ask
        self.asked, self.trouble, self.longest, self._stop = 0, None, 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._stop.wait(0.002):  # a pause, as nothing needs load
                begun = time.monotonic()
                self._ask(self.socket, self.asked)
                self.longest = max(self.longest, time.monotonic() - begun)
                self.asked += 1
        except Exception as e:  # told by end() and goes_on()
            self.trouble = repr(e)

    def goes_on(self, times=20):
        to = self.asked + times
        until("answers come", lambda: self.asked >= to or self.trouble)
        assert not self.trouble, self.trouble

    def end(self):
        self._stop.set()
        self._thread.join(LIMIT)
        self.socket.close()
        assert not self.trouble and not self._thread.is_alive(), self.trouble


def ask_echo(s, i):
    word = b"%08d" % i * 8
    s.sendall(word)
    got = b""
    while len(got) < len(word):
        more = s.recv(len(word) - len(got))
        assert more, "the connection was closed"
        got += more
    assert got == word


def ask_datagram(s, i):
    """UDP may lose one, and here, where it was asked again, answer both."""
    s.settimeout(0.5)
    for _ in range(40):
        s.send(b"%08d" % i)
        with contextlib.suppress(TimeoutError):
            while (got := s.recv(100)) != b"%08d" % i:
                assert int(got) < i
            return
    raise AssertionError("no answer")


def ask_redis(s, i):
    key = b"counter"
    s.sendall(b"*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n" % (len(key), key))
    got = b""
    while not got.endswith(b"\r\n"):
        more = s.recv(100)
        assert more, "the connection was closed"
        got += more
    assert got == b":%d\r\n" % (i + 1), got


def retransmissions(s):
    """tcpi_total_retrans of struct tcp_info."""
    return struct.unpack_from("I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]


@contextlib.contextmanager
def clients(*them):
    try:
        yield
    finally:
        for c in them:
            c.end()


def move(market, job, there):
    market.tool("marketctl", "--hold", "move", job.id, there)
    return market.until_runs(job.id, there)


def test_redis_answers_every_request_while_it_is_moved_twenty_times(market, tmp_path):
    job = market.srun("-p", 50, "--net=own", "bash", "-c",
                      "hostname -I; exec redis-server --save '' --protected-mode no --dir $1",
                      "bash", tmp_path)
    until("it is ready", lambda: b"Ready to accept" in job.out)
    address = bytes(job.out).split()[0].decode()
    asking = [Client(market, address, ask_redis, 6379)]
    # Retransmissions in each move that was shorter than the shortest time-out of TCP, 200 ms.
    quick = []
    with clients(*asking):
        for i in range(20):
            asking[0].goes_on()
            before = retransmissions(asking[0].socket)
            there = random.Random(i).choice([n for n in market.nodes()
                                             if n != market.job(job.id)["where"]])
            last = move(market, job, there)
            asking[0].goes_on()
            if last["last_pause_ms"] < 100:
                quick.append(retransmissions(asking[0].socket) - before)
    # The client's requests were held while redis stood still, and reached it afterwards. If they
    # were dropped, each move would cost at least one retransmission.
    assert sum(quick) <= len(quick) / 2, quick
    assert last["migrations"] >= 20 and last["failed_moves"] == 0
    market.tool("marketctl", "cancel", job.id)


@pytest.mark.parametrize("form", ["stop-and-copy", "pages-first", "post-copy"])
def test_connections_and_datagrams_go_on_by_each_form_of_a_move(market, tmp_path, form):
    # A job that holds a lock is moved with all of its memory in the image.
    locked = ["--lock", tmp_path / "lock"] if form == "stop-and-copy" else []
    job, address = echo(market, "--move", "fast" if form == "post-copy"
                        else "auto", memory=16, more=locked)
    asking = [Client(market, address, ask_echo), Client(market, address, ask_echo),
              Client(market, address, ask_datagram, kind=socket.SOCK_DGRAM)]
    with clients(*asking):
        for i in range(5):
            last = move(market, job, elsewhere(market, job))
            for c in asking:
                c.goes_on()
    assert last["last_move"] == form and last["failed_moves"] == 0
    job.process.stdin.close()
    assert job.wait() == 5


def test_a_connection_outlives_a_freeze_and_the_death_of_every_daemon(market):
    job, address = echo(market)
    asking = Client(market, address, ask_echo)
    with clients(asking):
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "--hold", "thaw", job.id, "n3")
        market.until_runs(job.id, "n3")
        asking.goes_on()
        market.kill_daemon("n3")
        asking.goes_on()
        move(market, job, "n2")
        asking.goes_on()
    job.process.stdin.close()
    assert job.wait() == 5


def test_a_move_that_fails_at_any_time_leaves_the_connection_where_the_job_is(market):
    job, address = echo(market, memory=16)
    asking = Client(market, address, ask_echo)
    r = random.Random(5)
    with clients(asking):
        for i in range(8):
            there = elsewhere(market, job)
            dies = market.job(job.id)["where"] if i % 2 else there
            pid = market.daemon(dies)["pid"]
            market.tool("marketctl", "move", job.id, there)
            time.sleep(r.uniform(0, 0.08))  # somewhere in the move, or after it
            os.kill(pid, signal.SIGKILL)
            until("its daemon is a new process", lambda: market.daemon(dies)["pid"] not in (0, pid))
            market.until_up()
            market.until_runs(job.id)
            asking.goes_on()
    job.process.stdin.close()
    assert job.wait() == 5


def test_jobs_have_addresses_of_their_own_from_their_home(market):
    jobs = [echo(market, "--node", home) for home in ("n1", "n1", "n2")]
    addresses = [ipaddress.ip_address(a) for _, a in jobs]
    assert len(set(addresses)) == 3
    shares = [ipaddress.ip_network(f"{a}/26", strict=False) for a in addresses]
    assert shares[0] == shares[1] != shares[2]
    for job, address in jobs:  # and are reached from a node as well
        s = market.in_netns("n3", lambda: socket.create_connection((address, 7000), LIMIT))
        with s:
            ask_echo(s, 1)
        assert market.job(job.id)["address"] == address
        job.process.stdin.close()
        assert job.wait() == 5
    until("nothing is left of their interfaces",
          lambda: not any(ports(market, n) for n in market.nodes()))


# ---- connections between a job's own processes

# One end has said all that it has to say. It goes on to hear what the other end says for each line
# of input.
HALF_CLOSED = """
import os, socket, sys
door = socket.create_server(('127.0.0.1', 0))
ear = socket.create_connection(door.getsockname()); mouth, _ = door.accept(); door.close()
ear.shutdown(socket.SHUT_WR)
assert mouth.recv(1) == b''
pid = os.fork()
if pid == 0:
    mouth.close()
    for line in ear.makefile(): print(line, end='', flush=True)
    os._exit(7)
ear.close()
print('ready', flush=True)
for i, line in enumerate(sys.stdin): mouth.sendall(b'%d %s' % (i, line.encode()))
mouth.close()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
# Both ends send until nothing goes any more. For each line of input all of that is read, and the
# buffers are filled again.
FULL = """
import socket, sys
door = socket.create_server(('127.0.0.1', 0))
ends = [socket.create_connection(door.getsockname())]; ends.append(door.accept()[0]); door.close()
for e in ends: e.setblocking(False)
sent, got = [0, 0], [0, 0]
turn = bytes(i * 2654435761 >> 24 & 255 for i in range(1 << 16))
def piece(at, n): at %= 1 << 16; return (turn[at:] + turn)[:n]
def fill():
    for i, e in enumerate(ends):
        try:
            while True: sent[i] += e.send(piece(sent[i], 50021))
        except BlockingIOError: pass
def empty(e, i):
    while got[i] < sent[1 - i]:
        e.setblocking(True)
        data = e.recv(sent[1 - i] - got[i])
        e.setblocking(False)
        assert data, 'the connection was closed'
        while data:
            part, data = data[:65536], data[65536:]
            assert part == piece(got[i], len(part)), 'other bytes than were sent'
            got[i] += len(part)
fill(); print('ready', flush=True)
for i, line in enumerate(sys.stdin):
    empty(ends[0], 0); empty(ends[1], 1)
    fill(); print(i, line, end='', flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("form", ["safe", "fast"])
@pytest.mark.parametrize("program", [HALF_CLOSED, FULL], ids=["half closed", "full buffers"])
def test_connections_within_a_job_go_on_through_moves_freezes_and_checkpoints(market, program,
                                                                              form):
    job = market.srun("-p", 50, "--net=own", "--move", form, "--checkpoint-every", "1s",
                      "/usr/bin/python3", "-c", program, stdin=subprocess.PIPE)
    job.printed(1)
    told = []

    def goes_on(word):
        ask(job, word)
        told.append(f"{len(told)} {word}")
        job.printed(1 + len(told))
        assert bytes(job.out).decode().splitlines() == ["ready", *told]

    for i in range(5):
        move(market, job, elsewhere(market, job))
        goes_on("moved")
        there = elsewhere(market, job)
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "frozen", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "--hold", "thaw", job.id, there)
        market.until_runs(job.id, there)
        goes_on("thawed")
    until("a checkpoint lies at its home", lambda: "checkpoint_node" in market.job(job.id))
    goes_on("written down")
    last = market.job(job.id)
    assert last["failed_moves"] == 0 and last["migrations"] + last["freezes"] >= 10, last
    market.kill_daemon(last["where"])
    goes_on("its daemon died")
    job.process.stdin.close()
    assert job.wait() == 7


# Connects to itself again and again, four times at once, over IPv4 and IPv6, or to the first one of
# its gang, and tells how long it ran at most until such a connection was there; what it stood still
# meanwhile does not count. Over each connection a number is said and answered.
CONNECTS = """
import errno, os, select, socket, sys, time
me, asked, doors, calls_at_once = os.environ.get('SOUK_COMPONENT', '0'), sys.argv[1], [], 4
if me == asked == '0':
    doors = [socket.create_server(('127.0.0.1', 0), backlog=100),
             socket.create_server(('::1', 0), backlog=100, family=socket.AF_INET6)]
    to = [(d.family, d.getsockname()) for d in doors]
elif me == '0':
    doors, calls_at_once = [socket.create_server(('', 7000), backlog=100)], 0
elif me == asked:
    to = [(socket.AF_INET, (socket.gethostbyname('c0'), 7000))]
    while socket.socket().connect_ex(to[0][1]) != 0: time.sleep(0.05)
else:
    time.sleep(1000)
poll, ears, calls, made = select.poll(), {}, {}, 0
for d in (*doors, *[sys.stdin] * (me == asked)): poll.register(d, select.POLLIN)
doors = {d.fileno(): d for d in doors}
class Call:
    def __init__(self, number):
        family, address = to[number % len(to)]
        self.socket, self.number, self.ran, self.there = socket.socket(family), number, 0, False
        self.socket.setblocking(False)
        assert self.socket.connect_ex(address) in (0, errno.EINPROGRESS)
        poll.register(self.socket, select.POLLOUT)
    def goes_on(self):
        if self.there:
            assert self.socket.recv(100) == b'%d' % self.number
            poll.unregister(self.socket)
            self.socket.close()
            return False
        assert (e := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) == 0, e
        self.there = True
        self.socket.sendall(b'%d' % self.number)
        poll.modify(self.socket, select.POLLIN)
        return True
if me == asked: print('ready', flush=True)
before, longest, numbers = time.time(), 0, set()
while True:
    while len(calls) < calls_at_once:
        c = Call(made)
        calls[c.socket.fileno()], made = c, made + 1
    events = poll.poll(1)
    time.sleep(0.002)
    ran, before = min(max(time.time() - before, 0), 0.01), time.time()
    for c in calls.values():
        c.ran += 0 if c.there else ran
    longest = max([longest, *(c.ran for c in calls.values())])
    for fd, what in events:
        if fd == 0:
            if not sys.stdin.readline(): sys.exit(7)
            print(f'{longest:.3f} {made}', flush=True)
            longest = 0
        elif fd in doors:
            s = doors[fd].accept()[0]
            ears[s.fileno()] = s
            poll.register(s, select.POLLIN)
        elif fd in ears:
            s = ears.pop(fd)
            number = s.recv(100)
            assert number not in numbers, number
            if number: numbers.add(number)
            s.sendall(number)
            poll.unregister(s)
            s.close()
        elif not calls[fd].goes_on():
            del calls[fd]
"""


def connects(job):
    """How long a connection within the job has taken at most since it was asked last, in s. Those
    that have begun by now are there then."""
    def now():
        lines = job.lines()
        ask(job, "how long?")
        job.printed(lines + 1)
        return [float(x) for x in bytes(job.out).decode().splitlines()[-1].split()]
    longest, made = now()
    end = made + 20
    while made < end:
        more, made = now()
        longest = max(longest, more)
    return longest


@pytest.mark.parametrize("how", ["moved", "moved fast", "saved", "frozen", "of a gang",
                                 "of a sibling"])
def test_a_connection_that_begins_while_a_job_stands_is_there_soon_after(market, how):
    """The connection must not come a second later, when TCP repeats a first packet that a gate has
    stopped."""
    sibling = how == "of a sibling"
    options = {"moved fast": ["--net=own", "--move=fast"], "of a gang": ["-N", 2],
               "of a sibling": ["-N", 2, "--stdin", 1],
               "saved": ["--net=own", "--checkpoint-every", "1s"]}.get(how, ["--net=own"])
    job = market.srun("-p", 50, *options, "/usr/bin/python3", "-c", CONNECTS,
                      "1" if sibling else "0", stdin=subprocess.PIPE)
    job.printed(1)
    first = job.said(r"^srun: job ([^\s:]+)")[1]
    every = [j["id"] for j in gang(market, first)] or [first]
    took, saved = [connects(job)], 0
    for i in range(8):
        if how == "frozen" or how == "of a gang" and i % 2 == 0:
            market.tool("marketctl", "--hold", "freeze", first)
            market.until_job(first, "frozen", lambda j: j["status"] == "suspend")
            for one in every:
                market.tool("marketctl", "release", one, check=False)
            for one in every:
                market.until_runs(one)
        elif how == "saved":
            until("it is saved once more", lambda: newest_image(market, job) > saved)
            saved = newest_image(market, job)
        else:
            there = next(n for n in market.nodes()
                         if n not in [market.job(one)["where"] for one in every])
            market.tool("marketctl", "--hold", "move", first, there)
            last = market.until_runs(first, there)
        # A client that connects to a job that stands still waits as long as that job stands.
        took.append(connects(job) - (last["last_pause_ms"] / 1000 if sibling else 0))
    assert max(took) < 0.8, took  # TCP says its first word again after 1 s
    job.process.stdin.close()
    assert job.wait() == 7


def ports(market, node):
    """The ends of jobs' interfaces in a node's namespace."""
    return market.in_netns(node,
                           lambda: [n for _, n in socket.if_nameindex() if n.startswith("sj")])


def test_a_node_without_a_network_for_jobs_refuses_one_and_says_so(market):
    job, address = echo(market)
    path = f"{market.run_dir}/n3/agentd.conf"
    before = read_text(path)
    try:
        with open(path, "w") as f:
            f.writelines(line for line in before.splitlines(True) if not line.startswith("job_"))
        market.kill_daemon("n3")
        asking = Client(market, address, ask_echo)
        with clients(asking):
            market.tool("marketctl", "--hold", "move", job.id, "n3")
            job.said("no network for a job of --net=own")
            asking.goes_on()
        said = market.tool("srun", "--node", "n3", "-p", 5, "--net=own", "true", check=False)
        refused(said, "not_possible")
        job.process.stdin.close()
        assert job.wait() == 5
    finally:
        with open(path, "w") as f:
            f.write(before)
        market.kill_daemon("n3")
