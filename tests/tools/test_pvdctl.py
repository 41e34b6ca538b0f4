# SPDX-License-Identifier: GPL-2.0-or-later
"""pvdctl: what it asks, and how it shows the answer."""
import json
import os
import re
import time

import pytest

from fake import LIMIT, PROVIDER, answer


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
                       ([stopped, {"job": "n2.1", "state": "frozen", "memory_mb": 8},
                         {"job": "n2.2", "state": "frozen", "memory_mb": 8,
                          "image": "waits: no connection from its home n2"}],
                        "n1 is off the market; left are:\n"
                        "n1.7: stopped where it is: no CPU, 64 MB of memory at most "
                        "(has an io_uring open)\nn2.1: frozen to the disk of this node\n"
                        "n2.2: frozen to the disk of this node; it waits: no connection from its "
                        "home n2\n")]:
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
SHARE = {"node": "n1", "rules": ["here = 0.5 cpus", "daily 8:00-9:00 = 50%"],
         "holds": "here = 0.5 cpus", "zone": "", "cpus": 2, "machine_cpus": 4, "memory_mb": 1024,
         "machine_memory_mb": 4096, "lent_cpus": 0.5, "lent_memory_mb": 1024}
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
    (["share"], ["provider-share"], SHARE,
     ["here = 0.5 cpus", "daily 8:00-9:00 = 50%", "0.5 CPUs, 1 GB: the share 'here = 0.5 cpus'"]),
    (["share", "here", "=", "0.5 cpus"], ["provider-share", "here = 0.5 cpus"], SHARE, ["Now:"]),
    (["share", "all"], ["provider-share", "all"],
     {**SHARE, "rules": [], "holds": "", "lent_cpus": 1}, ["all that is offered", "1 CPU, 1 GB"]),
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
    assert answer(agentd, process, {"jobs": {"total": 3}}) == ["status"]
    assert answer(agentd, process, {**PRICES, "zone": "UTC"}) == ["provider-price"]
    asked = answer(agentd, process, [row(0, 12), row(1, 10), row(9, 50), row(10, 39)])
    assert asked[0] == "prices" and asked[2] == "3600"
    told = json.loads(process.communicate(timeout=LIMIT)[0])
    # of 2 CPUs: an hour of the night at 12, and one of the day, when 40 is asked, at 50
    assert told["earned"] == 124 and told["known_h"] == 4, told
    assert [r["let_h"] for r in told["at"]] == [4, 4, 2, 0, 0], told


def test_a_forecast_has_three_digits_that_count(start, agentd):
    process = start("pvdctl", "forecast")
    answer(agentd, process, PROVIDER)
    answer(agentd, process, {"jobs": {"total": 3}})
    answer(agentd, process, {**PRICES, "zone": "UTC"})
    answer(agentd, process, [
        {"from_unix_s": 4 * 86_400 + hour * 3600, "span_s": 3600,
         "speeds": [{"speed": 80, "price": price, "open_s": 3599.5}]}
        for hour, price in ((0, 61728.123456), (9, 0.0123456))])
    lines = process.communicate(timeout=LIMIT)[0].decode().splitlines()
    assert lines[0].startswith("by 2 h of"), lines
    assert [line.split()[-3:] for line in lines[2:5]] == [
        ["2", "h", "123000"], ["1", "h", "123000"], ["1", "h", "123000"]], lines


def test_pvdctl_promises_no_money_in_a_market_that_never_had_a_job(start, agentd):
    process = start("pvdctl", "forecast")
    answer(agentd, process, PROVIDER)
    assert answer(agentd, process, {"jobs": {"total": 0}}) == ["status"]
    told = process.communicate(timeout=LIMIT)[0].decode()
    assert process.returncode == 0 and told.startswith("this market has had no job yet"), told


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


@pytest.mark.parametrize("load, line", [
    ({"memory_pressure_permille": 125}, "Memory stalls: 13% of the last 10 s"),
    ({"memory_pressure_trouble": "open /proc/pressure/memory: No such file"},
     "Memory stalls: not known: open /proc/pressure/memory: No such file")])
def test_pvdctl_status_says_how_the_memory_of_the_machine_is(start, agentd, load, line):
    process = start("pvdctl", "status")
    answer(agentd, process, {**PROVIDER, **load})
    out = process.communicate(timeout=LIMIT)[0].decode()
    assert line in [" ".join(row.split()) for row in out.splitlines()], out


@pytest.mark.parametrize("key, said", [
    ("look_trouble", "seen each second alone where no guest is in the way: no perf events"),
    ("give_way_trouble", "lowered guests keep a CPU until the next tick: no perf events")])
def test_pvdctl_status_says_what_the_owner_is_not_given(start, agentd, key, said):
    process = start("pvdctl", "status")
    answer(agentd, process, {**PROVIDER, "presence": {"here": False, key: "no perf events"}})
    out = process.communicate(timeout=LIMIT)[0].decode()
    assert said in [row.lstrip(": ") for row in out.splitlines()], out


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
    # It hears that when it has shown the other; before a second is over, when it asks again.
    waits.send("ctl_reply", {1: off[1][0], 2: True, 4: json.dumps({"node": "n2", "here": []})})
    connection.send("ctl_reply", {1: request[1][0], 2: True,
                                  4: json.dumps({"node": "n2", "here": here})})
    assert process.communicate(timeout=LIMIT)[0] == b"n2 is off the market; no guest is left\n"
    said = os.read(ours, 4096).decode()
    os.close(ours)
    assert re.search(r"n2: 2 guests still here, [\d.]+s; n1\.4: 640.0 MB of 1.2 GB", said), said


@pytest.mark.parametrize("more, shown", [
    ({}, "on market, busy"), ({"paused": True}, "on market, guests are stopped for you"),
    ({"presence": {"here": True, "guests": "stopped"}}, "on market, guests are stopped for you"),
    ({"presence": {"here": True, "guests": "leaving"}}, "on market, guests leave for you"),
    ({"presence": {"here": True, "guests": "lowered"}}, "on market, busy")])
def test_a_node_whose_guests_stand_is_not_called_busy(start, agentd, more, shown):
    process = start("pvdctl", "status")
    answer(agentd, process, {**PROVIDER, **more})
    told = process.communicate(timeout=LIMIT)[0].decode()
    assert told.splitlines()[0].split(":")[1].strip() == shown
