# SPDX-License-Identifier: GPL-2.0-or-later
"""Contents of programs that a node keeps (agentd/files/store.hpp): they come from the home once,
nothing but what the home has is read, and nobody reads what its home does not have."""
import hashlib
import os
import random
import signal
import socket
import stat
import struct
import subprocess
import time

import pytest

from conftest import BIN, LIMIT, until
from files_tree import Link, Tree, needs_fuse

pytestmark = needs_fuse
MB = 1 << 20
ASK, SAYS, ID = struct.Struct("<IIQ"), struct.Struct("<IIQ32s"), struct.Struct("<32s32sQ")
MEMORY, FIND, PUT, PART, CANCEL = range(1, 6)
BEGIN, FOUND, MISSING, MORE, KEPT, REFUSED = range(1, 7)
PART_BYTES = 256 * 1024


class Node:
    """A home, and mounts of it on one node after the other's end; `count`: what came since."""

    def __init__(self, path):
        self.path, self.home, self.contents = path, path / "home", path / "contents"
        (self.home / "bin").mkdir(parents=True)
        self.contents.mkdir(mode=0o700)
        self.trees, self.env = [], {}

    def mount(self, **how):
        here = self.path / f"mount{len(self.trees)}"
        here.mkdir()
        link = Link(here / "link")
        tree = Tree(here, home=self.home, quiet=self.home / "bin", contents=self.contents,
                    env=self.env, via=link.path, **how)
        link.to = tree.socket
        tree.link = link
        self.trees.append(tree)
        until("the mount", lambda: os.path.isdir(tree.here / "bin"))
        return tree

    def program(self, name, size, seed=1):
        (self.home / "bin" / name).write_bytes(random.Random(seed).randbytes(size))
        return name

    def settle(self):
        """Waits until the files are old. A file that was written less than two seconds ago may be
        written again in the same tick of its clock, so its time of change proves nothing yet."""
        newest = max(os.stat(self.home / "bin" / n).st_ctime for n in os.listdir(self.home / "bin"))
        until("old files", lambda: time.time() > newest + 3)

    def read(self, tree, name):
        """Reads a file, compares it with the home's, and returns how many bytes came from the
        home."""
        before = tree.link.bytes
        assert (tree.here / "bin" / name).read_bytes() == (self.home / "bin" / name).read_bytes()
        return tree.link.bytes - before

    def entry(self, name):
        digest = hashlib.sha256((self.home / "bin" / name).read_bytes()).hexdigest()
        return self.contents / digest

    def keeps(self, name):
        until(f"{name} in the store", lambda: self.entry(name).exists())

    def end(self):
        for tree in self.trees:
            if tree.process.poll() is None:
                tree.end()
            tree.link.end()


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.end()
    assert all(tree.process.returncode == 0 for tree in node.trees)


def test_a_program_comes_once(node):
    for name, size in (("big", 5 * MB + 123), ("small", 9000), ("tiny", 100)):
        node.program(name, size)
    node.settle()
    first = node.mount()
    assert node.read(first, "big") > 5 * MB
    assert node.read(first, "small") > 9000
    node.keeps("big")
    node.keeps("small")
    assert node.read(first, "tiny") < 2000 and not node.entry("tiny").exists()
    mode = os.stat(node.entry("big")).st_mode
    assert stat.S_IMODE(mode) == 0o400
    first.end()
    second = node.mount()  # another job, another store process
    assert node.read(second, "small") < 2000
    # a big one is asked for by its content once the home has reckoned it
    (second.here / "bin" / "big").open("rb").close()

    def is_known():
        second_bytes = second.link.bytes
        with open(second.here / "bin" / "big", "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            f.seek(random.randrange(5 * MB))
            f.read(1)
        return second.link.bytes - second_bytes < 3000
    until("the content known", is_known)
    assert node.read(second, "big") < 20000


def test_a_program_that_is_opened_before_its_store_is_ready_comes_too(node):
    """The program stays open at home after its end, so the home is not asked again for a while."""
    for name, size in (("big", 2 * MB), ("small", 9000)):
        node.program(name, size)
    node.settle()
    tree = node.mount(stopped_store=True)
    try:
        assert node.read(tree, "big") > 2 * MB and node.read(tree, "small") > 9000
    finally:
        os.kill(tree.store, signal.SIGCONT)
    node.keeps("big")
    node.keeps("small")


def test_a_poisoned_content_is_not_read_and_goes(node, tmp_path):
    node.program("big", 900_000)
    node.settle()
    first = node.mount()
    node.read(first, "big")
    node.keeps("big")
    first.end()
    entry = node.entry("big")
    raw = bytearray(entry.read_bytes())
    raw[500_000] ^= 1
    os.chmod(entry, 0o600)
    entry.write_bytes(raw)
    os.chmod(entry, 0o400)
    second = node.mount()
    assert node.read(second, "big") > 900_000
    until("the right one", lambda: entry.exists() and
          hashlib.sha256(entry.read_bytes()).hexdigest() == entry.name)


def test_what_is_no_content_goes_and_no_link_is_followed(node, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    names = [f"{n:064x}" for n in range(5)]
    os.symlink(secret, node.contents / names[0])
    os.link(secret, node.contents / names[1])
    (node.contents / names[2]).write_text("for all to write")
    os.chmod(node.contents / names[2], 0o666)
    os.mkfifo(node.contents / names[3])
    (node.contents / "new-1-1").write_text("half")
    (node.contents / "other").write_text("")
    (node.contents / names[4]).write_text("a file of another user")
    os.chmod(node.contents / names[4], 0o400)
    os.chown(node.contents / names[4], 1000, 1000)
    node.program("p", 10_000)
    node.settle()
    tree = node.mount()
    node.read(tree, "p")
    node.keeps("p")
    assert os.listdir(node.contents) == [node.entry("p").name]
    assert secret.read_text() == "secret" and secret.stat().st_nlink == 1
    # put in the place of a content that it has
    entry = node.entry("p")
    tree.end()
    tree = node.mount()
    until("the store", lambda: node.read(tree, "p") < 2000 or True)
    entry.unlink()
    os.symlink(secret, entry)
    tree.kill_client()
    node.read(tree, "p")
    until("the link gone", lambda: not entry.is_symlink())
    assert secret.read_text() == "secret"


def test_a_full_disk_keeps_nothing_and_reads_all(node):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k,mode=700", "none", node.contents],
                   check=True)
    try:
        for n in range(4):
            node.program(f"p{n}", 400_000, seed=n)
        node.program("more", 2 * MB)
        node.settle()
        for n in range(4):
            tree = node.mount()
            node.read(tree, f"p{n}")
            node.keeps(f"p{n}")  # the one before it went
            assert len(os.listdir(node.contents)) == 1
            if n < 3:
                tree.end()
        node.read(tree, "more")
        node.read(tree, "p3")
        assert node.entry("p3").exists()
        tree.end()
    finally:
        subprocess.run(["umount", "-l", node.contents], check=True)


def test_no_more_is_kept_than_may_be(node):
    node.env["SOUK_CONTENT_BYTES"] = "1000000"
    for n in range(5):
        node.program(f"p{n}", 240_000, seed=n)
    node.program("more", MB + 1)
    node.settle()
    tree = node.mount()
    for n in range(5):
        node.read(tree, f"p{n}")
        node.keeps(f"p{n}")
    node.read(tree, "more")
    assert not node.entry("p0").exists() and not node.entry("more").exists()
    assert sum(f.stat().st_size for f in node.contents.iterdir()) <= 1_000_000


def test_a_program_that_changes_is_another(node):
    node.program("p", 50_000, seed=1)
    node.settle()
    tree = node.mount()
    node.read(tree, "p")
    node.keeps("p")
    tree.end()
    tree = node.mount()
    assert node.read(tree, "p") < 2000
    with open(tree.here / "bin" / "p", "rb") as held:
        held.read(10)
        node.program("p", 50_000, seed=2)  # in place, of the same size
        new = (node.home / "bin" / "p").read_bytes()
        until("the new one", lambda: (tree.here / "bin" / "p").read_bytes() == new)
    # the job writes to it itself
    with open(tree.here / "bin" / "p", "r+b") as f:
        f.write(b"job")
    node.read(tree, "p")
    assert (tree.here / "bin" / "p").read_bytes()[:3] == b"job"


def test_a_client_and_a_store_that_die_are_not_noticed(node):
    for n in range(20):
        node.program(f"p{n}", 300_000, seed=n)
    node.settle()
    tree = node.mount()
    for n in range(20):
        node.read(tree, f"p{n}")
        if n % 5 == 2:
            tree.kill_client()
        if n == 11:
            os.kill(tree.store, 9)
    assert all(hashlib.sha256(f.read_bytes()).hexdigest() == f.name
               for f in node.contents.iterdir() if not f.name.startswith("new-"))


# ---- the store alone, by the byte

class Client:
    def __init__(self, store):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(store.control, [b"c"], [theirs.fileno()])
        theirs.close()
        self.socket.settimeout(LIMIT)
        kind, _, _, self.nonce = self.hear()
        assert kind == BEGIN
        self.memory = os.memfd_create("part")
        os.ftruncate(self.memory, PART_BYTES)

    def hear(self):
        raw, self.fds, _, _ = socket.recv_fds(self.socket, 1000, 2)
        if not raw:
            return (0, 0, 0, b"")
        kind, unused, number, nonce = SAYS.unpack(raw)
        return kind, unused, number, nonce

    def say(self, kind, number=0, size=0, identity=bytes(72), fds=()):
        raw = ASK.pack(kind, size, number) + identity
        socket.send_fds(self.socket, [raw], list(fds))

    def proven(self, content, nonce=None):
        return ID.pack(hashlib.sha256(content).digest(),
                       hashlib.sha256((nonce or self.nonce) + content).digest(), len(content))

    def find(self, identity):
        self.say(FIND, 7, identity=identity)
        kind, _, number, _ = self.hear()
        assert number == 7
        return kind

    def put(self, content, identity=None):
        self.say(MEMORY, fds=[self.memory])
        self.say(PUT, identity=identity or self.proven(content))
        at = 0
        while True:
            kind = self.hear()[0]
            if kind != MORE:
                return kind
            part = content[at:at + PART_BYTES]
            os.pwrite(self.memory, part, 0)
            self.say(PART, size=len(part))
            at += len(part)


class Store:
    def __init__(self, directory, size=10 * MB):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

        def descriptors():
            os.dup2(fd, 103)
            os.dup2(theirs.fileno(), 104)
            os.dup2(103, 3)
            os.dup2(104, 4)
        self.process = subprocess.Popen([f"{BIN}/souk-files", "store", str(size)],
                                        preexec_fn=descriptors, close_fds=False,
                                        stderr=subprocess.PIPE, text=True)
        os.close(fd)
        theirs.close()

    def end(self):
        self.control.close()
        assert self.process.wait(LIMIT) == 0
        return self.process.stderr.read()


@pytest.fixture
def store(tmp_path):
    (tmp_path / "contents").mkdir(mode=0o700)
    store = Store(tmp_path / "contents")
    yield store
    if store.process.poll() is None:
        store.end()


SECRET = random.Random(5).randbytes(600_000)


def test_a_digest_is_no_right(store):
    victim = Client(store)
    assert victim.put(SECRET) == KEPT
    assert victim.find(victim.proven(SECRET)) == FOUND
    attacker = Client(store)
    known = hashlib.sha256(SECRET).digest()
    guesses = [ID.pack(known, bytes(32), len(SECRET)), ID.pack(known, known, len(SECRET)),
               victim.proven(SECRET),  # another client's proof
               ID.pack(known, hashlib.sha256(attacker.nonce).digest(), len(SECRET)),
               ID.pack(known, hashlib.sha256(attacker.nonce + SECRET).digest(), len(SECRET) - 1)]
    for guess in guesses:
        assert attacker.find(guess) == MISSING
        assert not attacker.fds
    assert attacker.find(attacker.proven(SECRET)) == FOUND
    assert os.pread(attacker.fds[0], len(SECRET), 0) == SECRET


def test_what_is_found_cannot_be_written(store):
    client = Client(store)
    assert client.put(SECRET) == KEPT
    assert client.find(client.proven(SECRET)) == FOUND
    with pytest.raises(OSError):
        os.pwrite(client.fds[0], b"x", 0)
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                           f"open('/proc/self/fd/{client.fds[0]}', 'r+b')"],
                          pass_fds=client.fds, capture_output=True, text=True)
    assert "PermissionError" in done.stderr


def test_a_content_is_filed_under_its_own_digest_alone(store, tmp_path):
    client = Client(store)
    lie = ID.pack(hashlib.sha256(SECRET).digest(), bytes(32), len(SECRET))
    assert client.put(bytes(len(SECRET)), lie) == REFUSED
    assert os.listdir(tmp_path / "contents") == []
    other = Client(store)
    assert other.put(SECRET) == KEPT
    assert os.listdir(tmp_path / "contents") == [hashlib.sha256(SECRET).hexdigest()]


@pytest.mark.parametrize("rude", ["short", "long", "kind", "part", "pipe", "huge", "twice",
                                  "too much"])
def test_a_client_that_breaks_the_rules_is_dropped_alone(store, rude):
    good, bad = Client(store), Client(store)
    assert good.put(SECRET) == KEPT
    if rude == "short":
        bad.socket.send(b"x")
    elif rude == "long":
        bad.socket.send(bytes(200))
    elif rude == "kind":
        bad.say(77)
    elif rude == "part":
        bad.say(PART, size=10)
    elif rude == "pipe":  # whose reader would wait
        ends = os.pipe()
        bad.say(MEMORY, fds=[ends[0]])
        os.close(ends[0]), os.close(ends[1])
    elif rude == "huge":
        bad.say(MEMORY, fds=[bad.memory])
        bad.say(PUT, identity=ID.pack(bytes(32), bytes(32), 1 << 62))
        assert bad.hear()[0] == REFUSED
        bad.say(PART, size=1)
    elif rude == "twice":
        bad.say(MEMORY, fds=[bad.memory])
        bad.say(MEMORY, fds=[bad.memory])
    else:
        bad.say(MEMORY, fds=[bad.memory])
        bad.say(PUT, identity=ID.pack(bytes(32), bytes(32), 10))
        assert bad.hear()[0] == MORE
        bad.say(PART, size=11)
    try:
        assert bad.hear()[0] == 0
    except ConnectionResetError:
        pass
    assert good.find(good.proven(SECRET)) == FOUND


def test_a_directory_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "contents").mkdir()
    os.chmod(tmp_path / "contents", 0o755)
    store = Store(tmp_path / "contents")
    assert store.process.wait(LIMIT) == 1
    assert "chmod 700" in store.process.stderr.read()
    store.control.close()
