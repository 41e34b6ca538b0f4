# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs that leave a node while its owner uses it take together no more of his link and disk than he
says. A running job stands no longer for that, and a promise to the owner comes first."""
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import until
from test_checkpoints import configured, images
from test_progress import HOLDS
from test_wake import reloaded

AT = "n2"
MB = 1_000_000
# The owner is here while a program of that name runs, and whatever else this machine does is none
# of his.
HERE = ('owner_return = "leave"\nowner_stop_s = 0\nowner_leave_s = 2\nowner_away_s = 600\n'
        'owner_cpu_percent = 100\nowner_wait_ms = 10000\nowner_programs = "souk-his-work"\n')


def status(market):
    return market.ctl("pvdctl", "--node", AT, "status")


@pytest.fixture
def owner():
    """Starts a program of the owner's when it is called."""
    with tempfile.TemporaryDirectory(prefix="souk-owner.") as directory:
        program = shutil.copy("/bin/sleep", f"{directory}/souk-his-work")
        running = []
        yield lambda: running.append(subprocess.Popen([program, "1000"]))
        for process in running:
            process.kill()
            process.wait()


OTHERS = ("n1", "n3")


@pytest.fixture(autouse=True)
def nowhere_else(market):
    """At first, no other node takes jobs."""
    for node in OTHERS:
        market.tool("pvdctl", "--node", node, "market", "off")
    yield
    places(market)


def places(market):
    for node in OTHERS:
        market.tool("pvdctl", "--node", node, "market", "on")


def on_node(market, mb):
    job = market.srun("--node", "n1", "-p", 50, "-m", "512M", "/usr/bin/python3", "-c", HOLDS,
                      str(mb), stdin=subprocess.PIPE)
    job.printed(1)
    market.until_runs(job.id, AT)
    return job


def ends(job):
    job.process.stdin.close()
    assert job.wait() == 0


class Link:
    """Samples the kernel's count of the bytes that the node has sent: (before, bytes, after) again
    and again."""

    def __init__(self, market):
        self.samples, self.end = [], threading.Event()
        self.file = market.in_netns(AT, lambda: open("/proc/thread-self/net/dev"))
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.end.wait(0.05):
            before = time.monotonic()
            self.file.seek(0)
            line = next(x for x in self.file if x.strip().startswith("eth0:"))
            self.samples.append((before, int(line.split(":")[1].split()[8]), time.monotonic()))

    def stop(self):
        self.end.set()
        self.thread.join(10)
        self.file.close()
        return self.samples


def check_rate(samples, rate):
    """No second, and not the whole span, may have more bytes than that rate and the additions of
    TLS, TCP and heartbeats."""
    assert len(samples) > 10
    for i, (began, first, _) in enumerate(samples):
        for _, last, ended in samples[i:]:
            span = ended - began
            if span >= 1:
                assert last - first <= rate * span * 1.08 + MB, (last - first, span)
                break
    span = samples[-1][2] - samples[0][0]
    assert samples[-1][1] - samples[0][1] <= rate * span * 1.08 + MB


class Echo:
    """Answers datagrams on n1, and measures how long the owner's own datagrams take to it and
    back."""

    def __init__(self, market):
        def bound():
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(("0.0.0.0", 0))
            return s
        self.there, self.here = market.in_netns("n1", bound), market.in_netns(AT, bound)
        address = market.daemon("n1")["address"].split(":")[0]
        self.to = (address, self.there.getsockname()[1])
        self.there.settimeout(0.2)
        self.here.settimeout(5)
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.answer, daemon=True)
        self.thread.start()

    def answer(self):
        while not self.end.is_set():
            try:
                data, sender = self.there.recvfrom(2048)
                self.there.sendto(data, sender)
            except TimeoutError:
                pass

    def trip(self):
        began = time.monotonic()
        self.here.sendto(b"x", self.to)
        self.here.recvfrom(2048)
        return time.monotonic() - began

    def close(self):
        self.end.set()
        self.thread.join(10)
        self.there.close()
        self.here.close()


@pytest.fixture
def narrow(market):
    """A link of 100 Mbit/s, which queues packets for up to 0.3 s."""
    def tc(*words):
        market.in_netns(AT, lambda: subprocess.run(["tc", "qdisc", *words], check=True))
    tc("add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "300ms")
    yield
    tc("del", "dev", "eth0", "root")


def test_two_that_are_sent_away_share_the_rate_and_his_own_traffic_does_not_wait(
        wide, market, owner, narrow):
    jobs = [on_node(market, 25) for _ in range(2)]
    with configured(market, AT, lambda text: HERE + "leave_mb_per_s = 5\n" + text):
        market.until_up()
        echo = Echo(market)
        link = Link(market)
        try:
            owner()
            until("they stand", lambda: status(market)["presence"]["guests"] != "none")
            places(market)
            until("they are sent", lambda: sum(
                g.get("sent_bytes", 0) for g in status(market)["here"]) > 2 * MB)
            trips = [echo.trip() for _ in range(200)]
            for job in jobs:
                market.until_job(job.id, "is elsewhere",
                                 lambda j: j["where"] != AT and j["status"] == "run")
        finally:
            samples = link.stop()
            echo.close()
        check_rate(samples, 5 * MB)
        sent = samples[-1][1] - samples[0][1]
        assert sent > 50 * MB, sent  # it is the link that they went over
        # Behind a full queue each would take 0.3 s.
        assert statistics.median(trips) < 0.15, sorted(trips)[::20]
        # A new rate is in force as soon as the owner sets it.
        assert "at 5 MB/s" in market.tool("pvdctl", "--node", AT, "limits").stdout
        assert reloaded(market, AT, "leave_mb_per_s", "0") == "in_force"
        assert "as fast as it goes" in market.tool("pvdctl", "--node", AT, "limits").stdout
    for job in jobs:
        ends(job)


def written(market, job):
    """The bytes of the job's memory that are in the file on this node's disk."""
    return next((g["sent_bytes"] for g in status(market)["here"]
                 if g["job"] == job.id and g["state"] != "frozen" and "sent_bytes" in g), 0)


def test_what_is_frozen_to_his_disk_is_written_no_faster_and_another_rate_holds_at_once(
        market, owner):
    job = on_node(market, 60)
    with configured(market, AT, lambda text: HERE + text + "\nleave_mb_per_s = 3\n"):
        market.until_up()
        owner()
        until("it is written", lambda: written(market, job) > 0)
        samples = []
        while not samples or samples[-1][2] - samples[0][0] < 3:
            before = time.monotonic()
            samples.append((before, written(market, job), time.monotonic()))
        check_rate(samples, 3 * MB)
        assert samples[-1][1] > samples[0][1] > 0  # it lasts
        # 60 MB take 20 s, and as many again on their way home.
        assert reloaded(market, AT, "leave_mb_per_s", "0") == "in_force"
        began = time.monotonic()
        market.until_job(job.id, "is at home",
                         lambda j: j["status"] == "suspend" and j["where"] == "n1")
        until("the node is empty", lambda: status(market)["empty"])
        assert time.monotonic() - began < 17
        assert images(market, job)
    ends_after_thaw(market, job)


def ends_after_thaw(market, job):
    places(market)
    market.until_runs(job.id)
    ends(job)


def test_a_promise_comes_before_the_rate(market, owner):
    """At that rate 60 MB would take a minute to reach the disk, and another one to reach the
    home."""
    job = on_node(market, 60)
    with configured(market, AT, lambda text: HERE + "leave_mb_per_s = 1\nempty_s = 20\n" + text):
        market.until_up()
        owner()
        told = until("he has an empty machine", lambda: next(
            (r for r in market.ctl("pvdctl", "--node", AT, "history", "1")["returns"]
             if "empty_ms" in r), None), 60)
        # The job leaves at about 3 MB/s from the first second on, and the rest leaves at once when
        # the time is up.
        assert 8_000 < told["empty_ms"] < 45_000, told
    ends_after_thaw(market, job)


def test_a_guest_that_runs_stands_no_longer_for_it(market, owner):
    job = on_node(market, 60)
    with configured(market, AT, lambda text: HERE.replace('"leave"', '"lower"') +
                    "leave_mb_per_s = 1\n" + text):
        market.until_up()
        owner()
        until("guests are lowered", lambda: status(market)["presence"]["guests"] == "lowered")
        began = time.monotonic()
        places(market)
        market.until_runs(job.id, "n1")
        assert time.monotonic() - began < 30  # not a minute
    ends(job)
