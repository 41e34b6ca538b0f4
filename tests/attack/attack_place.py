# SPDX-License-Identifier: GPL-2.0-or-later
"""A plain user with a directory of his own, and his jobs."""
import os
import shutil
import subprocess

import pytest

from cluster import BIN

SOMEBODY = 4321


@pytest.fixture
def place():
    top = f"/var/tmp/souk-attack-{os.getpid()}"
    shutil.rmtree(top, ignore_errors=True)
    os.mkdir(top, 0o755)
    yield top
    shutil.rmtree(top)


def run_as_somebody(market, place, *command, **how):
    """The output of a job of a plain user. (He may not be able to come to where srun lies.)"""
    srun = f"{place}/srun"
    if not os.path.exists(srun):
        shutil.copy(f"{BIN}/srun", srun)
    env = {**market.env, "HOME": place, **how.pop("env", {})}
    done = subprocess.run([srun, "-p", "50", *command], env=env, cwd=place, capture_output=True,
                          user=SOMEBODY, group=SOMEBODY, extra_groups=[], text=True, timeout=60,
                          stdin=subprocess.DEVNULL, **how)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout
