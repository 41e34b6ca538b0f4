# SPDX-License-Identifier: GPL-2.0-or-later
"""Deadlines that are promised."""
import json
import time

from conftest import until


def submit(market, *words):
    return market.tool("srun", "--detach", *words).stdout.strip()


def test_a_deadline_is_promised_before_it_is_submitted_and_kept(wide):
    market = wide
    before = len(market.list_jobs())
    refused = market.tool("srun", "-p", "90", "--detach", "-f", "20s", "--runtime", "1h",
                          "--promise", "true", check=False)
    assert refused.returncode == 1 and "the earliest that can: " in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert len(market.list_jobs()) == before
    quote = json.loads(market.tool("srun", "--json", "--quote", "-p", "90", "-f", "1h", "--runtime",
                                   "10m", "--promise").stdout)["promise"]
    assert quote["can"] and quote["price"] <= 90
    assert quote["deadline_unix_s"] - quote["latest_start_unix_s"] >= 600 * 1.02
    said = market.tool("srun", "-p", "90", "--detach", "-f", "2m", "--runtime", "8s", "--promise",
                       "sleep", "4")
    assert "the market can promise it by" in said.stderr
    id = said.stdout.strip()
    job = market.until_job(id, "has a promise", lambda j: j.get("promise") in ("open", "kept"))
    assert abs(job["promise_unix_s"] - time.time() - 120) < 30
    job = market.until_job(id, "has ended", lambda j: j["status"] == "finish")
    assert job["promise"] == "kept" and job["exit"] == 0
    assert not [r for r in market.ctl("marketctl", "receipts")
                if r["job"] == id and r["kind"] == "broken"]
    text = market.tool("marketctl", "job", id).stdout
    assert "kept" in text


def test_without_promise_it_is_best_effort_and_a_promise_that_is_missed_has_a_receipt(wide):
    market = wide
    effort = submit(market, "-p", "90", "-f", "1h", "sleep", "300")
    assert market.until_runs(effort)["promise"] == "best_effort"
    late = submit(market, "-p", "90", "-m", "64", "-f", "15s", "--runtime", "1s", "--promise",
                  "sleep", "300")
    job = market.until_job(late, "has missed it", lambda j: j["promise"] == "took_longer")
    assert job["promise_back"] == 0 and "longer" in job["promise_why"]
    market.until_reason(late, "promise_broken")
    (receipt,) = until("it is in the ledger", lambda: [
        r for r in market.ctl("marketctl", "receipts")
        if r["job"] == late and r["kind"] == "broken"])
    assert receipt["note"] == "deadline missed: took_longer"
    given_up = submit(market, "-p", "90", "-f", "1h", "--runtime", "5m", "--promise", "sleep",
                      "300")
    market.until_job(given_up, "is promised", lambda j: j["promise"] == "open")
    market.tool("srun", "-J", given_up, "--promise=no")
    market.until_job(given_up, "is not any more", lambda j: j["promise"] == "withdrawn")
    market.tool("marketctl", "cancel", effort, late, given_up)


def components(market, first):
    return sorted((j for j in market.list_jobs() if j.get("gang") == first),
                  key=lambda j: j["component"])


def test_all_components_of_a_job_are_promised_and_kept_as_one(wide):
    market = wide
    words = ["-p", "90", "-N", "3", "-m", "32M", "--net=host", "--promise"]
    many = ["-p", "90", "-N", "900", "-f", "1h", "--runtime", "1m", "--promise"]
    refused = market.tool("srun", "--detach", *many, "true", check=False)
    assert refused.returncode == 1 and "cannot be promised" in refused.stderr
    assert refused.stderr.count("\n") == 1
    quote = json.loads(market.tool("srun", "--json", "--quote", *words, "-f", "1h", "--runtime",
                                   "10m").stdout)
    promise = quote["promise"]
    assert promise["can"] and sum(promise["nodes"].values()) == 3
    assert quote["runs"] and sum(p["jobs"] for p in quote["places"]) == 3
    said = market.tool("srun", *words, "--detach", "-f", "2m", "--runtime", "8s", "sh", "-c",
                       "sleep 4; exit 0")
    assert "the market can promise it by" in said.stderr and "3 places, on " in said.stderr
    first = said.stdout.strip()
    three = until("all are promised", lambda: len(c := components(market, first)) == 3 and all_are(
        market, c, ("open", "kept")))
    assert len({j["promise_price"] for j in three}) == 1
    assert len({j["promise_unix_s"] for j in three}) == 1
    until("all are kept", lambda: all_are(market, components(market, first), ("kept",)))
    assert not [r for r in market.ctl("marketctl", "receipts") if r["kind"] == "broken"
                and r["job"] in [j["id"] for j in three]]


def test_a_gang_that_takes_longer_has_a_receipt_for_each_component(wide):
    market = wide
    said = market.tool("srun", "-p", "90", "-N", "2", "-m", "32M", "--net=host", "--detach", "-f",
                       "15s", "--runtime", "1s", "--promise", "sh", "-c",
                       "[ $SOUK_COMPONENT = 0 ] || exec sleep 300")
    first = said.stdout.strip()
    both = until("both have missed it", lambda: len(c := components(market, first)) == 2 and (
        all_are(market, c, ("took_longer",))))
    receipts = until("it is in the ledger", lambda: len(found := [
        r for r in market.ctl("marketctl", "receipts") if r["kind"] == "broken"
        and r["job"] in [j["id"] for j in both]]) == 2 and found)
    assert {r["note"] for r in receipts} == {"deadline missed: took_longer"}
    market.tool("marketctl", "cancel", both[1]["id"])


def all_are(market, jobs, ends):
    jobs = [market.job(j["id"]) for j in jobs]
    return jobs if jobs and all(j.get("promise") in ends for j in jobs) else None


def test_a_program_that_ran_before_is_promised_by_what_it_took(wide):
    market = wide
    words = ["-p", "90", "-f", "10m", "--promise", "sleep", "2"]
    unknown = market.tool("srun", "--detach", *words, check=False)
    assert unknown.returncode == 1 and "nothing says how long it runs" in unknown.stderr
    for _ in range(3):
        market.tool("srun", "-p", "90", "sleep", "2")
    said = until("it is learned", lambda: (s := market.tool(
        "srun", "--detach", *words, check=False)).returncode == 0 and s)
    assert "how long it runs is learned" in said.stderr
    job = market.until_job(said.stdout.strip(), "has ended", lambda j: j["status"] == "finish")
    assert job["promise"] == "kept" and job["promise_learned"]


def test_what_makes_no_sense_with_a_promise_is_refused(wide):
    market = wide
    for words, said in ((["true"], "needs --finish"),
                        (["-f", "1h", "-N", "2", "--near", "true"], "--near and --pack"),
                        (["-f", "1h", "--for", "1h", "true"], "books by itself"),
                        (["-f", "1h", "--begin", "now+1h", "true"], "not with --begin")):
        done = market.tool("srun", "-p", "9", "--promise", "--detach", *words, check=False)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, words
