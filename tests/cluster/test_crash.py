# SPDX-License-Identifier: GPL-2.0-or-later
"""Daemons are killed at any moment: each comes back, every job is there exactly once, and no
terminal notices."""
import contextlib
import os
import random
import signal
import subprocess
import time

import pytest

import programs
from conftest import alive, kill, read_text, until


def settled(market, id):
    """The job runs, in exactly one capsule, and is listed exactly once."""
    def probe():  # all at once: the market may move it on as soon as nothing keeps it from that
        job = market.job(id)
        assert job.get("status") != "finish", job
        return (job.get("status") == "run" and "going_to" not in job and
                [n for n, _, _ in market.capsules(id)] == [job["where"]] and
                market.processes(id, "python3") == 1 and job)
    job = until(f"{id} runs in one capsule", probe, 90)
    assert [j["id"] for j in market.list_jobs()].count(id) == 1
    return job


def kill_now(market, name):
    old = market.daemon(name)["pid"]
    os.kill(old, signal.SIGKILL)
    until(f"{name} is a new process", lambda: market.daemon(name)["pid"] not in (0, old), 60)


def survive(market, seed, kills, in_moves):
    r = random.Random(seed)
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    id = job.id
    job.printed(3)
    for victim in kills:
        here = settled(market, id)["where"]
        name = {"guest": here}.get(victim, victim)
        if in_moves:
            there = r.choice([n for n in ("n1", "n2", "n3") if n != here])
            if victim == "guest":
                name = r.choice([here, there])
            verb = ["freeze", id] if r.randrange(4) == 0 else ["move", id, there]
            market.tool("marketctl", *verb, check=False)
        time.sleep(r.uniform(0, 0.25))  # the moment is to be any
        kill_now(market, name)
        market.until_up()
        job.printed(job.lines() + 3, 90)
    settled(market, id)
    job.process.stdin.close()
    assert job.wait(90) == 7
    programs.check_chain(job.out)
    return job


def test_a_job_goes_on_through_the_death_of_each_daemon(market):
    survive(market, 21, ["n1", "guest", "market", "n1", "market", "n1"], False)


@pytest.mark.parametrize("seed", [31, 32])
def test_a_job_that_moves_goes_on_through_the_death_of_each_daemon(market, seed):
    survive(market, seed, ["guest", "market", "n1", "guest", "n1", "market"], True)


def test_a_frozen_and_a_finished_job_are_still_there_after_every_daemon_died(market):
    done = market.tool("srun", "-p", 5, "--detach", "sh", "-c", "seq 100; exit 4").stdout.strip()
    market.until_job(done, "is finished", lambda j: j["status"] == "finish")
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    job.printed(5)
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    for name in ("n1", "market"):
        kill_now(market, name)
    market.until_up()
    market.until_job(job.id, "is still frozen", lambda j: j["status"] == "suspend")
    assert market.tool("marketctl", "--json", "job", done).stdout
    attached = market.tool("srun", "-q", "--attach", done, check=False)
    assert (attached.stdout, attached.returncode) == ("".join(f"{i}\n" for i in range(1, 101)), 4)
    until("nothing of it is left in memory", lambda: not market.capsules(job.id))
    market.tool("marketctl", "--hold", "thaw", job.id, "n2")
    market.tool("marketctl", "release", job.id)
    lines = job.lines()
    job.printed(lines + 5)
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out)


def test_a_capsule_that_ended_while_its_agent_was_dead_leaves_no_control_group(market):
    job = market.srun("-p", 50, "sleep", "100000")
    market.until_runs(job.id, "n1")
    (_, _, pids), = market.capsules(job.id)
    groups = market.groups(job.id, "n1")
    agent = market.daemon("n1")["pid"]
    os.kill(agent, signal.SIGKILL)
    kill(pids)  # with its PID 1 the capsule ends
    until("n1 is a new process", lambda: market.daemon("n1")["pid"] not in (0, agent))
    market.until_up()
    assert job.wait() != 0
    market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")
    until("its control groups are gone", lambda: not any(map(os.path.exists, groups)))


def test_a_move_asked_for_before_the_capsule_has_answered_its_new_agent_is_not_refused(market):
    # n2 is home and source, so that its own half of the move begins before the destination hears of
    # it.
    job = market.srun("--node", "n2", "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    market.until_runs(job.id, "n1")
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    init, = [p for _, _, pids in market.capsules(job.id, "n2") for p in pids
             if read_text(f"/proc/{p}/comm") == "souk-init\n"]
    os.kill(init, signal.SIGSTOP)
    try:
        kill_now(market, "n2")
        market.until_up()
        market.tool("marketctl", "--hold", "move", job.id, "n3")
        until("the destination makes ready",
              lambda: market.capsules(job.id, "n3") or market.job(job.id)["failed_moves"])
    finally:
        os.kill(init, signal.SIGCONT)
    market.until_job(job.id, "runs on n3 or was refused",
                     lambda j: j["where"] == "n3" or j["failed_moves"])
    assert market.job(job.id)["failed_moves"] == 0
    job.printed(job.lines() + 3)
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out)


def test_a_job_that_waits_is_started_after_the_market_died(market):
    job = market.srun("-p", 0.5, "echo", "at last")
    market.until_reason(job.id, "below_every_reserve")
    kill_now(market, "market")
    market.until_up()
    market.until_job(job.id, "waits", lambda j: j["status"] == "wait")
    market.tool("pvdctl", "--node", "n2", "set", "price", "0.25")
    assert job.wait() == 0
    assert bytes(job.out) == b"at last\n"


def test_all_daemons_killed_at_once_lose_nothing(market):
    jobs = [market.srun("-p", 50 + i, "--node", f"n{i + 1}", *programs.chain_job(),
                        stdin=subprocess.PIPE) for i in range(3)]
    for job in jobs:
        job.printed(3)
    d = market.daemons()
    kill(daemon["pid"] for daemon in [d["market"], *d["nodes"]])
    old = {x["name"]: x["pid"] for x in [d["market"], *d["nodes"]]}
    for name, pid in old.items():
        until(f"{name} is a new process", lambda: market.daemon(name)["pid"] not in (0, pid), 60)
    market.until_up()
    for job in jobs:
        settled(market, job.id)
        job.printed(job.lines() + 3)
        job.process.stdin.close()
        assert job.wait() == 7
        programs.check_chain(job.out)


# Prints a line, and on SIGUSR1 much more, then ends.
TALKER = """
import os, signal
def talk(*_):
    data = b"y" * BYTES + b"\\nlate\\n"
    while data: data = data[os.write(1, data):]
    os._exit(4)
signal.signal(signal.SIGUSR1, talk)
os.write(1, b"early\\n")
while True: signal.pause()
"""


class Absence:
    """The supervisor stands still, so that what is killed stays away until the end of the block."""

    def __init__(self, market):
        self.pid = market.daemons()["supervisor"]

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def kill_for_now(market, name):
    """kill -9; returns when it is dead. Only within an Absence."""
    agent = market.daemon(name)["pid"]
    os.kill(agent, signal.SIGKILL)
    until("the agent is dead", lambda: not alive(agent))


def talk_without(market, victim, home, bytes_):
    """The output of a job on n2 that writes and ends while an agent is dead."""
    for node in ("n1", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")
    job = market.srun("--node", home, "-p", 50, "/usr/bin/python3", "-c",
                      TALKER.replace("BYTES", str(bytes_)))
    market.until_runs(job.id, "n2")
    job.printed(1)
    pid, = [p for _, _, pids in market.capsules(job.id, "n2") for p in pids
            if read_text(f"/proc/{p}/comm") == "python3\n"]
    with Absence(market):
        kill_for_now(market, victim)
        os.kill(pid, signal.SIGUSR1)
        until("the job has ended", lambda: not alive(pid))
        yield job
    assert job.wait() == 4
    assert bytes(job.out) == b"early\n" + b"y" * bytes_ + b"\nlate\n"


def test_output_before_the_end_is_whole_though_the_agent_of_home_and_guest_was_dead_then(market):
    for _ in talk_without(market, "n2", "n2", 20_000):
        pass


def test_output_before_the_end_is_whole_however_long_its_home_was_dead_then(market):
    # More than a capsule keeps (256 KiB): the rest is in the pipe of a job that has ended. A guest
    # that nobody asks for the output looks after 5 s whether there is an end to it.
    for _ in talk_without(market, "n1", "n1", 300_000):
        time.sleep(5.5)  # nothing is to happen in that time


def test_a_home_that_comes_back_in_the_middle_of_a_freeze_gets_the_output_it_was_not_there_for(
        market):
    for node in ("n1", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", TALKER.replace("BYTES", "5"))
    market.until_runs(job.id, "n2")
    job.printed(1)
    (_, capsule, pids), = market.capsules(job.id, "n2")
    of = {read_text(f"/proc/{p}/comm").strip(): p for p in pids}
    os.kill(of["souk-init"], signal.SIGSTOP)  # so that the freeze does not go on
    try:
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "is being frozen", lambda j: "going_to" in j)
        with Absence(market):
            kill_for_now(market, "n1")
            os.kill(of["python3"], signal.SIGUSR1)
            until("the job has ended", lambda: not alive(of["python3"]))
            os.kill(of["souk-init"], signal.SIGCONT)
            until("its end is known",
                  lambda: os.path.exists(f"{market.run_dir}/state/n2/guests/{capsule}/exit"))
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.kill(of["souk-init"], signal.SIGCONT)
    assert job.wait() == 4
    assert bytes(job.out) == b"early\nyyyyy\nlate\n"
