# SPDX-License-Identifier: GPL-2.0-or-later
"""Critical prices, found out by asking: the solver's text protocol alone, and none of its code.

A market is put to the solver again and again, each time with another bid of one job, the others
unchanged. From the places that the job gets, x(b), follows what it has to pay by the definition: (v
x(v) - integral of x) / fastest speed. x changes only at the other jobs' bids and at the reserves,
so one question between any two of these tells all of it. Every payment is compared with that, and
every such bid is a lie that must not pay. A user with several jobs is one bidder: each is priced in
a market without those of its user that rank after it, and lies of a user about all its jobs are
tried. SOUK_MARKETS sets how many markets of each kind are tried.
"""
import os
import random
import subprocess
from fractions import Fraction

import pytest

from conftest import BIN
from fake import LIMIT

MARKETS = int(os.environ.get("SOUK_MARKETS", "60"))
MICRO = 10**6


def money(amount):
    whole, part = divmod(amount, MICRO)
    return f"{whole}.{part:06}"


class Market:
    """jobs: (value in micro-units, cpus, memory); providers: (reserve in micro-units, cpus, memory,
    speed); users: the user of each job, None: each job has a user of its own."""

    def __init__(self, jobs, providers, users=None):
        self.jobs, self.providers = jobs, providers
        self.users = users or list(range(len(jobs)))
        self.top = max(p[3] for p in providers)

    def own_later(self, job):
        def rank(i):
            return -self.jobs[i][0], i
        return {i for i, user in enumerate(self.users)
                if user == self.users[job] and rank(i) > rank(job)}

    def question(self, job=None, bid=None, without=()):
        lines = ["reset"]
        lines += [f"ap {i + 1} {money(r)} {mem} {cpus} 0 {speed}"
                  for i, (r, cpus, mem, speed) in enumerate(self.providers)]
        lines += [f"aj {i + 1} {money(bid if i == job else v)} {mem} {cpus} {i} -1 {self.users[i]}"
                  for i, (v, cpus, mem) in enumerate(self.jobs) if i not in without]
        return "\n".join(lines + ["go", "alloc", "info", "payment", "info"]) + "\n"

    def levels(self, job):
        """The bids at which x(b) of this job may change, and its own bid, from 0 to beyond the
        greatest."""
        at = {0} | {j[0] for j in self.jobs} | {p[0] for p in self.providers}
        at = sorted(at)
        return at + [at[-1] + MICRO]


def ask(questions):
    """The answers to them: (place by job, payment by job) each."""
    done = subprocess.run([BIN / "solver"], input="".join(questions).encode(), capture_output=True,
                          timeout=LIMIT)
    assert (done.returncode, done.stderr) == (0, b"")
    answers, parts = [], [{}]
    for line in done.stdout.decode().splitlines():
        assert not line.startswith("error"), line
        if line.startswith("solver "):
            parts.append({})
            if len(parts) == 3:
                answers.append((parts[0], parts[1]))
                parts = [{}]
        else:
            job, value = line.split()
            parts[-1][int(job) - 1] = (int(value) if len(parts) == 1
                                       else round(Fraction(value) * MICRO))
    assert len(answers) == len(questions)
    return answers


def speed_in(market, answer, job):
    place = answer[0].get(job, 0)
    return market.providers[place - 1][3] if place else 0


def examine(market):
    """Lists the mistakes in the prices of one market, as (what, job, figures). The list is empty if
    every price is as defined."""
    questions, of = [market.question()], [None]
    for job, (value, _, _) in enumerate(market.jobs):
        levels = market.levels(job)
        for low, high in zip(levels, levels[1:]):
            questions.append(market.question(job, (low + high) // 2, market.own_later(job)))
            of.append((job, low, high))
    answers = ask(questions)
    truth = answers[0]
    one_speed = len({p[3] for p in market.providers}) == 1
    no_reserve = not any(p[0] for p in market.providers)
    one_each = len(set(market.users)) == len(market.jobs)
    wrong = []
    for job, (value, _, _) in enumerate(market.jobs):
        speed = speed_in(market, truth, job)
        steps = [(low, high, answer) for about, answer in zip(of, answers)
                 if about and about[0] == job for _, low, high in [about]]
        speeds = [speed_in(market, answer, job) for _, _, answer in steps]
        if speeds != sorted(speeds):
            wrong.append(("a higher bid runs slower", job, speeds))
        utility = 0
        if speed:
            area = sum((min(high, value) - low) * min(speed_in(market, answer, job), speed)
                       for low, high, answer in steps if low < value)
            reserve = market.providers[truth[0][job] - 1][0]
            defined = Fraction(value * speed - area, market.top)
            if one_speed and int(defined) < reserve:
                wrong.append(("the definition is below the reserve", job, (defined, reserve)))
            paid = truth[1][job]
            if paid != min(max(int(defined), reserve), value):
                wrong.append(("pays", job, (paid, float(defined), reserve)))
            utility = Fraction(value * speed, market.top) - paid
        if (one_speed or no_reserve) and one_each:
            for low, high, answer in steps:
                if job in answer[1]:
                    gain = Fraction(value * speed_in(market, answer, job),
                                    market.top) - answer[1][job] - utility
                    if gain > 1:  # prices are rounded down to a millionth
                        wrong.append(("a lie gains", job, ((low + high) // 2, float(gain))))
    return wrong


def gain(market, user, answer):
    """The worth of a user's jobs where they run, less the payments for them."""
    return sum(Fraction(market.jobs[j][0] * market.providers[place - 1][3], market.top)
               - answer[1][j] for j, place in answer[0].items()
               if place and market.users[j] == user)


def lies_of_users(rng, markets):
    """Gains by other values of all jobs of a user, or by leaving some out."""
    questions, of = [], []
    for market in markets:
        questions.append(market.question())
        of.append((market, None))
        bids = [j[0] for j in market.jobs] + [p[0] for p in market.providers]
        for user in set(market.users):
            own = [j for j, u in enumerate(market.users) if u == user]
            for _ in range(6):
                lie = [(max(0, rng.choice(bids) + rng.choice((-MICRO // 2, 0, MICRO // 2))), *j[1:])
                       if i in own and rng.random() < 0.7 else j
                       for i, j in enumerate(market.jobs)]
                some = {j for j in own if rng.random() < 0.2}
                questions.append(Market(lie, market.providers, market.users).question(
                    without=some))
                of.append((market, user))
    gains, truth = [], None
    for (market, user), answer in zip(of, ask(questions)):
        if user is None:
            truth = answer
            continue
        gains.append(gain(market, user, answer) - gain(market, user, truth))
    return gains


def draw(rng, speeds, reserves, cpus, memory):
    providers = [(rng.choice(reserves) * MICRO, rng.randint(1, 2 * cpus), rng.randint(2, 8)
                  if memory else 1000, rng.choice(speeds)) for _ in range(rng.randint(1, 6))]
    jobs = [(rng.randint(0, 40) * MICRO, rng.randint(1, cpus), rng.randint(0, 5) if memory else 0)
            for _ in range(rng.randint(1, 12))]
    return Market(jobs, providers)


KINDS = {
    "one speed, one reserve": ([100], [5], 1, False),
    "one speed, reserves": ([100], list(range(0, 25)), 1, False),
    "speeds, no reserve": ([100, 80, 50, 30], [0], 1, False),
    "speeds, one reserve": ([100, 80, 50, 30], [7], 1, False),
    "speeds, reserves": ([100, 80, 50, 30], list(range(0, 25)), 1, False),
    "one speed, reserves, wide": ([100], list(range(0, 25)), 3, False),
    "speeds, reserves, wide": ([100, 80, 50], list(range(0, 25)), 3, False),
    "one speed, reserves, wide, memory": ([100], list(range(0, 25)), 2, True),
    "speeds, reserves, wide, memory": ([100, 80, 50], list(range(0, 25)), 2, True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_price_is_the_defined_one_and_no_lie_pays(kind):
    rng = random.Random(kind)
    for number in range(MARKETS):
        market = draw(rng, *KINDS[kind])
        assert (number, examine(market), market.jobs, market.providers) == (number, [], market.jobs,
                                                                            market.providers)


def with_users(rng, market):
    return Market(market.jobs, market.providers, [rng.randrange(3) for _ in market.jobs])


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_is_one_bidder_own_jobs_that_rank_lower_do_not_price_a_job(kind):
    rng = random.Random(kind + ", users")
    for number in range(MARKETS):
        market = with_users(rng, draw(rng, *KINDS[kind]))
        assert (number, examine(market), vars(market)) == (number, [], vars(market))


TRUTHFUL = ["one speed, one reserve", "one speed, reserves", "speeds, no reserve"]


@pytest.mark.parametrize("kind", TRUTHFUL)
def test_no_lie_of_a_user_about_all_its_jobs_pays_where_one_speed_or_no_reserve_is(kind):
    rng = random.Random(kind + ", lies")
    gains = lies_of_users(rng, [with_users(rng, draw(rng, *KINDS[kind])) for _ in range(MARKETS)])
    assert len(gains) > 5 * MARKETS and max(gains) <= 12  # prices are rounded down to a millionth


def test_a_bid_that_would_lose_its_place_to_another_pays_that_bid_though_nothing_is_asked_there():
    # One speed. Three places ask nothing, one asks 7, two ask 13. The fifth bid, 9, takes any place
    # that is left to it, so each of the four before it would lose its own below 9.
    providers = [(0, 2, 1000, 100), (0, 1, 1000, 100), (7 * MICRO, 1, 1000, 100),
                 (13 * MICRO, 2, 1000, 100)]
    market = Market([(v * MICRO, 1, 0) for v in (40, 37, 18, 17, 9, 7)], providers)
    [(_, payments)] = ask([market.question()])
    assert payments == {job: 9 * MICRO for job in range(4)} and examine(market) == []


def test_who_alone_could_have_two_places_pays_the_reserve_of_the_cheaper():
    market = Market([(20 * MICRO, 1, 0)], [(3 * MICRO, 1, 10, 100), (8 * MICRO, 1, 10, 100)])
    assert ask([market.question()]) == [({0: 1}, {0: 3 * MICRO})]
