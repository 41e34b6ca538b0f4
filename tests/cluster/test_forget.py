# SPDX-License-Identifier: GPL-2.0-or-later
"""A node that will not come back is forgotten, on real daemons: when that is refused, what is left
of it in the books, and that it is let in again. And the versions of nodes."""
import subprocess

from codes import refused
import programs
from conftest import BIN, until
from test_crash import Absence, kill_for_now


def nodes(market):
    return {p["node"]: p for p in market.providers()}


def not_forgotten(market, node, code):
    refused(market.tool("marketctl", "node", "forget", node, check=False), code)


def test_a_node_is_forgotten_when_it_holds_no_job_and_its_account_stays(market):
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "move", job.id, "n3")
    market.until_runs(job.id, "n3")
    job.printed(20)
    not_forgotten(market, "n9", "not_found")
    not_forgotten(market, "n3", "not_possible")
    with Absence(market):
        kill_for_now(market, "n3")
        until("the market knows", lambda: not nodes(market)["n3"]["connected"])
        not_forgotten(market, "n3", "not_possible")
    market.until_up()
    until("it is back", lambda: nodes(market)["n3"]["connected"])
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    until("n3 has been paid", lambda: nodes(market)["n3"]["earned"] > 0)
    with Absence(market):
        kill_for_now(market, "n3")
        until("the market knows", lambda: not nodes(market)["n3"]["connected"])
        earned = nodes(market)["n3"]["earned"]  # its own word changes that no more
        market.tool("marketctl", "node", "forget", "n3")
        assert "n3" not in nodes(market)
        market.tool("marketctl", "ledger", "verify")
        assert str(earned) in market.tool("marketctl", "account", "n3").stdout
    market.until_up()
    until("it is let in again", lambda: nodes(market).get("n3", {}).get("connected"))
    assert nodes(market)["n3"]["earned"] == earned
    market.kill_daemon("market")
    until("all are there", lambda: all(p["connected"] for p in market.providers()) and
          len(market.providers()) == 3)
    assert nodes(market)["n3"]["earned"] == earned
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out)
    market.tool("marketctl", "ledger", "verify")


def test_each_node_tells_its_version(market):
    said = subprocess.run([f"{BIN}/agentd", "--version"], capture_output=True, text=True,
                          timeout=20).stdout.split(None, 2)[2].strip()
    for node in market.providers():
        assert node["version"] == said and "market_version" not in node, node
    table = market.tool("marketctl", "list-providers").stdout.splitlines()
    assert table[0].split()[-1] == "Version" and table[1].split()[-1] == said.split()[0], table
