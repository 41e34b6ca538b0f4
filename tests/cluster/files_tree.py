# SPDX-License-Identifier: GPL-2.0-or-later
"""A directory that souk-files serves and mounts beside it, without a market."""
import os
import re
import resource
import signal
import subprocess

import pytest

from conftest import BIN, LIMIT, alive

needs_fuse = pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"),
                                reason="mounting needs root and /dev/fuse")


class Tree:
    """`home` is served; `here` is where it is mounted."""

    def __init__(self, path, via=None, descriptors=None, quiet=None, home=None,
                 contents=None, env=None):
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
        self.clients = []
        self.next_client()

    def next_client(self):
        self.clients.append(int(self.process.stdout.readline().split()[1]))

    def kill_client(self):
        os.kill(self.clients[-1], signal.SIGKILL)
        self.next_client()

    def end(self):
        subprocess.run(["umount", "-l", self.here], check=False)
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:  # a test that failed holds files of it
            for pid in (self.process.pid, self.clients[-1], int(self.server)):
                os.kill(pid, signal.SIGKILL)
            self.process.wait(LIMIT)


def module_tree(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("files"))
    yield tree
    tree.end()
    assert tree.process.returncode == 0 and not alive(int(tree.server))


def directory_of(tree, request):
    name = re.sub(r"\W", "_", request.node.name)
    (tree.here / name).mkdir()
    return tree.here / name
