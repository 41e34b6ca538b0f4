# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/bench, with programs that say what a test wants: a sample fails only by what crashes, and
of two versions only what differs beyond noise is told."""
import json
import os
import pathlib
import subprocess

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "scripts/bench"


@pytest.fixture
def build(tmp_path):
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(directory, *says):
    """A clustersim that takes so many seconds for 100 seeds, one after the other at each call."""
    directory.mkdir(exist_ok=True)
    (directory / "says").write_text("".join(
        f"{json.dumps({'seeds': 100, 'cpu_s': s}) if s else 'Aborted'}\n" for s in says))
    path = directory / "clustersim"
    path.write_text("#!/bin/sh\ncd \"$(dirname \"$0\")\"; read -r said <says; sed -i 1d says\n"
                    "echo \"$said\"; [ \"$said\" != Aborted ]\n")
    path.chmod(0o755)
    return directory


def bench(build, *arguments):
    done = subprocess.run([BENCH, build, *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "BENCH_PARTS": "seeds",
                               "SOUK_BIN": str(build / "bin")})
    return done.returncode, done.stdout, done.stderr


def compared(build, old, new):
    program(build / "old", *old)
    program(build / "new", *new)
    return bench(build, "--compare", build / "old", build / "new")[:2]


STEADY = (3.0, 3.1, 2.9, 3.05, 2.95, 3.0, 3.02)


@pytest.mark.parametrize("factor, status, word", [(1.5, 1, "WORSE"), (0.5, 0, "better"),
                                                  (1.02, 0, "worse")])
def test_what_changed_beyond_noise_is_told_and_fails_by_more_than_5_percent(build, factor, status,
                                                                            word):
    ended, said = compared(build, STEADY, [factor * s for s in STEADY])
    assert ended == status, said
    assert said.splitlines()[1].endswith(word) and "1 of 1 figures changed" in said
    figure, = json.loads((build / "bench-compare.json").read_text())["figures"]
    assert figure["ratio"] == pytest.approx(factor) and len(figure["pairs"]) == len(STEADY)


def test_noise_is_no_change_however_large(build):
    ended, said = compared(build, (1, 2, 3, 1, 2, 3, 1), (3, 1, 4, 2, 3, 2, 2))
    assert ended == 0 and said.startswith("0 of 1 figures changed"), said


@pytest.mark.parametrize("old, new, status, words", [
    (STEADY, (3, 0), 1, "FAILED: seeds: exit 1"), ((3, 0), STEADY, 1, "note: of OLD, seeds: exit")])
def test_a_version_that_crashes_is_named(build, old, new, status, words):
    ended, said = compared(build, old, new)
    assert ended == status and words in said


def test_a_sample_fails_by_a_crash_and_not_by_slowness(build):
    program(build / "bin", 1000, 0)
    ended, said, _ = bench(build, "--sample")
    assert ended == 0 and "MISSED" in said
    ended, said, _ = bench(build, "--sample")
    assert ended == 1 and "FAILED: seeds: exit 1" in said


@pytest.mark.parametrize("arguments, words", [
    (["--compare", "nothing", "such"], "nothing is neither a directory with clustersim in it nor"),
    (["--sample", "--rounds", "3"], "fewer than 6 cannot tell a change from noise")])
def test_wrong_usage_is_said(build, arguments, words):
    ended, said, told = bench(build, *arguments)
    assert ended in (1, 2) and said == "" and words in told
