# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is lowered gives a CPU back to the owner's program at once, on this kernel too."""
import subprocess

from inside import need, until
from test_wake import reloaded

SPIN = "while True: pass"


def presence(market, node):
    return market.ctl("pvdctl", "--node", node, "status")["presence"]


def test_a_lowered_guest_gives_the_cpu_back(market):
    job = market.srun("-p", 50, "taskset", "-c", "0", "/usr/bin/python3", "-c", SPIN)
    at = market.until_runs(job.id)["where"]
    owner = subprocess.Popen(["taskset", "-c", "0", "/usr/bin/python3", "-c", SPIN])
    try:
        for key, value in (("owner_cpu_percent", "10"), ("owner_return", '"lower"')):
            need(reloaded(market, at, key, value) == "in_force", key)
        until("guests are lowered", lambda: presence(market, at)["guests"] == "lowered")
        told = presence(market, at)
        need("give_way_trouble" not in told and "look_trouble" not in told, told)
        until("it has given way", lambda: presence(market, at)["gave_way"] >= 10)
        return f"{presence(market, at)['gave_way']} times"
    finally:
        owner.kill()
        owner.wait()
        reloaded(market, at, "owner_return", '"nothing"')
        market.tool("marketctl", "cancel", job.id)
        job.wait()
