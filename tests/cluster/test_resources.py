# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs get named resources of their node, as devices or as a count, and of the market (licences),
and never more than there is."""
import json
import os
import re
import signal

import pytest

from conftest import Market, bring_up, read_text, until

SHOWS = ('echo "gpu ${SOUK_RESOURCE_GPU:-none} cuda ${CUDA_VISIBLE_DEVICES:-none} '
         'matlab ${SOUK_RESOURCE_MATLAB:-none}"; exec sleep 1000')
GPUS = """resource_devices = { gpu = "/dev/nvidia3 /dev/nvidia5" }
resource_reserves = { gpu = "2" }
"""


def reload(market, node, lines):
    log = f"{market.run_dir}/{node}/log"
    before = read_text(log).count("configuration read again")
    with open(f"{market.run_dir}/{node}/agentd.conf", "a") as f:
        f.write(lines)
    os.kill(market.daemon(node)["pid"], signal.SIGHUP)
    until("it has read that", lambda: read_text(log).count("configuration read again") > before)


@pytest.fixture(scope="module")
def standing(fit):
    """n1 has two devices, and each node two CPUs; the market has one licence."""
    for m in bring_up(Market("--nodes", "3", "--speeds", "100,80,60")):
        reload(m, "n1", GPUS)
        for node in m.nodes():
            m.tool("pvdctl", "--node", node, "set", "cpus", "2")
        with open(f"{m.run_dir}/market/marketd.conf", "a") as f:
            f.write('resources = { matlab = 1 }\n')
        m.kill_daemon("market")
        until("n1 offers its devices", lambda: of_node(m, "n1").get("gpu", {}).get("count") == 2)
        yield m


def of_node(market, node):
    return next(p for p in market.providers() if p["node"] == node).get("resources", {})


def starts(market, *words):
    job = market.srun("-p", 50, *words, "sh", "-c", SHOWS)
    market.until_runs(job.id)
    job.printed(1)
    return job, bytes(job.out).decode().split("\n")[0]


def test_devices_go_to_one_job_each_and_whoever_has_one_stays_with_it(market):
    (one, first), (two, second) = [starts(market, "--resource", "gpu") for _ in range(2)]
    assert {first, second} == {"gpu /dev/nvidia3 cuda 3 matlab none",
                               "gpu /dev/nvidia5 cuda 5 matlab none"}
    assert [market.job(j.id)["where"] for j in (one, two)] == ["n1", "n1"]
    assert of_node(market, "n1") == {"gpu": {"count": 2, "free": 0, "reserve": 2, "device": True}}
    late = market.srun("-p", 60, "--resource", "gpu=1", "sh", "-c", SHOWS)
    market.until_reason(late.id, "resource_taken")
    text = market.job(late.id)["reason"]["text"]
    assert re.fullmatch(r"waits for gpu=1 on n1, which job n\d\.\d+ has at 3", text), text
    assert market.job(late.id)["resources"] == "gpu=1"
    assert market.job(one.id)["price"] == 3  # the node's reserve and that of the device
    until("it is known as one that stays",
          lambda: "gpu /dev/nvidia" in json.dumps(market.job(one.id)))
    moved = market.tool("marketctl", "move", one.id, "n2", check=False)
    assert moved.returncode == 1 and "n2 does not have gpu=1" in moved.stderr, moved.stderr
    # Neither daemon forgets who has what.
    market.kill_daemon("n1")
    market.kill_daemon("market")
    market.until_reason(late.id, "resource_taken")
    assert of_node(market, "n1")["gpu"]["free"] == 0
    market.tool("marketctl", "cancel", two.id)
    market.until_runs(late.id, "n1")
    late.printed(1)
    assert bytes(late.out).decode().startswith(second)
    assert market.job(one.id)["status"] == "run"


def test_an_owner_who_takes_his_node_back_stops_whoever_has_a_device_of_it(market):
    job, _ = starts(market, "--resource", "gpu=2")
    market.tool("pvdctl", "--node", "n1", "market", "off")
    stopped = market.until_job(job.id, "is stopped", lambda j: j["status"] == "suspend")
    assert stopped["where"] == "n1"
    late = market.srun("-p", 60, "--resource", "gpu", "sh", "-c", SHOWS)
    market.tool("pvdctl", "--node", "n1", "market", "on")
    market.until_runs(job.id, "n1")
    assert market.job(late.id)["status"] == "wait"
    market.tool("marketctl", "cancel", job.id)
    market.until_runs(late.id, "n1")


def test_a_licence_is_held_once_wherever_its_job_runs(market):
    holder, said = starts(market, "--resource", "matlab", "--nodes", "n2,n3")
    assert said == "gpu none cuda none matlab 1"
    late = market.srun("-p", 40, "--resource", "matlab=1", "sh", "-c", SHOWS)
    market.until_reason(late.id, "resource_taken")
    assert holder.id in market.job(late.id)["reason"]["text"]
    there = market.job(holder.id)["where"]
    market.tool("marketctl", "--hold", "move", holder.id, {"n2": "n3", "n3": "n2"}[there])
    market.until_runs(holder.id, {"n2": "n3", "n3": "n2"}[there])
    market.kill_daemon("market")
    market.until_reason(late.id, "resource_taken")
    market.tool("marketctl", "release", holder.id)
    assert "matlab 0 of 1 free" in market.tool("marketctl", "status").stdout
    # It gives the licence back when it is frozen to disk, and waits for it then.
    market.tool("srun", "-J", late.id, "-p", 60)
    market.until_runs(late.id)
    market.until_reason(holder.id, "displaced")
    market.tool("marketctl", "cancel", late.id)
    market.until_runs(holder.id)


def test_what_nobody_has_and_wrong_words_are_told(market):
    job = market.srun("-p", 50, "--resource", "tpu=1", "true")
    market.until_reason(job.id, "resource_nowhere")
    assert market.job(job.id)["reason"]["text"] == "no node of this market has tpu=1"
    market.tool("srun", "-J", job.id, "--resource", "none")
    assert job.wait(60) == 0
    for words, what in [(["--resource", "gpu=x"], "is no count from 1 to"),
                        (["--resource", "=1"], "is no name of a resource"),
                        (["-N", "2", "--resource", "gpu"], "not possible with --resource")]:
        done = market.tool("srun", "-p", 5, *words, "true", check=False)
        assert done.returncode != 0 and what in done.stderr, done.stderr
    listed = market.tool("marketctl", "list-providers").stdout
    assert "n1: has gpu 2 of 2 free at 2 an hour each" in listed, listed
