# SPDX-License-Identifier: GPL-2.0-or-later
"""An agentd's figures for Prometheus, and a job's story in the logs of all daemons."""
import glob
import re
import shutil
import subprocess
import urllib.request

import pytest
from conftest import read_text

ADDRESS = "127.0.0.1:7078"


@pytest.fixture
def page(market):
    """n1 with a page of figures."""
    (conf,) = glob.glob(f"{market.run_dir}/n1/*.conf") or glob.glob(f"{market.run_dir}/n1/*.toml")
    before = read_text(conf)
    with open(conf, "w") as f:
        f.write(f'metrics = "{ADDRESS}"\n' + before)
    market.kill_daemon("n1")

    def get():
        with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=20) as answer:
            return answer.headers["Content-Type"], answer.read().decode()
    yield lambda: market.in_netns("n1", get)
    with open(conf, "w") as f:
        f.write(before)
    market.kill_daemon("n1")


def test_a_nodes_figures_are_what_prometheus_takes(market, page):
    job = market.srun("--node", "n1", "-p", 50, "sleep", "1000")
    market.until_runs(job.id, "n1")
    kind, text = page()
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    figures = dict(re.findall(r"^(souk_\S+) (\S+)$", text, re.M))
    assert figures["souk_node_on_market"] == figures["souk_node_market_connected"] == "1"
    assert figures['souk_node_home_jobs{phase="running"}'] == "1"
    assert figures["souk_node_guests"] == "1"
    assert float(figures["souk_node_reserve_units"]) == 1
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True,
                              text=True, timeout=20)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
