# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the tests that take too long for every change, on a machine that is free at night (as
root): each part of the table below, one after another, whatever fails. Ends with a table: part,
what came of it, seconds, the first words of a failure. Exit status 1 if one failed. usage:
scripts/check/nightly.py BUILD [PART...]; make nightly NIGHTLY="fuzz chaos" chooses parts, and
BUILD/nightly/PART.log keeps what each said. Seeds go on from night to night, by the date: what
failed says its own."""
import contextlib
import os
import sys
import time

from task import REASONS, Lanes, Task, run, run_main

HOUR = 3600
DAY = int(time.time()) // (24 * HOUR)
SEEDS = 100_000
PARTS = {  # what make makes, and the limit in seconds
    "fuzz": (["check-fuzz", "FUZZ_SECONDS=600"], 3 * HOUR),
    "chaos": (["chaos", "FAULTS=100", f"SOUK_FAULT_SEED={100 * DAY}"], 2 * HOUR),
    "zdtm": (["check-zdtm"], 2 * HOUR),
    "moves": (["test", "T=test_moves", "SOUK_WHOLE_TABLE=1"], HOUR),
    "programs": (["check-programs"], 2 * HOUR),
    "vm": (["check-vm"], 3 * HOUR),
    "sanitizers": (["check", "SAN=address"], 4 * HOUR),
    "mutants": (["mutants", "N=50", f"SEED={DAY}"], 4 * HOUR),
    "clustersim": (["sim", f"SEEDS={SEEDS}", f"FROM={SEEDS * DAY}"], 4 * HOUR),
    "booked": (["sim", f"SEEDS={SEEDS // 10}", f"FROM={SEEDS * DAY}", "BOOKED=1"], 2 * HOUR),
}


def row(task):
    failures = task.failures()
    words = ""
    if task.late:
        words = failures[0].words[0]
    elif failures:
        lines = task.output().splitlines() or [f"exit status {task.status}"]
        words = next(filter(REASONS.search, lines), lines[-1]).strip()
    return f"{task.name:12}{'FAILED' if failures else 'passed':8}{task.seconds:7.0f}  {words[:100]}"


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    build, *names = sys.argv[1:]
    if unknown := set(names) - set(PARTS):
        print(f"nightly: no part {' '.join(sorted(unknown))}: there are {' '.join(PARTS)}",
              file=sys.stderr)
        return 2
    tasks = []
    for name in names or PARTS:
        words, limit = PARTS[name]
        where = [] if name == "sanitizers" else [f"BUILD={build}"]
        tasks.append(Task(name, name, ["make", "--no-print-directory", *words, *where]))
        tasks[-1].limit = float(os.environ.get("NIGHTLY_LIMIT") or limit)
    directory = f"{build}/nightly"
    os.makedirs(directory, exist_ok=True)
    rows = []
    with contextlib.closing(run(tasks, Lanes(1), directory)) as ended:
        for task in ended:
            rows.append(row(task))
            print(f"== {rows[-1]}")
    print(f"\n{'part':12}{'result':8}seconds  first words (all: {directory}/PART.log)", *rows,
          sep="\n")
    return 1 if any("FAILED" in line.split()[1] for line in rows) else 0


if __name__ == "__main__":
    run_main(main)
