# SPDX-License-Identifier: GPL-2.0-or-later
"""A directory that souk-files serves and mounts beside it, without a market."""
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import threading

import pytest

from conftest import BIN, LIMIT, alive, kill, until

needs_fuse = pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"),
                                reason="mounting needs root and /dev/fuse")


class Tree:
    """`home` is served; `here` is where it is mounted."""

    def __init__(self, path, via=None, descriptors=None, quiet=None, home=None,
                 contents=None, env=None, stopped_store=False):
        self.home, self.here = home or path / "home", path / "here"
        self.home.mkdir(exist_ok=True)
        self.here.mkdir(exist_ok=True)
        words = [f"{BIN}/souk-files", "try", self.home, self.here, via or ""]
        words += [f"+{quiet}"] if quiet else []
        words += [f"={contents}"] if contents else []
        few = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
               ) if descriptors else None
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=few,
                                        env=os.environ | {"TMPDIR": str(path)} | (env or {}))
        self.server, self.socket = re.match(r"server (\d+) socket (\S+)",
                                            self.process.stdout.readline()).groups()
        self.store = int(self.process.stdout.readline().split()[1]) if contents else None
        if stopped_store:
            os.kill(self.store, signal.SIGSTOP)
        self.clients = []
        self.next_client()

    def next_client(self):
        self.clients.append(int(self.process.stdout.readline().split()[1]))

    def kill_client(self):
        os.kill(self.clients[-1], signal.SIGKILL)
        self.next_client()

    def end(self):
        device = os.minor(os.stat(self.here, follow_symlinks=False).st_dev)
        subprocess.run(["umount", "-l", self.here], check=False)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.abort(device)
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:  # a test that failed holds files of it
            kill((self.process.pid, self.clients[-1], int(self.server)))
            self.process.wait(LIMIT)

    def abort(self, device):
        """A mount namespace that was made meanwhile, for a capsule of a test beside this one, has a
        copy of the mount and keeps it as long as that capsule runs."""
        control = self.here.parent / "control"
        control.mkdir()
        subprocess.run(["mount", "-t", "fusectl", "none", control], check=True)
        try:
            (control / str(device) / "abort").write_text("1")
        except FileNotFoundError:  # it has ended by now
            pass
        finally:
            subprocess.run(["umount", control], check=True)
            control.rmdir()


class Link:
    """A unix socket that leads to another, `to`, as long as it is not cut; `bytes`: how much came
    from there. While it is held, nothing comes through."""

    def __init__(self, path):
        self.path, self.to, self.up, self.pairs, self.bytes = path, None, True, [], 0
        self.free = threading.Event()
        self.free.set()
        self.lock = threading.Lock()  # a pair is cut, or is made after the link is up again
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(path))
        self.door.listen()
        self.porter = threading.Thread(target=self.accept, daemon=True)
        self.porter.start()

    def accept(self):
        while True:
            try:
                near = self.door.accept()[0]
            except OSError:
                return
            until("its server", lambda: self.to)
            with self.lock:
                if not self.up:
                    near.close()
                    continue
                far = socket.socket(socket.AF_UNIX)
                far.connect(self.to)
                self.pairs += [near, far]
            for pair in ((near, far, False), (far, near, True)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, to, counts):
        try:
            while data := source.recv(1 << 20):
                if counts:
                    self.bytes += len(data)
                self.free.wait()
                to.sendall(data)
        except OSError:
            pass
        self.shut((source, to))

    def hold(self):
        self.free.clear()

    def let(self):
        self.free.set()

    @staticmethod
    def shut(sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            self.up = False
            self.shut(self.pairs)
            self.pairs.clear()

    def end(self):
        """The thread that accepts ends before its descriptor may be another link's: a call that the
        kernel begins again would accept there."""
        self.shut((self.door,))
        self.porter.join(LIMIT)
        self.door.close()


def linked_tree(path, **how):
    link = Link(path / "link")
    tree = Tree(path, via=path / "link", **how)
    link.to = link.to or tree.socket
    tree.link = link
    return tree


def end_tree(tree):
    with contextlib.suppress(ProcessLookupError):  # a test that failed may have stopped it
        os.kill(tree.clients[-1], signal.SIGCONT)
    tree.link.let()
    tree.link.up = True
    tree.end()
    tree.link.end()


def own_tree(tmp_path):
    """A fixture: one for each test, whose link it can hold and cut."""
    tree = linked_tree(tmp_path)
    os.listdir(tree.here)
    yield tree
    end_tree(tree)


class Doing(threading.Thread):
    """A call that may wait; `error`: the errno with which it ended, or 0."""

    def __init__(self, call, *words):
        super().__init__(daemon=True)
        self.call, self.words, self.error, self.value = call, words, None, None
        self.start()

    def run(self):
        try:
            self.value = self.call(*self.words)
            self.error = 0
        except OSError as e:
            self.error = e.errno

    def end(self):
        self.join(LIMIT)
        assert not self.is_alive()
        return self.error


def module_tree(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("files"))
    yield tree
    tree.end()
    assert tree.process.returncode == 0 and not alive(int(tree.server))


def directory_of(tree, request):
    name = re.sub(r"\W", "_", request.node.name)
    (tree.here / name).mkdir()
    return tree.here / name
