# SPDX-License-Identifier: GPL-2.0-or-later
"""souk setup market: what it makes, and for whom."""
import os
import subprocess

import pytest

from conftest import BIN

NOBODY = 65534


def set_up(directory, root_key="root.key"):
    return subprocess.run([f"{BIN}/souk", "setup", "market", "--no-restart", "--config",
                           directory / "marketd.conf", "--root-key", directory / root_key],
                          capture_output=True, text=True, timeout=60)


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "marketd.conf").write_text(f'insecure = true\nstate = "{tmp_path}/state"\n')
    return tmp_path


def test_the_keys_belong_to_whom_the_state_belongs_to_and_nobody_else_reads_them(state):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(state / "state", NOBODY, NOBODY)
    done = set_up(state)
    assert done.returncode == 0, done.stderr
    made = [state / "state/identity", *(state / "state/identity").iterdir()]
    assert len(made) > 3
    for path in made:
        about = path.lstat()
        assert (about.st_uid, about.st_gid) == (NOBODY, NOBODY), path
        assert path.suffix != ".key" or about.st_mode & 0o077 == 0, path
    about = (state / "root.key").lstat()
    assert about.st_uid == 0 and about.st_mode & 0o777 == 0o600
    assert "insecure" not in (state / "marketd.conf").read_text()


def test_a_second_time_it_changes_nothing(state):
    assert set_up(state).returncode == 0
    before = {p: p.read_bytes() for p in (state / "state/identity").iterdir()}
    again = set_up(state, "another.key")
    assert again.returncode == 1 and again.stderr.count("\n") == 1
    assert "has its certificates already" in again.stderr
    assert {p: p.read_bytes() for p in (state / "state/identity").iterdir()} == before
    assert not (state / "another.key").exists()
