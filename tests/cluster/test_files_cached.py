# SPDX-License-Identifier: GPL-2.0-or-later
"""Directories of programs in the files of a home: names, attributes and opens are answered without
asking the home, until somebody changes them there. The whole tree is one here, so that programs
that write to it show what would be stale."""
import os
import subprocess
import sys
import time

import pytest

from conftest import BIN, LIMIT, until
from files_tree import Tree, directory_of, needs_fuse
from test_files import (run, test_a_digest_over_many_blocks_is_the_same,
                        test_a_program_is_built_and_runs_from_here, test_fio_reads_what_it_wrote,
                        test_git_clones_and_checks, test_odd_files_are_as_on_a_disk,
                        test_sqlite_under_contention, test_stress_ng_finds_nothing_wrong)

pytestmark = needs_fuse
__all__ = ["test_a_digest_over_many_blocks_is_the_same",
           "test_a_program_is_built_and_runs_from_here", "test_fio_reads_what_it_wrote",
           "test_git_clones_and_checks", "test_odd_files_are_as_on_a_disk",
           "test_sqlite_under_contention", "test_stress_ng_finds_nothing_wrong"]
SEEN = 20  # seconds; a lease that is not recalled lasts 30


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    tree = Tree(path, quiet=path / "home")
    yield tree
    tree.end()
    assert tree.process.returncode == 0


here = pytest.fixture(directory_of)


@pytest.fixture
def fresh(tmp_path):
    """A tree of this test's own: how many opens are kept depends on what was open before."""
    tree = Tree(tmp_path, quiet=tmp_path / "home")
    yield tree
    tree.end()
    assert tree.process.returncode == 0


def requests_of(tree, what):
    """How often the server was woken meanwhile, at least: by a request, most often."""
    def taken():  # it looks for changes after each
        with open(f"/proc/{tree.server}/io") as f:
            return int(next(line.split()[1] for line in f if line.startswith("syscr")))
    before = taken()
    what()
    return taken() - before


def test_what_changes_at_home_is_seen_here(tree, here):
    there = tree.home / here.name
    (there / "d").mkdir()
    (there / "d" / "a").write_text("before")
    for _ in range(3):
        assert (here / "d" / "a").read_text() == "before"
        assert os.listdir(here / "d") == ["a"]
        assert not (here / "d" / "b").exists()
    (there / "d" / "a").write_text("after it")
    (there / "d" / "b").write_text("new")
    until("new content", lambda: (here / "d" / "a").read_text() == "after it", SEEN)
    until("a new name", lambda: (here / "d" / "b").exists(), SEEN)
    assert sorted(os.listdir(here / "d")) == ["a", "b"]
    os.rename(there / "d" / "b", there / "d" / "a")
    until("a replaced file", lambda: (here / "d" / "a").read_text() == "new", SEEN)
    until("a name that went", lambda: not (here / "d" / "b").exists(), SEEN)
    os.chmod(there / "d" / "a", 0o600)
    until("a mode", lambda: (here / "d" / "a").stat().st_mode & 0o777 == 0o600, SEEN)
    os.rename(there / "d", there / "e")
    until("a moved directory", lambda: not (here / "d").exists(), SEEN)
    assert (here / "e" / "a").read_text() == "new"
    os.unlink(there / "e" / "a")
    until("a file that went", lambda: not (here / "e" / "a").exists(), SEEN)


def test_what_did_not_change_is_not_asked_for_again(fresh):
    there, here = fresh.home, fresh.here
    for i in range(50):
        (there / f"f{i}").write_text(str(i))

    def look():
        for i in range(50):
            assert (here / f"f{i}").read_text() == str(i)
            assert not (here / f"none{i}").exists()
    look()
    time.sleep(1.2)  # what the kernel itself knows is old by then
    assert requests_of(fresh, look) < 20
    look()
    for i in range(50):
        (there / f"f{i}").write_text(str(i) * 2)
    until("all are new",
          lambda: all((here / f"f{i}").read_text() == str(i) * 2 for i in range(50)), SEEN)


def test_a_killed_client_keeps_nothing_that_is_old(tree, here):
    there = tree.home / here.name
    (there / "a").write_text("before")
    held = open(here / "a")
    for _ in range(3):
        assert (here / "a").read_text() == "before"
    tree.kill_client()
    (there / "a").write_text("after it")
    until("new content", lambda: (here / "a").read_text() == "after it", SEEN)
    assert os.fstat(held.fileno()).st_size == 8
    held.close()


def test_python_starts_from_here(tree, here):
    """Its program and its library, twice; the second time nearly nothing is asked for."""
    home = tree.home / here.name
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    run("cp", "-a", f"/usr/lib/{version}", home)
    top = here / version

    def start():
        done = subprocess.run(["/usr/bin/python3", "-S", "-c",
                               f"import sys; sys.path = [{str(top)!r}, {str(top)!r} + "
                               "'/lib-dynload']; import json, email, xml.dom.minidom"],
                              timeout=LIMIT, env={"PYTHONDONTWRITEBYTECODE": "1"})
        assert done.returncode == 0
    first = requests_of(tree, start)
    time.sleep(1.2)
    again = requests_of(tree, start)
    assert first > 100 and again < first / 4, (first, again)


STATFS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for path in sys.argv[1:]:
    fd, says = os.open(path, os.O_RDONLY), (ctypes.c_long * 64)()
    assert libc.fstatfs64(fd, says) == 0
    print(says[0], flush=True)
"""


def test_a_criu_asks_once_what_is_said_of_the_file_system(fresh, tmp_path):
    preload = os.path.join(os.path.dirname(BIN), "gen", "checkpoint", "criu_preload.so")
    if not os.path.exists(preload):
        pytest.skip("criu_preload.so is carried within agentd here")
    for i in range(100):
        (fresh.here / f"f{i}").write_text("x")
    (tmp_path / "other").write_text("x")
    files = [str(fresh.here / f"f{i}") for i in range(100)]

    def ask(*words, **env):
        done = subprocess.run([sys.executable, "-c", STATFS, *words], capture_output=True,
                              text=True, timeout=LIMIT, env=os.environ | env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def requests(**env):
        time.sleep(1.2)  # a file that was just written to is asked for each time
        return requests_of(fresh, lambda: said.extend(ask(*files, **env)))
    said = []
    requests()
    each = requests()
    once = requests(LD_PRELOAD=preload)
    assert once + 50 < each
    assert said == [str(0x65735546)] * 300  # FUSE_SUPER_MAGIC
    mixed = ask(files[0], str(tmp_path / "other"), files[1], LD_PRELOAD=preload)
    assert mixed[0] == mixed[2] != mixed[1]
