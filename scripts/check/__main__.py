# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs what `make check` passes, in one go: layers, style, units and machines, the cluster
simulator, real daemons in network namespaces, attacks on them, a sample of CRIU's own tests, fuzz
targets; not `make chaos` and not `make check-vm`. usage: scripts/check BUILD [--record]

Suites of the unit tests, files of Python tests and fuzz targets of all parts stand in one queue,
the long ones first, and several run side by side, as many as keep the processors busy. How long
each takes is known from the last run (BUILD/check/times.json), or from tests/times.json, which
--record writes anew. The unit tests and the fuzz targets are built meanwhile. Everything runs, also
after something has failed.

A test that failed runs three times more, alone, when all others have ended. If it passes three
times, its part passes, and the end of the output says `unsteady: PART NAME` with the words of its
failure; `(new)` when tests/unsteady does not name it. BUILD/check/unsteady lists those of this run.
What a sanitizer, a compiler, a linter or a fuzz target says is final, and so is a part in which
more than 10 tests failed.

The seconds of a part are those of its suites and files together. The output ends with what was
skipped, unsteady and failed, each in its own words, so that the last lines of a long log tell
everything. BUILD/check/PART.log keeps the whole output of a part.

  CHECK_PARTS="layers style unit tools fuzz cluster attack zdtm"   what to run (default: all)
  CHECK_LANES=N       at most so many at once (default: five for each processor)
  CHECK_LIMIT=900     seconds for each suite, file or target; late ones are killed and named
  FUZZ_SECONDS=10     for each fuzz target
"""
import argparse
import collections
import contextlib
import glob
import json
import os
import re
import shutil

from kinds import FuzzTarget, PythonFile, Suite, Zdtm
from task import Failure, Lanes, Task, run, run_main, shorten

PARTS = "layers style unit tools fuzz cluster attack zdtm".split()
TARGETS = {"unit": "{}/tests/unit", "fuzz": "fuzzers"}  # what make builds meanwhile
NOT_CHECKED = "tests/cluster/test_faults.py"  # make chaos
TIMES, UNSTEADY = "tests/times.json", "tests/unsteady"
AGAIN, AGAIN_MAX = 3, 10  # runs of a failed test; tests of a part
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS") or 10)
LONGER = {"style": 3600, "fuzz": 2 * FUZZ_SECONDS}  # clang-tidy looks at all that changed
UNSTEADY_WORDS = 10
BUILD_LIMIT = 3600
SKIPPED = re.compile(r"^(?:skipped: |SKIPPED \[(\d+)\] )(.*)$", re.M)


def key(task):
    return f"{task.part} {task.name}"


class Part:
    def __init__(self, name, log):
        self.name, self.log, self.left, self.seconds = name, log, 0, 0
        self.failures, self.skips = [], collections.Counter()
        with open(log, "w"):
            pass

    def take(self, task):
        """Keeps what a task has said, and what failed in it."""
        output = task.output()
        self.seconds += task.seconds
        with open(self.log, "a") as f:
            f.write(f"-- {task.name}\n{output}\n")
        for count, why in SKIPPED.findall(output):
            self.skips[why] += int(count or 1)
        failures = task.failures()
        self.failures += failures
        lines = output.splitlines() if failures else [
            *(skip[0] for skip in SKIPPED.finditer(output)),
            f"{task.name}: {task.said(output)}, {task.seconds:.1f} s, CPU {task.cpu:.1f} s"]
        for line in lines:
            print(f"{self.name}: {line}")
        return failures

    def end(self):
        print(f"== {self.name}: {'FAILED' if self.failures else 'passed'}, {self.seconds:.0f} s")


class Check:
    def __init__(self, build, names):
        self.build, self.out = build, f"{build}/check/out"
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        self.parts = {name: Part(name, f"{build}/check/{name}.log") for name in names}
        self.lanes = Lanes(int(os.environ.get("CHECK_LANES") or 0))
        self.limit = float(os.environ.get("CHECK_LIMIT") or 900)
        self.times, self.unsteady = {}, []
        for path in (TIMES, f"{build}/check/times.json"):
            with contextlib.suppress(FileNotFoundError), open(path) as f:
                self.times.update(json.load(f))
        self.took = {}

    def run(self, tasks, lanes=None):
        return contextlib.closing(run(tasks, lanes or Lanes(1), self.out))

    def build_of(self, name):
        """Has make build what the part runs. Tests of other parts run meanwhile and wait most of
        the time, so the build takes what they leave of the processors, whether the kernel shares
        these by nice values or by sessions (its autogroups)."""
        lower = 'echo 10 2> /dev/null > /proc/self/autogroup; exec nice -n 10 "$@"'
        task = Task(name, "make", ["sh", "-c", lower, "sh", "make", "--no-print-directory",
                                   f"BUILD={self.build}", f"-j{os.cpu_count()}",
                                   TARGETS[name].format(self.build)])
        task.beside = self.lanes.most > 1
        task.limit = BUILD_LIMIT
        return task

    def tasks_of(self, name):
        build = self.build
        if name in ("cluster", "attack") and os.geteuid() != 0:
            return [Task(name, "root", ["echo", "skipped: real daemons need root (network "
                                        "namespaces, control groups, CRIU)"])]
        if name in ("tools", "cluster", "attack"):
            return [PythonFile(name, build, path) for path in glob.glob(f"tests/{name}/test_*.py")
                    if path != NOT_CHECKED]
        if name == "unit":
            return [Suite(build, suite) for suite in
                    os.popen(f"{build}/tests/unit --list").read().split()]
        if name == "fuzz":
            return [FuzzTarget(build, os.path.basename(path)[:-len(".cpp")], FUZZ_SECONDS)
                    for path in glob.glob("tests/fuzz/*.cpp")]
        if name == "zdtm":
            return [Zdtm(build, "--sample")]
        return [Task(name, name, [f"scripts/check-{name}", build] if name == "style" else
                     [f"scripts/check-{name}"])]

    def begin(self, tasks, name):
        """Puts what the part runs into the list."""
        part, found = self.parts[name], self.tasks_of(name)
        if not found:
            part.failures.append(Failure(name, ["there is no test"]))
        part.left = len(found)
        for task in found:
            task.limit = max(self.limit, LONGER.get(name, 0), 10 * self.times.get(key(task), 0))
        tasks += found
        tasks.sort(key=lambda t: (-self.times.get(key(t), 1), key(t)))
        print(f"== {name}: {len(found)} to run, up to {self.lanes.most} at once")

    def pass_all(self):
        tasks = []
        for name in self.parts:
            if name not in TARGETS:
                self.begin(tasks, name)
        builds = [self.build_of(name) for name in TARGETS if name in self.parts]
        tasks[:0] = builds[:1]
        with self.run(tasks, self.lanes) as ended:
            for task in ended:
                part = self.parts[task.part]
                failures = part.take(task)
                if task in builds:
                    if not failures:
                        self.begin(tasks, task.part)
                    tasks[:0] = builds[builds.index(task) + 1:][:1]
                    continue
                self.took[key(task)] = round(task.seconds, 1)
                part.left -= 1
                if part.left == 0 and not part.failures:
                    part.end()

    def again(self):
        """Runs what failed three times more."""
        known = []
        with contextlib.suppress(FileNotFoundError), open(UNSTEADY) as f:
            known = f.read().splitlines()
        for part in (p for p in self.parts.values() if p.failures):
            tried = part.failures if len(part.failures) <= AGAIN_MAX else []
            for failure in [f for f in tried if f.again and self.passes_again(part, f)]:
                part.failures.remove(failure)
                name = f"{part.name} {failure.name}"
                self.unsteady.append((name, name not in known, failure.words))
            part.end()
        with open(f"{self.build}/check/unsteady", "w") as f:
            f.writelines(f"{name}\n" for name, _, _ in self.unsteady)

    def passes_again(self, part, failure):
        failure.again.limit = self.limit
        for number in range(1, AGAIN + 1):
            with self.run([failure.again]) as ended:
                task = next(ended)
                passed = task.passed()
            said = f"{failure.name}: {'passed' if passed else 'failed'} again, alone ({number})"
            print(f"{part.name}: {said}")
            with open(part.log, "a") as f:
                f.write(f"-- {said}\n{task.output()}\n")
            if not passed:
                return False
        return True

    def tell(self):
        """The end of the output. Returns the exit status."""
        print()
        skipped = 0
        for part in self.parts.values():
            for why, count in part.skips.items():
                print(f"skipped ({count}): {part.name}: {why}")
                skipped += count
        for name, new, words in self.unsteady:
            print(f"unsteady: {name}{' (new)' * new}",
                  *(f"    {line}" for line in shorten(words, UNSTEADY_WORDS)), sep="\n")
        failed = [part for part in self.parts.values() if part.failures]
        for part in failed:
            print(f"\nFAILED: {part.name} (whole output: {part.log})")
            lines = [line for failure in part.failures
                     for line in (failure.name, *(f"    {word}" for word in failure.words))]
            print(*(f"    {line}" for line in shorten(lines)), sep="\n")
        names = f" ({' '.join(part.name for part in failed)})" if failed else ""
        unsteady = f", {len(self.unsteady)} unsteady" if self.unsteady else ""
        print(f"check: {len(self.parts) - len(failed)} passed, {len(failed)} failed{names}, "
              f"{skipped} skipped{unsteady}")
        return 1 if failed else 0

    def keep_times(self, record):
        times = {name: seconds for name, seconds in self.times.items()
                 if name.split()[0] not in self.parts}
        for path in [f"{self.build}/check/times.json", *([TIMES] if record else [])]:
            with open(path, "w") as f:
                json.dump({**times, **self.took}, f, indent=0, sort_keys=True)
                f.write("\n")


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    parser = argparse.ArgumentParser(prog="check", description=__doc__.split("\n\n")[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--record", action="store_true", help=f"write {TIMES} anew")
    options = parser.parse_args()
    names = (os.environ.get("CHECK_PARTS") or " ".join(PARTS)).split()
    for name in names:
        if name not in PARTS:
            parser.error(f"no part '{name}': it is one of {' '.join(PARTS)}")
    check = Check(options.build, names)
    check.pass_all()
    check.again()
    check.keep_times(options.record)
    status = check.tell()
    shutil.rmtree(check.out)
    return status


if __name__ == "__main__":
    run_main(main)
