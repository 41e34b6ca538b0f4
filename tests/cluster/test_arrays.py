# SPDX-License-Identifier: GPL-2.0-or-later
"""Arrays, jobs that wait for others, reasons, history and reports, on real daemons."""
import json
import os
import subprocess

import pytest

from conftest import BIN, until


def ask(market, *args):
    return json.loads(market.tool("marketctl", "--json", *args).stdout)


def test_an_array_runs_so_many_at_once_and_each_job_knows_its_index(market, tmp_path):
    done = market.tool("srun", "-p", "40", "--array", "1-4%1", "-o", tmp_path / "out.%a", "sh",
                       "-c", "echo $SOUK_ARRAY_INDEX of $SOUK_ARRAY_ID as $SOUK_JOB_ID; "
                       "exit $SOUK_ARRAY_INDEX", check=False)
    assert done.returncode == 4, done.stderr
    said = [(tmp_path / f"out.{i}").read_text().split() for i in (1, 2, 3, 4)]
    first = said[0][2]
    node, number = first.split(".")
    assert said == [[str(i), "of", first, "as", f"{node}.{int(number) + i - 1}"]
                    for i in (1, 2, 3, 4)]
    # one at a time: each was submitted with the others and ended after the one before
    market.until_job(f"{node}.{int(number) + 3}", "has ended", lambda j: j["status"] == "finish")
    jobs = sorted((j for j in market.list_jobs() if j.get("array") == first),
                  key=lambda j: j["array_index"])
    assert [j["exit"] for j in jobs] == [1, 2, 3, 4]
    ends = [j["ended_unix_s"] for j in jobs]
    assert ends == sorted(ends)


def test_wait_for_an_array_ends_with_the_last_of_its_jobs(market, tmp_path):
    for index in (2, 3):
        os.mkfifo(tmp_path / f"go.{index}")
    first = market.tool("srun", "-p", "40", "-d", "--array", "1-3", "sh", "-c",
                        f"[ $SOUK_ARRAY_INDEX = 1 ] || read x < {tmp_path}/go.$SOUK_ARRAY_INDEX; "
                        "exit $SOUK_ARRAY_INDEX"
                        ).stdout.split()[0]
    market.until_job(first, "has ended", lambda j: j["status"] == "finish")
    waits = subprocess.Popen([f"{BIN}/srun", f"--wait={first}"], env=market.env)
    try:
        until("the others run", lambda: len(market.live()) == 2)
        assert waits.poll() is None
        for index in (2, 3):
            (tmp_path / f"go.{index}").write_text("x\n")  # as soon as it reads
        assert waits.wait(30) == 3
    finally:
        waits.kill()
        waits.wait()


def test_who_waits_for_another_says_so_begins_after_it_or_ends_with_it(market):
    first = market.srun("-p", "40", "sleep", "1000")
    market.until_runs(first.id)
    after = market.tool("srun", "-p", "40", "-d", "--after", first.id, "true").stdout.strip()
    well = market.tool("srun", "-p", "40", "-d", "--after", first.id + ":ok", "true").stdout.strip()
    market.until_job(after, "waits", lambda j: j.get("reason", {}).get("code") == "waits_for_job")
    why = ask(market, "why", after)["reasons"][0]
    assert why["code"] == "waits_for_job" and first.id in why["cause"], why
    market.tool("marketctl", "cancel", first.id)
    market.until_job(after, "has run", lambda j: j["status"] == "finish" and j["exit"] == 0)
    market.until_job(well, "has not", lambda j: j["status"] == "finish" and
                     j["why_code"] == "job_before_failed" and first.id in j["why"])


def test_the_bid_that_why_names_starts_the_job(market):
    nodes = market.nodes()
    running = [market.srun("-p", "40", "sleep", "1000") for _ in nodes]
    for job in running:
        market.until_runs(job.id)
    low = market.srun("-p", "30", "sleep", "1000")
    market.until_job(low.id, "is outbid", lambda j: j.get("reason", {}).get("code") == "outbid")
    bid = ask(market, "why", low.id)["reasons"][0]["bid"]
    assert 40 < bid <= 41
    market.tool("srun", "-J", low.id, "-p", bid)
    market.until_runs(low.id)
    lost = market.until_job(min(running, key=lambda j: 0).id, "is known", lambda j: True)
    frozen = [j for j in market.live() if j["status"] != "run"]
    assert any(j.get("reason", {}).get("code") == "displaced" and j["reason"]["job"] == low.id
               for j in frozen) or lost
    assert ask(market, "why", nodes[0])["reasons"][0]["code"] in ("node_full", "node_open")


def test_what_has_run_is_in_history_and_report_and_mmon(market):
    job = market.srun("-p", "40", "--name", "for history", "true")
    market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")
    seen = next(j for j in ask(market, "history") if j["id"] == job.id)
    assert seen["name"] == "for history" and seen["wait_s"] >= 0 and seen["exit"] == 0
    rows = ask(market, "report", "--by", "user")
    assert rows[0]["user"] == "root" and rows[0]["jobs"] >= 1
    assert {r["node"] for r in ask(market, "report", "--by", "node")} <= set(market.nodes())
    text = market.tool("mmon", "--once").stdout
    assert text.startswith("souk ") and all(n in text for n in market.nodes())


def test_what_jobs_used_is_measured_over_moves_and_summed_up_for_an_array(market):
    eats = "import time; a = bytearray(90 << 20)\nwhile time.process_time() < 2.5: pass"
    job = market.srun("-p", "40", "-m", "300M", "python3", "-c", eats)
    market.until_runs(job.id)
    until("its memory is told", lambda: market.job(job.id).get("memory_peak_bytes", 0) > 90 << 20)
    there = next(n for n in market.nodes() if n != market.job(job.id)["where"])
    market.tool("marketctl", "move", job.id, there)
    market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")
    ended = market.job(job.id)
    assert 90 << 20 < ended["memory_peak_bytes"] < 150 << 20, ended
    assert 2.4 < ended["cpu_used_s"] < 10, ended
    assert abs(ended["efficiency"] - ended["cpu_used_s"] / ended["runtime_s"]) < 0.01, ended
    assert ended["failures"] == 0
    assert "memory peak" in market.tool("marketctl", "job", job.id).stdout
    array = market.tool("srun", "-p", "40", "--wait", "--array", "1-3", "sh", "-c",
                        "exit $((SOUK_ARRAY_INDEX % 2))", check=False).stdout.split()[0]
    assert "failed:       2: " in market.tool("marketctl", "job", f"{array}[*]").stdout
    line = next(x for x in market.tool("marketctl", "history", "-o", "id,exit,failures"
                                       ).stdout.splitlines() if x.startswith(array))
    assert line.split() == [f"{array}[*]", "2", "failed", "2"]
    wrong = market.tool("marketctl", "history", "-o", "id,speed", check=False)
    assert wrong.returncode == 2 and "'speed' is no column" in wrong.stderr, wrong


def test_a_command_runs_here_when_a_detached_job_has_ended(market, tmp_path):
    says = 'echo "$SOUK_JOB_ID $SOUK_JOB_NAME $SOUK_JOBS $SOUK_FAILED $SOUK_EXIT" > '
    one = market.tool("srun", "-p", "40", "-d", "--name", "night", "--notify",
                      f"{says}{tmp_path}/one", "sh", "-c", "sleep 1; exit 3").stdout.strip()
    array = market.tool("srun", "-p", "40", "-d", "--array", "0-2", "--notify",
                        f"{says}{tmp_path}/all", "sh", "-c", "exit $SOUK_ARRAY_INDEX"
                        ).stdout.strip()
    for file, said in (("one", f"{one} night 1 1 3\n"), ("all", f"{array}  3 2 2\n")):
        until(f"{file} is told", lambda: os.path.exists(tmp_path / file) and
              (tmp_path / file).read_text() == said)


def test_several_jobs_are_cancelled_by_their_name(market):
    ids = [market.srun("-p", "40", "--name", "sweep", "sleep", "1000").id for _ in range(2)]
    other = market.srun("-p", "40", "sleep", "1000").id
    market.tool("marketctl", "cancel", "--name", "sweep")
    for id in ids:
        market.until_job(id, "has ended", lambda j: j["status"] == "finish")
    assert market.job(other)["status"] != "finish"


def test_an_array_is_cancelled_by_the_id_that_its_line_shows(market):
    array = market.tool("srun", "-p", "40", "-d", "--array", "1-4", "sleep",
                        "1000").stdout.strip()
    assert f"{array}[*]" in market.tool("marketctl", "list-jobs").stdout
    market.tool("marketctl", "cancel", f"{array}[3]")
    until("one is gone", lambda: len(market.live()) == 3)
    assert market.tool("marketctl", "cancel", array).stdout == "3 jobs are being cancelled\n"
    until("all are gone", lambda: not market.live())
    line = market.tool("marketctl", "list-jobs", "--state", "finish").stdout
    assert "4 failed" in line, line


def test_a_program_that_counts_processors_finds_those_that_its_job_asked_for(market):
    assert market.tool("srun", "-p", "40", "-c", "1", "nproc").stdout == "1\n"


COUNTS = """import os, sys, time
file = open("/sys/devices/system/cpu/online")
def say():
    file.seek(0)
    infos = sum(line.startswith("processor") for line in open("/proc/cpuinfo"))
    print(os.cpu_count(), infos, file.read().strip(), len(os.sched_getaffinity(0)), flush=True)
say()
sys.stdin.readline()
say()
"""


one_is_not_all = pytest.mark.skipif(os.cpu_count() < 2,
                                    reason="a job of one CPU has all of the machine's")


@one_is_not_all
@pytest.mark.parametrize("files", [[], ["--files=home"]])
def test_what_counts_processors_in_sys_and_proc_finds_as_many_also_after_a_move(market, files):
    job = subprocess.Popen([f"{BIN}/srun", "-p", "40", "-c", "1", *files,
                            "python3", "-c", COUNTS], env=market.env, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
    # It may run on any of them: the kernel shares them out, and none is its own.
    expected = f"1 1 0 {os.cpu_count()}\n"
    try:
        assert job.stdout.readline() == expected
        (id, one), = [(j["id"], j) for j in market.live()]
        to = next(n for n in ("n1", "n2") if n != one["where"])
        market.tool("marketctl", "--hold", "move", id, to)
        market.until_runs(id, to)
        out, _ = job.communicate("go on\n", timeout=30)
        assert (out, job.returncode) == (expected, 0)
    finally:
        job.kill()
        job.wait()


HOLDS = """import sys
infos, online = open("/proc/cpuinfo"), open("/sys/devices/system/cpu/online")
for line in sys.stdin:
    infos.seek(0), online.seek(0)
    print(infos.read().count("processor\t"), online.read().split(), flush=True)
"""


@one_is_not_all
@pytest.mark.parametrize("files", [[], ["--files=home"]])
def test_who_holds_the_list_of_its_processors_reads_that_of_the_new_node(market, files):
    job = market.srun("-p", "40", "-c", "1", *files, "/usr/bin/python3", "-c", HOLDS,
                      stdin=subprocess.PIPE)

    def says(what):
        before = job.lines()
        job.process.stdin.write(b"\n")
        job.process.stdin.flush()
        job.printed(before + 1)
        assert bytes(job.out).decode().splitlines()[-1] == what
    says("1 ['0']")
    # The lists of this node are longer from here on, as if it were another machine.
    one = next(iter(market.capsules(job.id)[0][2]))
    for name, more in ("souk.cpuinfo", "processor\t: 1"), ("souk.cpus", "more"):
        subprocess.run(["nsenter", "-t", str(one), "-m", "sh", "-c",
                        f"echo '{more}' >>/run/{name}"], check=True)
    says("2 ['0', 'more']")
    to = next(n for n in ("n1", "n2") if n != market.job(job.id)["where"])
    market.tool("marketctl", "--hold", "move", job.id, to)
    says("1 ['0']")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.tool("marketctl", "--hold", "thaw", job.id, to)
    says("1 ['0']")
    assert market.job(job.id)["failed_moves"] == 0
