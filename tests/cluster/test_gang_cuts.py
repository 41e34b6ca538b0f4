# SPDX-License-Identifier: GPL-2.0-or-later
"""A job of several components is frozen at one cut and thaws as one (docs/gangs.md), on real
daemons. Its components talk over TCP and check each other's numbers: nothing is lost, doubled or
out of order, whatever is frozen and whoever dies in the middle."""
import glob
import json
import os
import signal
import time

import pytest
from conftest import Late, gang, kill, own_number, read_text, until

# A ring: each counts to the next one, and what comes from the one before must be the next number.
# With each number goes a random one, and a digest of all of those so far: who goes back to a
# checkpoint says others than before, and whoever has heard of those of before fails.
# What the next one says it has seen must have been sent by then. Whose connection ends fails.
RING = r"""
import hashlib, os, select, socket, struct, sys, time
me, hosts = int(os.environ["SOUK_COMPONENT"]), os.environ["SOUK_HOSTS"].split(",")
mark = sys.argv[1] + "." + str(me)
door = socket.create_server(("", 7777))
while True:
    try:
        out = socket.create_connection((hosts[(me + 1) % len(hosts)], 7777), 5)
        break
    except OSError:
        time.sleep(0.05)
out.settimeout(None)
back, _ = door.accept()

def read(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            sys.exit("the connection has ended at " + str(sent))
        data += more
    return struct.unpack("!q", data[:8])[0], data[8:]

def with_all_before(digest, one):
    return hashlib.sha256(digest + one).digest()[:8]

ballast = os.urandom(1 << 20) * int(sys.argv[2] if me == 0 else 0)  # in MB
sent = got = seen = 0
said = heard = b""
# Open all the time, and always as long: whoever goes back to a checkpoint finds it as it was.
kept = os.open(mark, os.O_RDWR | os.O_CREAT)
os.pwrite(kept, b"%20d" % got, 0)
while True:
    if sent - seen < 64:
        sent += 1
        one = os.urandom(8)
        said = with_all_before(said, one)
        out.sendall(struct.pack("!q", sent) + one + said)
    for s in select.select([out, back], [], [], 0.002)[0]:
        n, more = read(s, 8 if s is out else 24)
        if s is out:
            if not seen < n <= sent:
                sys.exit(f"{me}: it has seen {n}, and {sent} were sent and {seen} seen")
            seen = n
        else:
            if n != got + 1:
                sys.exit(f"{me}: {n} comes after {got}")
            heard = with_all_before(heard, more[:8])
            if heard != more[8:]:
                sys.exit(f"{me}: before {n} came what was said before it went back, or never")
            got = n
            back.sendall(struct.pack("!q", n))
    if got % 50 == 0:
        os.pwrite(kept, b"%20d" % got, 0)
"""


# Component 0 sends numbered datagrams, nobody sends one again; 1 says which number is the first
# that did not come. Sent slower than the socket of who stands frozen holds.
DATAGRAMS = r"""
import os, socket, sys, time
me, hosts = int(os.environ["SOUK_COMPONENT"]), os.environ["SOUK_HOSTS"].split(",")
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if me == 1:
    udp.bind(("", 7777))
    door = socket.create_server(("", 7778))
    door.accept()
    came, next_one = set(), 0
    kept = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    while True:
        n = int(udp.recv(100))
        if n in came or n < next_one:
            sys.exit(f"{n} came twice")
        came.add(n)
        while next_one in came:
            came.remove(next_one)
            next_one += 1
        os.pwrite(kept, b"%10d %10d" % (next_one, max(came, default=next_one)), 0)
while True:
    try:
        socket.create_connection((hosts[1], 7778), 5)
        break
    except OSError:
        time.sleep(0.05)
n = 0
while True:
    udp.sendto(b"%d" % n, (hosts[1], 7777))
    n += 1
    time.sleep(0.001)
"""


class Ring:
    """Three components that count to each other."""

    def __init__(self, market, tmp_path, *options, ballast_mb=0):
        self.market, self.mark = market, tmp_path / "mark"
        (tmp_path / "ring.py").write_text(RING)
        self.srun = market.srun("-p", "40", "-N", "3", *options, "/usr/bin/python3",
                                tmp_path / "ring.py", self.mark, ballast_mb)
        self.first = self.srun.said(r"^srun: job ([^ :]+)")[1]
        self.goes_on()

    def jobs(self):
        """In the order of their components."""
        return sorted((j for j in self.market.list_jobs() if j.get("gang") == self.first),
                      key=lambda j: j["component"])

    def until_all(self, *states):
        return until(f"all are {states}", lambda: (lambda jobs: jobs if len(jobs) == 3 and len(
            {j["status"] for j in jobs}) == 1 and jobs[0]["status"] in states and not any(
                "going_to" in j for j in jobs) else None)(self.jobs()))

    def counts(self):
        files = [self.mark.with_name(f"mark.{n}") for n in range(3)]
        return [int(f.read_text() or 0) if f.exists() else 0 for f in files]

    def goes_on(self):
        before = self.counts()
        until("all count on", lambda: all(
            now > then for now, then in zip(self.counts(), before)))

    def order(self, verb, component):
        return self.market.tool("marketctl", *(["--hold"] if verb == "freeze" else []), verb,
                                f"{self.first.split('.')[0]}."
                                f"{int(self.first.split('.')[1]) + component}", check=False)

    def release(self):
        for j in self.jobs():
            self.market.tool("marketctl", "release", j["id"], check=False)

    def story(self, component):
        return json.loads(self.market.tool("marketctl", "--json", "job",
                                           self.jobs()[component]["id"],
                                           "--story").stdout)["steps"]

    def cuts(self, component=0, step="frozen"):
        """The steps of its story that were made at one cut."""
        return [s for s in self.story(component) if s["step"] == step
                and s.get("components") == 3]

    def end(self):
        """Each has found all numbers in order so far, or they would have ended."""
        self.goes_on()
        assert self.srun.process.poll() is None, self.srun.told
        self.market.tool("marketctl", "cancel", self.first)
        self.srun.wait()


def test_a_gang_is_frozen_at_one_cut_and_thaws_as_one(two_cpus, market, tmp_path):
    ring = Ring(market, tmp_path)
    for component in (1, 0, 2):
        ring.order("freeze", component)
        ring.until_all("suspend")
        stands = ring.counts()
        ring.release()
        ring.until_all("run")
        assert all(now >= then for now, then in zip(ring.counts(), stands))
        ring.goes_on()
    cuts = [ring.cuts(n) for n in range(3)]
    assert [len(c) for c in cuts] == [3, 3, 3]
    print("stopped within", [c["skew_ms"] for c in cuts[0]], "ms")
    story = market.tool("marketctl", "job", ring.jobs()[2]["id"], "--story").stdout
    assert "one of 3 at one cut, stopped within" in story
    ring.end()


def test_what_is_on_its_way_at_the_cut_comes_after_the_thaw(two_cpus, market, tmp_path):
    (tmp_path / "datagrams.py").write_text(DATAGRAMS)
    mark = tmp_path / "mark"
    srun = market.srun("-p", "40", "-N", "2", "--spread", "/usr/bin/python3",
                       tmp_path / "datagrams.py", mark)
    first = srun.said(r"^srun: job ([^ :]+)")[1]

    def came():
        """The first that has not come, and the last of those behind it that have."""
        words = mark.read_text().split() if mark.exists() else []
        return [int(w) for w in words] if len(words) == 2 else [0, 0]

    def all_are(state):
        until(f"both {state}", lambda: [j["status"] for j in gang(market, first)] == [state] * 2)

    until("datagrams come", lambda: came()[0] > 100)
    for _ in range(3):
        market.tool("marketctl", "--hold", "freeze", first)
        all_are("suspend")
        stands = came()
        for job in gang(market, first):
            market.tool("marketctl", "release", job["id"], check=False)
        all_are("run")
        until("more come", lambda: came()[1] > stands[1] + 500)
        missing, last = came()
        assert missing >= last, f"{missing} did not come, and {last} did"
    market.tool("marketctl", "cancel", first)
    srun.wait()


@pytest.mark.parametrize("who", ["home", "guest", "market", "criu"])
def test_whoever_dies_in_a_cut_the_gang_is_frozen_as_a_whole_or_goes_on(two_cpus, market, tmp_path,
                                                                        who):
    ring = Ring(market, tmp_path)
    home = ring.first.split(".")[0]
    guest = next((j["where"] for j in ring.jobs() if j["where"] != home), home)
    for _ in range(2):
        ring.order("freeze", 1)
        if who == "criu":
            kill(processes_of("criu", market))
        else:
            market.kill_daemon({"home": home, "guest": guest, "market": "market"}[who])
        ring.until_all("suspend", "run")
        ring.release()
        ring.until_all("run")
        ring.goes_on()
    ring.end()


@pytest.mark.parametrize("lost", [0, 2])
def test_a_lost_component_takes_its_gang_back_to_one_cut(two_cpus, market, tmp_path, lost):
    # Whose peer is lost fails at once, and is heard of before it or after it (docs/gangs.md).
    ring = Ring(market, tmp_path, "--checkpoint-every", "1s")
    for times in (1, 2):
        saved = ring.cuts(lost, "checkpoint")[-1:]
        until("a checkpoint of all",
              lambda: ring.cuts(lost, "checkpoint")[-1:] not in ([], saved))
        job = ring.jobs()[lost]
        kill(p for _, _, pids in market.capsules(job["id"], job["where"])
             for p in pids if own_number(p) == 1)
        until("all have gone back", lambda: all(
            sum(s["step"] == "went_back" for s in ring.story(n)) == times for n in range(3)))
        ring.until_all("run")
        ring.goes_on()
    print("stopped within", [c["skew_ms"] for c in ring.cuts(0, "checkpoint")], "ms")
    ring.end()


def test_what_others_say_after_the_cut_is_not_in_the_checkpoint_of_one_that_goes_on_late(
        two_cpus, market, tmp_path):
    # Component 0 is the last to be dumped, and the agentd of 2 is the last to hear that all go on.
    ring = Ring(market, tmp_path, "--checkpoint-every", "4s", ballast_mb=150)
    late = ring.jobs()[2]
    assert late["where"] != late["id"].split(".")[0]
    agent = market.daemon(late["where"])
    images = f"{agent['state_dir']}/ram/{late['id']}.*/MANIFEST"
    for _ in range(8):
        until("2 goes on", lambda: not glob.glob(images))
        until("2 is dumped", lambda: glob.glob(images), pause=0)
        until("its agentd has said so", lambda: state(agent["pid"]) == "S", pause=0)
        dumped, stands = time.time(), ring.counts()
        os.kill(agent["pid"], signal.SIGSTOP)
        try:
            until("the others go on", lambda: ring.counts()[1] > stands[1] + 200, 3)
            break
        except Late:
            continue  # it had not said so, or had gone on
        finally:
            os.kill(agent["pid"], signal.SIGCONT)
    else:
        pytest.fail("2 was never the last to go on")
    until("that checkpoint is whole", lambda: [
        s for s in ring.cuts(2, "checkpoint") if s["at_unix_s"] > dumped])
    kill(p for _, _, pids in market.capsules(late["id"], late["where"])
         for p in pids if own_number(p) == 1)
    until("all have gone back", lambda: all(
        sum(s["step"] == "went_back" for s in ring.story(n)) == 1 for n in range(3)))
    ring.until_all("run")
    ring.end()


def state(pid):
    return read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0]


def processes_of(name, market):
    """Those of that name that a daemon of this market has begun."""
    daemons = {market.daemon(n)["pid"] for n in market.nodes()}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                comm, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if comm.startswith(name) and int(rest.split()[1]) in daemons:
            found.append(int(pid))
    return found
