# SPDX-License-Identifier: GPL-2.0-or-later
# Long: the cases of one program.
import gzip
import html.parser
import itertools
import json
import os
import pty
import shutil
import subprocess

import pytest

from conftest import BIN
from fake import LIMIT

PROVIDERS = "".join(f"{i} 0 -1 10 1000 1 100\n" for i in range(1, 6))
# The published job file, with the run time of job 3 that its results need (50).
JOBS = "".join(f"{i} 0 50 {25 - i} 100 1\n"
               for i in range(1, 6)) + "6 5 45 25 100 1\n7 10 40 26 100 1\n"
SUMMARY = {
    "jobs": "7", "providers": "5", "migration speed": "100 MB/s", "freeze speed": "100 MB/s",
    "avg runtime": "47.8571 s", "avg slowdown": "1.2543", "avg migrations": "0.0000",
    "avg freezes": "0.5714", "avg migrate-and-freeze time": "2.0000 s",
    "max concurrent freezes": "2", "weighted completion time (WCT)": "9446",
    "weighted stay time": "9487", "weighted bounded slowdown": "197.44"}


def swf(jobs):
    return "; MaxProcs: 16\n" + "".join(
        f"{i + 1} {submit} -1 {run} {procs} -1 -1 {procs} {2 * run} -1 1 {i % 3} -1 -1 -1 -1 -1 "
        f"-1\n"
        for i, (submit, run, procs) in enumerate(jobs))


TRACE = swf([(30 * i, 20 + 37 * i % 400, 1 + 5 * i % 16) for i in range(200)])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").write_text(JOBS)
    (tmp_path / "providers").write_text(PROVIDERS)
    (tmp_path / "trace.swf").write_text(TRACE)
    return tmp_path


def test_the_published_example_comes_out_figure_by_figure(tool, files):
    status, out, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-o", "out")
    assert (status, err) == (0, "")
    rows = dict((line[:38].strip(), line[38:].strip()) for line in out.splitlines()[:22])
    assert {name: rows[name] for name in SUMMARY} == SUMMARY
    table = [line.split() for line in out.split("performance by value\n")[1].splitlines()[1:]]
    assert [(row[1], row[2], row[4]) for row in table] == [
        ("20", "1.94", "1"), ("21", "1.84", "1")] + [(str(value), "1.00", "1")
                                                     for value in range(22, 27)]
    assert (files / "out").read_text() == out
    figures = json.loads((files / "out.json").read_text())
    assert figures["weighted_completion_time"] == 9446 and figures["weighted_stay_time"] == 9487
    ends = [line.split(",")[8] for line in (files / "out.csv").read_text().splitlines()[1:]]
    assert ends == ["50", "50", "50", "92", "97", "50", "50"]


def test_the_same_input_gives_the_same_bytes_however_many_threads(tool, files):
    runs = [["run", "-j", "jobs", "-p", "providers", "--json", "-"],
            ["replay", "trace.swf", "--policy", "greedy_migration", "--per-job", "per-job"],
            ["compare", "-j", "jobs", "-p", "providers", "--pricings", "critical,first,uniform",
             "--horizon", "0,60"]]
    for arguments in runs:
        outputs = set()
        for threads in ((["--threads", "1"], ["--threads", "3"], []) if arguments[0] == "compare"
                        else ([], [])):
            status, out, err = tool("marketsim", *arguments, *threads)
            assert (status, err) == (0, "")
            if arguments[0] == "replay":
                out = (files / "per-job").read_text()  # what stdout says of CPU time differs
            outputs.add(out)
        assert len(outputs) == 1


def test_a_replay_says_what_was_asked_and_text_gzip_and_crlf_read_the_same(tool, files):
    (files / "trace.swf.gz").write_bytes(gzip.compress(TRACE.encode()))
    (files / "crlf.swf").write_text(TRACE.replace("\n", "\r\n"))
    for policy in ("fcfs", "easy", "balance", "greedy_migration", "proportional_share"):
        answers = []
        for trace in ("trace.swf", "trace.swf.gz", "crlf.swf"):
            status, out, err = tool("marketsim", "replay", trace, "--policy", policy, "--cpus",
                                    "16", "--procs", "allocated", "--estimates", "exact", "--json",
                                    "-")
            assert (status, err) == (0, "")
            answer = json.loads(out)
            assert (answer.pop("trace") == trace and answer.pop("cpu_s") > 0 and
                    answer.pop("policy_cpu_s") > 0)
            answers.append(answer)
        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["jobs"] == 200 and answers[0]["policy"] == policy
        assert {"mean_wait_s", "mean_slowdown", "mean_bounded_slowdown", "makespan_s",
                "utilisation", "migrations", "freezes"} <= answers[0].keys()


def test_several_policies_are_replayed_side_by_side(tool, files):
    names = ["fcfs", "easy", "balance"]
    alone = [
        json.loads(tool("marketsim", "replay", "trace.swf", "--policy", name, "--json", "-")[1])
        for name in names]
    status, out, err = tool("marketsim", "replay", "trace.swf", "--policy", ",".join(names),
                            "--json", "-", "--csv", "csv")
    together = json.loads(out)
    assert (status, err) == (0, "")
    for answer in alone + together:
        del answer["cpu_s"], answer["policy_cpu_s"]
    assert together == alone
    rows = [line.split(",") for line in (files / "csv").read_text().splitlines()]
    assert ([row[0] for row in rows] == ["policy", *names] and
            [float(row[5]) for row in rows[1:]] ==
            pytest.approx([a["mean_slowdown"] for a in alone]))
    assert [line.split()[0] for line in tool("marketsim", "replay", "trace.swf", "--policy",
                                             ",".join(names))[1].splitlines()] == ["policy", *names]
    assert tool("marketsim", "replay", "trace.swf", "--policy", "fcfs,easy", "--per-job",
                "x")[0] == 2
    status, out, err = tool("marketsim", "replay", "trace.swf", "--policy", "fcfs,magic")
    assert ((status, out, err.count("\n")) == (2, "", 1) and "magic" in err and
            all(name in err for name in names))


def test_an_import_is_a_function_of_its_configuration_and_seed(tool, files):
    (files / "config").write_text(
        "trace = trace.swf\r\nproviders = 9\nvalue = bimodal 80 30 15 20 90 15\njobs = 50\n"
        "speed = uniform 50 150\narrival_divisor = 2\nrun_multiplier = 3\nseed = 5\n")
    assert tool("marketsim", "import", "config", "-o", "a")[0] == 0
    assert tool("marketsim", "import", "config", "-o", "b", "--seed", "5")[0] == 0
    assert tool("marketsim", "import", "config", "-o", "c", "--seed", "6")[0] == 0
    a, b, c = ((files / f"{name}.jobs").read_text() + (files / f"{name}.providers").read_text()
               for name in "abc")
    assert a == b != c
    jobs = [line.split() for line in (files / "a.jobs").read_text().splitlines()
            if not line.startswith("#")]
    assert len(jobs) == 50 and jobs[3][:3] == ["4", "45", "393"]  # submitted at 90, ran 131 s
    status, out, _ = tool("marketsim", "run", "-j", "a.jobs", "-p", "a.providers", "--json", "-")
    assert status == 0 and json.loads(out)["jobs"] == 50


@pytest.mark.parametrize("verb, name, content, complaint", [
    ("replay", "trace.swf", b"", "trace.swf: is empty"),
    ("replay", "trace.swf", b"; nothing\n\n", "trace.swf: has no job in its 2 lines"),
    ("replay", "trace.swf", TRACE.encode() + b"201 0 -1\n",
     "trace.swf: line 202: has 3 fields, a job has 18"),
    ("replay", "trace.swf", TRACE.replace(" -1 20 ", " -1 -20 ", 1).encode(),
     "trace.swf: line 2: field 4 (run time): '-20' is negative, only -1 (unknown) may be"),
    ("replay", "trace.swf", TRACE.replace("\n9 ", "\n8 ").encode(),
     "trace.swf: line 10: field 1 (job number): 8 is the job of line 9 again"),
    ("replay", "trace.swf", TRACE.replace("\n9 ", "\n9999999999999999999999 ").encode(),
     "trace.swf: line 10: field 1 (job number): '9999999999999999999999' is out of range "
     "(at most 9223372036854775806)"),
    ("replay", "trace.swf", gzip.compress(TRACE.encode(), mtime=0)[:-9],
     "trace.swf: truncated gzip stream: ends after"),
    ("replay", "trace.swf", gzip.compress(TRACE.encode(), mtime=0)[:-4] + b"long",
     "trace.swf: damaged gzip stream after"),
    ("run", "jobs", b"", "jobs: has no job"),
    ("run", "jobs", b"1 0 50 24 100\n", "jobs: line 1: has 5 fields, a job has 6"),
    ("run", "jobs", b"1 0 50 24 100 1 7 0 5 0\n", "jobs: line 1: field 8 (home): '0' is nobody"),
    ("run", "jobs", b"1 0 50 24 100 1\r\n1 0 50 24 100 1\r\n",
     "jobs: line 2: field 1 (id): 1 is the job of line 1 again"),
    ("run", "jobs", b"1 0 -50 24 100 1\n", "jobs: line 1: field 3 (run): '-50' is out of range"),
    ("run", "providers", b"1 0 -1 10 1000 1 100\n1 0 -1 10 1000 1 100\n",
     "providers: line 2: field 1 (id): 1 is the provider of line 1"),
    ("run", "providers", b"1 0 -1 10 1000 1 99999\n",
     "providers: line 1: field 7 (speed): '99999' is out of range"),
    ("compare", "jobs", b"x\n", "jobs: line 1: has 1 fields"),
    ("import", "config", b"trace = trace.swf\nproviders = 3\nprice = 4\n",
     "config: line 3: no key 'price'"),
    ("import", "config", b"", "config: trace is not set"),
], ids=itertools.count())
def test_bad_input_is_one_line_that_names_file_line_field_and_why_and_writes_nothing(
        tool, files, verb, name, content, complaint):
    (files / name).write_bytes(content)
    arguments = {"replay": ["trace.swf", "--json", "out.json", "--per-job", "out.csv"],
                 "run": ["-j", "jobs", "-p", "providers", "-o", "out"],
                 "compare": ["-j", "jobs", "-p", "providers", "-o", "out", "--json", "out.json"],
                 "import": ["config", "-o", "out"]}[verb]
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", verb, *arguments)
    assert status == 1 and out == "" and err.count("\n") == 1
    assert err.startswith(f"marketsim {verb}: {complaint}"), err
    assert sorted(os.listdir()) == before


def test_an_output_that_cannot_be_written_leaves_none_of_them(tool, files):
    os.mkdir("out.csv")
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-o", "out")
    assert (status, out, err) == (1, "", "marketsim run: out.csv: is a directory\n")
    assert sorted(os.listdir()) == before
    status, _, err = tool("marketsim", "replay", "trace.swf", "--json", "/dev/full")
    assert (status, err) == (1, "marketsim replay: /dev/full: write: No space left on device\n")
    assert tool("marketsim", "replay", "trace.swf", "--json", "/dev/null")[0] == 0
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize("arguments",
                         [["run", "-j", "jobs", "-p", "providers"],
                          ["compare", "-j", "jobs", "-p", "providers"], ["replay", "trace.swf"],
                          ["replay", "trace.swf", "--json", "-"], ["import", "config", "-o", "out"],
                          ["run", "--help"], ["--help"]])
def test_what_cannot_be_said_on_stdout_is_a_failure(files, arguments):
    (files / "config").write_text("trace = trace.swf\nproviders = 1\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN / "marketsim", *arguments], stdin=subprocess.DEVNULL,
                              stdout=full, stderr=subprocess.PIPE, timeout=LIMIT)
    assert (done.returncode == 1 and
            done.stderr.decode().endswith(": standard output: No space left on device\n"))


def test_an_output_is_neither_an_input_nor_named_twice(tool, files):
    (files / "config").write_text("trace = trace.swf\nproviders = 1\n")
    (files / "out.jobs").write_text(TRACE)
    os.symlink("jobs", "link")
    before = {name: (files / name).read_bytes() for name in os.listdir()}
    for arguments, complaint in (
            (["run", "-j", "jobs", "-p", "providers", "-o", "jobs"],
             "run: jobs: is an input, and would be overwritten"),
            (["run", "-j", "jobs", "-p", "providers", "--json", "./link"],
             "run: ./link: is an input, and would be overwritten"),
            (["compare", "-j", "jobs", "-p", "providers", "-o", "providers"],
             "compare: providers: is an input, and would be overwritten"),
            (["replay", "trace.swf", "--json", "trace.swf"],
             "replay: trace.swf: is an input, and would be overwritten"),
            (["import", "config", "--trace", "out.jobs", "-o", "out"],
             "import: out.jobs: is an input, and would be overwritten"),
            (["run", "-j", "jobs", "-p", "providers", "-o", "out", "--json", "./out.json"],
             "run: ./out.json: is named for two outputs"),
            (["replay", "trace.swf", "--json", "out", "--per-job", "out"],
             "replay: out: is named for two outputs")):
        assert tool("marketsim", *arguments) == (1, "", f"marketsim {complaint}\n")
        assert {name: (files / name).read_bytes() for name in os.listdir()} == before


def test_sums_that_no_number_holds_end_at_the_largest_and_time_ends_with_a_word(tool, files):
    (files / "jobs").write_text("1 0 1000000000 1000000000 0 1048576\n")
    (files / "providers").write_text("1 0 -1 0 1000 1048576 100\n")
    status, out, _ = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "--json", "-")
    figures = json.loads(out)
    assert (status == 0 and figures["social_welfare"] == figures["consumers_surplus"] > 10**12 and
            figures["providers_surplus"] == 0)
    (files / "providers").write_text("1 0 -1 0 1000 1048576 1\n")
    assert tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-o", "out") == (1, "", (
        "marketsim run: the run goes on beyond second 8000000000 (253 years), where the market's "
        "clock ends\n"))
    (files / "jobs").write_text("1 8000000001 1 1 0 1\n")
    assert tool("marketsim", "run", "-j", "jobs", "-p", "providers") == (1, "", (
        "marketsim run: jobs: line 1: field 2 (start): '8000000001' is out of range (0 to "
        "8000000000)\n"))
    (files / "trace.swf").write_text(TRACE +
                                     "201 8001 -1 5 1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 -1 -1\n")
    (files / "config").write_text("trace = trace.swf\nproviders = 1\narrival_divisor = 0.000001\n")
    assert tool("marketsim", "import", "config", "-o", "out") == (1, "", (
        "marketsim import: trace.swf: line 202: with this arrival_divisor the job comes after "
        "second 8000000000\n"))
    assert not any(name.startswith("out") for name in os.listdir())


def test_whoever_is_killed_while_it_writes_leaves_nothing(files):
    # A pipe as one of two outputs: the run waits in commit() with the other one written and not
    # named.
    os.mkfifo("pipe")
    process = subprocess.Popen(
        [BIN / "marketsim", "replay", "trace.swf", "--json", "whole.json", "--per-job", "pipe"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        reader = os.open("pipe", os.O_RDONLY)  # opens when the run opens its end
        process.kill()
        process.wait(timeout=LIMIT)
        os.close(reader)
    finally:
        process.kill()
        process.wait(timeout=LIMIT)
    left = sorted(os.listdir())
    # It was faster than the signal: then it is whole.
    if left != ["jobs", "pipe", "providers", "trace.swf"]:
        assert left == ["jobs", "pipe", "providers", "trace.swf", "whole.json"]
        assert json.loads((files / "whole.json").read_text())["jobs"] == 200


def test_every_parameter_of_a_comparison_is_tried_and_the_json_says_which(tool, files):
    status, out, _ = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "-s",
                          "greedy_migration", "--pricings", "uniform", "--k", "0,1000",
                          "--moves-max", "0,2", "--min-stay", "7", "--quantum", "20", "--json", "-")
    rows = json.loads(out)
    assert status == 0 and [row["variant"] for row in rows] == [
        f"greedy_migration/uniform k={k} moves-max={moves}" for k in (0, 1000) for moves in (0, 2)]
    assert [(row["k_permille"], row["moves_max"], row["min_stay_s"], row["quantum_s"])
            for row in rows] == [
                (0, 0, 7, 20), (0, 2, 7, 20), (1000, 0, 7, 20), (1000, 2, 7, 20)]
    status, out, _ = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--pricings",
                          "first,uniform", "--k", "0,1000", "--quantum", "5,9", "--json", "-")
    assert [row["variant"] for row in json.loads(out)] == [
        "greedy_migration/first", "greedy_migration/uniform k=0", "greedy_migration/uniform k=1000",
        "proportional_share/first quantum=5", "proportional_share/first quantum=9",
        *(f"proportional_share/uniform k={k} quantum={quantum}" for k in (0, 1000)
          for quantum in (5, 9))]
    assert rows[0]["providers_surplus"] == 0 < rows[2]["providers_surplus"]
    status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--disk",
                          ",".join(["1"] * 300))
    assert status == 2 and "at most 256" in err


def test_what_a_move_costs_is_reckoned_with_the_network_that_carries_it(tool, files):
    # 1000 MB: 10 s at 100 MB/s, 1000 s at 1 MB/s. The fast machine is free from 50 on; the gain
    # over 100 s is half of that.
    (files / "jobs").write_text("1 0 50 9 0 1\n2 0 4000 5 1000 1\n")
    (files / "providers").write_text("1 0 -1 1 2000 1 200\n2 0 -1 1 2000 1 100\n")
    moves = []
    for network in ("100", "1"):
        out = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "--horizon", "100",
                   "--network", network, "--json", "-")[1]
        moves.append(json.loads(out)["migrations"])
    assert moves == [1, 0]


def test_an_unknown_algorithm_or_pricing_is_wrong_usage_that_names_those_there_are(tool, files):
    for arguments in (["run", "-j", "jobs", "-p", "providers"],
                      ["compare", "-j", "jobs", "-p", "providers"]):
        pricing = "--pricings" if arguments[0] == "compare" else "--pricing"
        for option, names in (("-s", ("greedy_migration", "proportional_share", "welfare")),
                              (pricing, ("critical", "first", "uniform"))):
            status, out, err = tool("marketsim", *arguments, option, "whatever")
            assert ((status, out, err.count("\n")) == (2, "", 1) and
                    all(name in err for name in ("whatever", *names))), err
    assert tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-s",
                "mig") == tool("marketsim", "run", "-j", "jobs", "-p", "providers")
    for option, names in (("--solver", "greedy_migration, proportional_share, welfare"),
                          ("--pricing", "critical, first, uniform")):
        status, out, err = tool("souk", "up", option, "whatever",
                                env={**os.environ, "SOUK_RUN": str(files / "souk")})
        assert ((status, out, err.count("\n")) == (2, "", 1) and
                err.startswith(f"souk: {option}: ") and names in err), err
    assert not os.path.exists("souk")


def test_jobs_of_unknown_submit_time_are_dropped_and_counted(tool, files):
    lines = TRACE.splitlines()
    for i in (1, 7, 200):
        words = lines[i].split()
        lines[i] = " ".join([words[0], "-1", *words[2:]])
    (files / "trace.swf").write_text("\n".join(lines) + "\n")
    status, out, err = tool("marketsim", "replay", "trace.swf", "--json", "-")
    answer = json.loads(out)
    assert ((status, err) == (0, "") and answer["jobs"] == 197 and
            answer["dropped"]["unknown_submit"] == 3)
    assert "3 of unknown submit time" in tool("marketsim", "replay", "trace.swf")[1]
    (files / "config").write_text("trace = trace.swf\nproviders = 4\n")
    status, out, err = tool("marketsim", "import", "config", "-o", "a", "--json", "-")
    answer = json.loads(out)
    assert (status, err) == (0, "") and answer["dropped_no_submit"] == 3 and answer["jobs"] == 197
    assert (answer["offered_load"] > 0 and f"offered load: {answer['offered_load']:.4f}" in
            tool("marketsim", "import", "config", "-o", "a")[1])


def test_without_a_log_an_import_draws_the_workload(tool, files):
    (files / "config").write_text("useSWF = false\nnumJobs = 30\nnumProviders = 2\n"
                                  "interarrival = fix 10\nrun = fix 29\n"
                                  "values = bimodal 0.8 30 15 0.2 90 15\n")
    status, out, err = tool("marketsim", "import", "config", "-o", "a")
    assert (status, err) == (0, "") and "offered load: 1.5000" in out  # 30 x 29 / (2 x 290)
    assert tool("marketsim", "run", "-j", "a.jobs", "-p", "a.providers")[0] == 0


def run_ends(tool, *arguments):
    status, out, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-o", "out",
                            *arguments)
    assert (status, err) == (0, ""), err
    return [line.split(",")[8] for line in open("out.csv").read().splitlines()[1:]]


def test_an_outside_program_that_is_our_own_solver_decides_as_the_inside_one(tool, files):
    for text in (JOBS, JOBS.replace(" 100 1\n", " 0 1\n")):  # with memory to carry, and without
        (files / "jobs").write_text(text)
        assert run_ends(tool, "-s", str(BIN / "solver")) == run_ends(tool)
    # Many jobs of no memory on unlike machines that come and go: nothing takes time, so the two
    # agree job by job.
    (files / "jobs").write_text("".join(f"{3 * i + 1} {7 * i % 90} {20 + 31 * i % 60} "
                                        f"{5 + 17 * i % 40} 0 {1 + i % 2}\n" for i in range(60)))
    (files / "providers").write_text("1 0 -1 3 0 2 100\n2 10 70 0 0 4 60\n9 20 -1 8 0 2 160\n")
    assert run_ends(tool, "-s", f"{BIN / 'solver'} --pricing first") == run_ends(tool)
    status, out, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "-s",
                            f"greedy_migration,{BIN / 'solver'},fcfs,easy", "--json", "-")
    rows = json.loads(out)
    assert (status, err) == (0, "") and [row["solver"] for row in rows] == ["greedy_migration",
                                                                            str(BIN / "solver"),
                                                                            "fcfs", "easy"]
    assert rows[0]["mean_slowdown"] == rows[1]["mean_slowdown"] and rows[2]["freezes"] <= 30


@pytest.mark.parametrize("script, why", [
    ("exit 0", "has ended"), ("while read word rest; do [ $word = alloc ] && echo 1 99; [ $word = "
                              "info ] && echo me; done", "names provider 99, which there is not"),
    ("while read word rest; do [ $word = alloc ] && { echo 1 1; echo 2 1; }; [ $word = "
     "info ] && echo me; done", "job 2 on provider 1: the provider has no room left"),
    ("echo 'error: no thanks'; cat > /dev/null", "says: no thanks"),
])
def test_an_outside_program_that_fails_is_named_with_what_was_wrong(tool, files, script, why):
    (files / "mine").write_text(f"#!/bin/sh\n{script}\n")
    os.chmod("mine", 0o755)
    status, out, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-s", "./mine")
    assert ((status, out, err.count("\n")) == (1, "", 1) and err.startswith("marketsim run: ") and
            why in err), err
    assert tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-s", "./none")[0] == 1


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_queueing_policies_on_one_provider_are_those_of_the_replay(tool, files, policy):
    # Two implementations of one definition: the market simulator's, over providers, and the
    # replay's, over a log.
    status, _, err = tool("marketsim", "replay", "trace.swf", "--policy", policy, "--cpus", "16",
                          "--estimates", "exact", "--per-job", "ends")
    assert (status, err) == (0, "")
    expected = [line.split(",")[2] for line in (files / "ends").read_text().splitlines()[1:]]
    (files / "config").write_text("trace = trace.swf\nproviders = 1\nprovider_cpus = fix 16\n"
                                  "cpus = requested\nmemory = fix 0\nreservation = fix 0\n")
    assert tool("marketsim", "import", "config", "-o", "w")[0] == 0
    os.rename("w.jobs", "jobs")
    os.rename("w.providers", "providers")
    assert run_ends(tool, "-s", policy) == expected and len(set(expected)) > 50


def test_seeds_give_means_with_confidence_intervals_as_table_json_and_csv(tool, files):
    (files / "config").write_text("use_swf = no\njobs = 40\nproviders = 2\n"
                                  "interarrival = uniform 0 60\nrun = uniform 20 200\nseed = 7\n")
    base = ["compare", "-i", "config", "-s", "mig,fcfs"]
    slowdowns = []
    for seed in range(7, 12):  # each by itself
        assert tool("marketsim", "import", "config", "-o", "w", "--seed", str(seed))[0] == 0
        out = tool("marketsim", "compare", "-j", "w.jobs", "-p", "w.providers", "-s", "mig,fcfs",
                   "--json", "-")[1]
        slowdowns.append([row["mean_slowdown"] for row in json.loads(out)])
    status, out, err = tool("marketsim", *base, "--seeds", "5", "--json", "-", "--csv",
                            "figures.csv")
    assert (status, err) == (0, "")
    rows = [line.split(",") for line in (files / "figures.csv").read_text().splitlines()]
    assert (rows[0][:4] == ["variant", "seeds", "mean_slowdown", "mean_slowdown_ci95"] and
            rows[1][0] == '"greedy_migration/critical"')
    for i, row in enumerate(json.loads(out)):
        values = [s[i] for s in slowdowns]
        mean = sum(values) / 5
        half = 2.7764 * (sum((v - mean) ** 2 for v in values) / 4 / 5) ** 0.5
        told = row["over_seeds"]["mean_slowdown"]
        assert abs(told["mean"] - mean) < 1e-9 and abs(told["ci95"] - half) < 1e-9 and half > 0
        assert (abs(float(rows[i + 1][2]) - mean) < 1e-6 and
                abs(float(rows[i + 1][3]) - half) < 1e-3 and rows[i + 1][1] == "5")
    outs = {tool("marketsim", *base, "--seeds", "5", *threads)[1]
            for threads in (["--threads", "1"], ["--threads", "3"])}
    assert len(outs) == 1 and "means over 5 seeds" in outs.pop()
    one = tool("marketsim", *base, "--csv", "-")[1].splitlines()
    assert one[1].split(",")[3] == ""  # no interval of one run
    for wrong in (["compare", "-j", "jobs", "-p", "providers", "--seeds", "3"],
                  ["compare", "-j", "jobs"], [*base, "-j", "jobs"]):
        status, out, err = tool("marketsim", *wrong)
        assert (status, out, err.count("\n")) == (2, "", 1), err


def test_wrong_usage_is_told_from_a_failure(tool, files):
    for arguments in ([], ["fly"], ["replay"], ["replay", "trace.swf", "--policy", "magic"],
                      ["replay", "trace.swf", "--cpus", "0"], ["run", "-j", "jobs"],
                      ["compare", "-j", "jobs", "-p", "providers", "--plot", "picture.gif"],
                      ["compare", "-j", "jobs", "-p", "providers", "--plot", ".svg"],
                      ["replay", "trace.swf", "--cpus", "4", "--cpus", "5"],
                      ["replay", "trace.swf", "--seed", "-1"],
                      ["replay", "trace.swf", "--values", "uniform 5"]):
        status, out, err = tool("marketsim", *arguments)
        assert (status == 2 and out == "" and err.count("\n") == 1 and
                err.startswith("marketsim")), (arguments, err)
    assert tool("marketsim", "replay", "none.swf") == (
        1, "", "marketsim replay: none.swf: open: No such file or directory\n")


def test_a_comparison_is_drawn_where_there_is_gnuplot(tool, files):
    if shutil.which("gnuplot") is None:
        pytest.skip("gnuplot is not installed")
    for kind, magic in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--plot",
                              f"picture.{kind}")
        assert (status, err) == (0, "")
        drawn = sorted(name for name in os.listdir() if name.startswith("picture"))
        assert drawn == [f"picture-{part}.{kind}"
                         for part in ("gantt-1", "gantt-2", "utilisation", "value")]
        for name in drawn:
            assert (files / name).read_bytes().startswith(magic)
            os.unlink(name)


def test_without_gnuplot_a_comparison_to_draw_fails_before_it_runs(tool, files):
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "-o", "table",
                            "--plot", "picture.svg", env={**os.environ, "PATH": str(files)})
    assert (status, out) == (1, "")
    assert (err == "marketsim compare: --plot needs gnuplot, which is not installed: apt-get "
            "install gnuplot-nox\n")
    assert sorted(os.listdir()) == before


def test_a_gnuplot_that_fails_leaves_no_picture(tool, files):
    os.mkdir("bin")
    (files / "bin" / "gnuplot").write_text("#!/bin/sh\nexit 3\n")
    os.chmod("bin/gnuplot", 0o755)
    status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--plot",
                          "picture.svg", env={**os.environ, "PATH": f"{files}/bin:/usr/bin:/bin"})
    assert (status, err) == (1, "marketsim compare: picture-value.svg: gnuplot failed\n")
    assert not any(name.startswith("picture") for name in os.listdir())


def test_progress_is_shown_on_a_terminal_alone(files):
    ours, theirs = pty.openpty()
    command = [BIN / "marketsim", "compare", "-j", "jobs", "-p", "providers", "--threads", "1"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=theirs, timeout=LIMIT)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the terminal's other end is closed
            pass
    finally:
        os.close(ours)
    assert (done.returncode == 0 and b"] 0 of 2" in shown and b"#] 2 of 2" in shown and
            shown.endswith(b"\r\x1b[K"))
    assert b"of 2" not in done.stdout


def test_the_references_experiments_come_out_as_published(tool):
    status, out, err = tool("marketsim", "compare", "--coallocation", "--json", "-")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    as_published = [row for row in rows if row["as_published"]]
    assert [row["experiment"] for row in as_published] == [1, 2, 3, 4, 5]
    for row in as_published:
        assert row["response_s"] == pytest.approx(row["published_response_s"], rel=0.05)
    by = {(row["experiment"], row["policy"]): row["response_s"] for row in rows}
    assert (by[3, "fcfs"] < by[1, "fcfs"] < by[2, "fcfs"] < by[5, "fpfs"] < by[4, "fcfs"])
    # An ordered mistake is undone.
    assert by[4, "market_anywhere"] < 0.7 * by[4, "fcfs"]
    assert tool("marketsim", "coallocation", "--json", "-")[1] == out


def test_the_markets_own_solver_places_jobs_of_several_components(tool, files):
    # Method: the mix of ordered and unordered jobs under it; then what it cannot be asked.
    status, out, err = tool("marketsim", "coallocation", "--experiments", "4,5", "--policies",
                            "published,solver_anywhere", "--json", "-")
    assert (status, err) == (0, "")
    by = {(row["experiment"], row["policy"]): row["response_s"] for row in json.loads(out)}
    assert by[4, "solver_anywhere"] < 0.7 * by[4, "fcfs"]
    assert by[5, "solver_anywhere"] < by[5, "fpfs"]
    status, out, err = tool("marketsim", "coallocation", "--log", "trace.swf", "--jobs", "300",
                            "--clusters", "16,16,16", "--limit", "8", "--requests", "flexible",
                            "--policies", "solver_anywhere")
    assert status == 1 and "the solver takes no request that names a cluster" in err


def test_a_log_is_split_into_components(tool, files):
    arguments = ["coallocation", "--log", "trace.swf", "--jobs", "300", "--loads", "0.4",
                 "--clusters", "16,16,16", "--limit", "8", "--json", "-"]
    for requests in ("ordered", "unordered", "flexible", "total"):
        status, out, err = tool("marketsim", *arguments, "--requests", requests)
        assert (status, err) == (0, "")
        rows = {row["policy"]: row for row in json.loads(out)}
        assert len(rows) == 6
        assert all(0 < row["utilisation_max"] <= 1 for row in rows.values())
        assert all(row["loads"][0]["response_s"] > 0 for row in rows.values())
    status, _, err = tool("marketsim", *arguments, "--policies", "lifo")
    assert (status, err.count("\n")) == (2, 1) and "lifo" in err
    status, _, err = tool("marketsim", "coallocation", "--slowdown", "2")
    assert (status, err.count("\n")) == (2, 1) and "--slowdown" in err
    assert tool("marketsim", "compare", "--alpha", "5", "--coallocation") == (2, "", (
        "marketsim compare: --coallocation comes first, and options of its own after it\n"))


class Page(html.parser.HTMLParser):
    """The elements of a page, which must all be closed; what it would load; its tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.loads, self.rows, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.loads += [(tag, k, v) for k, v in attributes
                       if k in ("src", "href", "srcset", "data") and not v.startswith("#")]
        if tag == "tr":
            self.rows.append([])
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(text)
        self.texts.append(text)


def test_a_comparison_becomes_one_page_that_needs_nothing_else(tool, files):
    (files / "config").write_text("use_swf = no\njobs = 40\nproviders = 2\n"
                                  "interarrival = uniform 0 60\nrun = uniform 20 200\nseed = 7\n")
    out = tool("marketsim", "compare", "-i", "config", "-s", "mig,fcfs", "--seeds", "3", "--json",
               "all.json", "--csv", "-")[1]
    assert tool("marketsim", "report", "all.json", "-o", "page.html", "--title",
                "<b>one & two") == (0, "", "")
    text = (files / "page.html").read_text()
    page = Page(text)
    assert page.loads == [] and "@import" not in text and "url(" not in text
    assert not any(tag in ("script", "iframe", "b") for tag, _ in page.seen)
    assert "<b>one & two" in page.texts
    figures = {row[0]: row[1:] for row in page.rows if len(row) == 3}
    header, *rows = [line.split(",") for line in out.splitlines()]
    assert figures["Figure"] == [row[0].strip('"') for row in rows]
    for i, name in enumerate(header[2::2]):
        for told, row in zip(figures[name.replace("_", " ")], rows):
            mean, half = (float(part) for part in told.split(" ± "))
            assert mean == pytest.approx(float(row[2 + 2 * i]), rel=1e-4, abs=1e-9)
            assert half == pytest.approx(float(row[3 + 2 * i] or 0), rel=1e-2, abs=1e-9)
    # a picture for each figure, with a bar and an interval for each variant
    pictures = [a for tag, a in page.seen if tag == "svg"]
    assert len(pictures) == len(header[2::2]) and all(a["role"] == "img" for a in pictures)
    assert sum(tag == "rect" for tag, _ in page.seen) == len(rows) * len(pictures)
    intervals = [a for tag, a in page.seen if a.get("class") == "interval"]
    assert len(intervals) == len(rows) * len(pictures)
    assert all(float(a["x1"]) <= float(a["x2"]) for a in intervals)
    again = tool("marketsim", "report", "all.json", "--title", "<b>one & two")
    assert again == (0, text, "")


@pytest.mark.parametrize("given,why", [("", "it is no comparison"), ("{}", "it is no comparison"),
                                       ("[]", "it is no comparison"), ("[1]", "has no name"),
                                       ('[{"variant":"a","by_value":[1]}]', "no objects")])
def test_what_is_no_comparison_becomes_no_page(tool, files, given, why):
    (files / "some").write_text(given)
    status, out, err = tool("marketsim", "report", "some", "-o", "page.html")
    assert (status, out) == (1, "") and err.startswith("marketsim report: some: ") and why in err
    assert err.count("\n") == 1 and not (files / "page.html").exists()
