# SPDX-License-Identifier: GPL-2.0-or-later
# These tests check which room may include which (scripts/check-layers), and which parts of souk lie
# in a program.
import os
import re
import shutil
import subprocess

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SOUK_BIN", os.path.join(TREE, "build/bin"))
TABLE = """
headers values: string vector
room base: | values
room market/core: base | values <map>
room agentd: base market/core | values sys/*
"""


def check(root):
    return subprocess.run([os.path.join(TREE, "scripts/check-layers"), str(root)],
                          capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path):
    """A small tree in which all is as its table says: write(FILE, TEXT) adds to it."""
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path
    write("scripts/layers", TABLE.replace("sys/*", "<sys/*>"))
    write("base/a.hpp", "#include <string>\n")
    write("market/core/b.cpp", '#include <map>\n#include "base/a.hpp"\n')
    write("agentd/c.cpp", '#include <sys/stat.h>\n#include "market/core/b.hpp"\n')
    write("tests/d.cpp", '#include <thread>\n#include "agentd/c.hpp"\n')
    return write


def test_a_tree_as_its_table_says_passes(tree):
    done = check(tree("base/e.hpp", "#include <vector>\n"))
    assert (done.returncode, done.stdout) == (0, "layers: all arrows of 3 rooms point down\n")


@pytest.mark.parametrize("name,text,finding", [
    ("market/core/x.cpp", '#include "base/a.hpp"\n#include "agentd/c.hpp"\n',
     "market/core/x.cpp:2: market/core may not include agentd (agentd/c.hpp): "
     "it may include base"),
    ("base/x.hpp", '#include "market/core/deep/b.hpp"\n',
     "base/x.hpp:1: base may not include market/core (market/core/deep/b.hpp): "
     "it may include no other room"),
    ("base/x.hpp", "#include <string>\n\n#include <map>\n",
     "base/x.hpp:3: base may not include <map>: it is not among the headers of its line in "
     "scripts/layers"),
    ("market/core/x.hpp", "  #  include <unistd.h>\n",
     "market/core/x.hpp:1: market/core may not include <unistd.h>: it is not among the headers of "
     "its line in scripts/layers"),
    ("market/new/x.cpp", "\n",
     "market/new/x.cpp:1: its directory is no room: give it a line in scripts/layers"),
    ("scripts/layers", "room a: b | values\n",
     "scripts/layers: room a names the room b, which has no line"),
    ("scripts/layers", "room a: c\nroom b: a\nroom c: b\n",
     "scripts/layers: a circle of rooms: a -> c -> b -> a"),
    ("scripts/layers", "rooms a: b\n",
     "scripts/layers:1: neither 'headers NAME: ...' nor 'room NAME: ...'"),
])
def test_what_the_table_does_not_list_is_refused(tree, name, text, finding):
    done = check(tree(name, text))
    assert done.returncode == 1
    lines = done.stderr.replace(str(tree("base/a.hpp", "")) + "/", "").splitlines()
    assert finding in lines


def test_the_source_is_as_its_table_says():
    done = check(TREE)
    assert done.returncode == 0, done.stderr


def test_no_room_of_the_market_may_include_one_of_the_agent():
    with open(os.path.join(TREE, "scripts/layers")) as f:
        market = [line for line in f if line.startswith("room market/")]
    assert len(market) >= 5
    assert not [line for line in market if "agentd/" in line]


def machines_in(program):
    """The state machines that have code or data in a program, by its symbols."""
    if not shutil.which("nm"):
        pytest.skip("no nm here: make test-deps (package binutils)")
    names = subprocess.run(["nm", "-C", "--defined-only", os.path.join(BIN, program)],
                           capture_output=True, text=True, check=True).stdout
    classes = {"Home": r"souk::Home::", "Guest": r"souk::Guest::",
               "Provider": r"souk::Provider::", "Market": r"souk::market::Market::",
               "Allocator": r"souk::market::Allocator::"}
    return {name for name, pattern in classes.items()
            if re.search(r" [tTwWdDbB] (?:[^ ]+ )?" + pattern, names)}


def test_a_program_links_only_the_machines_that_it_runs():
    assert machines_in("agentd") >= {"Home", "Guest", "Provider"}  # the symbols are there to see
    assert machines_in("marketd") >= {"Market", "Allocator"}
    for tool in ("srun", "pvdctl", "marketctl"):
        assert machines_in(tool) == set(), tool
    assert "Market" not in machines_in("agentd")
    assert machines_in("marketd") & {"Home", "Guest", "Provider"} == set()


def test_srun_compiles_no_machine():
    """The headers that srun's objects depend on, as the compiler wrote them down."""
    objects = os.path.join(os.path.dirname(BIN), "obj/tools/srun")
    if not os.path.isdir(objects):
        pytest.skip("srun was not built here")
    used = set()
    for name in os.listdir(objects):
        if name.endswith(".d"):
            with open(os.path.join(objects, name)) as f:
                used |= set(re.findall(r"\S+\.hpp", f.read()))
    assert "agentd/wire/messages.hpp" in used
    machines = [f for f in used
                if re.match(r"(agentd/core/(home|guest|provider)|market/core/(market|solver))", f)]
    assert machines == []
