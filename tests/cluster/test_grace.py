# SPDX-License-Identifier: GPL-2.0-or-later
"""A cancel asks a job to end, by SIGTERM, and gives it time to save what it has."""
import os
import signal
import time

import pytest

from conftest import read_text, until

SAVES = """
trap 'sleep 0.5; echo saved >state; exit 3' TERM
setsid bash -c 'trap "echo saved, too >other; exit" TERM; echo up; while :; do sleep 0.1; done' &
echo up
while :; do sleep 0.1; done
"""
IGNORES = "trap '' TERM; echo up; while :; do sleep 0.1; done"


def begin(market, path, script, *options):
    job = market.srun("-p", 50, *options, "bash", "-c", f"cd '{path}'; {script}")
    job.printed(script.count("echo up"))
    return job


def test_a_trap_of_term_runs_to_its_end_in_each_process_of_the_job(market, tmp_path):
    job = begin(market, tmp_path, SAVES)
    market.tool("marketctl", "cancel", job.id)
    assert job.wait() == 255
    assert read_text(tmp_path / "state") == "saved\n"
    assert read_text(tmp_path / "other") == "saved, too\n"
    assert market.job(job.id)["status"] == "finish"


# A dump that is given up stops again who was stopped when it began. The cancel comes so many
# milliseconds after the order to move.
@pytest.mark.parametrize("moves", [None, 0, 10, 20, 40, 80])
def test_one_that_is_stopped_is_woken_for_it(market, tmp_path, moves):
    job = begin(market, tmp_path, SAVES)
    shells = [pid for *_, pids in market.capsules(job.id) for pid in pids
              if read_text(f"/proc/{pid}/comm") == "bash\n"]
    for pid in shells:
        os.kill(pid, signal.SIGSTOP)
    until("they are stopped", lambda: all("State:\tT" in read_text(f"/proc/{pid}/status")
                                          for pid in shells))
    if moves is not None:
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        time.sleep(moves / 1000)
    market.tool("marketctl", "cancel", job.id)
    assert job.wait() == 255
    assert read_text(tmp_path / "state") == "saved\n"


@pytest.mark.parametrize("seconds", [0, 2])
def test_one_that_does_not_listen_is_ended_when_its_time_is_over(market, tmp_path, seconds):
    job = begin(market, tmp_path, IGNORES, "--grace", seconds)
    began = time.monotonic()
    market.tool("marketctl", "cancel", job.id)
    assert job.wait() == 255
    assert time.monotonic() - began >= seconds


def test_the_owner_who_wants_the_machine_does_not_wait_for_it(market, tmp_path):
    job = begin(market, tmp_path, IGNORES, "--grace", "50m")
    where = market.until_runs(job.id)["where"]
    market.tool("marketctl", "cancel", job.id)
    market.tool("pvdctl", "--node", where, "market", "off")
    assert job.wait() == 255
