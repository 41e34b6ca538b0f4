# SPDX-License-Identifier: GPL-2.0-or-later
"""Which nodes the components of a job are on, on real daemons: srun --ordered, --spread, --pack."""
import pytest
from conftest import gang, until


def submit(market, *args, check=True):
    done = market.tool("srun", "-p", "40", "-d", *args, "sleep", "1000", check=check)
    return done.stdout.split()[0] if check else done


def until_all(market, first, what, probe):
    return until(what, lambda: (lambda jobs: jobs if jobs and all(map(probe, jobs)) else None)(
        gang(market, first)))


def cancel(market, first):
    """All of it has ended: what comes next finds the nodes as they were."""
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
    # Who bids more takes the node that it is for; it waits for that node, though others are free.
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


def test_a_file_says_the_node_of_a_component(wide, tmp_path):
    node = wide.nodes()[-1]
    (tmp_path / "job.toml").write_text(
        f'[[component]]\n[[component]]\nnode = "{node}"\nlabel = "there"\n')
    first = submit(wide, "-N", tmp_path / "job.toml")
    assert runs_at(wide, first)[1] == node
    wide.tool("marketctl", "cancel", first)


@pytest.mark.parametrize("args,code,text", [
    (["-N", "4", "--spread"], "components_few_nodes",
     "its components need 4 nodes; 3 on the market can take one"),
    (["--ordered=n1:1,n77:1"], "component_node_unknown",
     "component 1 is for node n77, which the market does not know"),
    (["--ordered=n1:2,n1:2"], "component_node_small",
     "the components for node n1 never fit there: 4 CPUs and")])
def test_components_that_never_fit_say_so(wide, args, code, text):
    first = submit(wide, *args)
    jobs = until_all(wide, first, "says so",
                     lambda j: j.get("reason", {}).get("code") == code)
    assert all(j["reason"]["text"].startswith(text) for j in jobs)
    wide.tool("marketctl", "cancel", first)


@pytest.mark.parametrize("args,words", [
    (["--spread"], "--spread and --pack are for --components"),
    (["-N", "2", "--spread=0"], "--spread"),
    (["--ordered=:4"], "'' is no name of a node"),
    (["--ordered=n1:x"], "x"),
    (["--ordered=" + ",".join(["n1"] * 10_000)], "at most 1024 components, these are 10000")])
def test_what_cannot_be_places_is_one_line(wide, args, words):
    done = submit(wide, *args, check=False)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
