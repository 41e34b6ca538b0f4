# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests inside a machine share this. They import it first, because it sets where everything is
found."""
import os
import sys

os.environ.update(SOUK_BIN="/souk/bin", SOUK_TEST_LIMIT="90",
                  PATH="/souk/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root",
                  PYTHONDONTWRITEBYTECODE="1")
sys.path.insert(0, "/souk/tests/cluster")
import programs  # noqa: E402
from conftest import BIN, Market, read_text, until  # noqa: E402

__all__ = ["ALICE", "BIN", "V2", "Market", "load", "move", "moved", "need", "programs", "read_text",
           "say", "until"]

ALICE = 4321  # a user of the root image
V2 = "/sys/fs/cgroup"


def say(text):
    print(f"vm: {text}", flush=True)


def need(truth, what):
    """An assertion that says what was seen."""
    if not truth:
        raise AssertionError(what)


def load(steps, memory=8, seed=1):
    return [f"{BIN}/testload", "--steps", str(steps), "--print-every", "50", "--digest", "--memory",
            str(memory), "--seed", str(seed)]


def move(market, id, there):
    """True when it runs there; False if it has ended."""
    done = market.tool("marketctl", "--hold", "move", id, there, check=False)
    if done.returncode != 0:
        need(market.job(id).get("status") == "finish", f"move {id} {there}: {done.stderr}")
        return False
    return market.until_job(id, f"runs on {there}", lambda j: j["status"] == "finish" or
                            j["status"] == "run" and j["where"] == there and
                            "going_to" not in j)["status"] == "run"


def moved(market, job, times):
    """Back and forth between the first two nodes; how often before it ended."""
    where = market.until_runs(job.id)["where"]
    for done in range(times):
        where = "n2" if where == "n1" else "n1"
        if not move(market, job.id, where):
            return done
    return times
