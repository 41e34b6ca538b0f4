# SPDX-License-Identifier: GPL-2.0-or-later
"""Each attempt of attempts.py against one market, which goes on as if nothing had been."""
import json
import os
import shutil

import pytest

os.environ.setdefault("SOUK_BIN", __import__("cluster").BIN)
import attempts  # noqa: E402 (it needs to know where the programs are)


@pytest.fixture(scope="module")
def stage(standing):
    place = f"/var/tmp/souk-attempts-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    os.mkdir(place, 0o755)
    yield attempts.Stage(standing, place)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def results():
    """Kept for `make attack`."""
    rows = []
    yield rows
    if path := os.environ.get("SOUK_ATTACK_TABLE"):
        with open(path, "w") as f:
            json.dump(rows, f)


@pytest.mark.parametrize("attempt", attempts.ATTEMPTS, ids=lambda a: a.name)
def test_it_is_refused(stage, market, results, attempt):
    row = {"who": attempt.who, "what": attempt.what, "got": "", "refused": False}
    results.append(row)
    try:
        got = attempt.run(stage)
    except Exception as e:
        row["got"] = f"{type(e).__name__}: {e}"
        raise
    row["got"] = " ".join(got.split())
    row["refused"] = attempt.got in got
    assert row["refused"], f"{attempt.who} {attempt.what}: {got}"


def test_the_client_can_do_what_is_allowed(stage, market):
    """A start with a good ticket, so that the others fail for the reason that they name."""
    def talk():
        with stage.as_node("n2") as line:
            attempts.begun(line, 999_999, stage.ticket(destination="n2", seq=999_999))
            attempts.ended(line, 999_999)
    stage.inside(talk)


def test_a_market_that_was_attacked_works(stage, market):
    """After whatever came before: a job starts on one node and is moved to another."""
    job = market.srun("--node", "n1", "-p", 50, "sleep", "600")
    market.until_runs(job.id)
    to = next(n for n in ("n1", "n2", "n3") if n != market.job(job.id)["where"])
    market.tool("marketctl", "--hold", "move", job.id, to)
    market.until_runs(job.id, to)
    job.end()
