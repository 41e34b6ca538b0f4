# SPDX-License-Identifier: GPL-2.0-or-later
"""The packages' own scripts, run outside of a package. make check-deb installs them."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

DEBIAN = pathlib.Path(__file__).parents[2] / "debian"


@pytest.fixture
def guest(tmp_path):
    """A process that looks like PID 1 of a job."""
    init = tmp_path / "lib/souk/souk-init"
    init.parent.mkdir(parents=True)
    shutil.copy2(shutil.which("sleep"), init)
    process = subprocess.Popen([init, "1000"])
    yield process
    process.kill()
    process.wait()


def prerm(*words):
    return subprocess.run(["sh", DEBIAN / "souk-agent.prerm", *words], capture_output=True,
                          text=True, timeout=60)


@pytest.mark.skipif(os.path.exists("/run/souk/agentd.sock"), reason="an agentd runs here")
def test_the_agent_is_not_removed_while_a_job_has_processes_here(guest):
    done = prerm("remove")
    assert done.returncode == 1 and "processes of a job are still here" in done.stderr, done
    assert prerm("upgrade").returncode == 0
    guest.kill()
    guest.wait()
    assert prerm("remove").returncode == 0


def test_the_nightly_backup_is_enabled_and_started():
    rules = (DEBIAN / "rules").read_text()
    words = re.search(r"dh_installsystemd (.*)souk-backup\.timer", rules)[1].split()
    assert "--no-start" not in words and "--no-enable" not in words
