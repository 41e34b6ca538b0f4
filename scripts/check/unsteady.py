# SPDX-License-Identifier: GPL-2.0-or-later
"""Are the tests steady that differ from BASE (what origin/main and HEAD have in common, or HEAD~; a
change that is not committed counts)? Runs each suite of the unit tests and each file of Python
tests many times, beside loops without an end that keep the processors busy. Prints how often each
passed, and the words of its first failure. Exit status 1 if one failed. make unsteady calls it."""
import argparse
import contextlib
import os
import re
import shlex
import subprocess
import sys

from kinds import PythonFile, Suite
from task import Lanes, run, run_main, shorten

SUITE = re.compile(r"^UNIT_SUITE(?:_LONG)?\(\s*(\w+),", re.M)
PYTHON_FILE = re.compile(r"tests/(tools|cluster|attack)/test_\w+\.py")
LIMIT = 900  # seconds of one run
WORDS = 10
# It ends by itself when whoever started it is gone.
LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n  sum(range(10 ** 6))"


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True).stdout.split()


def changed(build, base):
    head = git("rev-parse", "HEAD")
    common = git("merge-base", "HEAD", "origin/main")
    base = base or ("HEAD~" if common in ([], head) else common[0])
    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    print(f"unsteady: tests that differ from {base}")
    for name in filter(os.path.exists, sorted(set(names))):
        if found := PYTHON_FILE.fullmatch(name):
            yield PythonFile(found[1], build, name)
        elif re.fullmatch(r"tests/(unit|sim)/\w+\.cpp", name):
            with open(name) as f:
                for suite in SUITE.findall(f.read()):
                    yield Suite(build, suite)


def named(build, name):
    """Finds the tests that `make test T=NAME` runs."""
    shown = subprocess.run(["scripts/test", build, name, "--show"], stdout=subprocess.PIPE,
                           text=True)
    if shown.returncode != 0:
        sys.exit(shown.returncode)
    words = shlex.split(shown.stdout)
    if "pytest" in words:
        path, *test = words[words.index("-rfEs") + 1:]
        return PythonFile(path.split("/")[1], build, "::".join([path, *test[1:]]))
    variable, _, value = words[1].partition("=")
    return Suite(build, value) if variable == "CK_RUN_SUITE" else Suite(build, None, value)


def build_all(build, tasks):
    targets = {f"{build}/tests/unit", f"{build}/bin/souk-init"} if any(
        isinstance(task, Suite) for task in tasks) else set()
    if any(isinstance(task, PythonFile) for task in tasks):
        targets.add("bins")
    done = subprocess.run(["make", "--no-print-directory", f"BUILD={build}",
                           f"-j{os.cpu_count()}", *sorted(targets)])
    if done.returncode != 0:
        sys.exit(1)


@contextlib.contextmanager
def load(count):
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def passes(task, runs, directory):
    passed, first = 0, None
    task.limit = LIMIT
    for _ in range(runs):
        with contextlib.closing(run([task], Lanes(1), directory)) as ended:
            failures = next(ended).failures()
        passed += not failures
        first = first or (failures[0] if failures else None)
    print(f"{task.part} {task.name}: {passed} of {runs} passed")
    if first:
        print(f"    {first.name}",
              *(f"        {line}" for line in shorten(first.words, WORDS)), sep="\n")
    return not first


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    parser = argparse.ArgumentParser(prog="unsteady", description=__doc__.split(". ")[0])
    parser.add_argument("build")
    parser.add_argument("name", nargs="?", help="as make test T=NAME names it")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=4, help="loops")
    parser.add_argument("--base", help="a commit")
    options = parser.parse_args()
    build = options.build
    tasks = [named(build, options.name)] if options.name else list(changed(build, options.base))
    if not tasks:
        print("unsteady: no test has changed; T=NAME names one")
        return 0
    build_all(build, tasks)
    directory = f"{build}/check/unsteady-runs"
    os.makedirs(directory, exist_ok=True)
    with load(options.load):
        return 0 if all([passes(task, options.runs, directory) for task in tasks]) else 1


if __name__ == "__main__":
    run_main(main)
