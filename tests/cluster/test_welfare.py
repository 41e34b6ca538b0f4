# SPDX-License-Identifier: GPL-2.0-or-later
"""The welfare algorithm on a running market: who goes where when owners ask different prices, and
what it costs."""
import pytest

from conftest import Market, bring_up, until

LONG = ["sleep", "100000"]


@pytest.fixture(scope="module")
def dear(fit):
    """n1 of speed 100 asks 20, n2 of speed 80 asks 1, one CPU each."""
    for m in bring_up(Market("--nodes", "2", "--speeds", "100,80", "--solver", "welfare")):
        m.tool("pvdctl", "--node", "n1", "set", "price", "20")
        until("the market knows n1's price",
              lambda: {p["node"]: p["reserve"] for p in m.providers()}["n1"] == 20)
        yield m


def test_a_job_takes_the_place_that_is_worth_most_less_its_price_and_moves_when_it_is_another(dear):
    m = dear
    low = m.srun("-p", "40", *LONG)  # 40 - 20 at n1, 32 - 1 at n2
    m.until_runs(low.id, "n2")
    # 100 - 20 against 80 - 1: n1 is worth more to it than n2 to the other.
    high = m.srun("-p", "100", *LONG)
    m.until_runs(high.id, "n1")
    until("prices are told", lambda: m.job(low.id)["price"] == 1 and m.job(high.id)["price"] == 20)
    # Now n2 is worth more to the higher bid too.
    m.tool("pvdctl", "--node", "n1", "set", "price", "90")
    m.until_runs(high.id, "n2")
    m.until_job(low.id, "is frozen: n1 asks more than it is worth to it",
                lambda j: j["status"] != "run")


def test_jobs_of_one_user_do_not_price_each_other(dear):
    m = dear
    m.clear()
    m.tool("pvdctl", "--node", "n1", "set", "price", "2")
    jobs = [m.srun("-p", "40", *LONG) for _ in range(4)]

    def running():
        return [told for j in jobs if (told := m.job(j.id)).get("status") == "run"]

    until("both nodes are taken", lambda: len(running()) == 2)
    until("each pays the reserve", lambda: sorted(told["price"] for told in running()) == [1, 2])
    m.clear()
