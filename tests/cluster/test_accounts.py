# SPDX-License-Identifier: GPL-2.0-or-later
"""A metered market: a job runs for what its user's account holds, is warned of, and goes on with a
deposit; statements and the ledger agree with it; what a node has earned is paid out."""
import csv
import io
import json
import subprocess
from decimal import Decimal

import pytest

from codes import refused
from conftest import read_text, until
from test_decisions import audit, exported


@pytest.fixture
def metered(market):
    path = f"{market.run_dir}/market/marketd.conf"
    before = read_text(path)

    def restart(text, wanted):
        with open(path, "w") as f:
            f.write(text)
        market.kill_daemon("market")
        until("the market is up", lambda: market.ctl("marketctl", "status")["metered"] is wanted)
    assert market.ctl("marketctl", "status")["metered"] is False
    restart("metered = true\n" + before, True)
    yield
    restart(before, False)


def code(market, job):
    return market.job(job.id).get("reason", {}).get("code")


def test_a_job_runs_for_what_its_users_account_holds_and_the_statement_says_so(market, metered):
    job = market.srun("--node", "n1", "-p", 50, "sleep", "1000")
    until("it waits for money", lambda: code(market, job) == "account_empty")
    said = market.ctl("marketctl", "deposit", "root", "0.002", "--note", "a start")
    assert (said["kind"], said["amount"], said["balance"]) == ("deposit", 0.002, 0.002)
    job.said("that its user may spend .*used up in ")  # it runs, for 7 s
    until("it is used up", lambda: code(market, job) == "account_empty")
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    # The account was charged in advance by an estimate. Its home has measured some ms less, and
    # these are given back.
    assert 0 <= market.ctl("marketctl", "account", "root")[0]["balance"] < 0.0001
    market.tool("marketctl", "deposit", "0", "5")
    market.until_runs(job.id)
    market.tool("marketctl", "cancel", job.id)
    job.wait()
    until("it is paid", lambda: market.ctl("marketctl", "statement", "--limit", "1")[0]["kind"] ==
          "use")
    entries = market.ctl("marketctl", "statement", "root")
    assert {e["kind"] for e in entries} == {"deposit", "use"}
    assert [e["note"] for e in entries if "note" in e] == ["a start"]
    amounts = [Decimal(str(e["amount"])) for e in entries]
    balances = [Decimal(str(e["balance"])) for e in entries]
    assert balances == [sum(amounts[i:]) for i in range(len(amounts))]
    rows = list(csv.DictReader(io.StringIO(
        market.tool("marketctl", "statement", "--csv").stdout)))
    assert [Decimal(r["balance"]) for r in rows] == balances
    market.tool("marketctl", "ledger", "verify")
    earner = next(p["node"] for p in market.providers() if p["earned"] > 0)
    earned = Decimal(str(market.ctl("marketctl", "account", earner)[0]["balance"]))
    market.tool("marketctl", "payout", earner, "all", "root")
    assert market.ctl("marketctl", "account", earner)[0]["balance"] == 0
    assert Decimal(str(market.ctl("marketctl", "statement", earner)[0]["amount"])) == -earned
    assert market.ctl("marketctl", "statement", "--limit", "1")[0]["kind"] == "payout"
    assert next(p for p in market.providers() if p["node"] == earner)["earned"] > 0
    market.tool("marketctl", "transfer", "65534", "1.5", "--of", "root")
    own = subprocess.run(["marketctl", "--json", "transfer", "root", "0.25"], env=market.env,
                         user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True,
                         text=True)
    assert own.returncode == 0 and json.loads(own.stdout)["kind"] == "transfer", own
    market.tool("marketctl", "withdraw", "65534", "0.75")
    assert market.ctl("marketctl", "account", "65534")[0]["balance"] == 0.5
    refused(market.tool("marketctl", "withdraw", "65534", "7", check=False), "not_possible")
    refused(market.tool("marketctl", "deposit", "root", "3eur", check=False), "invalid", 2)
    market.tool("marketctl", "user", "limit", "65534", "--allowance", "3", "--every", "week",
                "--expires", "--credit", "2")
    shown = market.ctl("marketctl", "user", "show", "65534")[0]
    assert (shown["allowance"], shown["every"], shown["expires"], shown["credit"]) == (
        3, "week", True, 2)
    assert shown["may_spend"] == 5.5 and not shown["account_is_empty"]
    market.tool("marketctl", "user", "unlimit", "65534")
    market.tool("marketctl", "ledger", "verify")


def test_a_projects_allowance_pays_for_its_members_jobs_and_no_others(market, metered, tmp_path):
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    market.tool("marketctl", "project", "add", "physics")
    market.tool("marketctl", "user", "limit", "physics", "--allowance", "2", "--every", "week",
                "--expires")
    shown = market.ctl("marketctl", "project", "show", "physics")[0]
    assert shown["members"] == [] and shown["may_spend"] == 2 and shown["every"] == "week", shown
    job = market.srun("--project", "physics", "-p", 50, "sleep", "1000", **nobody)
    until("he is no member", lambda: code(market, job) == "no_project")
    why = market.ctl("marketctl", "why", job.id)["reasons"][0]
    assert why["code"] == "no_project" and why["cause"] == "physics", why
    for why_not, *words in (("not_possible", "add", "root"), ("invalid", "add", "9lives"),
                            ("not_found", "remove", "chemistry", "root")):
        refused(market.tool("marketctl", "project", *words, check=False), why_not)
    market.tool("marketctl", "project", "add", "physics", "65534")
    market.until_runs(job.id)
    assert market.job(job.id)["project"] == "physics"
    until("it has paid", lambda: market.job(job.id)["cost"] > 0)
    market.tool("marketctl", "project", "remove", "physics", "65534")
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    market.kill_daemon("market")  # a market that is started again knows
    market.until_up()
    until("it says so again", lambda: code(market, job) == "no_project")
    assert market.job(job.id)["status"] == "suspend"
    market.tool("marketctl", "project", "add", "physics", "65534")
    market.until_runs(job.id)
    market.tool("marketctl", "cancel", job.id)
    job.wait()
    market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")  # and is paid
    entries = market.ctl("marketctl", "statement", "physics")
    assert [e["kind"] for e in entries][-1] == "allowance", entries
    assert {e["job"] for e in entries if e["kind"] == "use"} == {job.id}
    spent = -sum(Decimal(str(e["amount"])) for e in entries if e["kind"] == "use")
    assert abs(spent - Decimal(str(market.job(job.id)["cost"]))) < Decimal("0.000002")
    assert Decimal(str(entries[0]["balance"])) == 2 - spent
    mine = subprocess.run(["marketctl", "--json", "statement", "physics"], env=market.env,
                          capture_output=True, text=True, **nobody)  # he is a member
    assert mine.returncode == 0 and len(json.loads(mine.stdout)) == len(entries), mine
    market.tool("marketctl", "ledger", "verify")
    status, said = audit(*exported(market, tmp_path), tmp_path)
    assert status == 0, said
