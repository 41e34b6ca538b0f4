# SPDX-License-Identifier: GPL-2.0-or-later
"""A job ends when it has run as long as its user lets it, and is run again when it fails."""
import json
import time

WARNED = """trap 'echo warned; exec sleep 1000' USR1
trap 'echo asked; exit 7' TERM
while :; do sleep 0.1; done"""


def ended(market, job):
    return market.until_job(job.id, "ends", lambda j: j["status"] == "finish")


def test_a_signal_warns_before_its_time_is_over_and_a_freeze_does_not_count(market):
    job = market.srun("-p", 50, "--time", "6s", "--signal", "USR1@2s", "--grace", "5s", "sh", "-c",
                      WARNED)
    market.until_runs(job.id)
    began = time.monotonic()
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "freezes", lambda j: j["status"] == "suspend")
    frozen = time.monotonic()
    time.sleep(4)
    assert market.job(job.id)["status"] == "suspend"
    market.tool("marketctl", "--hold", "thaw", job.id, "n2")
    market.until_runs(job.id, "n2")
    thawed = time.monotonic()
    assert job.wait(60) == 255
    ran = time.monotonic() - thawed + (frozen - began)
    assert 5 < ran + 1 and ran < 14, ran
    assert "warned" in bytes(job.out).decode()
    assert ended(market, job)["why_code"] == "time_limit"


def test_a_limit_of_cpu_time_ends_what_has_used_it(market):
    job = market.srun("-p", 50, "--cpu-time", "2s", "--grace", "0", "sh", "-c",
                      "while :; do :; done")
    assert job.wait(60) == 255
    assert ended(market, job)["why_code"] == "cpu_limit"


def test_a_job_that_fails_is_run_again_until_it_does_not(market, tmp_path):
    tries = tmp_path / "tries"
    job = market.srun("-p", 50, "--retries", 2, "--retry-on", "3", "sh", "-c",
                      f'echo "try ${{SOUK_TRY:-1}}"; echo x >>{tries}; '
                      f'[ $(wc -l <{tries}) -ge 2 ] || exit 3')
    assert job.wait(90) == 0
    assert tries.read_text() == "x\nx\n"
    out = bytes(job.out).decode()
    assert "try 1" in out and "try 2" in out
    story = json.loads(market.tool("marketctl", "--json", "--story", "job", job.id).stdout)
    assert "tried_again" in [step.get("why_code") for step in story["steps"]]


def test_a_job_that_keeps_failing_says_so_and_ends_as_it_did(market):
    job = market.srun("-p", 50, "--retries", 1, "sh", "-c", "exit 4")
    assert job.wait(90) == 4
    assert any("has failed in each of its 1 retries" in word for word in job.words), job.words
