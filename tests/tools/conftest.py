# SPDX-License-Identifier: GPL-2.0-or-later
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from fake import LIMIT, Agentd
from workloads import JOBS, PROVIDERS, TRACE

BIN = pathlib.Path(os.environ.get("SOUK_BIN", pathlib.Path(__file__).parents[2] / "build" / "bin"))


@pytest.fixture
def agentd():
    # A unix socket's path is at most 107 bytes: not pytest's own directory.
    directory = tempfile.mkdtemp(prefix="souk-")
    fake = Agentd(directory + "/agentd.sock")
    yield fake
    fake.close()
    shutil.rmtree(directory)


@pytest.fixture
def start(agentd):
    """start("srun", ...) runs a tool against the fake agentd; what still runs at the end of the
    test is killed."""
    running = []

    def run(tool, *args, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([BIN / tool, "--socket", agentd.path, *args], **options)
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def tool():
    """tool("srun", ...) runs a tool to its end, without any agentd: (status, stdout, stderr)."""
    def run(name, *args, **options):
        done = subprocess.run([BIN / name, *args], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT, **options)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    return run


@pytest.fixture
def files(tmp_path, monkeypatch):
    """An empty directory to be in, with a workload of marketsim and a log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").write_text(JOBS)
    (tmp_path / "providers").write_text(PROVIDERS)
    (tmp_path / "trace.swf").write_text(TRACE)
    return tmp_path
