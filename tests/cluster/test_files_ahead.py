# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes that are answered before the home of the files has them: nothing of them is lost, done
twice or seen too late, whatever dies, and what the home says against one is heard."""
import errno
import mmap
import os
import random
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import LIMIT, until
from files_tree import Doing, end_tree, linked_tree, needs_fuse, own_tree

pytestmark = needs_fuse
tree = pytest.fixture(own_tree)
SEEDS = [int(s) for s in os.environ.get("SOUK_FILES_SEEDS", "1 2 3").split()]
STEPS = int(os.environ.get("SOUK_FILES_STEPS", "300"))


def open_new(tree, name="f", flags=0):
    return os.open(tree.here / name, os.O_RDWR | os.O_CREAT | flags, 0o644)


def waits_in_kernel(thread):
    def waits():
        with open(f"/proc/self/task/{thread.native_id}/wchan") as f:
            where = f.read()
        return any(word in where for word in ("request_wait", "fuse", "completion"))
    until("it waits", waits)


def test_a_write_is_done_before_the_home_has_it_and_a_close_is_not(tree):
    f = open_new(tree)
    tree.link.hold()
    for i in range(20):
        assert os.pwrite(f, b"%04d" % i * 1024, i * 4096) == 4096
    assert (tree.home / "f").stat().st_size == 0
    close = Doing(os.close, f)
    waits_in_kernel(close)
    tree.link.let()
    assert close.end() == 0
    assert (tree.home / "f").read_bytes() == b"".join(b"%04d" % i * 1024 for i in range(20))


def test_what_follows_sees_what_was_written_before(tree):
    f = open_new(tree)
    other = os.open(tree.here / "f", os.O_RDONLY)
    tree.link.hold()
    os.write(f, b"x" * 10000)
    looks = [Doing(os.stat, tree.here / "f"), Doing(os.pread, other, 20000, 0)]
    tree.link.let()
    assert [look.end() for look in looks] == [0, 0]
    assert looks[0].value.st_size == 10000 and looks[1].value == b"x" * 10000
    for name, wanted in (("g", 10000), ("h", 4000)):
        tree.link.hold()
        os.pwrite(f, b"y" * 10, 0)
        step = (Doing(os.rename, tree.here / "f", tree.here / "g") if name == "g"
                else Doing(os.truncate, tree.here / "g", 4000))
        tree.link.let()
        assert step.end() == 0
        data = (tree.home / "g").read_bytes()
        assert len(data) == wanted and data.startswith(b"y" * 10)
    os.close(f)
    os.close(other)


@pytest.mark.parametrize("flags", [os.O_SYNC, os.O_DSYNC, os.O_DIRECT])
def test_what_is_synced_with_each_write_is_at_home_when_it_returns(tree, flags):
    f = open_new(tree, flags=flags)
    data = mmap.mmap(-1, 4096)
    data.write(b"z" * 4096)
    tree.link.hold()
    write = Doing(os.write, f, data)
    waits_in_kernel(write)
    tree.link.let()
    assert write.end() == 0 and (tree.home / "f").read_bytes() == b"z" * 4096
    os.close(f)


def test_an_fsync_answers_when_all_of_before_is_on_the_homes_disk(tree):
    f = open_new(tree)
    tree.link.hold()
    os.write(f, b"a" * 5000)
    sync = Doing(os.fsync, f)
    waits_in_kernel(sync)
    tree.link.let()
    assert sync.end() == 0 and (tree.home / "f").stat().st_size == 5000
    os.close(f)


def test_clients_that_are_killed_and_links_that_are_cut_lose_and_double_nothing(tree):
    f = open_new(tree, flags=os.O_APPEND)
    written = b""
    for i in range(12):
        os.fsync(f)  # a client is there, and connected
        tree.link.hold()
        for k in range(5):
            piece = b"%05d %d\n" % (i, k) * 500
            os.write(f, piece)
            written += piece
        if i % 3 == 0:
            tree.kill_client()
        elif i % 3 == 1:
            tree.link.cut()
            tree.link.up = True
        tree.link.let()
    os.close(f)
    assert (tree.home / "f").read_bytes() == written


# ---- what the home refuses

@pytest.fixture
def small(tmp_path):
    """A home with room for 1 MB."""
    (tmp_path / "home").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "souk", tmp_path / "home"], check=True)
    tree = linked_tree(tmp_path)
    os.listdir(tree.here)
    yield tree
    end_tree(tree)
    subprocess.run(["umount", tmp_path / "home"], check=True)


def fill(tree, name="f"):
    """Writes more than there is room for, so that the writes are answered ahead of the home."""
    f = open_new(tree, name)
    tree.link.hold()
    for i in range(12):
        assert os.pwrite(f, b"x" * (128 << 10), i * (128 << 10)) == 128 << 10
    return f


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("then", ["close", "fsync", "write"])
def test_a_full_disk_is_told_once_to_whatever_comes_next(small, then, killed):
    f = fill(small)
    if killed:
        small.kill_client()
    small.link.let()
    if then == "write":
        errors = []
        until("a write is told", lambda: errors.append(
            Doing(os.pwrite, f, b"y" * 4096, 0).end()) or errors[-1] == errno.ENOSPC)
        # Some writes that were taken before this error may still be refused later. Then the next
        # call reports that, as the kernel does for pages that it writes back.
        assert errors[-1] == errno.ENOSPC and Doing(os.close, f).end() in (0, errno.ENOSPC)
        return
    if then == "fsync":
        assert Doing(os.fsync, f).end() == errno.ENOSPC
        assert Doing(os.fsync, f).end() == 0
        assert Doing(os.close, f).end() == 0
        return
    assert Doing(os.close, f).end() == errno.ENOSPC


def test_an_error_that_is_known_outlives_the_client(small):
    f = fill(small)
    small.link.let()
    other = os.open(small.here / "f", os.O_RDONLY)  # in their order: all are answered
    os.fstat(other)
    assert os.pread(other, 10, 0) == b"x" * 10
    small.kill_client()
    assert Doing(os.close, f).end() == errno.ENOSPC
    os.close(other)


def test_another_open_file_of_it_hears_from_an_fsync_and_the_writer_still_hears(small):
    f = fill(small)
    other = Doing(os.open, small.here / "f", os.O_RDWR)
    small.link.let()
    assert other.end() == 0
    assert Doing(os.fsync, other.value).end() == errno.ENOSPC
    assert Doing(os.close, other.value).end() == 0
    assert Doing(os.close, f).end() == errno.ENOSPC


def test_after_a_full_disk_a_write_is_told_itself(small):
    f = fill(small)
    small.link.let()
    assert Doing(os.fsync, f).end() == errno.ENOSPC
    assert Doing(os.pwrite, f, b"x" * (1 << 20), 4 << 20).end() == errno.ENOSPC
    os.close(f)


@pytest.fixture
def limited(tmp_path):
    """A home that may have 1 MB, by a quota, on a file system with more room."""
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("mkfs.btrfs is needed (apt-get install btrfs-progs)")
    image, home = tmp_path / "image", tmp_path / "home"
    home.mkdir()
    with open(image, "w") as f:
        f.truncate(120 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True, stderr=subprocess.DEVNULL)
    if subprocess.run(["mount", "-o", "loop", image, home], check=False).returncode != 0:
        pytest.skip("no loop device, or no btrfs, here")
    try:
        subprocess.run(["btrfs", "quota", "enable", home], check=True)
        subprocess.run(["btrfs", "qgroup", "limit", "1M", home], check=True)
        tree = linked_tree(tmp_path)
        os.listdir(tree.here)
        yield tree
        end_tree(tree)
    finally:
        subprocess.run(["umount", home], check=True)


def test_a_quota_of_the_home_reaches_the_job(limited):
    f = open_new(limited)
    data = os.urandom(128 << 10)
    errors = []
    until("it is told", lambda: errors.append(
        Doing(os.pwrite, f, data, len(errors) * len(data)).end()) or errors[-1] != 0)
    assert errors[-1] == errno.EDQUOT and len(errors) > 4
    # For a while after this error, a write that does not fit is refused itself, and at once.
    assert Doing(os.pwrite, f, data * 16, 8 << 20).end() == errno.EDQUOT
    Doing(os.close, f).end()  # what was under way meanwhile
    subprocess.run(["btrfs", "qgroup", "limit", "none", limited.home], check=True)
    with open(limited.here / "g", "wb") as g:
        g.write(data)
    assert (limited.home / "g").read_bytes() == data


# ---- against a plain directory, step by step

class Model:
    """The same calls in the mounted tree and in a plain directory: both say the same."""
    names = [f"{d}{n}" for d in ("", "d/") for n in ("a", "b", "c")]

    def __init__(self, here, home, plain, seed):
        self.here, self.home, self.plain = here, home, plain
        self.random = random.Random(seed)
        self.open, self.story = [], []
        for top in (here, plain):
            os.mkdir(top / "d")

    def both(self, what, call):
        said = []
        for top in (0, 1):
            try:
                said.append(call(top))
            except OSError as e:
                said.append(("errno", e.errno))
        self.story.append((what, said[0] if not isinstance(said[0], bytes) else len(said[0])))
        assert said[0] == said[1], "\n".join(map(str, self.story[-40:]))
        return said

    def path(self, top, name):
        return (self.here, self.plain)[top] / name

    def data(self):
        size = self.random.choice([1, 100, 4096, 5000, 70_000, 300_000])
        return bytes([self.random.randrange(256)]) * size

    def step(self):
        r = self.random
        name, other = r.choice(self.names), r.choice(self.names)
        at = r.choice([0, 1, 4096, 10_000, 200_000])
        kind = r.choice(["open"] * 3 + ["write"] * 8 + ["append"] * 2 + ["read"] * 4 +
                        ["close"] * 3 + ["attributes"] * 2 +
                        ["stat", "list", "rename", "unlink", "link", "truncate", "ftruncate",
                         "fsync", "map", "home", "copy", "punch"])
        if kind == "open" and len(self.open) < 12:
            flags = os.O_CREAT | r.choice([os.O_RDWR, os.O_RDWR | os.O_APPEND,
                                           os.O_RDWR | os.O_TRUNC, os.O_RDONLY,
                                           os.O_RDWR | os.O_SYNC])
            files = []
            self.both(f"open {name} {flags:o}",
                      lambda top: files.append(os.open(self.path(top, name), flags, 0o600)))
            if files:
                self.open.append((name, files, flags))
        elif kind in ("stat", "list"):
            def look(top):
                if kind == "list":
                    return sorted(os.listdir(self.path(top, "d")))
                st = os.stat(self.path(top, name))
                return st.st_size, st.st_nlink, oct(st.st_mode)
            self.both(f"{kind} {name}", look)
        elif kind == "rename":
            self.both(f"rename {name} {other}",
                      lambda top: os.rename(self.path(top, name), self.path(top, other)))
        elif kind == "unlink":
            self.both(f"unlink {name}", lambda top: os.unlink(self.path(top, name)))
        elif kind == "link":
            self.both(f"link {name} {other}",
                      lambda top: os.link(self.path(top, name), self.path(top, other)))
        elif kind == "truncate":
            self.both(f"truncate {name} {at}", lambda top: os.truncate(self.path(top, name), at))
        elif self.open:
            self.step_with(kind, r.randrange(len(self.open)), at)

    def step_with(self, kind, n, at):
        name, files, flags = self.open[n]
        data = self.data()
        if kind == "write":
            self.both(f"write {name} {len(data)} at {at}",
                      lambda top: os.pwrite(files[top], data, at))
        elif kind == "append":
            self.both(f"append {name} {len(data)}", lambda top: os.write(files[top], data))
        elif kind == "read":
            self.both(f"read {name} at {at}", lambda top: os.pread(files[top], 100_000, at))
        elif kind == "ftruncate":
            self.both(f"ftruncate {name} {at}", lambda top: os.ftruncate(files[top], at))
        elif kind == "attributes":
            def change(top):
                os.fchmod(files[top], 0o600 | at & 0o77)
                os.utime(files[top], (at, len(data)))
                os.fchown(files[top], os.getuid(), -1)
                st = os.fstat(files[top])
                return oct(st.st_mode), st.st_mtime, st.st_size
            self.both(f"attributes {name} {at}", change)
        elif kind == "fsync":
            self.both(f"fsync {name}", lambda top: os.fsync(files[top]))
        elif kind == "punch":
            self.both(f"allocate {name} {at}",
                      lambda top: os.posix_fallocate(files[top], at, len(data)))
        elif kind == "copy":
            source = self.random.choice(self.open)[1]
            self.both(f"copy to {name} {at}", lambda top: os.copy_file_range(
                source[top], files[top], 5000, 0, 400_000 + at))
        elif kind == "map" and flags & os.O_ACCMODE == os.O_RDWR:
            def by_map(top):
                if os.fstat(files[top]).st_size < 4096:
                    return None
                # A child does this: a process that waits for a page holds the lock that the link's
                # threads need.
                child = os.fork()
                if child == 0:
                    with mmap.mmap(files[top], 4096) as m:
                        m[:len(data[:4096])] = data[:4096]
                    os._exit(0)
                return os.waitpid(child, 0)[1]
            self.both(f"map {name}", by_map)
        elif kind == "close":
            self.both(f"close {name}", lambda top: os.close(files[top]))
            self.open.pop(n)
        elif kind == "home":
            # A file that was synced is at home, even if writes to other files are still on their
            # way.
            os.fsync(files[0])
            numbers = [f"/proc/self/fd/{f}" for f in files]
            here, plain = (os.readlink(f) for f in numbers)
            if here.endswith("(deleted)") or plain.endswith("(deleted)"):
                return
            self.story.append((f"look at {name} at home", 0))
            at_home = self.home / os.path.relpath(here, self.here)
            assert at_home.read_bytes() == open(plain, "rb").read(), self.story[-40:]

    def end(self):
        for _, files, _ in self.open:
            for f in files:
                os.close(f)
        for top, _, names in os.walk(self.plain):
            there = self.home / os.path.relpath(top, self.plain)
            assert sorted(os.listdir(there)) == sorted(os.listdir(top))
            for name in names:
                assert (there / name).read_bytes() == open(f"{top}/{name}", "rb").read(), name


class Trouble(threading.Thread):
    """Kills clients, cuts and holds the link, until it is over."""

    def __init__(self, tree, seed):
        super().__init__(daemon=True)
        self.tree, self.random, self.over = tree, random.Random(-seed), threading.Event()
        self.kinds = {"kill": 0, "cut": 0, "hold": 0}
        self.start()

    def run(self):
        while not self.over.wait(self.random.uniform(0.01, 0.2)):
            kind = self.random.choice(list(self.kinds))
            if kind == "kill":
                self.tree.kill_client()
            elif kind == "cut":
                self.tree.link.cut()
                self.tree.link.up = True
            else:
                self.tree.link.hold()
                self.over.wait(self.random.uniform(0.01, 0.1))
                self.tree.link.let()
            self.kinds[kind] += 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tree_is_as_a_plain_directory_whatever_dies(tree, tmp_path, seed):
    plain = tmp_path / "plain"
    plain.mkdir()
    model = Model(tree.here, tree.home, plain, seed)
    trouble = Trouble(tree, seed)
    steps = 0
    try:
        while steps < STEPS or min(trouble.kinds.values()) == 0:
            model.step()
            steps += 1
    finally:
        trouble.over.set()
        trouble.join(LIMIT)
    assert not trouble.is_alive()
    model.end()
    shutil.rmtree(plain)


def test_a_program_that_is_killed_has_written_what_it_was_told(tree):
    work = subprocess.Popen(
        ["python3", "-c", "import os, sys\n"
         "f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
         "while True: print(os.write(f, b'x' * 10000), flush=True)\n", tree.here / "f"],
        stdout=subprocess.PIPE, text=True)
    count = sum(int(work.stdout.readline()) for _ in range(50))
    work.send_signal(signal.SIGKILL)
    count += sum(map(int, work.stdout.read().split()))
    work.wait(LIMIT)
    assert (tree.home / "f").stat().st_size >= count
