# SPDX-License-Identifier: GPL-2.0-or-later
"""Each daemon starts with any kind of record damaged in its database: the record is set aside,
`souk doctor` shows it, and the rest goes on. No job runs twice, and nobody pays once more."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3

from conftest import Market, alive, bring_up, read_text, until

# Kinds that no start reads, or that are no records.
UNREAD = {"log", "receipt", "finished-id", "finished-of", "finished", "usage", "ticket", "address",
          "aside", "asked", "root"}


def database(market, daemon):
    return f"{market.env['SOUK_STATE']}/{daemon}/state.db"


def kinds(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return sorted({kind for kind, in db.execute("select kind from state")} - UNREAD)


def damage(path, kind):
    """All records of the kind, each in another way; of members only that of n2."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("select key, value from state where kind = ?", (kind,)).fetchall()
        if kind == "member":
            rows = [r for r in rows if b"n2" in r[1]]
        for n, (key, value) in enumerate(rows):
            bad = [b"\xff" * 40, bytes(value)[:-1] + b"\xff\xff", b"\x0a\xff\xff\xff\x7f"][n % 3]
            db.execute("update state set value = ? where kind = ? and key = ?", (bad, kind, key))
        db.commit()
    return sorted(f"{kind} {key}" for key, _ in rows)


class Kept(Market):
    def up_kept(self, nodes):
        self.tool("souk", "up")
        self.tag = self.daemons()["market"]["netns"].removesuffix("-fabric")

        def connected():
            done = self.tool("marketctl", "--json", "list-providers", check=False)
            known = json.loads(done.stdout) if done.returncode == 0 else []
            return [p["node"] for p in known if p["connected"]] == nodes
        until("all that may be are connected", connected)


def test_each_daemon_starts_with_each_kind_of_record_damaged(fit, tmp_path):
    m = Kept("--nodes", "2", "--prices", "1,40")
    m.env["SOUK_STATE"] = str(tmp_path / "state")
    pristine = str(tmp_path / "pristine")
    for market in bring_up(m):
        market.tool("souk", "token", "create", "n7")
        market.tool("marketctl", "set-limits", "4321", "--cpus", "3", check=False)
        assert market.tool("srun", "-p", 50, "echo", "hi").stdout == "hi\n"
        job = market.tool("srun", "-p", 50, "--detach", "sleep", "1000").stdout.strip()
        market.until_runs(job)
        market.tool("marketctl", "--hold", "freeze", job)
        market.until_job(job, "is frozen",
                         lambda j: j["status"] == "suspend" and "going_to" not in j)
        market.tool("souk", "down", "--keep", limit=100)
        shutil.copytree(market.env["SOUK_STATE"], pristine, symlinks=True)
        tried = set()
        for daemon in ("market", "n1"):
            for kind in kinds(f"{pristine}/{daemon}/state.db"):
                again(market, pristine, daemon, kind, job)
                tried.add(kind)
        assert {"meta", "node", "job", "account", "member", "join-token", "home", "guest",
                "provider"} <= tried, tried
        market.tool("souk", "up")  # to be taken down
        market.tag = market.daemons()["market"]["netns"].removesuffix("-fabric")


def again(market, pristine, daemon, kind, job):
    state = market.env["SOUK_STATE"]
    shutil.rmtree(state)
    shutil.copytree(pristine, state, symlinks=True)
    for where, names, files in os.walk(pristine):  # copytree keeps no owners
        for name in ["", *names, *files]:
            path = os.path.normpath(os.path.join(where, name))
            st = os.lstat(path)
            os.chown(state + path[len(pristine):], st.st_uid, st.st_gid, follow_symlinks=False)
    bad = damage(database(market, daemon), kind)
    assert bad
    market.up_kept(["n1"] if kind == "member" else ["n1", "n2"])
    listed = sorted(line.split(": ")[0] for line in
                    read_text(f"{state}/{daemon}/aside.txt").splitlines())
    assert listed == bad, (kind, listed, bad)
    log = read_text(f"{market.run_dir}/{daemon}/log")
    assert all(name in log for name in bad), log
    configs = ["--agentd", f"{market.run_dir}/n1/agentd.conf", "--marketd",
               f"{market.run_dir}/market/marketd.conf"]
    needs = {n["name"]: n for n in json.loads(market.doctor("n1", "--json", *configs))}
    records = needs["marketd records" if daemon == "market" else "agentd records"]
    assert not records["met"] and records["found"].startswith(f"{len(bad)} record"), records
    # The rest goes on, and no number is used again.
    new = market.tool("srun", "-p", 60, "--detach", "true").stdout.strip()
    market.until_job(new, "has run", lambda j: j.get("status") == "finish")
    assert int(new.split(".")[1]) > int(job.split(".")[1])
    assert not market.capsules(job)
    if daemon == "market":
        market.tool("marketctl", "ledger", "verify")
    market.tool("souk", "down", "--keep", "--force", limit=100)


def test_a_node_lends_nothing_while_its_owners_word_cannot_be_read(market):
    def lent():
        return market.ctl("pvdctl", "--node", "n3", "status")["on_market"]
    market.tool("pvdctl", "--node", "n3", "set", "price", "2")
    supervisor, old = market.daemons()["supervisor"], market.daemon("n3")["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(old, signal.SIGKILL)
        until("n3 has ended", lambda: not alive(old))
        assert damage(database(market, "n3"), "provider")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    until("n3 is a new process", lambda: market.daemon("n3")["pid"] not in (0, old))
    until("n3 answers", lambda: market.tool("pvdctl", "--node", "n3", "status",
                                            check=False).returncode == 0)
    assert not lent()
    market.tool("pvdctl", "--node", "n3", "market", "on")
    market.kill_daemon("n3")
    assert lent()
