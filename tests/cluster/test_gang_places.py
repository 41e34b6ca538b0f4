# SPDX-License-Identifier: GPL-2.0-or-later
"""srun --ordered, --spread, --pack and --near say on which nodes the components of a job are. Real
daemons run here."""
import os
import signal

import pytest
from conftest import gang, read_text, until


def submit(market, *args, check=True):
    done = market.tool("srun", "-p", "40", "-d", *args, "sleep", "1000", check=check)
    return done.stdout.split()[0] if check else done


def until_all(market, first, what, probe):
    return until(what, lambda: (lambda jobs: jobs if jobs and all(map(probe, jobs)) else None)(
        gang(market, first)))


def cancel(market, first):
    """Cancels a gang and waits for its end, so that the next one finds the nodes as they were."""
    market.tool("marketctl", "cancel", first)
    until_all(market, first, "the gang has ended", lambda j: j["status"] == "finish")


def runs_at(market, first):
    return [j["where"] for j in
            until_all(market, first, "the gang runs", lambda j: j["status"] == "run")]


def test_each_component_runs_on_the_node_that_it_is_for(wide):
    slow, fast = wide.nodes()[-1], wide.nodes()[0]
    first = submit(wide, f"--ordered={slow}:1,{slow}:1,{fast}:2")
    assert runs_at(wide, first) == [slow, slow, fast]
    assert [j["cpus"] for j in gang(wide, first)] == [1, 1, 2]
    # A gang that bids more takes the node that it has named. The other gang waits for that node,
    # though other nodes are free.
    cancel(wide, first)
    better = submit(wide, "-p", "90", f"--ordered={slow}:2")
    assert runs_at(wide, better) == [slow]
    first = submit(wide, f"--ordered={slow}:1,{fast}:1")
    until_all(wide, first, "it waits", lambda j: j["status"] == "wait" and j.get("reason"))
    wide.tool("marketctl", "cancel", better)
    assert runs_at(wide, first) == [slow, fast]
    wide.tool("marketctl", "cancel", first)


def test_components_are_apart_or_close(wide):
    first = submit(wide, "-N", "3", "--spread")
    assert sorted(runs_at(wide, first)) == sorted(wide.nodes())
    cancel(wide, first)
    first = submit(wide, "-N", "4", "--spread=2", "--pack")
    at = runs_at(wide, first)
    assert len(set(at)) == 2 and all(at.count(n) == 2 for n in at)
    wide.tool("marketctl", "cancel", first)


@pytest.fixture
def racks(wide):
    """n1 and n3 are near each other, as their configurations say."""
    before = {}
    try:
        for node in ("n1", "n3"):
            path = f"{wide.run_dir}/{node}/agentd.conf"
            before[node] = path, read_text(path)
            with open(path, "w") as f:
                f.write('near_group = "rack"\nnear_round_trip_us = 80\n' + before[node][1])
            os.kill(wide.daemon(node)["pid"], signal.SIGHUP)
        until("the market knows of it", lambda: [
            p.get("near_round_trip_us") for p in sorted(
                wide.providers(), key=lambda p: p["node"])] == [80, None, 80])
        yield wide
    finally:
        for node, (path, text) in before.items():
            with open(path, "w") as f:
                f.write(text)
            os.kill(wide.daemon(node)["pid"], signal.SIGHUP)
        until("as before", lambda: not any(p.get("near_group") for p in wide.providers()))


def test_components_are_near_each_other(racks):
    # Method: four CPUs of two nodes; without --near the fastest two would do.
    first = submit(racks, "-N", "4", "--near=100us")
    assert sorted(runs_at(racks, first)) == ["n1", "n1", "n3", "n3"]
    assert "n3: is near rack, round trip 80 us" in racks.tool("marketctl", "lp").stdout
    cancel(racks, first)
    for bound in ("--near=50us", "--near=1G"):
        first = submit(racks, "-N", "4", bound)
        jobs = until_all(racks, first, "says so", lambda j: j.get("reason", {}).get(
            "code") == "components_not_near")
        assert len(jobs) == 4
        cancel(racks, first)
    # Components on one node are near each other.
    first = submit(racks, "-N", "2", "--near=50us", "--pack")
    assert len(set(runs_at(racks, first))) == 1
    cancel(racks, first)


def test_a_file_says_the_node_of_a_component(wide, tmp_path):
    node = wide.nodes()[-1]
    (tmp_path / "job.toml").write_text(
        f'[[component]]\n[[component]]\nnode = "{node}"\nlabel = "there"\n')
    first = submit(wide, "-N", tmp_path / "job.toml")
    assert runs_at(wide, first)[1] == node
    wide.tool("marketctl", "cancel", first)


@pytest.mark.parametrize("args,code,figures", [
    (["-N", "4", "--spread"], "components_few_nodes", {"count": "4", "most": 3}),
    (["--ordered=n1:1,n77:1"], "component_node_unknown", {"count": "1", "node": "n77"}),
    (["--ordered=n1:2,n1:2"], "component_node_small", {"node": "n1", "cpus": 4})])
def test_components_that_never_fit_say_so(wide, args, code, figures):
    first = submit(wide, *args)
    jobs = until_all(wide, first, "says so",
                     lambda j: j.get("reason", {}).get("code") == code)
    assert all(figures.items() <= j["reason"].items() for j in jobs), jobs
    wide.tool("marketctl", "cancel", first)
