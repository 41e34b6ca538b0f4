# SPDX-License-Identifier: GPL-2.0-or-later
"""A node that its job's home does not hear from: when the lease is over nothing of the job runs
there, alive or dead, and the home goes on without it if it can. Nothing runs twice."""
import errno
import os
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

import programs
from conftest import Market, bring_up, read_text, until
from test_checkpoints import at_n2, check_spliced, images, past_a_checkpoint
from test_crash import Absence, kill_for_now
from test_gang_cuts import Ring

# s; the home waits 2 s longer. A fourth of it must be enough to freeze a job on a busy machine.
LEASE = 12


@pytest.fixture(scope="module")
def standing(fit):
    for market in bring_up(Market("--nodes", "3", "--speeds", "100,80,60")):
        for name in ("n1", "n2", "n3"):
            with open(f"{market.run_dir}/{name}/agentd.conf", "a") as conf:
                conf.write(f"lease_s = {LEASE}\n")
            market.kill_daemon(name)
        yield market


class Cut:
    """n2 hears of nobody, and nobody of it."""

    def __init__(self, market):
        self.port = ["ip", "-n", f"{market.tag}-fabric", "link", "set", "p1"]

    def __enter__(self):
        subprocess.run([*self.port, "down"], check=True)

    def __exit__(self, *_):
        subprocess.run([*self.port, "up"], check=True)


def stands(market, id, node="n2"):
    """Every process of that job on that node is frozen by its control group."""
    names = {g for g, capsule in market.capsule_groups().items()
             if capsule.startswith(id + ".") and g.startswith(node + "/")}
    groups = {os.path.dirname(p) for p in market.cgroup_files()
              if any(p.endswith(f"/{name}/job/cgroup.procs") for name in names)}
    states = [read_text(f"{g}/cgroup.events") for g in groups
              if os.path.exists(f"{g}/cgroup.events") and read_text(f"{g}/cgroup.procs")]
    return bool(states) and all("frozen 1" in s for s in states)


def frozen_to_disk(market, job):
    until("an image of it lies at its node",
          lambda: [i for i in images(market, job, "n2") if not i.endswith(".part")], 30)
    until("its capsule is gone", lambda: not market.capsules(job.id))


def ends_well(market, job):
    job.printed(job.lines() + 10)
    job.process.stdin.close()
    assert job.wait() == 7
    until("nothing of it is left", lambda: not market.capsules(job.id) and
          not [i for n in ("n1", "n2", "n3") for i in images(market, job, n)])


def test_a_guest_that_is_cut_off_freezes_its_job_to_disk_and_it_goes_on_when_the_node_is_back(
        market):
    job = at_n2(market)
    job.printed(10)
    with Cut(market):
        frozen_to_disk(market, job)
        job.said("was not heard from for .*: by its lease the job stands still there")
        assert market.job(job.id)["where"] == "n2"
        assert not market.capsules(job.id)  # nobody has begun it anew
    market.tool("marketctl", "release", job.id)
    market.until_up()
    ends_well(market, job)
    programs.check_chain(job.out)


def test_a_job_goes_on_elsewhere_when_the_lease_is_over_and_its_first_copy_does_not_count(market):
    job = past_a_checkpoint(market)
    with Cut(market):
        market.tool("marketctl", "release", job.id)
        moved = market.until_job(job.id, "runs elsewhere", lambda j: j["status"] == "run" and
                                 j["where"] != "n2" and "going_to" not in j, 40)
        assert moved["resumes"] == 1
        assert stands(market, job.id) or not market.capsules(job.id, "n2")  # it may just have ended
        job.printed(job.lines() + 10)
        mark = until("the mark",
                     lambda: [t for t in job.told if "goes on from its checkpoint" in t])
        assert stands(market, job.id) or not market.capsules(job.id, "n2")  # it may just have ended
    market.until_up()
    again = int(re.search(r"(\d+) bytes of stdout and 0 of stderr were written after that",
                          mark[0])[1])
    until("what was there is gone",
          lambda: not images(market, job, "n2") and not market.capsules(job.id, "n2"))
    ends_well(market, job)
    check_spliced(job, again)


def test_without_its_agent_a_job_is_stopped_by_the_first_process_of_its_capsule_and_goes_on_with_it(
        market):
    job = at_n2(market)
    job.printed(10)
    with Absence(market):
        kill_for_now(market, "n2")
        assert market.capsules(job.id, "n2") and not stands(market, job.id)
        until("it stands", lambda: stands(market, job.id), 30)
        job.said("was not heard from for .*: by its lease the job stands still there")
        assert stands(market, job.id)
    market.until_up()
    until("it runs again", lambda: market.capsules(job.id, "n2") and not stands(market, job.id))
    market.tool("marketctl", "release", job.id)
    ends_well(market, job)
    programs.check_chain(job.out)


def test_a_home_that_is_away_for_longer_finds_its_job_frozen_and_it_goes_on(market):
    job = at_n2(market)
    job.printed(10)
    with Absence(market):
        kill_for_now(market, "n1")
        frozen_to_disk(market, job)
    market.until_up()
    market.tool("marketctl", "release", job.id)
    ends_well(market, job)
    programs.check_chain(job.out)


@pytest.mark.parametrize("how", ["dead", "hangs"])
def test_what_its_lease_has_stopped_is_not_heard_by_a_gang_that_went_back(
        two_cpus, market, tmp_path, how):
    # n2's agentd is away, its network is not: what stands there has connections to the others.
    ring = Ring(market, tmp_path, "--checkpoint-every", "2s")
    lost = next(j for j in ring.jobs() if j["where"] == "n2")
    until("a checkpoint of all", lambda: ring.cuts(lost["component"], "checkpoint"))
    until("it is heard", lambda: market.in_netns("n2", lambda: answers(lost["address"])))
    with Absence(market) if how == "dead" else Hangs(market.daemon("n2")["pid"]):
        if how == "dead":
            kill_for_now(market, "n2")
        until("all have gone back", lambda: all(
            any(s["step"] == "went_back" for s in ring.story(n)) for n in range(3)), 60)
        ring.until_all("run")
        assert all(j["where"] != "n2" for j in ring.jobs())
        assert stands(market, lost["id"])
        assert not market.in_netns("n2", lambda: answers(lost["address"]))
        for _ in range(5):
            ring.goes_on()
    market.until_up()
    until("what was there is gone", lambda: not market.capsules(lost["id"], "n2"))
    for _ in range(5):
        ring.goes_on()
    ring.end()


def answers(address):
    """Whether a kernel behind one of this node's interfaces of jobs says that it has the address.
    Called inside the node's network namespace."""
    own, nobody = b"\x02" + bytes(5), bytes(6)
    asked = socket.inet_aton(address)
    question = (b"\xff" * 6 + own + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) +
                own + bytes(4) + nobody + asked)  # RFC 5227, an ARP probe

    def behind(link):
        end = time.monotonic() + 1
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as s:  # ETH_P_ALL
            s.bind((link, 3))
            s.settimeout(0.1)
            while time.monotonic() < end:
                s.send(question)
                try:
                    said, (_, _, kind, _, _) = s.recvfrom(2000)
                except TimeoutError:
                    continue
                if (kind != socket.PACKET_OUTGOING and said[12:14] == b"\x08\x06" and
                        said[20:22] == b"\0\2" and said[28:32] == asked):
                    return True
        return False

    for _, link in socket.if_nameindex():
        try:
            if link.startswith("sj") and behind(link):
                return True
        except OSError as e:  # that of a job which has just ended goes
            if e.errno not in (errno.ENETDOWN, errno.ENODEV, errno.ENXIO):
                raise
    return False


class Hangs:
    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)
