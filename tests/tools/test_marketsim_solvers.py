# SPDX-License-Identifier: GPL-2.0-or-later
# marketsim can let different deciders decide: algorithms by name, programs, queueing policies.
import collections
import fractions
import itertools
import json
import os
import random

import pytest

from conftest import BIN
from workloads import JOBS


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
    rows = json.loads(out)["variants"]
    assert (status, err) == (0, "") and [row["solver"] for row in rows] == ["greedy_migration",
                                                                            str(BIN / "solver"),
                                                                            "fcfs", "easy"]
    assert rows[0]["mean_slowdown"] == rows[1]["mean_slowdown"] and rows[2]["freezes"] <= 30


@pytest.mark.parametrize("script, why", [
    ("exit 0", "has ended"),
    ("while read word rest; do [ $word = alloc ] && echo 1 99; [ $word = "
     "info ] && echo solver me; done", "names provider 99, which there is not"),
    ("while read word rest; do [ $word = alloc ] && { echo 1 1; echo 2 1; }; [ $word = "
     "info ] && echo solver me; done", "job 2 on provider 1: the provider has no room left"),
    ("echo 'error: no thanks'; cat > /dev/null", "says: no thanks"),
    ("echo 'hello there'; cat > /dev/null",
     "says 'hello there', which is neither a line of alloc nor the answer to info"),
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


def first_runs(tool, policy):
    status, _, err = tool("marketsim", "run", "-j", "jobs", "-p", "providers", "-s", policy, "-o",
                          "out")
    assert (status, err) == (0, ""), err
    header, *rows = [line.split(",") for line in open("out.csv").read().splitlines()]
    return [int(row[header.index("first_run_s")]) for row in rows]


@pytest.mark.parametrize("policy", ["sjf", "wfp"])
def test_a_queue_by_run_time_or_by_wait_starts_the_most_urgent_job_of_those_that_wait(
        tool, files, policy):
    draw = random.Random(policy)
    for _ in range(20):
        jobs = sorted((draw.randrange(400), draw.randrange(1, 90)) for _ in range(25))
        (files / "jobs").write_text("".join(f"{i + 1} {start} {run} 10 0 1\n"
                                            for i, (start, run) in enumerate(jobs)))
        (files / "providers").write_text("1 0 -1 1 1000 1 100\n")
        now, waiting, expected = 0, set(range(len(jobs))), [0] * len(jobs)
        while waiting:
            now = max(now, min(jobs[i][0] for i in waiting))
            there = [i for i in waiting if jobs[i][0] <= now]
            urgent = min(there, key=lambda i: (
                (jobs[i][1], i) if policy == "sjf" else
                (-fractions.Fraction(now - jobs[i][0], jobs[i][1]), i)))
            expected[urgent] = now
            now += jobs[urgent][1]
            waiting.remove(urgent)
        assert first_runs(tool, policy) == expected


def test_conservative_backfilling_gives_each_job_the_first_gap_that_delays_nobody_before_it(
        tool, files):
    draw = random.Random(5)
    backfilled = 0
    for _ in range(20):
        jobs = sorted((draw.randrange(300), draw.randrange(1, 90), draw.randrange(1, 5))
                      for _ in range(30))
        (files / "jobs").write_text("".join(f"{i + 1} {start} {run} 10 0 {cpus}\n"
                                            for i, (start, run, cpus) in enumerate(jobs)))
        (files / "providers").write_text("1 0 -1 1 1000 4 100\n")
        used, expected = collections.Counter(), []
        for start, run, cpus in jobs:  # second by second, as each comes, and for good
            at = next(t for t in itertools.count(start)
                      if all(used[s] + cpus <= 4 for s in range(t, t + run)))
            used.update({s: cpus for s in range(at, at + run)})
            expected.append(at)
        assert first_runs(tool, "conservative") == expected
        backfilled += expected != sorted(expected)
    assert backfilled > 10
