# SPDX-License-Identifier: GPL-2.0-or-later
"""Scripts read the status files of a market and of a node. A full disk must not damage them."""
import os
import re
import subprocess

import pytest

from conftest import Market, bring_up, read_text, until


@pytest.fixture(scope="module")
def standing(fit):
    yield from bring_up(Market("--nodes", "1"))


def configure(market, who, daemon, path):
    config = f"{market.run_dir}/{who}/{daemon}.conf"
    text = re.sub(r"^status_file.*\n", "", read_text(config), flags=re.M)
    with open(config, "w") as f:
        f.write(f'{text}status_file = "{path}"\nstatus_file_s = 1\n')
    market.kill_daemon(who)
    market.until_up()


def shell(path, expression):
    """Runs a script that reads the file as shell variables, and returns what the script prints."""
    done = subprocess.run(["sh", "-euc", f'. "{path}"; echo "{expression}"'], capture_output=True,
                          text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else None


def test_scripts_read_how_market_and_node_are(market, tmp_path):
    of_market, of_node = tmp_path / "market status", tmp_path / "node"
    configure(market, "market", "marketd", of_market)
    configure(market, "n1", "agentd", of_node)
    job = market.srun("-p", 40, "sleep", "1000")
    market.until_runs(job.id)
    until("the market's file shows it",
          lambda: shell(of_market, "$daemon $nodes_connected $jobs_running") == "marketd 1 1")
    until("the node's file shows it",
          lambda: shell(of_node, "$node $market_connected $guests $home_jobs") == "n1 1 1 1")
    assert shell(of_node, "$pid") == str(market.daemon("n1")["pid"])
    market.tool("marketctl", "cancel", job.id)
    market.tool("pvdctl", "--node", "n1", "market", "off")
    until("the owner's word shows", lambda: shell(of_node, "$on_market") == "0")
    # each name is in the document
    told = read_text(os.path.dirname(__file__) + "/../../docs/metrics.md")
    for path in (of_market, of_node):
        for line in read_text(path).splitlines():
            assert f"`{line.split('=')[0]}`" in told, line


def test_a_full_disk_is_one_line_in_the_log_and_nothing_else(market, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", disk], check=True)
    try:
        (disk / "full").write_bytes(b"x" * 8192)
        configure(market, "n1", "agentd", disk / "status")
        log = f"{market.run_dir}/n1/log"
        until("it is said", lambda: "status file is not written" in read_text(log))
        assert market.srun("-p", 40, "true").wait() == 0
        (disk / "full").unlink()
        until("it is written", lambda: shell(disk / "status", "$node") == "n1")
        until("that is said too", lambda: "status file is written again" in read_text(log))
        assert read_text(log).count("status file is not written") == 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
