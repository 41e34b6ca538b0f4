# SPDX-License-Identifier: GPL-2.0-or-later
"""The progress of a move and of a drain can be watched while they last, in the same figures
everywhere. Here they go over a link that takes seconds for a job's memory."""
import subprocess

import pytest

from conftest import BIN, until
from test_three_questions import web  # noqa: F401 (a fixture)

# The program holds as many MB as its argument says. No two pages are the same, so they do not
# shrink on the way.
HOLDS = """
import os, sys
memory = os.urandom(int(sys.argv[1]) << 20)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def slow(market):
    """Limits what n2 sends to 60 Mbit/s, so that a job of 60 MB leaves in 9 s. There is time to
    look on all sides, and pvdctl, which waits for 15 s, sees the end."""
    def tc(*words):
        market.in_netns("n2", lambda: subprocess.run(["tc", "qdisc", *words], check=True))
    tc("add", "dev", "eth0", "root", "tbf", "rate", "60mbit", "burst", "64kb", "latency", "50ms")
    yield
    tc("del", "dev", "eth0", "root")


def test_how_far_a_drain_is_with_its_guest_is_said_everywhere(market, web, slow):  # noqa: F811
    job = market.srun("--node", "n1", "-p", 50, "-m", "512M", "--move=safe", "/usr/bin/python3",
                      "-c", HOLDS, "60", stdin=subprocess.PIPE)
    job.printed(1)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    market.tool("marketctl", "release", job.id)
    off = subprocess.Popen([f"{BIN}/pvdctl", "--node", "n2", "market", "off"], env=market.env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = market.until_job(job.id, "has sent some of it", lambda j: j.get("sent_bytes", 0) > 0)
    assert 0 < told["sent_bytes"] <= told["sending_bytes"] < 200_000_000, told
    assert told["sent_bytes_per_s"] > 0
    page = web.page(f"/job/{job.id}")
    assert "Sent so far" in page and " MB of " in page
    # The job may have left by itself before it was told to, because n1 is faster.
    node = until("n2 is off, and sends it", lambda: next((
        p for p in market.providers()
        if p["node"] == "n2" and p.get("leaving") and p.get("sending_bytes")), None))
    assert (node["leaving"], node["leaving_of"]) == (1, 1), node
    assert "off, 0 of 1 guests have left" in market.tool("marketctl", "list-providers").stdout
    assert "off, 0 of 1 guests have left" in web.page("/node/n2")
    assert " MB of " in market.tool("mmon", "--once").stdout
    assert off.communicate(timeout=60)[0] == "n2 is off the market; empty: you may switch off\n"
    ended = market.until_job(job.id, "is elsewhere", lambda j: j["status"] in ("run", "suspend"))
    assert "sent_bytes" not in ended
    market.tool("pvdctl", "--node", "n2", "market", "on")
    market.until_runs(job.id)
    job.process.stdin.close()
    assert job.wait() == 0


def test_how_far_a_freeze_is_with_its_memory_is_said(market):
    job = market.srun("--node", "n1", "-p", 50, "-m", "1G", "/usr/bin/python3", "-c", HOLDS, "700",
                      stdin=subprocess.PIPE)
    job.printed(1)
    at = market.until_runs(job.id)["where"]
    freeze = subprocess.Popen([f"{BIN}/marketctl", "--hold", "freeze", job.id], env=market.env)
    seen = []

    def looked():
        here = market.ctl("pvdctl", "--node", at, "status")["here"]
        seen.extend((g["sent_bytes"], g["sending_bytes"]) for g in here
                    if g["job"] == job.id and "sending_bytes" in g)
        return freeze.poll() is not None
    until("it is frozen", looked)
    assert freeze.returncode == 0 and seen, seen
    assert seen == sorted(seen) and all(0 <= some <= all_ for some, all_ in seen), seen
    assert 700 << 20 <= seen[0][1] < 800 << 20, seen
    market.tool("marketctl", "release", job.id)
    market.until_runs(job.id)
    job.process.stdin.close()
    assert job.wait() == 0
