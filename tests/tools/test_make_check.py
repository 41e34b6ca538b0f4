# SPDX-License-Identifier: GPL-2.0-or-later
"""make check, make unsteady and make nightly (scripts/check), in small trees of their own: which
tests are run again, and what the end of the output says of them."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 120

# The suites of a runner of unit tests, as shell: what a suite does, or one of its tests.
UNIT = """#!/bin/sh
[ "$1" = --list ] && { echo %(names)s; exit; }
count() { echo >> "$1"; runs=$(wc -l < "$1"); }
passed() { echo "100%%: Checks: ${1:-1}, Failures: 0, Errors: 0"; exit 0; }
failed() { echo "0%%: Checks: 1, Failures: 1, Errors: 0"; echo "tests/unit/a.cpp:3:F:s:$1:0: $2"
           exit 1; }
case $CK_RUN_SUITE/$SOUK_TEST in
%(cases)s
esac
passed
"""
# Python tests: run(N) says for the how-many-th time it is called.
RUNS = """import os, pytest, time
def run(name):
    with open(name, "a") as f:
        f.write("x")
        return f.tell()
"""


class Tree:
    """A tree with scripts/check and a make that has nothing to build."""
    def __init__(self, path):
        self.path = path
        shutil.copytree(ROOT / "scripts/check", path / "scripts/check",
                        ignore=shutil.ignore_patterns("__pycache__"))
        targets = "build/tests/unit build/bin/souk-init bins fuzzers"
        self.write("Makefile", f".PHONY: {targets}\n{targets}:\n\t@:\n")

    def write(self, name, text):
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)
        if text.startswith("#!"):
            (self.path / name).chmod(0o755)

    def read(self, name):
        return (self.path / name).read_text()

    def unit(self, **suites):
        cases = "\n".join(f"{suite}/*) {what} ;;" for suite, what in suites.items())
        self.write("build/tests/unit", UNIT % {"names": " ".join(suites), "cases": cases})

    def tools(self, name, text):
        self.write(f"tests/tools/{name}", RUNS + text)

    def start(self, *words, **environment):
        words = words or ("scripts/check", "build")
        known = {name: value for name, value in os.environ.items()
                 if not name.startswith(("CHECK_", "MAKE", "FUZZ_", "PYTEST"))}
        return subprocess.Popen([sys.executable, *words], cwd=self.path, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={**known, **environment})

    def check(self, parts="unit tools", *words, **environment):
        process = self.start(*words, CHECK_PARTS=parts, **environment)
        said, _ = process.communicate(timeout=LIMIT)
        return process.returncode, said.splitlines()


def lives(pid):
    try:
        stat = pathlib.Path(f"/proc/{int(pid)}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def until(probe):
    end = time.monotonic() + LIMIT
    while not probe():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_a_test_that_passes_three_times_alone_is_unsteady_and_its_part_passes(tree):
    tree.unit(home='count home; [ $runs = 1 ] && failed a_move "it is 3"', guest="passed 7")
    tree.tools("test_a.py", "def test_b():\n    assert run('b') > 1, 'not\\nthere'\n"
                            "def test_c():\n    run('c')\n")
    tree.write("tests/unsteady", "# It waits for a clock.\ntools test_a.py::test_b\n")
    status, said = tree.check()
    assert status == 0 and said[-1] == "check: 2 passed, 0 failed, 0 skipped, 2 unsteady", said
    at = said.index("unsteady: unit a_move (new)")
    assert said[at + 1] == "    tests/unit/a.cpp:3:F:s:a_move:0: it is 3"
    at = said.index("unsteady: tools test_a.py::test_b")
    assert said[at + 1:at + 3] == ["    AssertionError: not", "      there"]
    assert tree.read("build/check/unsteady") == "unit a_move\ntools test_a.py::test_b\n"
    assert (tree.read("home"), tree.read("b"), tree.read("c")) == ("\n" * 4, "x" * 4, "x")
    assert sum(bool(re.match(r"== (unit|tools): passed, \d+ s$", line)) for line in said) == 2
    # The list is of one run.
    assert tree.check()[0] == 0 and tree.read("build/check/unsteady") == ""


def test_a_test_that_fails_once_more_fails_its_part(tree):
    tree.unit(home="count home; [ $runs = 2 ] || [ $runs = 4 ] || passed; failed a_move why",
              guest="failed a_dump no; failed")
    tree.tools("test_a.py", "@pytest.mark.parametrize('n', ['x - y', 'a b'])\n"
                            "def test_b(n):\n    assert run('b' + n[0]) % 3 != 1, n\n")
    tree.write("home", "\n")  # it fails, passes once, and fails
    status, said = tree.check()
    assert status == 1 and said[-1] == "check: 0 passed, 2 failed (unit tools), 0 skipped"
    at = said.index("FAILED: unit (whole output: build/check/unit.log)")
    assert {said[at + 1], said[at + 3]} == {"    a_move", "    a_dump"}
    assert "unit: a_move: failed again, alone (2)" in said
    assert "unit: a_dump: failed again, alone (1)" in said
    assert "tools: test_a.py::test_b[x - y]: failed again, alone (3)" in said
    assert "tools: test_a.py::test_b[a b]: failed again, alone (3)" in said
    assert "-- a_move: failed again" in tree.read("build/check/unit.log")


@pytest.mark.parametrize("failing, again", [(10, True), (11, False)])
def test_when_more_than_ten_failed_nothing_is_run_again(tree, failing, again):
    tree.unit(**{f"s{n}": f"count s{n}; [ $runs = 1 ] && failed a{n} why" for n in range(failing)})
    status, said = tree.check("unit")
    assert (status == 0) == again and any("again, alone" in line for line in said) == again


def test_a_hang_is_ended_with_what_it_started_and_is_not_run_again(tree):
    tree.unit(home="trap '' INT; sleep 300 & echo $! > pid; echo here; wait; wait", guest="passed")
    status, said = tree.check("unit", CHECK_LIMIT="2")
    assert status == 1 and not any("again, alone" in line for line in said)
    at = said.index("    home")
    assert said[at + 1:at + 3] == ["        killed after 2 s; it stood here:", "        here"]
    assert not lives(tree.read("pid"))


def test_of_a_file_that_hangs_the_test_is_named(tree):
    tree.tools("test_a.py", "def test_b(): pass\ndef test_c(): time.sleep(300)\n")
    status, said = tree.check("tools", CHECK_LIMIT="10")
    at = said.index("    test_a.py")
    assert status == 1 and said[at + 2].strip() == "tests/tools/test_a.py::test_c"


def test_what_is_no_test_is_final(tree):
    """A linter, a compiler, a sanitizer, a fuzz target, a file that cannot be read."""
    tree.write("Makefile", "fuzzers:\n\t@:\nbuild/tests/unit:\n\t@echo a.cpp:1:2: error: b; exit 1")
    tree.write("scripts/check-style", "#!/bin/sh\necho a.cpp:1: bad\nexit 1\n")
    tree.tools("test_a.py", "def test_b():\n"
               "    path = os.environ['ASAN_OPTIONS'].split('=')[1].split(':')[0]\n"
               "    with open(path + '.agentd.7', 'w') as f: f.write('==7==ERROR: leaks\\n')\n")
    tree.tools("test_c.py", "import no_such_thing\n")
    tree.write("tests/fuzz/fuzz_d.cpp", "")
    tree.write("tests/fuzz/corpus/fuzz_d/seed", "")
    tree.write("build/fuzz/fuzz_d", '#!/bin/sh\nfor word; do case $word in -artifact_prefix=*) '
                                    'echo x > "${word#*=}crash-1" ;; esac; done\nexit 77\n')
    status, said = tree.check("style unit tools fuzz")
    text = "\n".join(said)
    assert status == 1 and "again, alone" not in text
    assert said[-1] == "check: 0 passed, 4 failed (style unit tools fuzz), 0 skipped"
    for words in ("    style\n        a.cpp:1: bad\n", "    make\n        a.cpp:1:2: error: b\n",
                  "    test_a.py\n        ==7==ERROR: leaks\n", "No module named 'no_such_thing'",
                  "reproducer: build/fuzz-fuzz_d-crash-1; replay: build/fuzz/fuzz_d "
                  "build/fuzz-fuzz_d-crash-1; base64: eAo="):
        assert words in text, words
    assert tree.read("build/fuzz-fuzz_d-crash-1") == "x\n"


def test_one_of_crius_tests_is_run_again_in_its_form(tree):
    tree.write("scripts/check-zdtm", """#!/bin/sh
echo "$@" >> runs
[ "$2" = --sample ] || exit 0
echo
echo 'passes under plain CRIU and not as a job: 1 tests'
echo '  sk-unix01 (fast): fail: no end'
exit 1
""")
    status, said = tree.check("zdtm")
    assert status == 0 and "unsteady: zdtm sk-unix01 (fast) (new)" in said, said
    assert tree.read("runs") == "build --sample\n" + "build sk-unix01 --forms fast\n" * 3


def test_the_long_ones_go_first_by_the_last_run_or_the_table(tree):
    tree.unit(a="passed", b="sleep 0.3", c="passed")
    tree.write("tests/times.json", json.dumps({"unit c": 30, "unit a": 20}))

    def order():
        status, said = tree.check("unit", CHECK_LANES="1")
        assert status == 0
        return [line[6] for line in said if re.match(r"unit: [abc]: 1 passed, \d", line)]

    assert order() == ["c", "a", "b"]
    assert order() == ["b", "a", "c"]  # as the last run was
    tree.check("unit", "scripts/check", "build", "--record")
    assert sorted(json.loads(tree.read("tests/times.json"))) == ["unit a", "unit b", "unit c"]


def test_more_run_at_once_while_processors_are_idle(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts/check"))
    task = __import__("task")
    now, ticks = 0.0, [0, 0]
    monkeypatch.setattr(task.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(task.time, "monotonic", lambda: now)
    monkeypatch.setattr(task, "idle_ticks", lambda: tuple(ticks))
    memory = 8192
    monkeypatch.setattr(task, "available_mb", lambda: memory)

    def passes(idle, seconds=1.0):
        nonlocal now
        now += seconds
        ticks[0], ticks[1] = ticks[0] + 200, ticks[1] + idle

    lanes = task.Lanes()
    assert [lanes.open(n) for n in range(5)] == [True] * 4 + [False]
    passes(idle=49)
    assert not lanes.open(4)
    passes(idle=50)
    assert lanes.open(4)
    assert not lanes.open(5)  # the load of the one before is not seen yet
    passes(idle=200, seconds=0.1)
    assert not lanes.open(5)
    passes(idle=200)
    assert lanes.open(9)
    passes(idle=200)
    assert not lanes.open(10)
    memory = 1024
    passes(idle=200)
    assert not lanes.open(9)
    one = task.Lanes(1)
    passes(idle=200)
    assert one.open(0) and not one.open(1)


def test_what_is_skipped_is_counted_and_a_part_that_is_none_is_refused(tree):
    tree.unit(home="echo skipped: no device")
    tree.tools("test_a.py", "@pytest.mark.parametrize('n', [1, 2])\n"
                            "def test_b(n): pytest.skip('no program')\n")
    status, said = tree.check()
    assert status == 0 and said[-1] == "check: 2 passed, 0 failed, 3 skipped"
    assert "skipped (1): unit: no device" in said
    assert any(re.match(r"skipped \(2\): tools: .*test_a.py:\d+: no program", line)
               for line in said), said
    status, said = tree.check("units")
    assert status == 2 and "no part 'units'" in said[-1]


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_what_runs_ends_with_the_check(tree, number, status):
    tree.unit(home="echo $$ > pid; exec sleep 300")
    process = tree.start(CHECK_PARTS="unit")
    until(lambda: (tree.path / "pid").exists() and tree.read("pid"))
    process.send_signal(number)
    process.communicate(timeout=LIMIT)
    assert process.returncode == status
    until(lambda: not lives(tree.read("pid")))


def git(path, *words):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=path,
                   check=True, timeout=20)


def test_unsteady_runs_what_changed_many_times_beside_a_load(tree):
    tree.unit(home="count home; [ $runs = 2 ] && failed a_move why", guest="passed")
    tree.write("tests/unit/test_guest.cpp", "UNIT_SUITE(guest, a);\n")
    tree.tools("test_a.py", "def test_b(): pass\n")
    shutil.copy2(ROOT / "scripts/test", tree.path / "scripts/test")
    git(tree.path, "init", "-q")
    git(tree.path, "add", ".")
    git(tree.path, "commit", "-qm", "all")
    tree.write("tests/unit/test_home.cpp", "START_TEST(a_move)\nUNIT_SUITE(\n    home, a_move);")
    tree.tools("test_c.py", "def test_d():\n    run('d')\n")

    def unsteady(*words):
        process = tree.start("scripts/check/unsteady.py", "build", *words, "--load", "2")
        said, _ = process.communicate(timeout=LIMIT)
        return process.returncode, said.splitlines()

    status, said = unsteady("--runs", "3", "--base", "HEAD")
    assert status == 1 and said == [
        "unsteady: tests that differ from HEAD", "tools test_c.py: 3 of 3 passed",
        "unit home: 2 of 3 passed", "    a_move", "        tests/unit/a.cpp:3:F:s:a_move:0: why"]
    assert tree.read("d") == "xxx"
    for name, line in (("test_d", "tools test_c.py::test_d"), ("a_move", "unit a_move"),
                       ("home", "unit home"), ("test_c", "tools test_c.py")):
        status, said = unsteady(name, "--runs", "1")
        assert status == 0 and said[-1] == f"{line}: 1 of 1 passed", said
    assert unsteady("no_such")[0] == 2


def test_nightly_makes_each_part_and_ends_with_a_table(tree):
    tree.write("Makefile", "sim:\n\t@echo $(SEEDS)\nmutants:\n\t@sleep 300\n"
                           "chaos:\n\t@echo 'FAILED test_faults.py - seed 7'; exit 1\n")

    def nightly(*words):
        process = tree.start("scripts/check/nightly.py", "build", *words, NIGHTLY_LIMIT="5")
        said, _ = process.communicate(timeout=LIMIT)
        return process.returncode, said.splitlines()

    status, said = nightly("chaos", "mutants", "clustersim")
    assert status == 1 and said[-4].startswith("part"), said
    chaos, mutants, clustersim = (line.split(None, 3) for line in said[-3:])
    assert chaos[:2] == ["chaos", "FAILED"] and chaos[3] == "FAILED test_faults.py - seed 7"
    assert mutants[:2] == ["mutants", "FAILED"] and mutants[3].startswith("killed after 5 s")
    assert clustersim[:2] == ["clustersim", "passed"]
    assert tree.read("build/nightly/clustersim.log") == "100000\n"
    assert nightly("clustersim")[0] == 0
    assert nightly("clustersim", "sims")[0] == 2
