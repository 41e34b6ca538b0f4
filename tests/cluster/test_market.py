# SPDX-License-Identifier: GPL-2.0-or-later
"""The best bid gets the fastest machine, on three nodes of speeds 100, 80 and 60; and what a job
waits for is said."""
import json
import re

from codes import refused
from conftest import until

LONG = ["sleep", "100000"]


def test_a_better_bid_takes_the_fastest_machine_and_the_other_moves_on_running(market):
    first = market.srun("-p", 100, *LONG)
    market.until_runs(first.id, "n1")
    second = market.srun("-p", 200, *LONG)
    market.until_runs(second.id, "n1")
    market.until_runs(first.id, "n2")
    assert first.said(r"moved from n1 to n2")
    job = market.job(first.id)
    assert (job["migrations"], job["freezes"], job["places"]) == (1, 0, ["n1", "n2"])
    market.tool("marketctl", "cancel", second.id)
    assert second.wait() == 255
    market.until_runs(first.id, "n1")  # and up again


def test_with_no_place_left_the_least_job_is_frozen_and_thawed_when_one_ends(market):
    jobs = []
    for price, node in ((30, "n1"), (20, "n2"), (10, "n3")):
        jobs.append(market.srun("-p", price, *LONG))
        market.until_runs(jobs[-1].id, node)
    best = market.srun("-p", 200, *LONG)
    market.until_runs(best.id, "n1")
    market.until_runs(jobs[0].id, "n2")
    market.until_runs(jobs[1].id, "n3")
    frozen = market.until_job(jobs[2].id, "is frozen", lambda j: j["status"] == "suspend")
    assert frozen["freezes"] == 1 and frozen["comment"]
    market.tool("marketctl", "cancel", best.id)
    for job, node in zip(jobs, ("n1", "n2", "n3")):
        market.until_runs(job.id, node)
    assert market.job(jobs[2].id)["thaws"] == 1


def test_an_owner_who_leaves_the_market_is_left_at_once_and_the_job_returns_with_him(market):
    job = market.srun("-p", 50, *LONG)
    market.until_runs(job.id, "n1")
    market.tool("pvdctl", "--node", "n1", "market", "off")
    market.until_runs(job.id, "n2")
    until("no process is left", lambda: not market.capsules(job.id, "n1"))

    def left():
        status = market.ctl("pvdctl", "--node", "n1", "status")
        return not status["on_market"] and status["guests"] == 0
    until("the owner has the node for himself", left)
    market.tool("pvdctl", "--node", "n1", "market", "on")
    market.until_runs(job.id, "n1")


def test_when_every_owner_leaves_the_job_lies_frozen_and_says_why(market):
    job = market.srun("-p", 50, *LONG)
    market.until_runs(job.id)
    for node in market.nodes():
        market.tool("pvdctl", "--node", node, "market", "off")
    frozen = market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    assert frozen["comment"] and not market.capsules(job.id)
    market.tool("pvdctl", "--node", "n3", "market", "on")
    market.until_runs(job.id, "n3")


def test_a_bid_below_every_reservation_price_waits_and_says_so_until_one_falls(market):
    for node in market.nodes():
        market.tool("pvdctl", "--node", node, "set", "price", "40")
    job = market.srun("-p", 30, *LONG)
    waiting = market.until_reason(job.id, "below_every_reserve")
    assert waiting["status"] == "wait" and waiting["reason"]["least"] == 40, waiting
    assert waiting["comment"] in market.tool("marketctl", "job", job.id).stdout
    market.tool("pvdctl", "--node", "n2", "set", "price", "25")
    market.until_runs(job.id, "n2")
    assert market.job(job.id)["price"] >= 25


def test_an_owner_who_asks_more_than_the_job_bids_loses_it(market):
    job = market.srun("-p", 30, *LONG)
    market.until_runs(job.id, "n1")
    market.tool("pvdctl", "--node", "n1", "set", "price", "31")
    market.until_runs(job.id, "n2")


def test_memory_beyond_every_machine_waits_and_says_so(market):
    job = market.srun("-p", 30, "-m", 100_000_000, "true")
    waiting = market.until_reason(job.id, "too_much_memory")
    assert waiting["status"] == "wait" and waiting["reason"]["mb"] == 100000000, waiting
    assert waiting["comment"] in market.tool("marketctl", "job", job.id).stdout
    assert job.said(re.escape(waiting["comment"]))
    market.tool("srun", "-J", job.id, "-m", 16)
    assert job.wait() == 0


def test_cpus_beyond_every_machine_wait_and_say_so(market):
    job = market.srun("-p", 30, "-c", 1000, "true")
    assert market.until_reason(job.id, "too_many_cpus")["reason"]["cpus"] == 1000


def test_cancel_ends_a_running_a_waiting_and_a_frozen_job(market):
    running = market.srun("-p", 30, *LONG)
    waiting = market.srun("-p", 0.1, *LONG)
    frozen = market.srun("-p", 20, *LONG)
    market.until_runs(frozen.id)
    market.until_runs(running.id)
    market.tool("marketctl", "--hold", "freeze", frozen.id)
    market.until_job(frozen.id, "is frozen", lambda j: j["status"] == "suspend")
    for job in (running, waiting, frozen):
        market.tool("marketctl", "cancel", job.id)
        assert job.wait() == 255
        assert market.job(job.id)["why_code"] == "cancelled"
    refused(market.tool("marketctl", "cancel", running.id, check=False), "not_possible")


def test_an_order_that_the_market_undoes_was_carried_out_and_the_answer_says_so(market):
    job = market.srun("-p", 50, *LONG)
    where = market.until_runs(job.id)["where"]
    there = "n3" if where != "n3" else "n2"
    for order, done, undone in (
            (("freeze", job.id), "is frozen on", "it was frozen, and the market has let it go on"),
            (("move", job.id, there), f"runs on {there}", f"it was moved to {there}, and is on ")):
        said = market.tool("marketctl", "--wait", "30s", *order, check=False)
        assert (done in said.stdout) if said.returncode == 0 else (undone in said.stderr), said
        market.until_runs(job.id)
    market.tool("marketctl", "cancel", job.id)


def test_a_changed_price_changes_the_places(market):
    first, second = market.srun("-p", 100, *LONG), market.srun("-p", 50, *LONG)
    market.until_runs(first.id, "n1")
    market.until_runs(second.id, "n2")
    market.tool("srun", "-J", second.id, "-p", 300)
    market.until_runs(second.id, "n1")
    market.until_runs(first.id, "n2")
    assert market.job(second.id)["value"] == 300


def test_a_budget_is_never_exceeded_and_a_larger_one_wakes_the_job(market):
    job = market.srun("-p", 3600, "-b", "0.0005", *LONG)
    frozen = market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    assert frozen["cost"] <= 0.0005 and frozen["reason"]["code"] == "budget_used", frozen
    assert job.said(rf"^srun: {job.id}: its budget of 0.0005 is used up in \d s at its price of 1; "
                    rf"then it is frozen")
    market.tool("srun", "-J", job.id, "-b", "100")
    market.until_runs(job.id)


def test_what_jobs_pay_is_what_providers_earn(market):
    before = market.ctl("marketctl", "status")
    job = market.srun("-p", 3600, "--json", "sh", "-c", "read x")
    assert job.wait() == 1  # its stdin is empty
    summary = json.loads(job.told[-1])
    after = market.ctl("marketctl", "status")
    assert summary["id"] == job.id and summary["exit"] == 1 and summary["places"] == ["n1"]
    assert after["paid"] == after["earned"] >= before["paid"]


def test_the_nodes_of_one_host_share_its_memory(market):
    with open("/proc/meminfo") as f:
        total_kb = int(f.readline().split()[1])
    offered = [p["memory_mb"] for p in market.providers()]
    assert len(offered) == 3 and 0.9 * total_kb / 1024 < sum(offered) <= total_kb / 1024


def test_the_terms_of_a_job_are_shown(market):
    job = market.srun("-p", 30, "-b", 5, "-f", 0.5, "-m", 20, "-s", "pace", "--name", "it", *LONG)
    known = market.until_runs(job.id)
    shown = [known[key]
             for key in ("value", "budget", "finish_s", "memory_mb", "strategy", "name", "cpus")]
    assert shown == [30, 5, 1800, 20, "pace", "it", 1]
