# SPDX-License-Identifier: GPL-2.0-or-later
# marketsim coallocation: jobs of several components.
import json

import pytest


def test_the_references_experiments_come_out_as_published(tool):
    status, out, err = tool("marketsim", "compare", "--coallocation", "--json", "-")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    as_published = [row for row in rows if row["as_published"]]
    assert [row["experiment"] for row in as_published] == [1, 2, 3, 4, 5]
    for row in as_published:
        assert row["response_s"] == pytest.approx(row["published_response_s"], rel=0.05)
    by = {(row["experiment"], row["policy"]): row["response_s"] for row in rows}
    assert (by[3, "fcfs"] < by[1, "fcfs"] < by[2, "fcfs"] < by[5, "fpfs"] < by[4, "fcfs"])
    # An ordered mistake is undone.
    assert by[4, "market_anywhere"] < 0.7 * by[4, "fcfs"]
    assert tool("marketsim", "coallocation", "--json", "-")[1] == out


def test_the_markets_own_solver_places_jobs_of_several_components(tool, files):
    # Method: the mix of ordered and unordered jobs under it; then what it cannot be asked.
    status, out, err = tool("marketsim", "coallocation", "--experiments", "4,5", "--policies",
                            "published,solver_anywhere", "--json", "-")
    assert (status, err) == (0, "")
    by = {(row["experiment"], row["policy"]): row["response_s"] for row in json.loads(out)}
    assert by[4, "solver_anywhere"] < 0.7 * by[4, "fcfs"]
    assert by[5, "solver_anywhere"] < by[5, "fpfs"]
    status, out, err = tool("marketsim", "coallocation", "--log", "trace.swf", "--jobs", "300",
                            "--clusters", "16,16,16", "--limit", "8", "--requests", "flexible",
                            "--policies", "solver_anywhere")
    assert status == 1 and "the solver takes no request that names a cluster" in err


def test_a_log_is_split_into_components(tool, files):
    arguments = ["coallocation", "--log", "trace.swf", "--jobs", "300", "--loads", "0.4",
                 "--clusters", "16,16,16", "--limit", "8", "--json", "-"]
    for requests in ("ordered", "unordered", "flexible", "total"):
        status, out, err = tool("marketsim", *arguments, "--requests", requests)
        assert (status, err) == (0, "")
        rows = {row["policy"]: row for row in json.loads(out)}
        assert len(rows) == 6
        assert all(0 < row["utilisation_max"] <= 1 for row in rows.values())
        assert all(row["loads"][0]["response_s"] > 0 for row in rows.values())
    status, _, err = tool("marketsim", *arguments, "--policies", "lifo")
    assert (status, err.count("\n")) == (2, 1) and "lifo" in err
    status, _, err = tool("marketsim", "coallocation", "--slowdown", "2")
    assert (status, err.count("\n")) == (2, 1) and "--slowdown" in err
    assert tool("marketsim", "compare", "--alpha", "5", "--coallocation") == (2, "", (
        "marketsim compare: --coallocation comes first, and options of its own after it\n"))
