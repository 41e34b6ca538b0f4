# SPDX-License-Identifier: GPL-2.0-or-later
"""marketctl: how it shows what the market says."""
import csv
import hashlib
import json
import os
import time

import pytest

from fake import LIMIT, PROVIDER, answer


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


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_a_home_says_nothing_to_the_terminal(start, agentd, how):
    step = {"at_unix_s": 1, "step": "started\x1b]0;owned\x07", "node": "n\x9b31m", "why": "\x1b[2J"}
    process = start("marketctl", "job", "n1.7", "--story", *how)
    answer(agentd, process, {"steps": [step]})
    told = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0 and b"started" in told
    assert not any(c < 0x20 and c != 0x0a or c == 0x7f for c in told) and b"\xc2\x9b" not in told


@pytest.mark.parametrize("reply", [{"steps": [1]}, {"steps": {"a": "b"}}, {"steps": 7}, [], 5,
                                   {"steps": [{"at_unix_s": "x"}]}, {"left_out": "x"}])
def test_an_answer_of_other_kinds_is_one_line(start, agentd, reply):
    process = start("marketctl", "job", "n1.7", "--story")
    answer(agentd, process, reply)
    told, why = process.communicate(timeout=LIMIT)
    assert process.returncode in (0, 1) and (process.returncode == 0 or why.count(b"\n") == 1), why


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


def stream(begin, data, end):
    return {"begin": begin, "from": begin, "end": end, "hex": data.hex()}


def serve_output(agentd, replies):
    """The arguments of each question of `marketctl output`, each on a connection of its own."""
    return [answer(agentd, None, {"id": "n1.7", "ended": ended, "streams": list(streams)})
            for ended, *streams in replies]


def test_output_is_read_in_pieces_and_as_bytes(start, agentd):
    process = start("marketctl", "output", "n1.7")
    asked = serve_output(agentd, [
        (False, stream(0, b"\x1b[1mone\xff", 10), stream(0, b"oops\n", 5)),
        (False, stream(8, b"\n.", 10), stream(5, b"", 5))])
    told, said = process.communicate(timeout=LIMIT)
    assert asked == [["output", "n1.7", "out=0", "err=0"], ["output", "n1.7", "out=8", "err=5"]]
    assert (process.returncode, told, said) == (0, b"\x1b[1mone\xff\n.", b"oops\n")


def test_output_is_followed_until_the_job_has_ended(start, agentd):
    process = start("marketctl", "output", "-f", "--lines", "1", "n1.7")
    none = stream(0, b"", 0)
    asked = serve_output(agentd, [(False, stream(100, b"two\n", 104), none),
                                  (False, stream(104, b"", 104), none),
                                  (True, stream(104, b"three\n", 110), none)])
    told, said = process.communicate(timeout=LIMIT)
    assert [a[2:] for a in asked] == [["lines=1"], ["out=104", "err=0"], ["out=104", "err=0"]]
    assert (process.returncode, told, said) == (0, b"two\nthree\n", b"")


def test_output_says_what_is_not_kept_any_more(start, agentd):
    process = start("marketctl", "output", "n1.7")
    serve_output(agentd, [(True, stream(4096, b"rest\n", 4101), stream(0, b"", 0))])
    told, said = process.communicate(timeout=LIMIT)
    assert told == b"rest\n"
    assert said == (b"marketctl: 4096 bytes of n1.7's stdout up to byte 4096 are not kept here: a "
                    b"terminal or a file has taken them\n")


@pytest.mark.parametrize("words", [["output"], ["output", "n1.7", "x"], ["output", "7"],
                                   ["output", "n1.7", "--lines", "x"], ["job", "n1.7", "-f"],
                                   ["--json", "output", "n1.7"]])
def test_words_of_output_that_are_wrong(tool, words):
    assert tool("marketctl", *words)[0] == 2


LOAD = {"id": "n1.7", "node": "n2", "epoch": 2, "source": "bpf", "run_s": 12.5, "wait_s": 0.25,
        "memory_stall_s": 0.5, "wait_p99_us": 1048, "off_cpu_s": 1.5, "gave_up": 7, "preempted": 3,
        "births": 5, "deaths": 2, "major_faults": 4, "read_bytes": 1_200_000, "write_bytes": 0,
        "received_bytes": 40_000_000, "sent_bytes": 999}
PROC = {k: LOAD[k] for k in ("id", "node", "epoch", "run_s", "wait_s")}


@pytest.mark.parametrize("load, words", [
    (LOAD, ["on n2 since it came there, as counted by bpf", "12.5s; it waited 250.0 ms for a CPU",
            "its threads waited 1500.0 ms for something else",
            "it stood still for 500.0 ms for want of it",
            "7 to wait for something, 3 while it could go on", "5 began, 2 ended",
            "1.2 MB read, 0 bytes written, 4 pages", "40.0 MB received, 999 bytes sent"]),
    ({**{k: v for k, v in LOAD.items() if not k.endswith(("received_bytes", "sent_bytes"))},
      "network_trouble": "no such program"}, ["1.2 MB read", "not counted: no such program"]),
    ({**PROC, "source": "proc", "trouble": "no BTF"}, ["by proc", "counted: no BTF"])])
def test_what_a_job_uses_is_lines(start, agentd, load, words):
    process = start("marketctl", "job", "n1.7", "--load")
    assert answer(agentd, process, load) == ["load", "n1.7"]
    out = process.communicate(timeout=LIMIT)[0].decode()
    assert process.returncode == 0 and all(word in out for word in words), out


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
        "ID     User    Name                      Status  Exit     V  T-runtime  M-runtime  "
        "Where  Comment\n"
        "n1.1   ann     ./simulate --grün --of..  finish     3   100     12m05s       3.2s  "
        "n2     none\n"
        "n1.12  jürgen  night                     frozen  none  20.5      5h07m       0.0s  "
        "n3     outbid by n1.1\n"
        "n2.1   none    none                      none    none  none       none       none  "
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


def test_history_is_a_table_or_values_with_commas(start, agentd):
    jobs = [{"id": "n1.1", "user": "ann", "name": "a, \"b\"", "submitted_unix_s": 1_795_348_600,
             "ended_unix_s": 1_795_348_683, "runtime_s": 61, "wait_s": 22, "migrations": 1,
             "freezes": 0, "places": ["n1", "n2"], "cost": 0.25, "exit": 0, "command": "sleep 61",
             "memory_peak_bytes": 12_300_000, "cpu_used_s": 54.9, "efficiency": 0.9,
             "failures": 2}]
    process = start("marketctl", "history", "--provider", "n2", "--user", "ann",
                    env={**os.environ, "TZ": "UTC"})
    assert answer(agentd, process, jobs) == ["list-jobs", "state=finish", "user=ann", "node=n2",
                                             "limit=100"]
    assert process.communicate(timeout=LIMIT)[0].decode().splitlines()[1].split() == (
        'n1.1 ann a, "b" 2026-11-22 11:56:40 2026-11-22 11:58:03 1m01s 22.0s 12.3 MB 90% 1 0 '
        'n1, n2 0.25 0 '
        "sleep 61").split()
    process = start("marketctl", "history", "--csv", "--limit", "3")
    assert answer(agentd, process, jobs)[-1] == "limit=3"
    header, row = process.communicate(timeout=LIMIT)[0].decode().splitlines()
    assert header.startswith("id,user,uid,name,command,submitted_unix_s,ended_unix_s,runtime_s,")
    assert row.startswith('n1.1,ann,,"a, ""b""",sleep 61,1795348600,1795348683,61,22,')
    assert len(next(csv.reader([row]))) == len(header.split(","))
    process = start("marketctl", "history", "-o", "id,peak,cpu,efficiency,failures")
    answer(agentd, process, jobs)
    assert process.communicate(timeout=LIMIT)[0].decode() == (
        "ID       Peak  CPU time  Efficiency  Failures\n"
        "n1.1  12.3 MB     54.9s         90%         2\n")
    process = start("marketctl", "history", "--csv", "-o", "id,peak")
    answer(agentd, process, jobs)
    assert process.communicate(timeout=LIMIT)[0].decode() == "id,memory_peak_bytes\nn1.1,12300000\n"


def sweep():
    """Three jobs of one array, of which two failed."""
    return [{"id": f"n1.{n}", "user": "ann", "name": "sweep", "command": "./sim", "array": "n1.7",
             "array_index": n - 6, "status": "finish", "runtime_s": 10, "cpus": 2, "cost": 0.5,
             "memory_mb": 100, "memory_peak_bytes": n * 1_000_000, "cpu_used_s": n,
             "efficiency": n / 20, "exit": status, "migrations": 1, "failures": 1 if status else 0}
            for n, status in ((7, 0), (8, 3), (9, 137))]


def test_an_array_is_summed_up_and_its_failures_are_named(start, agentd):
    process = start("marketctl", "job", "n1.7[*]")
    assert answer(agentd, process, sweep()) == ["list-jobs", "state=all", "array=n1.7"]
    rows = dict(line.split(":", 1) for line in
                process.communicate(timeout=LIMIT)[0].decode().splitlines())
    said = {k: v.strip() for k, v in rows.items()}
    assert said["jobs"] == "3" and said["failed"] == "2: n1.8[2] (3), n1.9[3] (137)"
    assert said["memory peak"] == "9.0 MB" and said["memory"] == "100 MB each"
    assert said["efficiency"] == "40%" and said["cpu used"] == "24.0s" and said["moves"] == "3"
    assert said["cancelled"] == "0"
    process = start("marketctl", "job", "n1.7[*]")
    answer(agentd, process, [])
    assert b"no such array" in process.communicate(timeout=LIMIT)[1] and process.returncode == 1


def test_history_has_a_line_for_an_array_that_opens(start, agentd):
    columns = ["-o", "id,exit,failures,peak,efficiency"]
    process = start("marketctl", "history", "--array", "n1.7", *columns)
    assert answer(agentd, process, sweep()) == ["list-jobs", "state=finish", "limit=100",
                                                "array=n1.7"]
    assert process.communicate(timeout=LIMIT)[0].decode().splitlines()[1].split() == (
        "n1.7[*] 2 failed 2 9.0 MB 40%".split())
    process = start("marketctl", "history", "--open", *columns)
    answer(agentd, process, sweep())
    assert [line.split()[:2] for line in
            process.communicate(timeout=LIMIT)[0].decode().splitlines()[1:]] == [
        ["n1.7", "0"], ["n1.8", "3"], ["n1.9", "137"]]


def test_jobs_of_an_array_that_were_cancelled_have_not_failed(start, agentd):
    jobs = sweep()
    jobs[2] |= {"cancelled": True, "why": "cancelled", "why_code": "cancelled"}
    process = start("marketctl", "history", "-o", "id,exit")
    answer(agentd, process, jobs)
    assert process.communicate(timeout=LIMIT)[0].decode().splitlines()[1].split() == (
        "n1.7[*] 1 failed, 1 cancelled".split())
    process = start("marketctl", "job", "n1.7[*]")
    answer(agentd, process, jobs)
    said = process.communicate(timeout=LIMIT)[0].decode()
    assert "1: n1.8[2] (3)" in said and "n1.9" not in said, said
    # The home ends it, too, when its time is over: nobody has cancelled that one.
    jobs[2] |= {"why": "its time is over", "why_code": "time_limit"}
    process = start("marketctl", "history", "-o", "id,exit")
    answer(agentd, process, jobs)
    assert "2 failed" in process.communicate(timeout=LIMIT)[0].decode()


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
    assert [line.split()[0] for line in lines] == ["n1.7[*]", "n2.1"]
    assert "2 run, 1 wait" in lines[0] and "3m00s" in lines[0] and "array of 3" in lines[0]
    process = start("marketctl", "lj", "--open")
    answer(agentd, process, jobs)
    assert [line.split()[0] for line in process.communicate(timeout=LIMIT)[0].decode().splitlines()
            ] == ["ID", "n1.7", "n1.8", "n1.9", "n2.1"]
    process = start("marketctl", "cancel", "--array", "n1.7")
    assert answer(agentd, process, {"count": 3}) == ["cancel", "array=n1.7"]
    assert process.communicate(timeout=LIMIT)[0] == b"3 jobs are being cancelled\n"


@pytest.mark.parametrize("exits, shown", [([0, 0, 0], " 0 "), ([0, 3, 255], "2 failed"),
                                          ([None, None, None], " none ")])
def test_the_line_of_an_array_tells_how_many_failed(start, agentd, exits, shown):
    process = start("marketctl", "lj", "--state", "all")
    answer(agentd, process, [
        {"id": f"n1.{7 + n}", "user": "ann", "name": "sweep", "value": 3, "array": "n1.7",
         "array_index": n, "status": "finish" if code is not None else "run",
         **({} if code is None else {"exit": code})} for n, code in enumerate(exits)])
    assert shown in process.communicate(timeout=LIMIT)[0].decode().splitlines()[1]


@pytest.mark.parametrize("word, array, asked, told", [
    ("n1.7", None, ["cancel", "n1.7"], b""),
    ("n1.8", "n1.7", ["cancel", "n1.8"], b""),
    ("n1.7", "n1.7", ["cancel", "array=n1.7"], b"3 jobs are being cancelled\n"),
    ("n1.7[*]", "n1.7", ["cancel", "array=n1.7"], b"3 jobs are being cancelled\n")])
def test_the_id_of_an_array_cancels_all_of_it(start, agentd, word, array, asked, told):
    process = start("marketctl", "cancel", word)
    assert answer(agentd, process, {"id": word, **({"array": array} if array else {})}) == [
        "job", word.removesuffix("[*]")]
    assert answer(agentd, process, {"count": 3} if told else {"id": word}) == asked
    assert process.communicate(timeout=LIMIT) == (told, b"") and process.returncode == 0


def test_elements_of_an_array_are_cancelled_by_their_indexes(start, agentd):
    process = start("marketctl", "cancel", "n1.7[2]")
    assert answer(agentd, process, {"count": 1}) == ["cancel", "array=n1.7[2]"]
    assert process.communicate(timeout=LIMIT) == (b"1 job is being cancelled\n", b"")


def test_a_list_of_jobs_is_cancelled_at_once(start, agentd):
    process = start("marketctl", "cancel", "n1.1,n1.20-24", "n1.7[1,3-4]", "lab-2.5-6")
    assert answer(agentd, process, {"id": "n1.1"}) == ["job", "n1.1"]
    assert answer(agentd, process, {"count": 11}) == [
        "cancel", "n1.1", "range=n1.20-24", "array=n1.7[1,3-4]", "range=lab-2.5-6"]
    assert process.communicate(timeout=LIMIT) == (b"11 jobs are being cancelled\n", b"")
    process = start("marketctl", "cancel", "lab-2.5")
    assert answer(agentd, process, {"id": "lab-2.5"}) == ["job", "lab-2.5"]
    assert answer(agentd, process, {"id": "lab-2.5"}) == ["cancel", "lab-2.5"]
    assert process.communicate(timeout=LIMIT) == (b"", b"")
    process = start("marketctl", "cancel", *[f"n1.{n}" for n in range(1, 18)])
    assert b"more than 16 jobs or lists" in process.communicate(timeout=LIMIT)[1]


def test_jobs_are_held_and_released_in_lists(start, agentd):
    process = start("marketctl", "hold", "n1.7")
    assert answer(agentd, process, {"id": "n1.7", "array": "n1.7"}) == ["job", "n1.7"]
    assert answer(agentd, process, {"count": 3}) == ["hold", "array=n1.7"]
    assert process.communicate(timeout=LIMIT) == (b"3 jobs\n", b"")
    process = start("marketctl", "release", "n1.7-9")
    assert answer(agentd, process, {"count": 1, "others": "job n1.8 is not held"}) == [
        "release", "range=n1.7-9"]
    assert process.communicate(timeout=LIMIT) == (
        b"1 job; of the others: job n1.8 is not held\n", b"")


def test_providers_that_fit_a_need_are_asked_for(start, agentd):
    process = start("marketctl", "lp", "--needs", "gpu and memory >= 8G")
    assert answer(agentd, process, [PROVIDER]) == ["list-providers", "needs=gpu and memory >= 8G"]
    assert process.wait(timeout=LIMIT) == 0


def test_a_ledger_that_may_lack_something_is_shown_and_fails(start, agentd):
    process = start("marketctl", "ledger", "verify")
    assert answer(agentd, process,
                  {"receipts": 2, "warning": "it may lack the rest"}) == ["ledger-verify"]
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode == 1 and b"Receipts:  2" in out and
            err == b"marketctl: it may lack the rest\n")


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
            out[6] == "Jobs:               6, wait 1, run 2, frozen 3, finish 0")
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
