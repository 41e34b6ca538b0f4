# SPDX-License-Identifier: GPL-2.0-or-later
# Long: the cases of two tools that speak one protocol.
"""pvdctl and marketctl: what they ask, and how they show the answer."""
import hashlib
import csv
import json
import os
import re
import select
import subprocess
import time

import pytest

from conftest import BIN
from fake import LIMIT, Agentd

PROVIDER = {"node": "n1", "status": "on market, busy", "on_market": True, "reserve": 24.5,
            "current_price": 100, "next_price": 0.25, "speed": 100, "cpus": 2, "memory_mb": 4096,
            "free_mb": 1000, "guests": 1, "earned": 3.5, "load_permille": 415, "wait_permille": 4,
            "load_source": "bpf", "frames": "always", "cannot": "", "market": True}


def answer(agentd, process, reply=None, error=None, parts=None):
    """Serves one question; returns [verb, arguments]. parts: {after: (reply, next)}, of an answer
    that comes in several."""
    connection = agentd.accept()
    connection.welcome()
    after = ""
    while True:
        request = connection.expect("ctl_request")
        assert request.get(5, [b""]) == [after.encode()]
        if parts:
            reply, after = parts[after]
        if error:
            connection.send("ctl_reply", {1: request[1][0], 3: error})
        else:
            connection.send("ctl_reply",
                            {1: request[1][0], 2: True, 4: json.dumps(reply), 5: after})
        if not after:
            return [request[3][0].decode(), *(arg.decode() for arg in request.get(4, []))]


# Long: a table.
@pytest.mark.parametrize("tool_name, args, words", [
    ("pvdctl", [], "a verb is missing"),
    ("pvdctl", ["stats"], "'stats' is not a verb"),
    ("pvdctl", ["status", "now"], "unexpected argument 'now'"),
    ("pvdctl", ["guests", "n1"], "'n1' is not a job id"),
    ("pvdctl", ["guests", "n1.1", "x"], "unexpected argument 'x'"),
    ("marketctl", ["lj", "--story"], "--story is for job"),
    ("marketctl", ["dump", "n1.1"], "unexpected argument 'n1.1'"),
    ("marketctl", ["job", "--story"], "a job's id is missing"),
    ("pvdctl", ["market"], "on or off is wanted"),
    ("pvdctl", ["market", "maybe"], "on or off is wanted"),
    ("pvdctl", ["set", "price"], "a value are wanted"),
    ("pvdctl", ["set", "price", "auto"], "--floor N is wanted"),
    ("pvdctl", ["set", "cpus", "2", "--floor", "3"], "--floor is for set price auto"),
    ("pvdctl", ["set", "price", "auto", "--floor", "x"], "'x' is not an amount"),
    ("pvdctl", ["frames", "drop", "1"], "one of list, add, remove, zone, warning is wanted"),
    ("pvdctl", ["frames", "add"], "frames add: a value is wanted"),
    ("pvdctl", ["frames", "warning", "soon"], "frames warning: 'soon' is no time"),
    ("pvdctl", ["price", "7"], "price: curve is wanted"),
    ("pvdctl", ["limits", "all"], "limits: unexpected argument 'all'"),
    ("pvdctl", ["earnings", "all"], "earnings: 'all' is not a whole number"),
    ("pvdctl", ["forecast", "x"], "forecast: unexpected argument 'x'"),
    ("pvdctl", ["watch", "x"], "watch: unexpected argument 'x'"),
    ("pvdctl", ["evict"], "evict: a job's id is wanted"),
    ("pvdctl", ["evict", "n1"], "'n1' is not a job id"),
    ("pvdctl", ["ban", "mallory"], "user NAME or program NAME is wanted"),
    ("pvdctl", ["allow", "dog", "rex"], "user NAME, program NAME or job ID is wanted"),
    ("pvdctl", ["set", "price", "3eur"], "set price: '3eur' is not an amount"),
    ("pvdctl", ["set", "memory", "0"], "set memory: '0' is not from 1M to"),
    ("pvdctl", ["set", "memory", "4Q"], "set memory: '4Q' is no size such as"),
    ("marketctl", ["prices", "--last", "24"], "--last: '24' is no time such as 90s"),
    ("marketctl", ["status", "--patience", "long"], "--patience: 'long' is no time"),
    ("pvdctl", ["set", "colour", "3"], "'colour' is not one of"),
    ("marketctl", [], "a verb is missing"),
    ("marketctl", ["stat"], "'stat' is not a verb"),
    ("marketctl", ["job"], "job: a job's id is missing"),
    ("marketctl", ["job", "n1"], "'n1' is not a job id"),
    ("marketctl", ["job", "n1.1", "x"], "unexpected argument 'x'"),
    ("marketctl", ["move", "n1.1"], "a node's name is missing"),
    ("marketctl", ["move", "n1.1", "N!"], "'N!' is not a node name"),
    ("marketctl", ["lj", "--hold"], "--hold is for move"),
    ("marketctl", ["lj", "--no-wait"], "--wait and --no-wait are for move"),
    ("marketctl", ["freeze", "n1.1", "--wait", "long"], "--wait: 'long' is no time"),
    ("marketctl", ["freeze", "n1.1", "--wait", "9s", "--no-wait"], "exclude each other"),
    ("marketctl", ["lj", "--since", "3h"], "are for receipts"),
    ("marketctl", ["lj", "--db", "x"], "--db and --seen are for ledger"),
    ("marketctl", ["lp", "--user", "me"], "are for receipts and"),
    ("marketctl", ["lp", "--state", "run"], "--state is for"),
    ("marketctl", ["user"], "show, limit or unlimit is wanted"),
    ("marketctl", ["user", "limit"], "a user is missing"),
    ("marketctl", ["user", "limit", "me"], "--credit or --allowance is wanted"),
    ("marketctl", ["user", "limit", "me", "--jobs", "many"],
     "--jobs: 'many' is not a whole number"),
    ("marketctl", ["user", "limit", "me", "--spend-per-day", "-3"],
     "--spend-per-day: '-3' is not an amount"),
    ("marketctl", ["user", "show", "me", "--cpus", "3"], "are for user limit"),
    ("marketctl", ["lj", "--cpus", "3"], "are for user limit"),
    ("marketctl", ["ledger"], "'verify' is what"),
    ("marketctl", ["receipts", "--since", "noon"], "'noon' is neither"),
    ("marketctl", ["decisions"], "decisions: 'export' is what can be done"),
    ("marketctl", ["decisions", "export"], "a file is missing (- is stdout)"),
    ("marketctl", ["decisions", "export", "-", "x"], "unexpected argument 'x'"),
    ("marketctl", ["decisions", "export", "-", "--from", "noon"], "--from: 'noon' is neither"),
    ("marketctl", ["decisions", "export", "-", "--job", "n1.1"], "are for receipts"),
    ("marketctl", ["lj", "--to", "3h"], "--from and --to are for decisions export"),
    ("marketctl", ["why-price"], "a job or a node is missing"),
    ("marketctl", ["why"], "a job or a node is missing"),
    ("marketctl", ["report", "--by", "hour"], "--by is one of user, node and day, not 'hour'"),
    ("marketctl", ["lj", "--csv"], "--csv for report, history and statement"),
    ("marketctl", ["history", "n1.1"], "history: unexpected argument 'n1.1'"),
    ("marketctl", ["cancel", "n1.1", "--all"], "a job's id, or --name, --user, --array and --all"),
    ("marketctl", ["why", "N!"], "'N!' is neither a job id nor a node name"),
    ("marketctl", ["why", "n1.7", "n2"], "why: unexpected argument 'n2'"),
    ("marketctl", ["why", "n1.7", "--at", "3h"], "--at is for why price"),
    ("marketctl", ["why-price", "N!"], "'N!' is neither a job id nor a node name"),
    ("marketctl", ["why-price", "n1.7", "--at", "noon"], "--at: 'noon' is neither"),
    ("marketctl", ["lj", "--at", "3h"], "--at is for why price"),
    ("marketctl", ["backup"], "backup: a file is missing"),
    ("marketctl", ["backup", "a", "b"], "unexpected argument 'b'"),
    ("marketctl", ["backup", "a", "--dir", "b"], "--dir is for restore"),
    ("marketctl", ["ledger", "verify", "--seen", "1:a"], "--seen is for --db"),
    ("marketctl", ["receipts", "--limit", "0"], "'0' is not a whole number"),
])
def test_a_mistake_is_one_line_and_exit_2(tool, tool_name, args, words):
    status, out, err = tool(tool_name, *args)
    assert ((status, out) == (2, "") and err.startswith(tool_name + ": ") and words in err and
            err.count("\n") == 1)


@pytest.mark.parametrize("args, asked", [
    (["set", "price", "24.5"], ["provider-set", "price", "24.5"]),
    (["set", "memory", "512"], ["provider-set", "memory", "512"]),
    (["set", "memory", "1.5G"], ["provider-set", "memory", "1536"]),
    (["set", "frames", "08:00-22:00"], ["provider-set", "frames", "08:00-22:00"]),
    (["set", "price", "auto", "--floor", "3"], ["provider-price", "auto", "3"]),
    (["unset", "curve"], ["provider-unset", "curve"]),
    (["market", "on"], ["provider-market", "on"])])
def test_pvdctl_asks_and_is_silent(start, agentd, args, asked):
    process = start("pvdctl", *args)
    assert answer(agentd, process, PROVIDER) == asked
    assert process.communicate(timeout=LIMIT) == (b"", b"") and process.returncode == 0


def test_pvdctl_market_off_waits_and_says_who_is_left(start, agentd):
    stopped = {"job": "n1.7", "state": "stopped", "memory_mb": 64,
               "cannot_move": "has an io_uring open"}
    for here, said in [([], "n1 is off the market; no guest is left\n"),
                       ([stopped, {"job": "n2.1", "state": "frozen", "memory_mb": 8}],
                        "n1 is off the market; left are:\n"
                        "n1.7: stopped where it is: no CPU, 64 MB of memory at most "
                        "(has an io_uring open)\nn2.1: frozen to the disk of this node\n")]:
        process = start("pvdctl", "market", "off")
        assert (answer(agentd, process, {**PROVIDER, "on_market": False, "here": here}) ==
                ["provider-market", "off", "wait"])
        assert process.communicate(timeout=LIMIT)[0].decode() == said and process.returncode == 0
        process = start("pvdctl", "status")
        answer(agentd, process, {**PROVIDER, "on_market": False, "here": here})
        told = process.communicate(timeout=LIMIT)[0].decode()
        assert (("Left are:\n" + said.split("left are:\n")[1] in told) if here
                else "Left" not in told)


FRAMES = {"node": "n1", "frames": [{"number": 1, "frame": "mon-fri 18:00-8:00"}], "always": False,
          "zone": "Europe/Berlin", "warning_s": 600, "on_market": True}
PRICES = {"node": "n1", "price": 40, "otherwise": 10, "zone": "", "price_auto": False,
          "rules": [{"frame": "daily 8:00-18:00", "price": 40}],
          "hours": ([10] * 8 + [40] * 10 + [10] * 6) * 7}
LIMITS = {"node": "n1", "cpus": 2, "machine_cpus": 4, "memory_mb": 1024, "machine_memory_mb": 4096,
          "pids_each": 4096, "cpu_weight": 100, "price": 10, "leave_s": 10, "immovable": "stop",
          "immovable_s": 60, "free_cpu_ms": 100, "free_memory_s": 0, "empty_s": 0,
          "bans": ["user mallory"]}
WHY = {"node": "n1", "price": 7, "price_why": "learned from the market's prices",
       "price_auto": True, "floor": 3, "learned": 7, "on_market": True,
       "market_why": "pvdctl market on"}


@pytest.mark.parametrize("args, asked, reply, words", [
    (["frames"], ["provider-frames"], FRAMES,
     ["Frame 1:  mon-fri 18:00-8:00", "Zone:     Europe/Berlin",
      "Warning:  10m00s before a frame ends", "on the market"]),
    (["frames", "add", "sat", "0:00-24:00"], ["provider-frames", "add", "sat 0:00-24:00"], FRAMES,
     ["Frame 1:"]),
    (["frames", "warning", "10m"], ["provider-frames", "warning", "600"], FRAMES, ["Warning:"]),
    (["price"], ["provider-price"], PRICES,
     ["Asked now:  40", "Otherwise:  10", "from 0:00 10, 8:00 40, 18:00 10"]),
    (["price", "curve", "daily 8:00-18:00", "=", "40"],
     ["provider-price", "curve", "daily 8:00-18:00 = 40"], PRICES, ["Rule:"]),
    (["limits"], ["provider-limits"], LIMITS,
     ["2 of 4", "1 GB of 4 GB", "100 ms", "nothing promised", "user mallory"]),
    (["ban", "user", "mallory"], ["provider-ban", "user mallory"], LIMITS, ["user mallory"]),
    (["allow", "job", "n1.7"], ["provider-allow", "job n1.7"], LIMITS, ["CPUs:"]),
    (["why"], ["provider-why"], WHY, ["7: learned from the market's prices", "floor 3, learned 7",
                                      "on: pvdctl market on"]),
    (["evict", "n1.7"], ["provider-evict", "n1.7"], {**PROVIDER, "here": []},
     ["no guest is left on n1"]),
    (["market", "off"], ["provider-market", "off", "wait"], {**PROVIDER, "here": [], "empty": True},
     ["n1 is off the market; empty: you may switch off"])])
def test_pvdctl_gives_and_shows_the_owners_rules(start, agentd, args, asked, reply, words):
    process = start("pvdctl", *args)
    assert answer(agentd, process, reply) == asked
    out = process.communicate(timeout=LIMIT)[0].decode()
    assert process.returncode == 0
    for word in words:
        assert word in out, out


def test_pvdctl_adds_up_what_the_receipts_say_by_day(start, agentd):
    receipts = [{"job": "n2.1", "to_unix_s": 86_400 * 3 + 5, "earned": 2.5, "cpu_s": 1800,
                 "run_s": 3600},
                {"job": "n2.1", "to_unix_s": 86_400 * 3 + 9, "earned": 0.5, "cpu_s": 0, "run_s": 0},
                {"job": "n2.2", "to_unix_s": 86_400, "earned": 1, "cpu_s": 3600, "run_s": 3600}]
    for asked in ([], ["--json"]):
        process = start("pvdctl", "earnings", *asked)
        assert answer(agentd, process, PROVIDER) == ["provider-status"]
        verb, node, since = answer(agentd, process, receipts)
        assert (verb, node) == ("receipts", "node=n1")
        assert abs(time.time() - 30 * 86_400 - int(since.split("=")[1])) < 60
        out = process.communicate(timeout=LIMIT)[0].decode()
        assert process.returncode == 0
        if asked:
            told = json.loads(out)
            assert (told["earned"], told["jobs"], len(told["days"])) == (4, 2, 2), told
            assert told["days"][0]["earned"] == 3, told
        else:
            assert "1970-01-04       3  1.0 h  0.5 h     1" in out, out
            assert "n1 earned 4 by 2 jobs" in out, out


def test_pvdctl_forecasts_by_the_prices_of_the_market(start, agentd):
    def row(hour, price):
        return {"from_unix_s": 4 * 86_400 + hour * 3600, "span_s": 3600,
                "speeds": [{"speed": 200, "price": 90, "open_s": 3600},
                           {"speed": 80, "price": price, "open_s": 3600}]}
    process = start("pvdctl", "--json", "forecast")
    assert answer(agentd, process, PROVIDER) == ["provider-status"]
    assert answer(agentd, process, {**PRICES, "zone": "UTC"}) == ["provider-price"]
    asked = answer(agentd, process, [row(0, 12), row(1, 10), row(9, 50), row(10, 39)])
    assert asked[0] == "prices" and asked[2] == "3600"
    told = json.loads(process.communicate(timeout=LIMIT)[0])
    # of 2 CPUs: an hour of the night at 12, and one of the day, when 40 is asked, at 50
    assert told["earned"] == 124 and told["known_h"] == 4, told
    assert [r["let_h"] for r in told["at"]] == [4, 4, 2, 0, 0], told


def test_pvdctl_watch_shows_a_line_when_something_is_another(start, agentd):
    process = start("pvdctl", "watch")
    for guests in (1, 1, 2):
        assert answer(agentd, process, {**PROVIDER, "guests": guests}) == ["provider-status"]
    lines = [process.stdout.readline().decode() for _ in range(2)]
    process.kill()
    process.communicate(timeout=LIMIT)
    assert "guests 1" in lines[0] and "guests 2" in lines[1], lines


def test_pvdctl_status_is_lines(start, agentd):
    process = start("pvdctl", "status")
    assert answer(agentd, process, PROVIDER) == ["provider-status"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "Status:      on market, busy\nMin Price:   24.5\nCurr Price:  100\nNext Price:  0.25\n"
        "Earned:      3.5\n"
        "Guests:      1\nSpeed:       100\nCPUs:        2\nMemory:      4 GB, 1000 MB free\n"
        "Load:        42%, waiting 0% (bpf)\nFrames:      always\n")


def test_pvdctl_status_says_what_is_wrong(start, agentd):
    process = start("pvdctl", "status")
    answer(agentd, process, {**PROVIDER, "market": False, "market_trouble": "Connection refused",
                             "cannot": "no CRIU"})
    out = process.communicate(timeout=LIMIT)[0].decode().splitlines()
    assert out[-2:] == ["Takes no job:  no CRIU",
                        "Market:        not connected: Connection refused"]


def test_json_is_the_daemons_own(start, agentd):
    for name, args in [("pvdctl", ["--json", "status"]), ("marketctl", ["status", "--json"])]:
        process = start(name, *args)
        answer(agentd, process, {"a": [1, 2.5]})
        assert process.communicate(timeout=LIMIT)[0] == b'{"a": [1, 2.5]}\n'


@pytest.mark.parametrize("args, asked", [
    (["user", "show"], ["user-show", "-"]), (["user", "show", "me"], ["user-show", "me"]),
    (["user", "limit", "me", "--jobs", "2"], ["user-limit", "me", "jobs=2"]),
    (["user", "limit", "7", "--cpus", "none", "--spend-per-day", "1.5"],
     ["user-limit", "7", "spend-per-day=1.5", "cpus=none"]),
    (["user", "unlimit", "me"],
     ["user-limit", "me", "spend-per-day=none", "jobs=none", "cpus=none", "credit=none",
      "allowance=none"]),
    (["user", "limit", "me", "--allowance", "3", "--every", "week", "--expires"],
     ["user-limit", "me", "allowance=3", "every=week", "expires=yes"])])
def test_marketctl_user_asks_for_limits_and_shows_them(start, agentd, args, asked):
    process = start("marketctl", *args)
    shown = {"user": "me", "uid": 7, "jobs": 2, "spent_today": 1.5, "running_jobs": 1,
             "running_cpus": 1, "held_jobs": 3}
    assert answer(agentd, process, [shown] if args[1] == "show" else shown) == asked
    out = process.communicate(timeout=LIMIT)[0].decode()
    assert process.returncode == 0
    assert out == ("" if args[1] != "show" else
                   "User  UID  Spend/day  Today  Jobs  Run  CPUs  In use  Held  Credit  "
                   "Allowance  Left\n"
                   "me      7       none    1.5     2    1  none       1     3    none  "
                   "none       none\n")


def test_a_token_for_souk_web_is_printed_alone(start, agentd):
    process = start("marketctl", "web-token")
    assert answer(agentd, process, {"token": "3f0c", "uid": 7, "lives_s": 120}) == ["web-token"]
    assert process.communicate(timeout=LIMIT) == (b"3f0c\n", b"")


GUEST = {"kind": "guest", "job": "n1.7", "epoch": 2, "state": "dumping", "want": "ship",
         "criu": "ready", "dump": "held", "flags": ["shipping", "fenced"], "ship_to": "n3.3",
         "lease_left_s": 42.5, "memory_mb": 64, "cpus": 1, "why": ""}
HELD = {"kind": "job", "job": "n1.7", "phase": "moving", "step": "transfer", "at": "n2.2",
        "to": "n3.3", "from_frozen": False, "last_epoch": 3, "order_seq": 5, "flags": ["leased"],
        "orphans": ["n1.1"], "limit_s": 850, "comment": "a better bid"}


def test_pvdctl_guests_shows_what_a_node_holds(start, agentd):
    process = start("pvdctl", "guests")
    assert answer(agentd, process,
                  parts={"": ([GUEST], "gn1.7.2"), "gn1.7.2": ([HELD], "")}) == ["guests"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "Guest   State    Wanted, done     To    Memory  Lease  Notes\n"
        "n1.7.2  dumping  ship ready held  n3.3   64 MB  42.5s  shipping, fenced\n\n"
        "Home of  Phase            At    To     Limit  Orphans  Notes\n"
        "n1.7     moving transfer  n2.2  n3.3  14m10s  n1.1     leased a better bid\n")
    process = start("pvdctl", "guests", "n1.7")
    assert answer(agentd, process, [GUEST, HELD]) == ["guests", "n1.7"]
    told = process.communicate(timeout=LIMIT)[0].decode()
    assert ("state:         dumping\n" in told and "flags:         shipping, fenced\n" in told and
            "orphans:      n1.1" in told)
    for args, said in (([], "no guest is here, and no job has its home here\n"),
                       (["n1.7"], "this node holds nothing of that job\n")):
        process = start("pvdctl", "guests", *args)
        answer(agentd, process, [])
        assert process.communicate(timeout=LIMIT)[0].decode() == said and process.returncode == 0


def test_marketctl_dump_shows_what_the_market_holds(start, agentd):
    process = start("marketctl", "dump")
    assert answer(agentd, process, [
        {"kind": "market", "jobs": 1, "settling": False},
        {"kind": "node", "node": "n1", "state": "busy", "used_cpus": 1, "cpus": 2,
         "used_mb": 64, "memory_mb": 1000, "room_mb": 900, "jobs": ["n1.7"]},
        {"kind": "job", "job": "n1.7", "phase": "running", "where": "n1",
         "claims": ["n1", "n2"], "bid": 50, "flags": ["reported"],
         "order": {"kind": "run", "node": "n2", "age_s": 1.5, "why": "faster"},
         "comment": "goes to n2"}]) == ["dump"]
    told = process.communicate(timeout=LIMIT)[0].decode()
    assert "settling:  no" in told
    assert ("Node  State  CPUs            Memory    Room  Jobs\n"
            "n1    busy    1/2  64 MB of 1000 MB  900 MB  n1.7\n" in told)
    assert "n1.7  running  n1     run n2 1.5s  n1, n2  none   50  reported  goes to n2\n" in told


def test_a_story_is_told_in_lines(start, agentd):
    steps = [{"at_unix_s": 1700000000.25, "step": "submitted", "price": 50},
             {"at_unix_s": 1700000001.5, "step": "priced", "node": "n2", "price": 0.25, "count": 3},
             {"at_unix_s": 1700000002, "step": "started", "node": "n2"},
             {"at_unix_s": 1700000003.999, "step": "moved", "node": "n3", "from": "n2",
              "bytes": 1_200_000, "form": "pre-copy", "ahead_bytes": 45_000_000, "pause_ms": 12,
              "sent_ms": 5, "restored_ms": 4, "decided_ms": 1, "running_ms": 2, "total_ms": 112},
             {"at_unix_s": 1700000005, "step": "frozen", "node": "n3", "bytes": 999},
             {"at_unix_s": 1700000006, "step": "finished", "node": "n3", "why": "cancelled"}]
    process = start("marketctl", "job", "n1.7", "--story", env={**os.environ, "TZ": "UTC"})
    assert answer(agentd, process,
                  {"id": "n1.7", "left_out": 0, "steps": steps}) == ["story", "n1.7"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "2023-11-14 22:13:20.250  submitted, at most 50 per CPU-hour\n"
        "2023-11-14 22:13:21.500  priced on n2 at 0.25 per CPU-hour (the last of 3)\n"
        "2023-11-14 22:13:22.000  started on n2\n"
        "2023-11-14 22:13:23.999  moved from n2 to n3: pre-copy, 45.0 MB ahead, 1.2 MB while it "
        "stood, pause 12.0 ms "
        "(sent 5.0 ms, restored 4.0 ms, decided 1.0 ms, running 2.0 ms), 112.0 ms in all\n"
        "2023-11-14 22:13:25.000  frozen on n3, 999 bytes\n"
        "2023-11-14 22:13:26.000  finished on n3: cancelled\n")
    process = start("marketctl", "job", "n1.7", "--story")
    answer(agentd, process, {"id": "n1.7", "left_out": 12, "steps": [steps[2]] * 10})
    assert (process.communicate(timeout=LIMIT)[0].decode().splitlines()[8] ==
            "... 12 steps are left out ...")


def test_a_refusal_is_one_line_and_exit_1(start, agentd):
    for name, args in [("pvdctl", ["market", "off"]), ("marketctl", ["cancel", "n1.1"])]:
        process = start(name, *args)
        answer(agentd, process, error="only root may\ndo that")
        assert process.communicate(timeout=LIMIT) == (b"",
                                                      f"{name}: only root may do that\n".encode())
        assert process.returncode == 1


def test_an_answer_that_is_not_what_was_agreed_is_one_line(start, agentd):
    for name, args, reply in [("pvdctl", ["status"], [1]), ("marketctl", ["lj"], {"a": 1}),
                              ("marketctl", ["status"], 3)]:
        process = start(name, *args)
        answer(agentd, process, reply)
        err = process.communicate(timeout=LIMIT)[1].decode()
        assert (process.returncode == 1 and "the daemon's answer is not a" in err and
                err.count("\n") == 1)


@pytest.mark.parametrize("args, asked", [
    (["cancel", "n1.1"], ["cancel", "n1.1"]),
    (["move", "n1.1", "n2"], ["move", "n1.1", "n2", "once"]),
    (["move", "--hold", "n1.1", "n2"], ["move", "n1.1", "n2", "hold"]),
    (["freeze", "n1.1"], ["freeze", "n1.1", "once"]),
    (["freeze", "n1.1", "--hold"], ["freeze", "n1.1", "hold"]),
    (["thaw", "n1.1"], ["thaw", "n1.1", "-", "once"]),
    (["thaw", "n1.1", "n3", "--hold"], ["thaw", "n1.1", "n3", "hold"]),
    (["node", "lost", "n2"], ["node", "lost", "n2"]),
    (["node", "forget", "n2"], ["node-forget", "n2"]),
    (["release", "n1.1"], ["release", "n1.1"])])
def test_marketctl_orders(start, agentd, args, asked):
    orders = {"move", "freeze", "thaw"} & set(args)
    process = start("marketctl", *args, *(["--no-wait"] if orders else []))
    assert answer(agentd, process, {"id": "n1.1"}) == asked
    assert process.communicate(timeout=LIMIT) == (b"", b"") and process.returncode == 0


@pytest.mark.parametrize("args, what, became, shown", [
    (["move", "n1.1", "n2"], ["n1.1", "n2", "run", "3", "2", "60000"],
     {"done": True, "message": "job n1.1 runs on n2", "pause_ms": 12.34, "total_ms": 250,
      "bytes": 4_200_000}, "job n1.1 runs on n2: it stood still for 12.3 ms of 250.0 ms, 4.2 MB\n"),
    (["freeze", "--hold", "n1.1", "--wait", "5m"], ["n1.1", "-", "freeze", "3", "2", "300000"],
     {"done": True, "message": "job n1.1 is frozen on n1", "bytes": 999},
     "job n1.1 is frozen on n1: 999 bytes\n"),
    (["thaw", "n1.1"], ["n1.1", "-", "run", "3", "2", "60000"],
     {"id": "n1.1", "done": False, "message": "the thaw on n2 failed: its image is damaged"},
     None)])
def test_an_order_waits_for_what_becomes_of_it_and_says_so(start, agentd, args, what, became,
                                                           shown):
    process = start("marketctl", *args)
    connection = agentd.accept()
    connection.welcome()
    request = connection.expect("ctl_request")
    assert request[3] == [[w for w in args if w in ("move", "freeze", "thaw")][0].encode()]
    connection.send("ctl_reply", {1: request[1][0], 2: True,
                                  4: json.dumps({"id": "n1.1", "failures": 3, "migrations": 2})})
    connection = agentd.accept()
    connection.welcome()
    for after in ("", "77"):
        request = connection.expect("ctl_request")
        assert request[3] == [b"await"] and [a.decode() for a in request[4]] == what
        assert request.get(5, [b""]) == [after.encode()]
        more = {5: "77"} if not after else {4: json.dumps(became)}
        connection.send("ctl_reply", {1: request[1][0], 2: True, **more})
    out, err = process.communicate(timeout=LIMIT)
    if shown:
        assert (process.returncode, out.decode(), err) == (0, shown, b"")
    else:
        assert (process.returncode, out) == (1, b"")
        assert err == b"marketctl: job n1.1: the thaw on n2 failed: its image is damaged\n"


@pytest.mark.parametrize("sending, far", [
    (None, " of about 24.0s"),
    ({"sent_bytes": 640_000_000, "sending_bytes": 1_200_000_000, "sent_bytes_per_s": 55_000_000},
     ", 640.0 MB of 1.2 GB, 55.0 MB/s")])
def test_a_long_order_shows_how_far_it_is_on_a_terminal(start, agentd, sending, far):
    ours, theirs = os.openpty()
    process = start("marketctl", "move", "n1.1", "n2", stderr=theirs)
    os.close(theirs)

    def reply(connection, number, **more):
        connection.send("ctl_reply", {1: number, 2: True, **{int(k[1:]): v
                                                             for k, v in more.items()}})

    def asked():
        connection = agentd.accept()
        connection.welcome()
        request = connection.expect("ctl_request")
        return connection, request

    connection, request = asked()
    reply(connection, request[1][0], f4=json.dumps({"id": "n1.1"}))
    waits, request = asked()
    assert request[3] == [b"await"]
    reply(waits, request[1][0], f5="7")
    connection, request = asked()
    assert (request[3], request[4]) == ([b"job"], [b"n1.1"])
    reply(connection, request[1][0], f4=json.dumps(
        {"id": "n1.1", "status": "moving", "going_to": "n2", "forecast_total_ms": 24_000,
         **(sending or {})}))
    request = waits.expect("ctl_request")
    reply(waits, request[1][0], f4=json.dumps({"done": True, "message": "job n1.1 runs on n2"}))
    assert process.communicate(timeout=LIMIT)[0] == b"job n1.1 runs on n2\n"
    said = os.read(ours, 4096).decode()
    os.close(ours)
    assert re.fullmatch(r"\r\x1b\[Kjob n1\.1: moving to n2, [\d.]+m?s" + far + r"\r\x1b\[K",
                        said), said


def test_an_owner_who_leaves_sees_on_a_terminal_how_many_guests_are_left(start, agentd):
    ours, theirs = os.openpty()
    process = start("pvdctl", "market", "off", stderr=theirs)
    os.close(theirs)
    waits = agentd.accept()
    waits.welcome()
    off = waits.expect("ctl_request")
    assert (off[3], off[4]) == ([b"provider-market"], [b"off", b"wait"])
    connection = agentd.accept()
    connection.welcome()
    request = connection.expect("ctl_request")
    assert request[3] == [b"provider-status"]
    here = [{"job": "n1.4", "state": "running", "sent_bytes": 640_000_000,
             "sending_bytes": 1_200_000_000},
            {"job": "n1.5", "state": "running"}, {"job": "n2.1", "state": "frozen"}]
    connection.send("ctl_reply", {1: request[1][0], 2: True,
                                  4: json.dumps({"node": "n2", "here": here})})
    waits.send("ctl_reply", {1: off[1][0], 2: True, 4: json.dumps({"node": "n2", "here": []})})
    assert process.communicate(timeout=LIMIT)[0] == b"n2 is off the market; no guest is left\n"
    said = os.read(ours, 4096).decode()
    os.close(ours)
    assert re.search(r"n2: 2 guests still here, [\d.]+s; n1\.4: 640.0 MB of 1.2 GB", said), said


def test_jobs_are_a_table(start, agentd):
    jobs = [{"id": "n1.1", "user": "ann", "status": "finish", "value": 100, "exit": 3,
             "name": "", "command": "./simulate --grün --of 2026 --all",
             "runtime_s": 725.2, "market_runtime_s": 3.24, "where": "n2", "comment": ""},
            {"id": "n1.12", "user": "jürgen", "status": "suspend", "value": 20.5,
             "name": "night", "command": "sh",
             "runtime_s": 18_420, "market_runtime_s": 0, "where": "n3",
             "comment": "outbid by n1.1"}, {"id": "n2.1"}]
    process = start("marketctl", "lj")
    assert answer(agentd, process, jobs) == ["list-jobs", "state=live"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "ID     User    Name                      Status   Exit     V  T-runtime  M-runtime  "
        "Where  Comment\n"
        "n1.1   ann     ./simulate --grün --of..  finish      3   100     12m05s       3.2s  "
        "n2     none\n"
        "n1.12  jürgen  night                     suspend  none  20.5      5h07m       0.0s  "
        "n3     outbid by n1.1\n"
        "n2.1   none    none                      none     none  none       none       none  "
        "none   none\n")


def test_why_is_said_in_words_with_the_code_of_each(start, agentd):
    why = {"job": "n1.7", "user": "ann", "status": "wait", "reasons": [
        {"code": "outbid", "text": "outbid; 41 would win a place", "bid": 41},
        {"code": "by_yesterday", "text": "at about 14:30", "about": 1_795_348_683}]}
    process = start("marketctl", "why", "n1.7")
    assert answer(agentd, process, why) == ["why", "n1.7"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "job n1.7 (wait)\n  outbid; 41 would win a place  [outbid]\n"
        "  at about 14:30  [by_yesterday]\n")
    process = start("marketctl", "why", "n1.7")
    answer(agentd, process, {"job": "n1.7", "user": "ann", "status": "run"})
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "job n1.7 (run) belongs to user ann, who alone is told more of it, beside root\n")
    process = start("marketctl", "why", "n3")
    answer(agentd, process, {"node": "n3", "status": "off", "reasons": [
        {"code": "node_off", "text": "is not on the market"}]})
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "node n3 (off)\n  is not on the market  [node_off]\n")


@pytest.mark.parametrize("args, asked", [
    (["--all"], ["all"]), (["--name", "night run"], ["name=night run"]),
    (["--name", "a", "--user", "ann"], ["name=a", "user=ann"])])
def test_several_jobs_are_cancelled_by_name_user_or_all(start, agentd, args, asked):
    process = start("marketctl", "cancel", *args)
    cancelled = {"count": 2, "cancelled": ["n1.1", "n1.2"]}
    assert answer(agentd, process, cancelled) == ["cancel", *asked]
    assert process.communicate(timeout=LIMIT)[0] == b"2 jobs are being cancelled\n"


def test_history_is_a_table_or_values_with_commas(start, agentd):
    jobs = [{"id": "n1.1", "user": "ann", "name": "a, \"b\"", "submitted_unix_s": 1_795_348_600,
             "ended_unix_s": 1_795_348_683, "runtime_s": 61, "wait_s": 22, "migrations": 1,
             "freezes": 0, "places": ["n1", "n2"], "cost": 0.25, "exit": 0, "command": "sleep 61"}]
    process = start("marketctl", "history", "--provider", "n2", "--user", "ann",
                    env={**os.environ, "TZ": "UTC"})
    assert answer(agentd, process, jobs) == ["list-jobs", "state=finish", "user=ann", "node=n2",
                                             "limit=100"]
    assert process.communicate(timeout=LIMIT)[0].decode().splitlines()[1].split() == (
        'n1.1 ann a, "b" 2026-11-22 11:56:40 2026-11-22 11:58:03 1m01s 22.0s 1 0 n1, n2 0.25 0 '
        "sleep 61").split()
    process = start("marketctl", "history", "--csv", "--limit", "3")
    assert answer(agentd, process, jobs)[-1] == "limit=3"
    header, row = process.communicate(timeout=LIMIT)[0].decode().splitlines()
    assert header.startswith("id,user,uid,name,command,submitted_unix_s,ended_unix_s,runtime_s,")
    assert row.startswith('n1.1,ann,,"a, ""b""",sleep 61,1795348600,1795348683,61,22,')
    assert len(next(csv.reader([row]))) == len(header.split(","))


def test_a_report_has_a_row_for_each_user_node_or_day(start, agentd):
    row = {"user": "ann", "cpu_asked_s": 7200, "cpu_used_s": 3600, "efficiency": 0.5, "paid": 3,
           "earned": 3, "jobs": 2, "failed": 1, "moves": 4, "freezes": 0, "wait_mean_s": 45,
           "slowdown_mean": 2.5}
    process = start("marketctl", "report")
    assert answer(agentd, process, [row]) == ["report", "by=user"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "User  Jobs  Failed  CPU-hours  Used  Efficiency  Mean wait  Slowdown  Moves  Freezes  "
        "Paid  Earned\n"
        "ann      2       1       2.00  1.00         50%      45.0s      2.50      4        0  "
        "   3       3\n")
    process = start("marketctl", "report", "--by", "day", "--csv")
    assert answer(agentd, process, [{**row, "day": "1728086400"}]) == ["report", "by=day"]
    assert process.communicate(timeout=LIMIT)[0].decode().splitlines()[1] == (
        "ann,,1728086400,2,1,7200,3600,0.5,45,2.5,4,0,,3,3")


def test_an_array_is_one_line_that_opens(start, agentd):
    jobs = [{"id": f"n1.{n}", "user": "ann", "name": "sweep", "value": 3, "array": "n1.7",
             "array_index": n - 6, "status": "run" if n < 9 else "wait", "runtime_s": 60,
             "market_runtime_s": 60} for n in (7, 8, 9)] + [{"id": "n2.1", "status": "run"}]
    process = start("marketctl", "lj")
    answer(agentd, process, jobs)
    lines = process.communicate(timeout=LIMIT)[0].decode().splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["n1.7[3]", "n2.1"]
    assert "2 run, 1 wait" in lines[0] and "3m00s" in lines[0]
    process = start("marketctl", "lj", "--open")
    answer(agentd, process, jobs)
    assert [line.split()[0] for line in process.communicate(timeout=LIMIT)[0].decode().splitlines()
            ] == ["ID", "n1.7", "n1.8", "n1.9", "n2.1"]
    process = start("marketctl", "cancel", "--array", "n1.7")
    assert answer(agentd, process, {"count": 3}) == ["cancel", "array=n1.7"]
    assert process.communicate(timeout=LIMIT)[0] == b"3 jobs are being cancelled\n"


LONG = {"": ([], "a"), "a": ([{"id": "n1.1"}, {"id": "n1.2"}], "n1.2"),
        "n1.2": ([{"id": "n1.3"}], "b"), "b": ([], "")}


def test_a_list_that_comes_in_parts_is_shown_as_one(start, agentd):
    def rows(table):
        return [{"id": line.split()[0]} for line in table.splitlines()[1:]]
    for args, shown in [(["lj", "--json"], json.loads), (["lj"], rows)]:
        process = start("marketctl", *args)
        assert answer(agentd, process, parts=LONG) == ["list-jobs", "state=live"]
        out = process.communicate(timeout=LIMIT)[0].decode()
        assert process.returncode == 0 and shown(out) == [{"id": f"n1.{i}"} for i in (1, 2, 3)]


def test_what_is_not_there_yet_is_asked_for_again(start, agentd, tmp_path):
    done = {"file": "x", "bytes": 7, "receipts": 2, "head": "ab"}
    process = start("marketctl", "backup", "x", cwd=tmp_path)
    connection = agentd.accept()
    connection.welcome()
    for after in ("", "wait", "wait"):  # answers without JSON
        request = connection.expect("ctl_request")
        assert (request.get(5, [b""]) == [after.encode()] and
                request[4] == [f"{tmp_path}/x".encode()])
        connection.send("ctl_reply", {1: request[1][0], 2: True, 5: "wait"})
    request = connection.expect("ctl_request")
    connection.send("ctl_reply", {1: request[1][0], 2: True, 4: json.dumps(done)})
    assert (process.communicate(timeout=LIMIT)[0] == b"File:      x\nBytes:     7\nReceipts:  2\n"
            b"Head:      ab\n")
    assert process.returncode == 0


def test_a_ledger_that_may_lack_something_is_shown_and_fails(start, agentd):
    process = start("marketctl", "ledger", "verify")
    assert answer(agentd, process,
                  {"receipts": 2, "warning": "it may lack the rest"}) == ["ledger-verify"]
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode == 1 and b"Receipts:  2" in out and
            err == b"marketctl: it may lack the rest\n")


def test_parts_that_are_no_lists_are_refused(start, agentd):
    process = start("marketctl", "lj", "--json")
    answer(agentd, process, parts={"": ([1], "a"), "a": ({}, "")})
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (1, b"") and b"is not a JSON list" in err


def test_providers_are_a_table(start, agentd):
    process = start("marketctl", "list-providers")
    assert answer(agentd, process, [{**PROVIDER, "address": "10.0.0.1:7"}]) == ["list-providers"]
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "Node  Address     Status            Min  Curr  Next  Speed  CPUs  Memory     Free  Load  "
        "Guests  Earned  Version\n"
        "n1    10.0.0.1:7  on market, busy  24.5   100  0.25    100     2    4 GB  1000 MB   42%"
        "       1     3.5  none\n")


def test_a_node_of_another_version_than_the_market_is_named_below_the_table(start, agentd):
    process = start("marketctl", "list-providers")
    there = {**PROVIDER, "address": "a:7"}
    other = {**there, "market_version": "0.2 (b)"}
    nodes = ([{**there, "version": "0.2 (b)"}, {**other, "node": "n2", "far": False}] +
             [{**other, "node": f"m{i}", "version": "0.3 (c)", "far": False} for i in range(10)] +
             [{**other, "node": "n4", "version": "0.9", "far": True}])
    answer(agentd, process, nodes)
    out = process.communicate(timeout=LIMIT)[0].decode().splitlines()
    assert [line.split()[-1] for line in out[1:14]] == ["0.2", "none"] + 10 * ["0.3"] + ["0.9"]
    assert out[14:] == [
        "agentd of a version before 0.1, the market 0.2 (b): n2",
        "agentd 0.3 (c), the market 0.2 (b): m0 m1 m2 m3 m4 m5 m6 m7 and 2 more",
        "agentd 0.9, the market 0.2 (b): n4 (more than one step apart: bring both to one version)"]


def test_the_market_and_a_job_are_lines(start, agentd):
    process = start("marketctl", "status")
    answer(agentd, process,
           {"hostname": "h", "ports": [7700], "home_nodes": 3,
            "market_type": "central", "solver": "greedy-migration", "pricing": "k-th",
            "jobs": {"total": 6, "wait": 1, "run": 2, "suspend": 3, "finish": 0}, "providers": 3,
            "clusters": 1, "next_run_s": 0.4, "consumers_surplus": 1.5,
            "providers_surplus": 2, "social_welfare": 3.5})
    out = process.communicate(timeout=LIMIT)[0].decode().splitlines()
    assert (out[0] == "Hostname:           h" and
            out[6] == "Jobs:               6, wait 1, run 2, suspend 3, finish 0")
    assert out[-4:] == ["Next run in:        0.4s", "Consumers Surplus:  1.5",
                        "Providers Surplus:  2", "Social Welfare:     3.5"]
    process = start("marketctl", "job", "n1.1")
    answer(agentd, process,
           {"id": "n1.1", "runtime_s": 61, "places": ["n1", "n2"], "hold": False, "why": None})
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "id:       n1.1\nruntime:  1m01s\nplaces:   n1, n2\n")


def test_a_job_is_shown_as_people_read_it(start, agentd):
    job = {"id": "n1.1", "user": "ann", "uid": 7, "status": "finish", "value": 30, "budget": 0,
           "memory_mb": 256, "cpus": 1, "runtime_s": 61, "market_runtime_s": 61, "where": "n1",
           "comment": "cancelled", "reason": {"code": "cancelled", "text": "cancelled"},
           "name": "", "cost": 1e-05, "price": 7.4, "freezes": 0, "migrations": 3,
           "longest_pause_ms": 217.369827, "image_bytes": 123_852,
           "can_move": True, "last_pause_ms": 0.04, "forecast_dirty_bytes_per_s": 1_500_000,
           "finish_s": 7200, "hold": "", "exit": 0, "cancelled": False, "why": "cancelled",
           "ended_unix_s": 1_795_348_683, "places": []}
    process = start("marketctl", "job", "n1.1", env={**os.environ, "TZ": "UTC"})
    answer(agentd, process, job)
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "id:              n1.1\nuser:            ann (7)\nstatus:          finish\n"
        "value:           30 per CPU-hour\n"
        "memory:          256 MB\ncpus:            1\nruntime:         1m01s\nwhere:           n1\n"
        "comment:         cancelled\nreason:          cancelled\n"
        "cost:            0.00001\nprice:           7.4 per CPU-hour\nmigrations:      3\n"
        "longest pause:   217.4 ms\n"
        "image:           123.9 kB\nlast pause:      0.0 ms\nforecast dirty:  1.5 MB/s\n"
        "finish:          2h00m after it was submitted\nexit:            0\n"
        "ended:           2026-11-22 11:58:03\n")


def test_sockets_are_found_by_node_then_here_then_the_first_node(agentd):
    run = os.path.dirname(agentd.path)
    fakes = {}

    def served_by(name, *args, **environment):
        process = subprocess.Popen([BIN / name, *args], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={"SOUK_RUN": run, **environment})
        ready = select.select([fake.sock for fake in fakes.values()], [], [], LIMIT)[0]
        fake_name = [key for key, fake in fakes.items() if fake.sock in ready][0]
        answer(fakes[fake_name], process, PROVIDER)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        return fake_name

    try:
        for path in ("n2", "n5", "market"):
            os.mkdir(f"{run}/{path}")
        fakes["n2"], fakes["n5"] = Agentd(f"{run}/n2/agentd.sock"), Agentd(f"{run}/n5/agentd.sock")
        agentd.die()
        assert served_by("pvdctl", "status") == "n2"
        assert served_by("pvdctl", "--node", "n5", "status") == "n5"
        assert served_by("pvdctl", "status", SOUK_NODE="n5") == "n5"
        assert served_by("marketctl", "cancel", "n1.1") == "n2"
        fakes["market"] = Agentd(f"{run}/market/marketd.sock")
        assert served_by("marketctl", "cancel", "n1.1") == "market"
        assert served_by("marketctl", "cancel", "n1.1", "--node", "n5") == "n5"
        fakes["here"] = Agentd(f"{run}/agentd.sock")
        assert served_by("pvdctl", "status") == "here"
    finally:
        for fake in fakes.values():
            fake.close()


def test_a_daemon_that_is_started_again_is_waited_for(start, agentd):
    for name, args in [("pvdctl", ["status"]), ("marketctl", ["status"])]:
        agentd.die()
        process = start(name, "--json", *args, "--patience", "1h")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        agentd.listen()
        answer(agentd, process, PROVIDER)
        assert (json.loads(process.communicate(timeout=LIMIT)[0]) == PROVIDER and
                process.returncode == 0)


def test_a_question_is_asked_again_when_the_daemon_dies_over_it_and_an_order_is_not(start, agentd):
    process = start("marketctl", "--json", "status")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("ctl_request")
    connection.close()
    answer(agentd, process, {"a": 1})
    assert process.communicate(timeout=LIMIT)[0] == b'{"a": 1}\n'
    process = start("marketctl", "cancel", "n1.1")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("ctl_request")
    connection.close()
    assert (process.communicate(timeout=LIMIT)[1] ==
            b"marketctl: the daemon has closed the connection\n")


def test_an_agentd_without_a_market_is_asked_again(start, agentd):
    process = start("marketctl", "--json", "status")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("ctl_request")
    connection.send("ctl_reply", {1: 1, 3: "no connection to the market", 6: 1})
    answer(agentd, process, {"a": 1})
    assert process.communicate(timeout=LIMIT)[0] == b'{"a": 1}\n'


def test_a_daemon_that_stays_away_is_one_line_after_the_patience(start, agentd):
    agentd.die()
    process = start("marketctl", "--patience", "0.3s", "status")
    err = process.communicate(timeout=LIMIT)[1].decode()
    assert (err.startswith("marketctl: cannot reach the daemon at ") and
            err.endswith("; it was tried again for 300ms\n"))
    assert process.returncode == 1 and err.count("\n") == 1
    process = start("marketctl", "--patience", "0", "status")
    assert b"tried again" not in process.communicate(timeout=LIMIT)[1] and process.returncode == 1


def test_marketctl_exports_the_log_of_decisions_as_it_is(start, agentd, tmp_path):
    parts = {"": (["S 1 1 5 00\nD 1 5 start\n"], "d1:30"), "d1:30": (["# ab\nE\n"], "")}
    whole = "S 1 1 5 00\nD 1 5 start\n# ab\nE\n"
    process = start("marketctl", "decisions", "export", "-", "--user", "me")
    assert answer(agentd, process, parts=parts) == ["decisions", "-", "-", "me"]
    assert process.communicate(timeout=LIMIT)[0].decode() == whole
    process = start("marketctl", "decisions", "export", tmp_path / "log", "--from", "1h")
    asked = answer(agentd, process, parts=parts)
    assert process.communicate(timeout=LIMIT)[0] == b"" and process.returncode == 0
    assert (tmp_path / "log").read_text() == whole
    assert abs(int(asked[1]) - time.time() + 3600) < 60 and asked[2:] == ["-", "-"]


def test_marketctl_why_price_says_which_bid_sets_it(start, agentd):
    name = hashlib.sha256(b"salt n1.7").hexdigest()[:12]
    log = f"""S 1 1 0 {'0' * 64}
D 1 1000000000 start
o solver=greedy_migration pricing=critical users=0 program=0
n 0 id=n1 k=1 r=2000000 s=100 c=1 m=10
j 0 id={name} k=2 u=u1 v=20000000 s=r0
j 1 id=b0b k=3 u=u2 v=9000000
P
p 0 9000000
# {'0' * 12}
N j {name} salt n1.7
E
"""
    for args, said in [
            (["n1.7"], "n1.7 pays 9 on n1: below 9 it loses its place on n1 to b0b (bid 9)\n"),
            (["n1"], "n1 asks at least 2; n1.7 holds 1 CPU and pays 9 (bid 20); to have its place "
                     "another must bid more than 20, the bid of n1.7\n"),
            (["b0b"], "b0b has no place, and pays nothing now\n")]:
        process = start("marketctl", "why-price", *args)
        asked = answer(agentd, process, [log])
        assert asked[0] == "decisions" and asked[1] == asked[2] and asked[3] == "-"
        assert process.communicate(timeout=LIMIT)[0].decode() == said
    process = start("marketctl", "why-price", "--json", "n1.7")
    answer(agentd, process, [log])
    told = json.loads(process.communicate(timeout=LIMIT)[0])
    assert (told["price"], told["reserve"], told["bid"], told["decision"]) == (9, 2, 20, 1)
    assert told["steps"] == [{"below": 9, "speed": 100, "speed_then": 0, "node": "n1",
                              "job": "b0b", "bid": 9}]
    process = start("marketctl", "why-price", "n9.9")
    answer(agentd, process, [log])
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and out == b"" and b"n9.9 is no node, and no job" in err
