# SPDX-License-Identifier: GPL-2.0-or-later
"""Homes fill the market's book. Others have their part of it, and no connection ends by that."""
from attempts import Stage
from by_node import FINISHED, WAITING, own_job
from cluster import Market, bring_up, read_text, until


def test_a_home_that_fills_the_book_leaves_room_for_others(fit, tmp_path):
    for market in bring_up(Market("--nodes", "3", "--speeds", "100,80,60")):
        fills(market, str(tmp_path))


def fills(market, place):
    path = f"{market.run_dir}/market/marketd.conf"
    text = read_text(path)
    with open(path, "w") as f:
        f.write("jobs_max = 20\njobs_user_max = 20\n" + text)
    market.kill_daemon("market")
    until("the market has its bounds", lambda: market.ctl("marketctl", "limits")["jobs_max"] == 20)
    until("all nodes are back", lambda: len(market.providers()) == 3)
    stage = Stage(market, place)

    def refused(node):
        homes = market.ctl("marketctl", "limits")["homes"]
        return next((h["refused"] for h in homes if h["node"] == node), 0)

    def lost():
        return read_text(f"{market.run_dir}/market/log").count("agent lost")

    before = lost()
    with stage.inside(stage.as_node, "market") as line:
        for seq in range(1, 41):
            line.raw(own_job(seq, WAITING))
        until("it is refused more", lambda: refused("evil") >= 22)
        assert market.ctl("marketctl", "limits")["jobs"] == 18
        jobs = [market.srun("--node", "n1", "-p", 50, "sleep", "600")]
        market.until_runs(jobs[0].id)
        jobs += [market.srun("--node", "n1", "-p", 50, "sleep", "600") for _ in range(2)]
        until("two wait at their home", lambda: refused("n1") >= 2)
        assert lost() == before
        for seq in range(1, 41):
            line.raw(own_job(seq, FINISHED))
        for job in jobs:
            market.until_runs(job.id)
        assert lost() == before
    for job in jobs:
        job.end()
