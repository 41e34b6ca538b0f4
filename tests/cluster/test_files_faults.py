# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a home when something dies: a client, the link, the server."""
import signal
import subprocess

import pytest

from conftest import LIMIT, until
from files_tree import Link, Tree, directory_of, module_tree, needs_fuse

pytestmark = needs_fuse
tree = pytest.fixture(scope="module")(module_tree)
here = pytest.fixture(directory_of)


WORK = r"""
import hashlib, os, sys
top, rounds = sys.argv[1], int(sys.argv[2])
log = open(f"{top}/log", "w")
for i in range(rounds):
    name = f"{top}/f{i % 7}"
    data = hashlib.sha256(str(i).encode()).digest() * 300
    with open(name + ".new", "wb") as f: f.write(data)
    os.rename(name + ".new", name)
    os.mkdir(f"{top}/d{i}"); os.rmdir(f"{top}/d{i}")
    assert open(name, "rb").read() == data
    log.write(f"{i}\n"); log.flush()
print("done")
"""


def begin_work(here, rounds):
    work = subprocess.Popen(["python3", "-c", WORK, here, str(rounds)], stdout=subprocess.PIPE,
                            text=True)
    until("it works", lambda: (here / "log").exists() and (here / "log").read_text())
    return work


def finish_work(work, home, rounds):
    assert work.communicate(timeout=LIMIT * 2)[0] == "done\n" and work.returncode == 0
    assert (home / "log").read_text().splitlines() == [str(i) for i in range(rounds)]


def test_a_killed_client_is_replaced_and_nobody_notices(tree, here):
    rounds = 500
    work = begin_work(here, rounds)
    kills = 0
    while work.poll() is None and kills < 40:
        tree.kill_client()
        kills += 1
    finish_work(work, tree.home / here.name, rounds)
    assert kills > 1


@pytest.fixture
def linked(tmp_path):
    link = Link(tmp_path / "link")
    tree = Tree(tmp_path, via=tmp_path / "link")
    link.to = tree.socket
    tree.link = link
    yield tree
    link.up = True
    tree.end()
    link.end()


def test_a_cut_link_makes_calls_wait_and_loses_and_doubles_nothing(linked):
    rounds = 500
    work = begin_work(linked.here, rounds)
    cuts = 0
    while work.poll() is None and cuts < 20:
        linked.link.cut()
        linked.link.up = True
        before = (linked.home / "log").stat().st_size
        until("it goes on", lambda: work.poll() is not None or
              (linked.home / "log").stat().st_size > before)
        cuts += 1
    finish_work(work, linked.home, rounds)
    assert cuts > 1


def test_while_the_home_is_away_a_signal_ends_a_call(linked):
    (linked.home / "f").write_text("there")
    linked.link.cut()
    waiting = subprocess.Popen(["cat", linked.here / "f"], stdout=subprocess.PIPE)
    stuck = f"/proc/{waiting.pid}/wchan"
    until("it waits", lambda: "request_wait" in open(stuck).read())
    waiting.terminate()
    assert waiting.wait(LIMIT) == -signal.SIGTERM
    linked.link.up = True
    assert (linked.here / "f").read_text() == "there"
