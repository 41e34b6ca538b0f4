# SPDX-License-Identifier: GPL-2.0-or-later
import gzip
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
JOBS = "".join(f"{i} 0 50 {25 - i} 100 1\n" for i in range(1, 6)) + "6 5 45 25 100 1\n7 10 40 26 100 1\n"
SUMMARY = {
    "jobs": "7", "providers": "5", "migration speed": "100 MB/s", "freeze speed": "100 MB/s", "avg runtime": "47.8571 s",
    "avg slowdown": "1.2543", "avg migrations": "0.0000", "avg freezes": "0.5714", "avg migrate-and-freeze time": "2.0000 s",
    "max concurrent freezes": "2", "weighted completion time (WCT)": "9446", "weighted stay time": "9487",
    "weighted bounded slowdown": "197.44"}


def swf(jobs):
    return "; MaxProcs: 16\n" + "".join(
        f"{i + 1} {submit} -1 {run} {procs} -1 -1 {procs} {2 * run} -1 1 {i % 3} -1 -1 -1 -1 -1 -1\n"
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
        ("20", "1.94", "1"), ("21", "1.84", "1")] + [(str(value), "1.00", "1") for value in range(22, 27)]
    assert (files / "out").read_text() == out
    figures = json.loads((files / "out.json").read_text())
    assert figures["weighted_completion_time"] == 9446 and figures["weighted_stay_time"] == 9487
    ends = [line.split(",")[8] for line in (files / "out.csv").read_text().splitlines()[1:]]
    assert ends == ["50", "50", "50", "92", "97", "50", "50"]


def test_the_same_input_gives_the_same_bytes_however_many_threads(tool, files):
    runs = [["run", "-j", "jobs", "-p", "providers", "--json", "-"],
            ["replay", "trace.swf", "--policy", "greedy_migration", "--per-job", "per-job"],
            ["compare", "-j", "jobs", "-p", "providers", "--pricings", "critical,first,uniform", "--horizon", "0,60"]]
    for arguments in runs:
        outputs = set()
        for threads in (["--threads", "1"], ["--threads", "3"], []) if arguments[0] == "compare" else ([], []):
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
            status, out, err = tool("marketsim", "replay", trace, "--policy", policy, "--cpus", "16", "--procs", "allocated",
                                    "--estimates", "exact", "--json", "-")
            assert (status, err) == (0, "")
            answer = json.loads(out)
            assert answer.pop("trace") == trace and answer.pop("cpu_s") > 0 and answer.pop("policy_cpu_s") > 0
            answers.append(answer)
        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["jobs"] == 200 and answers[0]["policy"] == policy
        assert {"mean_wait_s", "mean_slowdown", "mean_bounded_slowdown", "makespan_s", "utilisation", "migrations",
                "freezes"} <= answers[0].keys()


def test_an_import_is_a_function_of_its_configuration_and_seed(tool, files):
    (files / "config").write_text("trace = trace.swf\r\nproviders = 9\nvalue = bimodal 80 30 15 20 90 15\njobs = 50\n"
                                  "speed = uniform 50 150\narrival_divisor = 2\nrun_multiplier = 3\nseed = 5\n")
    assert tool("marketsim", "import", "config", "-o", "a")[0] == 0
    assert tool("marketsim", "import", "config", "-o", "b", "--seed", "5")[0] == 0
    assert tool("marketsim", "import", "config", "-o", "c", "--seed", "6")[0] == 0
    a, b, c = ((files / f"{name}.jobs").read_text() + (files / f"{name}.providers").read_text() for name in "abc")
    assert a == b != c
    jobs = [line.split() for line in (files / "a.jobs").read_text().splitlines() if not line.startswith("#")]
    assert len(jobs) == 50 and jobs[3][:3] == ["4", "45", "393"]  # submitted at 90, ran 131 s
    status, out, _ = tool("marketsim", "run", "-j", "a.jobs", "-p", "a.providers", "--json", "-")
    assert status == 0 and json.loads(out)["jobs"] == 50


@pytest.mark.parametrize("verb, name, content, complaint", [
    ("replay", "trace.swf", b"", "trace.swf: is empty"),
    ("replay", "trace.swf", b"; nothing\n\n", "trace.swf: has no job in its 2 lines"),
    ("replay", "trace.swf", TRACE.encode() + b"201 0 -1\n", "trace.swf: line 202: has 3 fields, a job has 18"),
    ("replay", "trace.swf", TRACE.replace(" -1 20 ", " -1 -20 ", 1).encode(),
     "trace.swf: line 2: field 4 (run time): '-20' is negative, only -1 (unknown) may be"),
    ("replay", "trace.swf", TRACE.replace("\n9 ", "\n8 ").encode(),
     "trace.swf: line 10: field 1 (job number): 8 is the job of line 9 again"),
    ("replay", "trace.swf", TRACE.replace("\n9 ", "\n9999999999999999999999 ").encode(),
     "trace.swf: line 10: field 1 (job number): '9999999999999999999999' is out of range (at most 9223372036854775806)"),
    ("replay", "trace.swf", gzip.compress(TRACE.encode())[:-9], "trace.swf: truncated gzip stream: ends after"),
    ("replay", "trace.swf", gzip.compress(TRACE.encode())[:-4] + b"long", "trace.swf: damaged gzip stream after"),
    ("run", "jobs", b"", "jobs: has no job"),
    ("run", "jobs", b"1 0 50 24 100\n", "jobs: line 1: has 5 fields, a job has 6"),
    ("run", "jobs", b"1 0 50 24 100 1\r\n1 0 50 24 100 1\r\n", "jobs: line 2: field 1 (id): 1 is the job of line 1 again"),
    ("run", "jobs", b"1 0 -50 24 100 1\n", "jobs: line 1: field 3 (run): '-50' is out of range"),
    ("run", "providers", b"1 0 -1 10 1000 1 100\n1 0 -1 10 1000 1 100\n", "providers: line 2: field 1 (id): 1 is the provider of line 1"),
    ("run", "providers", b"1 0 -1 10 1000 1 99999\n", "providers: line 1: field 7 (speed): '99999' is out of range"),
    ("compare", "jobs", b"x\n", "jobs: line 1: has 1 fields"),
    ("import", "config", b"trace = trace.swf\nproviders = 3\nprice = 4\n", "config: line 3: no key 'price'"),
    ("import", "config", b"", "config: trace is not set"),
])
def test_bad_input_is_one_line_that_names_file_line_field_and_why_and_writes_nothing(tool, files, verb, name, content, complaint):
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


def test_wrong_usage_is_told_from_a_failure(tool, files):
    for arguments in ([], ["fly"], ["replay"], ["replay", "trace.swf", "--policy", "magic"], ["replay", "trace.swf", "--cpus", "0"],
                      ["run", "-j", "jobs"], ["compare", "-j", "jobs", "-p", "providers", "--plot", "picture.gif"],
                      ["replay", "trace.swf", "--values", "uniform 5"]):
        status, out, err = tool("marketsim", *arguments)
        assert status == 2 and out == "" and err.count("\n") == 1 and err.startswith("marketsim"), (arguments, err)
    assert tool("marketsim", "replay", "none.swf") == (1, "", "marketsim replay: none.swf: open: No such file or directory\n")


def test_a_comparison_is_drawn_where_there_is_gnuplot(tool, files):
    if shutil.which("gnuplot") is None:
        pytest.skip("gnuplot is not installed")
    for kind, magic in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--plot", f"picture.{kind}")
        assert (status, err) == (0, "")
        drawn = sorted(name for name in os.listdir() if name.startswith("picture"))
        assert drawn == [f"picture-{part}.{kind}" for part in ("gantt-1", "gantt-2", "utilisation", "value")]
        for name in drawn:
            assert (files / name).read_bytes().startswith(magic)
            os.unlink(name)


def test_without_gnuplot_a_comparison_to_draw_fails_before_it_runs(tool, files):
    before = sorted(os.listdir())
    status, out, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "-o", "table", "--plot", "picture.svg",
                            env={**os.environ, "PATH": str(files)})
    assert (status, out) == (1, "")
    assert err == "marketsim compare: --plot needs gnuplot, which is not installed: apt-get install gnuplot-nox\n"
    assert sorted(os.listdir()) == before


def test_a_gnuplot_that_fails_leaves_no_picture(tool, files):
    os.mkdir("bin")
    (files / "bin" / "gnuplot").write_text("#!/bin/sh\nexit 3\n")
    os.chmod("bin/gnuplot", 0o755)
    status, _, err = tool("marketsim", "compare", "-j", "jobs", "-p", "providers", "--plot", "picture.svg",
                          env={**os.environ, "PATH": f"{files}/bin:/usr/bin:/bin"})
    assert (status, err) == (1, "marketsim compare: picture-value.svg: gnuplot failed\n")
    assert not any(name.startswith("picture") for name in os.listdir())


def test_progress_is_shown_on_a_terminal_alone(files):
    ours, theirs = pty.openpty()
    command = [BIN / "marketsim", "compare", "-j", "jobs", "-p", "providers", "--threads", "1"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, timeout=LIMIT)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the terminal's other end is closed
            pass
    finally:
        os.close(ours)
    assert done.returncode == 0 and b"] 0 of 2" in shown and b"#] 2 of 2" in shown and shown.endswith(b"\r\x1b[K")
    assert b"of 2" not in done.stdout
