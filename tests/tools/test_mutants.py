# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/mutants: which changes of a line it draws, and what it leaves alone."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants():
    loader = importlib.machinery.SourceFileLoader("mutants", str(ROOT / "scripts/mutants"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("line, changed", [
    ("    if (a < b) return;", ["    if (a <= b) return;", "    if (!(a < b)) return;"]),
    ("    x = std::max(a, b - 1);", ["    x = std::min(a, b - 1);", "    x = std::max(a, b + 1);",
                                     "    x = std::max(a, b - 2);"]),
    ("    return !done && ready();", ["    return !done || ready();",
                                      "    return done && ready();"]),
    ("    keep(true);", ["    keep(false);"])])
def test_a_line_has_its_small_changes(mutants, line, changed):
    assert sorted(new for _, new in mutants.mutations(line)) == sorted(changed)


@pytest.mark.parametrize("line", [
    "#include <a < b>", "// if (a < b)", '    say("a < b && 3");', "    std::vector<int> x;",
    '    text = "a" + name;', "    a = b;  // 3 < 4", "static_assert(sizeof(int) == 4);",
    "template <class T, int n = 4>"])
def test_words_and_types_are_left_alone(mutants, line):
    assert mutants.mutations(line) == []


def test_every_suite_is_found(mutants):
    found = mutants.find_suites(str(ROOT))
    text = "".join(p.read_text() for room in ("unit", "sim")
                   for p in (ROOT / "tests" / room).glob("*.cpp"))
    # The formatter puts the name of some suites on the next line.
    assert {"home", "guest", "provider"} <= set(found)
    assert len(found) == text.count("\nUNIT_SUITE(") + text.count("\nUNIT_SUITE_LONG(")


def test_every_room_of_pure_code_has_places():
    listed = subprocess.run([ROOT / "scripts/mutants", "build", "--list"], capture_output=True,
                            text=True, timeout=60, check=True).stdout
    for room in ("kernel/base/", "market/core/", "market/store/", "agentd/core/",
                 "checkpoint/plan"):
        assert sum(line.startswith(room) for line in listed.splitlines()) > 20, room


def test_what_is_equivalent_is_still_in_the_code(mutants):
    for file, old, new in mutants.equivalents(str(ROOT)):
        lines = (ROOT / file).read_text().splitlines()
        assert any(line.strip() == old and new in [n.strip() for _, n in mutants.mutations(line)]
                   for line in lines), f"{file}: no such change: {old} -> {new}"
