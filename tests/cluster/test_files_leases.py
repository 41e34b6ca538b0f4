# SPDX-License-Identifier: GPL-2.0-or-later
"""A node uses its knowledge of a user's own files again until somebody changes them at home. Then
it forgets that at once, not only when it is a second old."""
import os
import time

import pytest

from conftest import until
from files_tree import Tree, directory_of, needs_fuse
from test_files_cached import requests_of

pytestmark = needs_fuse
# The number of looks, 2 ms after each other. Without a recall the kernel believes its knowledge for
# a second, and a lease lasts 5. Looks are counted in place of seconds, because on a busy machine
# time passes in which no process runs.
SOON, SECOND = 200, 1200


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("files"))
    yield tree
    tree.end()
    assert tree.process.returncode == 0


here = pytest.fixture(directory_of)


def soon(what, holds, looks=SOON):
    while not holds():
        looks -= 1
        assert looks > 0, what
        time.sleep(0.002)


def within_a_second(what, holds):
    """Waits a second, and as long again: the kernel believes for one second what it was told of
    names."""
    soon(what, holds, SECOND)


def test_names_and_attributes_are_not_asked_for_again(tree, here):
    there = tree.home / here.name
    for i in range(50):
        (there / f"f{i}").write_text("x")

    def look():
        for i in range(50):
            assert (here / f"f{i}").stat().st_size == 1
            assert not (here / f"none{i}").exists()

    def again():
        look()
        time.sleep(1.2)  # what the kernel itself knows is old by then
        return requests_of(tree, look)
    # A lease lasts 5 s: both looks within them.
    until("it is not asked for again", lambda: again() < 20)


def test_attributes_are_as_at_home_at_once(tree, here):
    there = tree.home / here.name
    (there / "a").write_text("1")
    for n in range(2, 12):
        assert (here / "a").stat().st_size == n - 1
        with open(there / "a", "a") as f:
            f.write("x")
        soon(f"size {n}", lambda: (here / "a").stat().st_size == n)
    os.chmod(there / "a", 0o600)
    soon("mode", lambda: (here / "a").stat().st_mode & 0o777 == 0o600)


def test_content_is_as_at_home_when_a_file_is_opened(tree, here):
    """A file that was closed there is read here right after it is opened, without a pause."""
    there = tree.home / here.name
    for n in range(200):
        (there / "a").write_text(f"{n}")
        assert (here / "a").read_text() == f"{n}"
    for n in range(200):  # and the other way round
        (here / "a").write_text(f"{n}")
        assert (there / "a").read_text() == f"{n}"


def test_an_open_file_shows_what_home_wrote(tree, here):
    there = tree.home / here.name
    (there / "a").write_text("before")
    with open(here / "a", "rb", buffering=0) as f:
        assert f.read() == b"before"
        (there / "a").write_text("after it")

        def read():
            f.seek(0)
            return f.read() == b"after it"
        soon("content", read)


def test_names_are_as_at_home_within_a_second(tree, here):
    there = tree.home / here.name
    (there / "a").write_text("a")
    (there / "b").write_text("bb")
    assert (here / "a").stat().st_size == 1 and (here / "b").exists()
    assert not (here / "c").exists()
    os.rename(there / "b", there / "a")
    within_a_second("a replaced file", lambda: (here / "a").stat().st_size == 2)
    within_a_second("a name that went", lambda: not (here / "b").exists())
    os.rename(there / "a", there / "c")
    within_a_second("a new name", lambda: (here / "c").exists() and not (here / "a").exists())
    assert os.listdir(here) == ["c"]
    os.unlink(there / "c")
    within_a_second("a file that went", lambda: not (here / "c").exists())
    (there / "d").mkdir()
    within_a_second("a directory", lambda: (here / "d").is_dir())
    os.rmdir(there / "d")
    within_a_second("a directory that went", lambda: not (here / "d").exists())


def test_two_jobs_see_each_other(tree, here, tmp_path):
    """Two mounts of one home, each with a server of its own."""
    other = Tree(tmp_path, home=tree.home)
    try:
        mine, theirs = here / "a", other.here / here.name / "a"
        for n in range(100):
            mine.write_text(f"{n}")
            assert theirs.read_text() == f"{n}"
            theirs.write_text(f"back {n}")
            assert mine.read_text() == f"back {n}"
        os.unlink(theirs)
        within_a_second("a file that went", lambda: not mine.exists())
    finally:
        other.end()


def test_a_killed_client_forgets_all(tree, here):
    there = tree.home / here.name
    (there / "a").write_text("1")
    assert (here / "a").stat().st_size == 1
    tree.kill_client()
    (there / "a").write_text("22")
    soon("size", lambda: (here / "a").read_text() == "22")
