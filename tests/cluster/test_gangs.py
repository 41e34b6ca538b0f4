# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of several components (srun -N) on real daemons: all start together or none does, and they
end as one."""
import json
import os
import signal
import subprocess

import pytest
from codes import refused
from conftest import BIN, gang, until


def submit(market, *args, count=4):
    return market.tool("srun", "-p", "40", "-N", count, "-d", *args).stdout.split()[0]


def states(market, first):
    return [j["status"] for j in gang(market, first)]


def until_gang(market, first, what, probe):
    return until(what, lambda: (lambda jobs: jobs if probe(jobs) else None)(gang(market, first)))


def story(market, job):
    return json.loads(market.tool("marketctl", "--json", "job", job, "--story").stdout)


def test_four_components_run_on_three_nodes_and_know_each_other(wide):
    done = wide.tool("srun", "-p", "40", "-N", "4", "-l", "sh", "-c",
                     "echo $SOUK_COMPONENT of $SOUK_COMPONENTS in $SOUK_JOB with $SOUK_HOSTS")
    lines = sorted(done.stdout.splitlines())
    assert len(lines) == 4, done.stderr
    job, hosts = lines[0].split()[5], lines[0].split()[7]
    assert lines == [f"{n}: {n} of 4 in {job} with {hosts}" for n in range(4)]
    assert len(set(hosts.split(","))) == 4
    jobs = gang(wide, job)
    assert [j["component"] for j in jobs] == [0, 1, 2, 3]
    assert [j["address"] for j in jobs] == hosts.split(",")
    assert len({j["where"] for j in jobs if j.get("where")} |
               {n for j in jobs for n in j["places"]}) >= 2


def test_the_exit_status_is_that_of_the_first_that_failed_and_the_others_are_ended(wide):
    done = wide.tool("srun", "-p", "40", "-N", "3", "sh", "-c",
                     "[ $SOUK_COMPONENT = 1 ] && exit 7; exec sleep 1000", check=False)
    assert done.returncode == 7, done.stderr
    jobs = gang(wide, done.stderr.split()[2].rstrip(":"))
    assert [j["status"] for j in jobs] == ["finish"] * 3
    for j in (jobs[0], jobs[2]):
        assert j["why_code"] == "component_ended" and "component 1 " in j["why"], j


def test_the_first_component_reads_stdin(wide):
    done = subprocess.run([f"{BIN}/srun", "-p", "40", "-N", "2", "-l", "cat"], env=wide.env,
                          input="one\ntwo\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0: one\n0: two\n"), done.stderr


def test_nothing_runs_while_one_component_has_no_room_and_all_do_when_it_has(wide, tmp_path):
    blocks = wide.srun("-p", "90", "-c", "2", "sleep", "1000")
    wide.until_runs(blocks.id)
    mark = tmp_path / "ran"
    first = submit(wide, "sh", "-c", f"echo x >> {mark}; exec sleep 1000", count=5)
    until_gang(wide, first, "waits", lambda jobs: len(jobs) == 5 and all(
        j["status"] == "wait" and j.get("reason") for j in jobs))
    assert not mark.exists()
    wide.tool("marketctl", "cancel", blocks.id)
    until_gang(wide, first, "runs", lambda jobs: all(j["status"] == "run" for j in jobs))
    until("all have run", lambda: mark.exists() and len(mark.read_text()) == 10)
    wide.tool("marketctl", "cancel", gang(wide, first)[3]["id"])
    until_gang(wide, first, "is cancelled as one",
               lambda jobs: all(j["status"] == "finish" for j in jobs))


def test_a_gang_that_can_never_fit_says_so(wide):
    first = submit(wide, "sleep", "1000", count=9)
    jobs = until_gang(wide, first, "says so", lambda jobs: len(jobs) == 9 and all(
        j.get("reason", {}).get("code") == "components_too_large" for j in jobs))
    assert (jobs[0]["reason"]["cpus"], jobs[0]["reason"]["most"]) == (9, 6), jobs[0]
    wide.tool("marketctl", "cancel", first)


def test_a_component_that_cannot_start_leaves_none(wide, tmp_path):
    """Its program is there when it is submitted, and nowhere when it is to start."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho x >> {tmp_path}/ran\n")
    program.chmod(0o755)
    blocks = [wide.srun("-p", "90", "-c", "2", "sleep", "1000") for _ in wide.nodes()]
    for job in blocks:
        wide.until_runs(job.id)
    first = submit(wide, str(program), count=2)
    program.unlink()
    for job in blocks:
        wide.tool("marketctl", "cancel", job.id)
    jobs = until_gang(wide, first, "ends", lambda jobs: len(jobs) == 2 and all(
        j["status"] == "finish" for j in jobs))
    assert 127 in [j["exit"] for j in jobs], jobs
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("who", ["home", "guest", "market"])
def test_a_daemon_that_dies_around_the_release_leaves_all_or_none(wide, who):
    """It is killed as soon as the home has told a component to start."""
    nodes = wide.nodes()
    victim = {"home": nodes[0], "guest": nodes[1], "market": "market"}[who]
    env = dict(wide.env, SOUK_NODE=nodes[0])
    first = subprocess.run([f"{BIN}/srun", "-p", "40", "-N", "5", "-d", "sleep", "1000"], env=env,
                           check=True, capture_output=True, text=True, timeout=60).stdout.split()[0]
    until_gang(wide, first, "is under way", lambda jobs: any(
        j["status"] != "wait" for j in jobs))
    wide.kill_daemon(victim)
    until_gang(wide, first, "runs as a whole", lambda jobs: len(jobs) == 5 and all(
        j["status"] == "run" for j in jobs))
    wide.tool("marketctl", "cancel", first)
    until_gang(wide, first, "ends", lambda jobs: all(j["status"] == "finish" for j in jobs))


def test_ctrl_c_ends_all(wide):
    srun = subprocess.Popen([f"{BIN}/srun", "-p", "40", "-N", "3", "sleep", "1000"], env=wide.env,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        first = srun.stderr.readline().split()[2].rstrip(":")
        until_gang(wide, first, "runs", lambda jobs: len(jobs) == 3 and all(
            j["status"] == "run" for j in jobs))
        os.killpg(srun.pid, signal.SIGINT)
        assert srun.wait(60) == 130
        until_gang(wide, first, "ends", lambda jobs: all(j["status"] == "finish" for j in jobs))
    finally:
        srun.kill()
        srun.wait()
        srun.stderr.close()


def test_an_owner_who_comes_back_has_his_machine_and_the_gang_goes_on_or_is_frozen(wide):
    first = submit(wide, "sleep", "1000", count=3)
    jobs = until_gang(wide, first, "runs", lambda jobs: len(jobs) == 3 and all(
        j["status"] == "run" for j in jobs))
    node = jobs[0]["where"]
    wide.tool("pvdctl", "--node", node, "market", "off")
    try:
        until_gang(wide, first, "runs elsewhere", lambda jobs: all(
            j["status"] == "run" and j["where"] != node for j in jobs))
    finally:
        wide.tool("pvdctl", "--node", node, "market", "on")
        wide.tool("marketctl", "cancel", first)
    until_gang(wide, first, "ends", lambda jobs: all(j["status"] == "finish" for j in jobs))


def test_a_new_price_is_that_of_the_whole_gang(wide):
    first = submit(wide, "sleep", "1000", count=2)
    wide.tool("srun", "-J", first, "-p", "50")
    until_gang(wide, first, "bids 50", lambda jobs: len(jobs) == 2 and all(
        j["value"] == 50 for j in jobs))
    refused(wide.tool("srun", "-J", first, "-c", "2", check=False), "not_possible")
    wide.tool("marketctl", "cancel", first)
