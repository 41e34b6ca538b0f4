# SPDX-License-Identifier: GPL-2.0-or-later
"""An agentd's figures for Prometheus, and a job's story in the logs of all daemons."""
import glob
import os
import re
import shutil
import subprocess
import urllib.request

import pytest
from conftest import read_text, until
from test_owner import python

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


def test_each_guests_use_is_in_the_figures_of_its_node_and_grows(market, page):
    job = market.srun("--node", "n1", "-p", 50, "/usr/bin/python3", "-c", """
import os
for _ in range(3):
    if os.fork() == 0: os._exit(0)
    os.wait()
print("born", flush=True)
while True: pass
""")
    market.until_runs(job.id, "n1")
    job.printed(1)

    def figures():
        found = re.findall(r'^souk_guest_(\w+)\{job="(\S+)",epoch="(\d+)"\} (\S+)$',
                           page()[1], re.M)
        return {name: float(value) for name, id, epoch, value in found
                if id == job.id and int(epoch) > 0}

    until("its CPU time is there", lambda: figures().get("cpu_seconds_total", 0) > 0.2)
    before = figures()
    until("it grows", lambda: figures()["cpu_seconds_total"] > before["cpu_seconds_total"] + 0.2)
    after = figures()
    assert set(after) == set(before) and "wait_seconds_total" in after
    assert all(after[name] >= before[name] for name in before), (before, after)
    if market.ctl("pvdctl", "--node", "n1", "status")["load_source"] != "bpf":
        return
    assert after["births_total"] >= 3 and after["deaths_total"] >= 3, after
    for name in ("read_bytes", "write_bytes", "major_faults", "gave_up", "preempted",
                 "off_cpu_seconds"):
        assert name + "_total" in after, after


def test_a_guest_with_too_little_memory_is_seen_to_stand_still_for_it(market, tmp_path):
    """It reads a file again and again that is larger than what it may hold."""
    data = tmp_path / "data"
    with open(data, "wb") as file:
        for _ in range(200):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else it is held for us
    job = market.srun("-p", 500, "-m", "64M", *python(f"""
print("reads", flush=True)
while True:
    with open("{data}", "rb") as file:
        while file.read(1 << 20): pass
"""))
    market.until_runs(job.id, "n1")
    job.printed(1)
    load = lambda: market.ctl("marketctl", "job", job.id, "--load")
    if "memory_stall_s" not in load():
        pytest.skip("this kernel has no pressure stall information of control groups")
    before = load()["memory_stall_s"]
    until("it stands still", lambda: load()["memory_stall_s"] > before + 0.01)
    shown = market.tool("marketctl", "job", job.id, "--load").stdout
    assert re.search(r"memory: +it stood still for .* for want of it", shown), shown
