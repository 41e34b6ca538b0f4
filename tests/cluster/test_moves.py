# SPDX-License-Identifier: GPL-2.0-or-later
"""Each row of the table of tests/moves as a part of a job: moved, frozen and thawed, written down
and gone back to. What the job then says of it is what it said before; or it was refused in words;
or docs/move.md says that it differs.
SOUK_ROWS=TEXT,...: only rows whose name has one of these texts. SOUK_WHOLE_TABLE=1: the
whole table also goes back to checkpoints, and not its first job alone."""
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import HERE, LIMIT, Market, bring_up, until
from test_checkpoints import checkpoint, lose
from test_crash import Absence

sys.path.append(os.path.join(HERE, "..", "moves"))
import rows  # noqa: E402

HOLDER = os.path.join(HERE, "..", "moves", "holder.py")
ONLY = os.environ.get("SOUK_ROWS", "").split(",")
TABLE = {name: r for name, r in rows.load().items()
         if not r.by and any(part in name for part in ONLY)}
REFUSED = {n: r for n, r in TABLE.items() if isinstance(r.outcome, rows.Refused)}
STAYS = {n: r for n, r in TABLE.items() if n not in REFUSED}
WHOLE = os.environ.get("SOUK_WHOLE_TABLE")
PROCESSES = 45  # of one job


def cut(table):
    """The rows of each job: those that share a process, and others by the dozen."""
    shared = [name for name, r in table.items() if not r.alone]
    alone = [name for name, r in table.items() if r.alone]
    dozens = [alone[i:i + PROCESSES] for i in range(0, len(alone), PROCESSES)]
    return [names for names in (shared, *dozens) if names]


JOBS = cut(STAYS)
SAVED = cut({n: r for n, r in STAYS.items() if not isinstance(r.outcome, rows.Uncheckpointed)})


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "3", "--speeds", "100,80,60", "--cpus", "16", "--memory",
                               "16000"))


class Holder:
    """A job that has these rows."""
    def __init__(self, market, names, place, *options):
        self.market, self.names, self.asked = market, names, 0
        self.job = market.srun("-p", 50, "-m", 3000, "--node", "n1", *options, "/usr/bin/python3",
                               HOLDER, place, *names, stdin=subprocess.PIPE)
        self.first = self.ask()

    def ask(self):
        """Returns the state of each row, as the job says it now."""
        self.asked += 1
        self.job.process.stdin.write(b"ask-%d\n" % self.asked)
        self.job.process.stdin.flush()
        wanted = re.compile(rb"^ask-%d (\{.*\})$" % self.asked, re.M)
        return json.loads(until(f"the job answers {self.asked}",
                                lambda: wanted.search(bytes(self.job.out)))[1])

    def differ(self, way):
        """The rows that are not as the table says, after that way."""
        now, wrong = self.ask(), []
        for name in self.names:
            was, outcome = self.first[name], TABLE[name].outcome
            same = now[name] == was
            if lacks(was):
                continue
            if isinstance(outcome, rows.Differs) and way in outcome.ways:
                if same and not outcome.drawn:
                    wrong.append(f"{name}: as before, {was}, though the table says it differs")
            elif not same:
                wrong.append(f"{name}: {now[name]}, not {was}")
        return wrong

    def order(self, verb, *where):
        market, id = self.market, self.job.id
        market.tool("marketctl", "--hold", "--wait", f"{3 * LIMIT:g}s", verb, id, *where,
                    limit=4 * LIMIT)

    def steady(self):
        """Rows that say something else each time say nothing of a move; neither do those that a
        machine lacks, though the table does not know of that."""
        now, wrong = self.ask(), []
        for name in self.names:
            was = self.first[name]
            if lacks(was):
                print(f"lacking here: {name}: {was['lacks']}")
                if not TABLE[name].needs:
                    wrong.append(f"{name}: {was['lacks']}")
            elif now[name] != was:
                wrong.append(f"{name}: {now[name]}, unmoved, after {was}")
        return wrong


def lacks(said):
    return isinstance(said, dict) and "lacks" in said


def check(wrong):
    assert not wrong, "\n".join(wrong)


def pytest_generate_tests(metafunc):
    for fixture, jobs in (("names", JOBS), ("saved", SAVED if WHOLE else SAVED[:1])):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, jobs, ids=[f"{i + 1}-of-{len(JOBS)}"
                                                     for i in range(len(jobs))])
    if "refused" in metafunc.fixturenames:
        metafunc.parametrize("refused", REFUSED)


def test_what_is_moved_and_thawed_is_as_the_table_says(market, tmp_path, names):
    held = Holder(market, names, tmp_path)
    wrong = held.steady()
    held.order("move", "n2")
    wrong += held.differ("moved")
    held.order("freeze")
    held.order("thaw", "n3")
    check(wrong + held.differ("thawed"))


def test_what_goes_back_to_a_checkpoint_is_as_the_table_says(market, tmp_path, saved):
    held = Holder(market, saved, tmp_path, "--checkpoint-every", "1s")
    held.order("move", "n2")
    checkpoint(market, held.job)
    with Absence(market):
        lose(market, "n2", held.job)
        market.tool("marketctl", "node", "lost", "n2")
        market.until_job(held.job.id, "runs elsewhere", lambda j: j["status"] == "run" and
                         "going_to" not in j and j["where"] != "n2" and j["resumes"] == 1)
        check(held.differ("back"))


def test_what_is_refused_is_refused_in_words_and_goes_on(market, tmp_path, refused):
    row = TABLE[refused]
    held = Holder(market, [refused], tmp_path)
    if lacks(held.first[refused]):
        assert row.needs, held.first
        pytest.skip(f"{row.needs}: {held.first[refused]['lacks']}")
    id = held.job.id
    done = market.tool("marketctl", "--hold", "--wait", "60s", "move", id, "n2", check=False,
                       limit=80)
    assert done.returncode == 1 and row.outcome.words in done.stderr, done
    assert json.loads(done.stderr)["error"]["code"] == row.outcome.code, done
    assert not row.outcome.check or "process " in done.stderr, done
    check(held.differ("moved"))
    done = market.tool("marketctl", "--hold", "--wait", "60s", "freeze", id, check=False, limit=80)
    assert done.returncode == 1 and "stopped in memory" in done.stderr, done
    assert "not on disk: " in done.stderr and row.outcome.words in done.stderr, done
    assert market.job(id)["stopped_in_place"], market.job(id)
    held.order("thaw", market.job(id)["where"])
    check(held.differ("thawed"))
    if not row.outcome.check:
        return
    said = market.tool("srun", "--json", "--check", "/usr/bin/python3", HOLDER, "--set", tmp_path /
                       "checked", refused, check=False)
    assert said.returncode == 1 and json.loads(said.stdout)["why_code"] == row.outcome.code, said
