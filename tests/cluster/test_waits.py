# SPDX-License-Identifier: GPL-2.0-or-later
"""A call that waits for a span of time (waits.c has one of each) waits for that span, and says
nothing of an interruption, although its job moves, freezes or is saved meanwhile."""
import os
import subprocess

import pytest

from conftest import until
from test_checkpoints import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
SPAN_S = 9
SAYS = {"usleep": "0", "nanosleep": "0", "nanosleep_with_rest": "0", "clock_nanosleep": "0",
        "poll": "0", "epoll": "0", "epoll_pwait2": "0", "futex": "ETIMEDOUT",
        "futex_of_threads": "ETIMEDOUT", "semtimedop": "EAGAIN", "sigtimedwait": "EAGAIN",
        "recv": "EAGAIN", "read": "EAGAIN", "accept": "EAGAIN"}
# Their time limit is the socket's, so that it begins anew with each stop.
OF_SOCKETS = {"recv", "read", "accept"}


@pytest.fixture(scope="module")
def waits(tmp_path_factory):
    program = tmp_path_factory.mktemp("waits") / "waits"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, f"{HERE}/waits.c"], check=True,
                   timeout=60)
    return program


def check(job, until_s):
    """`until_s`: the second in which the last stop came. A span that began anew there would end
    as much later."""
    assert job.wait(120) == 0
    ended = {}
    for line in bytes(job.out).decode().splitlines():
        name, said, *after = line.split()
        if name != "second":
            ended[name] = (said, int(after[0]) / 1000)
    assert {name: said for name, (said, _) in ended.items()} == SAYS
    early = {name: s for name, (_, s) in ended.items() if s < SPAN_S - 0.05}
    late = {name: s for name, (_, s) in ended.items()
            if s > SPAN_S + until_s / 2 and name not in OF_SOCKETS}
    assert not early and not late, ended


def test_a_span_lasts_as_long_over_moves_and_a_freeze(market, waits):
    job = market.srun("-p", 50, waits, SPAN_S)
    for second, (verb, node) in {2: ("move", "n2"), 4: ("move", "n3"), 6: ("freeze", "n1")}.items():
        job.printed(second)
        if verb == "move":
            market.tool("marketctl", "--hold", "move", job.id, node)
            market.until_runs(job.id, node)
            continue
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "freezes", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "--hold", "thaw", job.id, node)
        market.until_runs(job.id, node)
    check(job, 6)


def test_a_span_lasts_as_long_over_checkpoints(market, waits):
    job = market.srun("-p", 50, "--checkpoint-every", "1s", waits, SPAN_S)
    job.printed(6)
    until("it was saved", lambda: market.job(job.id).get("checkpoint_age_s", 60) < 5)
    checkpoint(market, job)
    check(job, 6)
