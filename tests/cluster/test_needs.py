# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs run on the nodes that they ask for, wait for each other and for a time, and are held,
released and cancelled in lists."""
import json
import time


def change(market, job, *terms):
    market.tool("srun", "-J", job.id, *terms)


def submit(market, *words):
    return market.tool("srun", "-p", 50, "--detach", *words).stdout.strip()


def test_a_job_runs_on_the_nodes_that_it_needs_and_moves_when_it_needs_others(market):
    job = market.srun("-p", 50, "--nodes", "n2", "sleep", 1000)
    market.until_runs(job.id, "n2")
    change(market, job, "--needs", "node in [n3] and memory.total > 1M and program.none != yes "
                                   "or node = n3")
    market.until_runs(job.id, "n3")
    change(market, job, "--needs", "arch = vax and kernel > 1")
    market.until_reason(job.id, "needs_nowhere")
    assert "arch = vax" in market.job(job.id)["reason"]["text"]
    change(market, job, "--needs", "none", "--exclude", "n3")
    market.until_job(job.id, "goes on", lambda j: j["status"] == "run" and j["where"] != "n3")
    done = market.tool("marketctl", "move", job.id, "n3", check=False)
    assert done.returncode == 1 and "is not what the job needs" in done.stderr, done.stderr


def test_nodes_that_fit_are_listed_with_what_they_are(market):
    listed = json.loads(market.tool("marketctl", "--json", "list-providers", "--needs",
                                    "node != n1 and cpus >= 1").stdout)
    assert [p["node"] for p in listed] == ["n2", "n3"]
    assert listed[0]["attributes"]["memory.total"].endswith("K")
    done = market.tool("marketctl", "list-providers", "--needs", "node =", check=False)
    assert done.returncode == 1 and "a value is wanted" in done.stderr


def test_jobs_wait_for_others_and_are_held_and_cancelled_in_lists(market):
    first = submit(market, "--array", "1-3", "sleep", "1000")
    after = submit(market, "--after", f"{first}:notok", "true")
    never = submit(market, "--after", f"{first}:ok,{after}", "true")
    later = submit(market, "--begin", "50m", "true")
    market.until_reason(after, "waits_for_job")
    home, number = first.rsplit(".", 1)
    elements = [f"{home}.{int(number) + n}" for n in range(3)]
    for element in elements:
        market.until_runs(element)
    assert "3 jobs" in market.tool("marketctl", "hold", f"{first}[1-3]").stdout
    for element in elements:
        market.until_job(element, "is held", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "release", f"{first}-{int(number) + 2}")
    for element in elements:
        market.until_runs(element)
    assert market.job(after)["status"] == market.job(never)["status"] == "wait"
    market.tool("marketctl", "cancel", f"{first}[1,3]", elements[1])
    for id, why in [(never, "job_before_failed"), (after, None)]:
        ended = market.until_job(id, "ends", lambda j: j["status"] == "finish")
        assert ended.get("why_code") == why, ended
    assert market.job(later)["status"] == "wait"
    market.tool("marketctl", "cancel", later)


def test_a_place_that_is_lost_in_the_pause_of_a_retry_is_found_again(market, tmp_path):
    tries = tmp_path / "tries"
    job = market.srun("-p", 50, "--retries", 1, "--nodes", "n2", "sh", "-c",
                      f"echo x >>{tries}; [ $(wc -l <{tries}) = 2 ] || exit 3")
    market.until_job(job.id, "has failed", lambda j: j["status"] == "wait" and tries.exists())
    market.tool("pvdctl", "--node", "n2", "market", "off")
    time.sleep(6)  # the pause is over
    assert market.job(job.id)["status"] == "wait"
    market.tool("pvdctl", "--node", "n2", "market", "on")
    assert job.wait(60) == 0
