# SPDX-License-Identifier: GPL-2.0-or-later
"""A user asks before submitting a job which place it would get and at what cost, and asks what
places have cost so far."""
import json
import os
import signal

from codes import refused
from conftest import until

LONG = ["sleep", "100000"]


def quote(m, *args):
    return json.loads(m.tool("srun", "--quote", "--json", *args, "true").stdout)


def test_a_quote_is_what_the_job_then_gets_and_submits_nothing(market):
    before = len(market.list_jobs())
    q = quote(market, "-p", "40", "--runtime", "30m", "-b", "100")
    assert q["runs"] and q["price"] <= 40 and q["cost_now"] <= 40 and q["winning_bid"] <= 40, q
    assert abs(q["span_now_s"] - 1800 * 100 / q["speed"]) < 1, q
    job = market.srun("-p", "40", *LONG)
    market.until_runs(job.id, q["node"])
    assert market.job(job.id)["price"] == q["price"]
    jobs = [market.srun("-p", "41", *LONG) for _ in range(len(market.nodes()))]
    for other in jobs:  # the last of them in the place of the first job
        market.until_runs(other.id)
    until("every place is taken", lambda: all(p["guests"] >= p["cpus"] for p in market.providers()))
    q = quote(market, "-p", "30")
    assert not q["runs"] and q["why"] and 40 < q["winning_bid"] <= 42, q
    text = market.tool("srun", "--quote", "-p", "30", "--runtime", "1h", "true").stdout
    assert q["why"].split(";")[0] in text, text
    assert quote(market, "-p", str(q["winning_bid"]))["runs"]
    assert len(market.list_jobs()) == before + 1 + len(jobs)


def test_a_quote_for_several_jobs_is_what_they_then_get(market):
    free = sum(p["cpus"] - p["guests"] for p in market.providers())
    q = quote(market, "-p", "42", "-n", str(free + 2), "--runtime", "30m")
    cpus = sum(p["cpus"] for p in market.providers())
    assert q["running"] == sum(p["jobs"] for p in q["places"]) == min(free + 2, cpus), q
    assert abs(q["rate"] - sum(p["price"] * p["jobs"] for p in q["places"])) < 1e-5, q
    text = market.tool("srun", "--quote", "-p", "42", "-n", "2").stdout
    assert "2 of 2 jobs run" in text and "All an hour" in text, text
    q = quote(market, "-p", "43", "-n", "2")
    assert q["runs"], q
    jobs = [market.srun("-p", "43", *LONG) for _ in range(2)]
    said = sorted((p["node"], p["price"]) for p in q["places"] for _ in range(p["jobs"]))
    for job in jobs:
        market.until_runs(job.id)
    until(f"they run and pay as said: {said}",
          lambda: said == sorted((j["where"], j["price"]) for j in map(market.job, [
              job.id for job in jobs])))


def test_a_quote_for_several_components_is_what_they_then_get(market):
    nodes = market.providers()
    q = quote(market, "-p", "42", "-N", str(len(nodes)), "--spread", "--runtime", "30m")
    assert q["runs"] and len(q["places"]) == len(nodes) and q["cost_now"] > 0, q
    never = quote(market, "-p", "42", "-N", str(len(nodes) + 1), "--spread")
    assert not never["runs"], never
    assert never["code"] in ("components_few_nodes", "components_too_large"), never
    assert "winning_bid" not in never
    first = market.tool("srun", "-p", "42", "-N", str(len(nodes)), "--spread", "--net=host",
                        "--detach", *LONG).stdout.strip()
    for place in q["places"]:
        until("a component is there", lambda: any(
            (j.get("where"), j["price"], j["status"]) == (place["node"], place["price"], "run")
            for j in market.list_jobs() if j.get("gang") == first))
    # Another one needs as much of what is not free any more.
    dear = quote(market, "-p", "30", "-N", "2", "-c", str(max(n["cpus"] for n in nodes)))
    assert not dear["runs"] and dear["why"], dear
    text = market.tool("srun", "--quote", "-p", "42", "-N", "2", "true").stdout
    assert "2 components" in text, text
    refused = market.tool("srun", "--quote", "-p", "42", "-N", "2", "-n", "2", "true", check=False)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    market.tool("marketctl", "cancel", first)


def test_a_quote_says_when_the_market_is_away(market):
    pid = market.daemon("market")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        said = market.tool("srun", "--quote", "-p", "30", "true", check=False)
    finally:
        os.kill(pid, signal.SIGCONT)
    refused(said, "away")
    until("there are quotes again",
          lambda: market.tool("srun", "--quote", "-p", "30", "true", check=False).returncode == 0)


def test_prices_are_kept_and_outlive_the_market(market):
    def rows():
        return json.loads(
            market.tool("marketctl", "--json", "prices", "--last", "1h", "--step", "1m").stdout)
    first = until("there is a row", rows)[0]
    assert first["span_s"] == 60 and first["least"] > 0 and first["speeds"], first
    market.kill_daemon("market")
    market.until_up()
    assert rows()[0] == first
    text = market.tool("marketctl", "prices").stdout.splitlines()
    assert text[0].split()[:3] == ["From", "For", "Least"] and len(text) >= 2, text


def test_strategies_are_compared_and_a_deadline_bids_what_is_enough(market):
    terms = ("-p", "40", "-s", "deadline", "-f", "1h", "--runtime", "1m")
    q = quote(market, *terms)
    rows = {s["strategy"]: s for s in q["strategies"]}
    assert list(rows) == ["truthful", "deadline", "patient"]  # pace would need a budget
    assert rows["truthful"]["bid"] == 40 and q["bid"] == rows["deadline"]["bid"] < 40
    assert rows["deadline"]["in_time_chance"] == 1
    assert "patient" in market.tool("srun", "--quote", *terms, "true").stdout
    job = market.srun(*terms, "sleep", 1000)
    known = market.until_runs(job.id)
    assert known["strategy"] == "deadline" and known["work_s"] == 60 and known["bid"] < 40
    assert known["in_time_chance"] == 1
    # The job says that it can no longer meet its deadline.
    market.tool("srun", "-J", job.id, "--runtime", "30h")
    known = market.until_job(job.id, "is told", lambda j: j.get("in_time_chance", 1) < 1)
    assert known["bid"] == 40 and known["reason"]["code"] == "deadline_unsure"
