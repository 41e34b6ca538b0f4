# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the market's records. A copy that lacks something says so. A backup is made while the
market runs, and put back. An older state is found out by what homes have seen, and an empty file
begins nothing anew. A full disk stops the node from accepting jobs, and not the node. Further tests
look at the reasons of jobs after orders by hand, and after daemons were killed."""
import errno
import itertools
import json
import os
import re
import shutil
import subprocess

from conftest import Market, bring_up, read_text, until
from test_ledger import ask, settled
from test_outage import Outage


def log_of(market, name):
    return read_text(f"{market.run_dir}/{name}/log")


def seen_by(market, node):
    return market.ctl("pvdctl", "--node", node, "status").get("ledger_seen", "0:").split(":")


def test_a_copy_without_its_log_is_no_proof_and_says_why(market, tmp_path):
    for _ in range(2):
        assert market.srun("-p", "40", "true").wait() == 0
    settled(market)
    copy = f"{tmp_path}/state.db"
    shutil.copy(f"{market.run_dir}/state/market/state.db", copy)
    said = market.tool("marketctl", "ledger", "verify", "--db", copy, check=False)
    assert (said.returncode == 1 and "without its log" in said.stderr and
            said.stderr.count("\n") == 1), said
    assert os.listdir(tmp_path) == ["state.db"]  # looking leaves nothing


def test_a_backup_is_made_hot_put_back_and_found_to_be_older_by_the_homes(fit, tmp_path):
    for m in bring_up(Market("--nodes", "2")):
        running = m.srun("-p", "40", "sleep", "100000")
        m.until_runs(running.id)
        assert m.srun("-p", "50", "true").wait() == 0
        until("its receipt is written", lambda: ask(m, "receipts"))
        file = f"{tmp_path}/backup"
        said = json.loads(m.tool("marketctl", "--json", "backup", file).stdout)
        assert (said["file"] == file and said["bytes"] == os.path.getsize(file) and
                said["receipts"] >= 1)
        assert os.stat(file).st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == ["backup"]
        proof = ask(m, "ledger", "verify", "--db", file)
        assert (proof["receipts"], proof["head"]) == (said["receipts"], said["head"])
        for args, words in [(["backup", file], "is there already"),
                            (["--node", "n1", "backup", file + "2"], "of the market's machine"),
                            (["restore", file, "--dir", f"{m.run_dir}/state/market"],
                             "is in use by another process (pid ")]:
            refused = m.tool("marketctl", *args, check=False)
            assert refused.returncode == 1 and words in refused.stderr, refused
        refused = m.tool("marketctl", "backup", "/tmp/none", check=False, user=65534, group=65534,
                         extra_groups=[])
        assert refused.returncode == 1 and "only root" in refused.stderr, refused

        assert m.srun("-p", "50", "true").wait() == 0
        until("n1 has seen what came after", lambda: int(seen_by(m, "n1")[0]) > said["receipts"],
              60)
        seen = seen_by(m, "n1")
        older = m.tool("marketctl", "ledger", "verify", "--db", file, "--seen", ":".join(seen),
                       check=False)
        assert (older.returncode == 1 and f"has seen receipt {seen[0]}" in older.stderr and
                "older state" in older.stderr), older
        with Outage(m):
            put = json.loads(m.tool("marketctl", "--json", "restore", file, "--dir",
                                    f"{m.run_dir}/state/market").stdout)
            assert put["receipts"] == said["receipts"]
            kept = ask(m, "ledger", "verify", "--db", put["kept"])
            assert kept["receipts"] >= int(seen[0])
        warnings = until("the market says that it is older",
                         lambda: m.ctl("marketctl", "status")["warnings"])
        assert (f"node n1 has seen receipt {seen[0]}" in warnings[0] and
                "older state" in warnings[0]), warnings
        assert ("older state" in log_of(m, "market") and
                "Warning:" in m.tool("marketctl", "status").stdout)
        m.until_runs(running.id)
        m.tool("marketctl", "cancel", running.id)
        running.wait()
        assert m.srun("-p", "50", "true").wait() == 0
        ask(m, "ledger", "verify")


def test_an_empty_database_begins_no_new_market_and_says_what_to_do(fit, tmp_path):
    for m in bring_up(Market("--nodes", "1")):
        assert m.srun("-p", "50", "true").wait() == 0
        until("the market knows that it has ended", lambda: not m.live())
        file = f"{m.run_dir}/state/market/state.db"
        m.tool("marketctl", "backup", f"{tmp_path}/backup")
        with Outage(m):
            for end in ("-wal", ""):
                if os.path.exists(file + end):
                    os.unlink(file + end)
            open(file, "w").close()
            with open(f"{tmp_path}/conf", "w") as f:
                f.write(f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/s"\n'
                        f'state = "{os.path.dirname(file)}"\n')
            refused = subprocess.run(["marketd", "--config", f"{tmp_path}/conf"], env=m.env,
                                     capture_output=True, text=True, timeout=20)
            assert json.loads(refused.stderr)["error"]["code"] == "unsound", refused
            assert (refused.returncode == 1 and "is empty (0 bytes)" in refused.stderr and
                    "put a copy of it back" in refused.stderr), refused
            assert os.path.getsize(file) == 0
            m.tool("marketctl", "restore", f"{tmp_path}/backup", "--dir", os.path.dirname(file))
        assert [j["status"] for j in m.list_jobs()] == ["finish"]


def test_a_node_whose_disk_is_full_says_nothing_lives_and_goes_on_when_there_is_room(fit):
    m = Market("--nodes", "1")
    state = f"{m.run_dir}/state/n1"
    os.makedirs(state)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "souk-test", state],
                   check=True, timeout=10)
    for market in bring_up(m):
        job = market.srun("-p", 50, "sh", "-c", "read line; exit 7", stdin=subprocess.PIPE)
        market.until_runs(job.id, "n1")
        pid = market.daemon("n1")["pid"]
        waiting, said = [], "nothing leaves this node until it can"
        fills = itertools.count()

        # Each submission is a record of 120 kB. Room that is given back is filled again.
        def filled():
            fs = os.statvfs(state)
            if fs.f_bavail:
                with open(f"{state}/fill{next(fills)}", "xb") as f:
                    try:
                        os.posix_fallocate(f.fileno(), 0, fs.f_bavail * fs.f_frsize)
                    except OSError as full:  # the agent has taken some of it: next time
                        assert full.errno == errno.ENOSPC
            if said not in log_of(market, "n1"):
                waiting.append(
                    market.srun("-p", 50, "true", env={**market.env, "LONG": "x" * 120_000}))
            return log_of(market, "n1").count(said) >= 3
        until("it says so, and tries again and again", filled, pause=0.3)
        assert market.daemon("n1")["pid"] == pid
        for name in os.listdir(state):
            if name.startswith("fill"):
                os.unlink(f"{state}/{name}")
        until("it can write again", lambda: "state can be stored again" in log_of(market, "n1"))
        job.process.stdin.write(b"x\n")
        job.process.stdin.close()
        assert job.wait() == 7
        for each in waiting:
            assert each.wait() == 0
        assert market.daemon("n1")["pid"] == pid


def test_an_order_by_hand_waits_and_says_what_became_of_it(market):
    job = market.srun("-p", "40", "sleep", "100000")
    where = market.until_runs(job.id)["where"]
    to = next(n for n in market.nodes() if n != where)
    said = market.tool("marketctl", "--wait", "60s", "--hold", "move", job.id, to).stdout
    assert re.fullmatch(rf"job {job.id} runs on {to}: it stood still for [\d.]+ ms of [\d.]+ ms(, "
                        rf"[\d.]+ \w+)?\n", said), said
    assert market.job(job.id)["where"] == to
    said = market.tool("marketctl", "--wait", "60s", "--hold", "freeze", job.id).stdout
    assert re.fullmatch(rf"job {job.id} is frozen on {to}: [\d.]+ \w+\n", said), said
    image = os.path.join(f"{market.run_dir}/state/{to}/images",
                         f"{job.id}.{max_epoch(market, to, job.id)}")
    with open(f"{image}/pages-1.img", "r+b") as f:
        f.seek(100)
        f.write(b"another")
    failed = market.tool("marketctl", "--wait", "60s", "--hold", "thaw", job.id, where, check=False)
    assert (failed.returncode == 1 and failed.stdout == "" and "failed: " in failed.stderr and
            failed.stderr.count("\n") == 1), failed
    why = failed.stderr.split("failed: ", 1)[1].strip()
    # while it is tried again the comment is another
    market.until_job(job.id, "says why", lambda j: why[:30] in j["last_failed"] and
                     why[:30] in j["comment"] and "tried again later" in j["comment"])
    assert "can move" not in market.tool("marketctl", "job", job.id).stdout
    market.tool("marketctl", "cancel", job.id)
    job.wait()


def max_epoch(market, node, job):
    return max(int(n.rsplit(".", 1)[1]) for n in os.listdir(f"{market.run_dir}/state/{node}/images")
               if n.rsplit(".", 1)[0] == job and n.rsplit(".", 1)[1].isdigit())


def test_cpu_time_and_words_outlive_the_daemons(market):
    job = market.srun("-p", "40", "sh", "-c", "while :; do :; done")
    where = market.until_runs(job.id)["where"]
    until("it has used a second", lambda: capsule_cpu_s(market, job.id) > 1)
    said = market.job(job.id)["comment"]
    market.kill_daemon("n1")
    market.kill_daemon(where)
    market.kill_daemon("market")
    market.until_job(job.id, "is known", lambda j: j["comment"] == said)
    used = capsule_cpu_s(market, job.id)
    market.tool("marketctl", "cancel", job.id)
    job.wait()
    settled(market)
    counted = sum(r["cpu_s"] for r in ask(market, "receipts", "--job", job.id))
    assert float(counted) >= used * 0.9, (counted, used)


def capsule_cpu_s(market, job):
    """The CPU time of the job's processes by their own clocks, in seconds."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(sum(map(int, read_text(f"/proc/{p}/stat").rsplit(")", 1)[1].split()[11:13])) / ticks
               for _, _, pids in market.capsules(job) for p in pids if read_text(f"/proc/{p}/stat"))


def test_a_job_that_was_cancelled_before_it_started_exits_as_its_srun_does(market):
    job = market.srun("-p", "40", "-c", "64", "true")
    market.until_job(job.id, "waits", lambda j: j["status"] == "wait")
    market.tool("marketctl", "cancel", job.id)
    assert job.wait() == 255
    assert market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")["exit"] == 255
