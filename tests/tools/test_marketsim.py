# SPDX-License-Identifier: GPL-2.0-or-later
# marketsim run, replay and import.
import gzip
import json
import os

import pytest

from workloads import TRACE

SUMMARY = {
    "jobs": "7", "providers": "5", "migration speed": "100 MB/s", "freeze speed": "100 MB/s",
    "avg runtime": "47.8571 s", "avg slowdown": "1.2543", "avg migrations": "0.0000",
    "avg freezes": "0.5714", "avg migrate-and-freeze time": "2.0000 s",
    "max concurrent freezes": "2", "weighted completion time (WCT)": "9446",
    "weighted stay time": "9487", "weighted bounded slowdown": "197.44"}


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
