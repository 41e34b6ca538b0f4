# SPDX-License-Identifier: GPL-2.0-or-later
"""Real markets write a log of their decisions. souk-audit confirms it, and finds each of ten
deliberate changes, even if the forger has computed the chain of hashes anew."""
import contextlib
import decimal
import hashlib
import json
import os
import random
import re
import signal
import subprocess

import pytest

from codes import refused
from conftest import BIN, LIMIT, Market, bring_up, until

LONG = ["sleep", "100000"]
NOBODY = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}


def audit(log, receipts, directory, *options):
    """(exit status, what it printed) of a log as lines and receipts."""
    (directory / "log").write_text("\n".join(log) + "\n")
    (directory / "receipts").write_text(receipts)
    done = subprocess.run([f"{BIN}/souk-audit", *options, "--receipts", directory / "receipts",
                           directory / "log"], capture_output=True, text=True, timeout=LIMIT)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def exported(m, directory, *options, **who):
    """The log as lines, and the receipts as JSON."""
    os.chmod(m.run_dir, 0o755)
    log = m.tool("marketctl", "decisions", "export", *options, "-", **who).stdout
    return log.splitlines(), m.tool("marketctl", "--json", "receipts", **who).stdout


def chained(lines):
    """Returns the same lines with hashes that fit."""
    out, block, head = [], [], "0" * 64
    for line in lines:
        if line.startswith("S "):
            words = line.split(" ")
            head = head if out else words[4]
            line = " ".join(words[:4] + [head])
        if line.startswith("# "):
            text = "".join(entry + "\n" for entry in block)
            head = hashlib.sha256(f"{head}\n{text}".encode()).hexdigest()
            line, block = "# " + head[:12], []
        elif not line.startswith(("N ", "E")):
            block.append(line)
        out.append(line)
    return out


@pytest.fixture(scope="module")
def two_users(fit):
    """n1 of speed 100 asks 2, n2 of 80 and n3 of 60 ask 1, one CPU each."""
    for m in bring_up(Market("--nodes", "3", "--speeds", "100,80,60")):
        m.tool("pvdctl", "--node", "n1", "set", "price", "2")
        until("the market knows n1's price",
              lambda: {p["node"]: p["reserve"] for p in m.providers()}["n1"] == 2)
        yield m


def run_a_while(m):
    """Jobs of two users that displace each other, a move by hand, owners' prices, other bids, and a
    market that dies."""
    m.tool("pvdctl", "--node", "n2", "set", "price", "1")
    jobs = []
    for price, who in ((30, NOBODY), (20, {}), (40, {})):
        jobs.append(m.srun("-p", price, *LONG, **who))
        m.until_runs(jobs[-1].id)
    jobs.append(m.srun("-p", 9, *LONG, **NOBODY))
    until("the bid that waits prices the others", lambda: m.job(jobs[2].id)["price"] > 2)
    m.tool("pvdctl", "--node", "n2", "set", "price", "12")
    until("n2 asks 12", lambda: {p["node"]: p["reserve"] for p in m.providers()}["n2"] == 12)
    m.tool("srun", "-J", jobs[1].id, "-p", "50")
    m.until_runs(jobs[1].id, "n1")
    os.kill(m.daemon("market")["pid"], signal.SIGKILL)
    m.until_up()
    until("prices are told again", lambda: m.job(jobs[1].id)["price"] > 2)
    for job in jobs:
        m.until_up()
        m.tool("marketctl", "cancel", job.id)
        job.wait()
    until("every job has ended", lambda: not m.live())
    return [job.id for job in jobs]


@pytest.mark.parametrize("solver", ["greedy_migration", "welfare", "balance", "fcfs"])
def test_souk_audit_confirms_what_a_market_did_to_root_and_to_a_user(two_users, tmp_path, solver):
    m = two_users
    m.tool("marketctl", "set", "solver", solver)
    ids = run_a_while(m) if solver not in ("balance", "fcfs") else [m.srun("-p", 9, "true").id]
    for id in ids:
        m.until_job(id, "has ended", lambda j: j["status"] == "finish")

    def newest():
        return m.ctl("marketctl", "status")["decisions"]

    def whole():  # what its nodes have free is a decision too, also when no job lives
        before = newest()
        exports = exported(m, tmp_path)
        return newest()["head"] == before["head"] and (before, *exports)
    head, log, receipts = until("nothing is decided meanwhile", whole)
    status, said = audit(log, receipts, tmp_path)
    assert status == 0 and "confirmed" in said, said
    assert f"head {head['number']}:{head['head']}" in said
    assert audit(log, receipts, tmp_path, "--seen", f"1:{head['head']}")[0] == 0
    ours = [r for r in json.loads(receipts) if r["job"] in ids]
    assert ours and all(0 < r["decided_from"] <= r["decided_to"] for r in ours), ours
    if solver in ("balance", "fcfs"):
        return
    log, receipts = exported(m, tmp_path, **NOBODY)
    names = [line for line in log if line.startswith("N j ")]
    named = {line.split()[-1] for line in names}
    assert named >= {r["job"] for r in json.loads(receipts)} and set(ids) & named
    assert {m.job(id)["uid"] for id in named} == {65534}, "nobody else's job is named"
    status, said = audit(log, receipts, tmp_path)
    assert status == 0 and "confirmed" in said, said
    refused(m.tool("marketctl", "decisions", "export", "--user", "root", "-", check=False,
                   **NOBODY), "not_allowed")


def line_of(log, pattern):
    """The number and the match of the first line with this pattern."""
    return next((n, found) for n, line in enumerate(log) if (found := re.search(pattern, line)))


def with_line(log, number, line):
    return chained(log[:number] + ([line] if line is not None else []) + log[number + 1:])


def price_up_by_1(log, receipts):
    n, found = line_of(log, r"^p (\d+) (\d+)$")
    return with_line(log, n, f"p {found[1]} {int(found[2]) + 1}"), receipts


def a_bid_changed(log, receipts):
    n, found = line_of(log, r"^j .* v=9000000 ")  # it waits, and prices the others
    return with_line(log, n, log[n].replace("v=9000000", "v=9500000")), receipts


def a_decision_left_out(log, receipts):
    n, _ = line_of(log, r"^D \d+ \d+$")
    end = next(i for i in range(n, len(log)) if log[i].startswith("# "))
    begin = max(i for i in range(n) if log[i].startswith("# ")) + 1
    return chained(log[:begin] + log[end + 1:]), receipts


def a_line_cut(log, receipts):
    n, _ = line_of(log, r"^a \d+ \d+$")
    return with_line(log, n, None), receipts


def a_swapped_place(log, receipts):
    places = [(n, line.split()) for n, line in enumerate(log) if re.match(r"a \d+ \d+$", line)]
    (n, first), (k, second) = next((a, b) for a, b in zip(places, places[1:])
                                   if a[1][2] != b[1][2])
    log = with_line(log, n, f"a {first[1]} {second[2]}")
    return with_line(log, k, f"a {second[1]} {first[2]}"), receipts


def a_wrong_reserve(log, receipts):
    n, found = line_of(log, r"^n .*r=12000000")
    return with_line(log, n, log[n].replace("r=12000000", "r=3000000")), receipts


def cut_in_the_middle(log, receipts):
    blocks = [n for n, line in enumerate(log) if line.startswith("# ")]
    return log[:blocks[len(blocks) // 2] + 1], receipts


def a_broken_hash(log, receipts):
    n, found = line_of(log, r"^# (.)")
    other = "0123456789abcdef"[int(found[1], 16) ^ 1]
    return log[:n] + ["# " + other + log[n][3:]] + log[n + 1:], receipts


def a_receipt_too_high(log, receipts):
    entries = json.loads(receipts, parse_float=decimal.Decimal)
    high = next(r for r in entries if r["paid"] > 0)
    high["paid"] += decimal.Decimal("0.000001")
    return log, json.dumps(entries, default=float)


def priced_by_its_own_users_job(log, receipts):
    """A price that is right only if the waiting job of 7 belonged to somebody else."""
    n, found = line_of(log, r"^p (\d+) 2000000$")
    return with_line(log, n, f"p {found[1]} 7000000"), receipts


CHANGES = [price_up_by_1, a_bid_changed, a_decision_left_out, a_line_cut, a_swapped_place,
           a_wrong_reserve, cut_in_the_middle, a_broken_hash, a_receipt_too_high,
           priced_by_its_own_users_job]


@pytest.fixture(scope="module")
def of_both(two_users, tmp_path_factory):
    """A log in which jobs displace each other, then one of the welfare algorithm in which a user's
    own jobs fill the market, and one more waits."""
    m, directory = two_users, tmp_path_factory.mktemp("log")
    m.tool("marketctl", "set", "solver", "default")
    run_a_while(m)
    m.tool("pvdctl", "--node", "n2", "set", "price", "1")
    m.tool("marketctl", "set", "solver", "welfare")
    jobs = [m.srun("-p", 7, *LONG) for _ in range(4)]
    until("all nodes are taken",
          lambda: sum(m.job(j.id).get("status") == "run" for j in jobs) == 3)
    until("each pays the reserve", lambda: sorted(
        m.job(j.id)["price"] for j in jobs if m.job(j.id)["status"] == "run") == [1, 1, 2])
    m.clear()
    log, receipts = exported(m, directory)
    assert audit(log, receipts, directory)[0] == 0
    return log, receipts


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_deliberate_change_is_found(of_both, tmp_path, change):
    log, receipts = change(*of_both)
    assert (log, receipts) != of_both
    status, said = audit(log, receipts, tmp_path)
    assert status == 1 and ": 0 are not" not in said, said
    if change not in (cut_in_the_middle, a_broken_hash):
        assert "chain" not in said, "the chain was reckoned anew: it is found by what it means"


def test_a_log_that_was_written_anew_lacks_the_head_that_was_seen(of_both, tmp_path, two_users):
    log, receipts = of_both
    head = two_users.ctl("marketctl", "status")["decisions"]
    seen = f"{head['number']}:{head['head']}"
    n, found = line_of(log, r"^T (\d+)$")
    anew = with_line(log, n, f"T {int(found[1]) + 1}")
    assert audit(anew, receipts, tmp_path)[0] == 0, "nothing else would be noticed"
    status, said = audit(anew, receipts, tmp_path, "--seen", seen)
    assert status == 1 and "is not in this log" in said, said


ODD = [None, True, -1, 2**70, 1.5, 1e300, "x", "\x1b]0;owned\x07", [], {}, "nan", "1e999999"]


def oddly(rng, log, receipts):
    """Returns the log and the receipts with a few words altered, moved or left out."""
    log, receipts = list(log), json.loads(receipts)
    for _ in range(rng.randint(1, 4)):
        n = rng.randrange(len(log))
        words = log[n].split(" ")
        words[rng.randrange(len(words))] = str(rng.choice(ODD))
        log[n:n + 1] = rng.choice([[" ".join(words)], [], [rng.choice(log), log[n]]])
        receipt = rng.choice(receipts)
        if receipt:
            receipt[rng.choice(list(receipt))] = rng.choice(ODD)
    return log, json.dumps(rng.choice([receipts, receipts, rng.choice(ODD), ODD]))


def test_an_altered_log_never_ends_the_auditor_and_never_commands_a_terminal(of_both, tmp_path):
    rng = random.Random(7)
    found = set()
    for n in range(80):
        log, receipts = oddly(rng, *of_both)
        (tmp_path / "log").write_text("\n".join(log) + "\n")
        (tmp_path / "receipts").write_text(receipts)
        words = [["--receipts", "receipts"], [], ["--why", "n1"]][n % 3]
        done = subprocess.run([f"{BIN}/souk-audit", *words, "log"], capture_output=True, text=True,
                              timeout=LIMIT, cwd=tmp_path)
        found.add(done.returncode)
        said = done.stdout + done.stderr
        assert "Traceback" not in said and done.returncode in (0, 1, 2), (n, said)
        assert all(c.isprintable() or c == "\n" for c in said), (n, said)
    assert found >= {1, 2}


def test_a_poor_job_has_its_turn_after_a_wait_and_the_log_says_why(two_users, tmp_path):
    """The job gains worth while it waits, until it is worth as much as the richer jobs; then they
    take turns. Its price is at most its bid, and souk-audit computes every place and price from the
    waits in the log."""
    m = two_users
    m.tool("marketctl", "set", "solver", "default")
    m.tool("marketctl", "set", "ageing", "4s")
    jobs = [m.srun("-p", price, *LONG) for price in (40, 30, 24)]
    for job in jobs:
        m.until_runs(job.id)
    poor = m.srun("-p", 3, *LONG, **NOBODY)
    said = m.until_job(poor.id, "counts for more", lambda j: j.get("counts_as", 0) > 6)
    assert said["waited_s"] > 4
    # 24 is 3 times 8: after three times the four seconds
    said = m.until_runs(poor.id)
    assert said["waited_s"] >= 12 and said["price"] <= 3 and said["counts_as"] >= 24, said
    until("whom it displaced hears why", lambda: any(
        (why["code"], why.get("job"), why.get("price")) == ("displaced", poor.id, 3) and
        why["counts"] >= 24 for why in [m.job(job.id)["reason"] for job in jobs]))
    waited = said["waited_s"]
    m.kill_daemon("market")
    m.until_up()
    until("its wait is known to the next market",
          lambda: m.job(poor.id).get("waited_s", 0) >= waited)
    m.tool("marketctl", "set", "ageing", "default")
    assert "counts_as" not in m.job(poor.id)
    m.clear()
    log, receipts = exported(m, tmp_path)
    n, found = line_of(log, r"^j .*w=(\d+)")
    status, said = audit(log, receipts, tmp_path)
    assert status == 0 and "confirmed" in said, said
    heavier = with_line(log, n, log[n].replace(f"w={found[1]}", "w=999999"))
    status, said = audit(heavier, receipts, tmp_path)
    assert status == 1, said


def test_a_full_disk_leaves_a_marked_gap_and_the_market_goes_on(two_users, tmp_path):
    m = two_users
    m.tool("marketctl", "set", "solver", "default")
    directory = f"{m.run_dir}/state/market/decisions"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", directory], check=True)
    try:
        m.kill_daemon("market")
        filler = f"{directory}/filler"
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"x" * 4096)
        job = m.srun("-p", 9, *LONG)
        m.until_runs(job.id)
        until("status says it", lambda: m.ctl("marketctl", "status")["decisions"].get("trouble"))
        os.unlink(filler)
        for price in range(10, 60):
            m.tool("srun", "-J", job.id, "-p", price)
            if not m.ctl("marketctl", "status")["decisions"].get("trouble"):
                break
            until("a moment", lambda: True, pause=0.2)
        until("it is written again",
              lambda: not m.ctl("marketctl", "status")["decisions"].get("trouble"))
        m.tool("srun", "-J", job.id, "-p", 70)
        until("the new bid is logged", lambda: any("v=70000000" in line
                                                   for line in exported(m, tmp_path)[0]))
        status, said = audit(*exported(m, tmp_path), tmp_path)
        assert status == 0 and re.search(r"gap: \d+ decisions before \d+ are not in the log", said)
        m.clear()
    finally:
        subprocess.run(["umount", "-l", directory], check=False)
        m.kill_daemon("market")
