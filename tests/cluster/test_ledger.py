# SPDX-License-Identifier: GPL-2.0-or-later
"""Money on real daemons: what jobs cost is what users paid and nodes earned, to the micro-unit,
whatever dies; and who changes a receipt is found out."""
import decimal
import json
import os
import shutil
import signal

from conftest import until

SPIN = ["sh", "-c", "while :; do :; done"]


def exact(text):
    return json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def ask(m, *args):
    return exact(m.tool("marketctl", "--json", *args).stdout)


def balances(m):
    return {(a["account"], a.get("name", "")): a["balance"] + a["open"] for a in ask(m, "account")}


def settled(m):
    """Every account against every job, when none runs."""
    until("every job has ended", lambda: not m.live())
    total = sum(j["cost"] for j in ask(m, "list-jobs", "--state", "all"))
    accounts = balances(m)
    assert sum(accounts.values()) == 0 and accounts["market", ""] == 0, accounts
    assert sum(v for (kind, _), v in accounts.items() if kind == "user") == -total
    assert all(a["open"] == 0 for a in ask(m, "account"))
    for p in ask(m, "list-providers"):
        assert accounts["node", p["node"]] == p["earned"], (p["node"], accounts)
    receipts = ask(m, "receipts")
    assert sum(r["paid"] for r in receipts) == total == sum(r["earned"] for r in receipts)
    for j in ask(m, "list-jobs", "--state", "all"):
        mine = [r for r in receipts if r["job"] == j["id"]]
        assert sum(r["paid"] for r in mine) == j["cost"], j
        assert {r["node"] for r in mine} <= set(j["places"])
    said = ask(m, "ledger", "verify")
    assert said["receipts"] == len(receipts) and said["paid"] == total and said["market"] == 0, said
    return receipts


def test_what_jobs_cost_is_what_users_paid_and_nodes_earned_whatever_dies(market):
    a, b = [market.srun("-p", "40", *SPIN) for _ in range(2)]
    market.until_runs(a.id), market.until_runs(b.id)
    where = market.job(a.id)["where"]
    to = next(n for n in market.nodes() if n not in (where, market.job(b.id)["where"]))
    market.tool("marketctl", "--hold", "move", a.id, to)
    market.until_runs(a.id, to)
    market.kill_daemon("market")
    market.tool("marketctl", "--hold", "freeze", b.id)
    market.until_job(b.id, "is frozen", lambda j: j["status"] == "suspend")
    frozen = market.job(b.id)["cost"]
    market.kill_daemon("market")
    assert market.job(b.id)["cost"] == frozen, "frozen, and charged on"
    market.tool("marketctl", "thaw", b.id)
    market.until_runs(b.id)
    os.kill(market.daemon("market")["pid"], signal.SIGKILL)
    for job in (a, b):
        market.until_up()
        market.tool("marketctl", "cancel", job.id)
        job.wait()
    receipts = settled(market)
    assert {r["node"] for r in receipts if r["job"] == a.id} == {where, to}
    for id in (a.id, b.id):
        job = market.job(id)
        assert (sum(r["job"] == id for r in receipts) == 1 + job["migrations"] +
                job["thaws"]), "one for each run"
    spinning = [r for r in receipts if r["job"] == a.id]
    assert all(0 <= r["run_s"] <= r["to_unix_s"] - r["from_unix_s"] + 1 for r in spinning), spinning
    assert ask(market, "receipts", "--job", a.id, "--limit",
               "1") == [r for r in receipts if r["job"] == a.id][:1]
    assert ask(market, "receipts", "--provider", to, "--since",
               "1d") == [r for r in receipts if r["node"] == to]


def test_a_user_sees_his_own_money_and_root_all(market):
    assert market.srun("-p", "40", "true").wait() == 0
    settled(market)

    def as_nobody(*args):
        return market.tool("marketctl", "--json", *args, check=False, user=65534, group=65534,
                           extra_groups=[])

    assert (as_nobody("account").stdout.strip() == "[]" and
            as_nobody("receipts").stdout.strip() == "[]")
    for args in (["account", "root"], ["account", "market"], ["account", "n1"],
                 ["receipts", "--user", "root"], ["ledger", "verify"]):
        said = as_nobody(*args)
        assert (said.returncode == 1 and
                "only root may" in said.stderr), (args, said.stdout, said.stderr)
    assert [a["account"] for a in ask(market, "account", "root")] == ["user"]


def test_a_job_ends_its_budget_by_itself_while_the_market_is_silent(market):
    job = market.srun("-p", "40", "-b", "0.001", *SPIN)  # 3.6 s
    market.until_runs(job.id)
    pid = market.daemon("market")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        job.said(rf"^srun: {job.id}: its budget of 0.001 is used up in \d s")
        job.said(rf"^srun: {job.id}: frozen on ")
        job.said("its budget of 0.001 is used up; a larger one")
    finally:
        os.kill(pid, signal.SIGCONT)
    market.until_job(job.id, "is frozen",
                     lambda j: j["status"] == "suspend" and "is used up" in j["comment"])
    assert ask(market, "job", job.id)["cost"] <= decimal.Decimal("0.001")
    market.tool("srun", "-J", job.id, "-b", "0.1")
    market.until_runs(job.id)
    market.tool("marketctl", "cancel", job.id)
    job.wait()
    receipts = settled(market)
    used = [r["cpu_s"] / r["run_s"] for r in receipts if r["job"] == job.id and r["run_s"] > 3]
    assert used and all(0 < share < decimal.Decimal("1.1") for share in used), used


def test_a_flipped_byte_in_the_database_is_named(market, tmp_path):
    for _ in range(3):
        assert market.srun("-p", "40", "true").wait() == 0
    settled(market)
    path = f"{market.run_dir}/state/market/state.db"
    in_use = market.tool("marketctl", "ledger", "verify", "--db", path, check=False)
    assert in_use.returncode == 1 and "locked" in in_use.stderr, in_use.stderr
    pid = market.daemon("market")["pid"]
    os.kill(pid, signal.SIGSTOP)  # a snapshot, with what the log still holds
    try:
        for end in ("", "-wal"):
            if os.path.exists(path + end):
                shutil.copy(path + end, f"{tmp_path}/state.db{end}")
    finally:
        os.kill(pid, signal.SIGCONT)
    copy = f"{tmp_path}/state.db"
    good = market.tool("marketctl", "--json", "ledger", "verify", "--db", copy)
    newest = ask(market, "receipts", "--limit", "2")[1]
    assert exact(good.stdout)["receipts"] >= newest["receipt"]
    copy = f"{tmp_path}/backup"
    market.tool("marketctl", "backup", copy)
    with open(copy, "r+b") as f:
        data = bytearray(f.read())
        at = data.index(newest["hash"].encode() + b" ") + 65 + len(str(newest["receipt"])) + 1
        data[at] ^= 1
        f.seek(0)
        f.write(data)
    bad = market.tool("marketctl", "ledger", "verify", "--db", copy, check=False)
    assert bad.returncode == 1 and f"receipt {newest['receipt']}:" in bad.stderr, bad.stderr
    assert bad.stdout == ""
