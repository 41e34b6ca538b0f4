# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs that are moved and frozen at any moment of their work, and whose results are those of an
unmoved run.
SOUK_MOVES=20: so many moves and freezes of each, in each form of a move (default: 4, in one form
each)."""
import os
import random
import shutil
import subprocess
import time

import pytest

from test_movement import check_moved, shove

MOVES = int(os.environ.get("SOUK_MOVES", 0))
FORMS = ("auto", "safe", "fast")
# A round of work again and again until the job's input ends; each prints the same.
ROUNDS = 'cd "$1"; while ! read -t 0; do {}; done; echo end'


def forms(which):
    return pytest.mark.parametrize("form", FORMS if MOVES else [FORMS[which]])


def need(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


def compiled(path, source, *options):
    (path / "job.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-o", path / "job", path / "job.c", *options], check=True,
                   timeout=60)
    return path / "job"


def move_about(market, job, form):
    r = random.Random(form)
    times = MOVES or 4
    # any moment
    assert shove(market, job.id, form, times,
                 between=lambda: time.sleep(r.uniform(0, 0.3))) == times


def check_ended(market, job):
    """Its input ends, and so it ends well, moved as often as it should be."""
    job.process.stdin.close()
    assert job.wait(90) == 0, job.told
    assert not job.told, "\n".join(job.told)
    check_moved(market, job.id, MOVES or 4)
    return bytes(job.out).decode().splitlines()


def check_rounds(market, form, where, round_):
    """Each round of a bash job, whichever way it was moved, prints what it prints by hand."""
    by_hand = subprocess.run(["bash", "-c", f'cd "$1"; {round_}', "bash", where],
                             capture_output=True, text=True, timeout=90)
    assert by_hand.returncode == 0 and by_hand.stdout and not by_hand.stderr, by_hand
    job = market.srun("--move", form, "-p", 50, "bash", "-c", ROUNDS.format(round_), "bash", where,
                      stdin=subprocess.PIPE)
    job.printed(1)
    move_about(market, job, form)
    job.printed(job.lines() + 1)
    *lines, end = check_ended(market, job)
    wanted = by_hand.stdout.splitlines()
    assert end == "end" and lines == wanted * (len(lines) // len(wanted))


def check_lines(market, form, program, more=3, also=None):
    """A job that prints until its input ends is moved about; by hand its lines are the same."""
    job = market.srun("--move", form, "-p", 50, program, stdin=subprocess.PIPE)
    job.printed(3)
    assert also is None or also(job)
    move_about(market, job, form)
    job.printed(job.lines() + more)
    lines = check_ended(market, job)
    by_hand = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert [by_hand.stdout.readline().rstrip() for _ in lines] == lines
    finally:
        by_hand.communicate(timeout=20)
