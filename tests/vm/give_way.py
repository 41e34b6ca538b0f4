# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is lowered gives a CPU back to the owner's program at once, on this kernel too."""
import os
import signal
import subprocess

from inside import need, read_text, until

SPIN = "while True: pass"


def presence(market, node):
    return market.ctl("pvdctl", "--node", node, "status")["presence"]


def configure(market, node, text):
    with open(f"{market.run_dir}/{node}/agentd.conf", "w") as f:
        f.write(text)
    os.kill(market.daemon(node)["pid"], signal.SIGHUP)


def test_a_lowered_guest_gives_the_cpu_back(market):
    job = market.srun("-p", 50, "taskset", "-c", "0", "/usr/bin/python3", "-c", SPIN)
    at = market.until_runs(job.id)["where"]
    before = read_text(f"{market.run_dir}/{at}/agentd.conf")
    owner = subprocess.Popen(["taskset", "-c", "0", "/usr/bin/python3", "-c", SPIN])
    try:
        configure(market, at, 'owner_return = "lower"\nowner_cpu_percent = 10\n' + before)
        until("guests are lowered", lambda: "presence" in market.ctl(
            "pvdctl", "--node", at, "status") and presence(market, at)["guests"] == "lowered")
        told = presence(market, at)
        need("give_way_trouble" not in told and "look_trouble" not in told, told)
        until("it has given way", lambda: presence(market, at)["gave_way"] >= 10)
        return f"{presence(market, at)['gave_way']} times"
    finally:
        owner.kill()
        owner.wait()
        configure(market, at, before)
        market.tool("marketctl", "cancel", job.id)
        job.wait()
