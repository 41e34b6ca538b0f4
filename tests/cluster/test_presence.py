# SPDX-License-Identifier: GPL-2.0-or-later
"""While the owner of a node uses it, guests are lowered, and then leave."""
import subprocess

from conftest import until
from test_checkpoints import configured
from test_owner import group_file

LEAVE = 'owner_return = "leave"\nowner_leave_s = 2\nowner_cpu_percent = 10\n'
HOG = ["/usr/bin/python3", "-c", "while True: pass"]


def status(market, node):
    return market.ctl("pvdctl", "--node", node, "status")


def test_guests_are_lowered_and_leave_while_the_owner_uses_the_node(market):
    job = market.srun("-p", 50, "sleep", "1000")
    at = market.until_runs(job.id)["where"]
    assert "presence" not in status(market, at)
    hog = subprocess.Popen(HOG)
    try:
        with configured(market, at, lambda text: LEAVE + text):
            market.until_up()
            until("its use is seen", lambda: status(market, at)["presence"]["here"])
            told = status(market, at)
            assert told["presence"]["guests"] in ("lowered", "leaving") and told["presence"]["why"]
            until("a second has been measured", lambda: status(market, at)["owner_permille"] > 0)
            assert status(market, at)["headroom_permille"] < 1000
            assert int(group_file(market, at, "", "cpu.weight", "cpu.shares")) in (1, 10)
            market.until_job(job.id, "has left",
                             lambda j: j["where"] != at and j["status"] == "run")
            told = status(market, at)
            assert told["cannot"] == f"its owner uses node {at}", told
            assert told["presence"]["guests"] == "leaving", told
            said = market.tool("pvdctl", "--node", at, "status").stdout
            assert "Your use:" in said and "guests leave" in said, said
    finally:
        hog.kill()
        hog.wait()
    assert status(market, at)["cannot"] == ""
    assert int(group_file(market, at, "", "cpu.weight", "cpu.shares")) in (100, 1024)
    back = market.srun("-p", 500, "sleep", "1000")
    assert market.until_runs(back.id)["where"]
