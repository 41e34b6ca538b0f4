# SPDX-License-Identifier: GPL-2.0-or-later
"""The welfare algorithm, judged by its promises alone: the solver's text protocol, an optimum by
exhaustion, and no formula or code of the solver's.

Small random markets of one-CPU jobs are put to the solver; from allocations and payments alone it
is checked that
  - the welfare, sum of value x speed / fastest speed - reserve, is the greatest that any assignment
    has (by a search over the counts of places used in each class, independent of cuts, prices and
    ranks);
  - no provider gets less than its reserve, nobody pays more than his place is worth to him;
  - nobody prefers the place of another at that one's price, nor an empty place at its reserve, nor
    to have none (where each user has one job);
  - a user pays what the others lose by its jobs (Clarke), reckoned from optima by exhaustion with
    and without it;
  - no lie pays: for each user another value of one of its jobs, or other values of all, gains
    nothing;
  - a higher bid never runs slower.
`examine` takes any function from markets to answers, so that deliberate bugs in pricing and
placing, made in the solver's true answers or in a mechanism of the test's own, show that each check
is able to fail.

SOUK_MARKETS_WELFARE sets how many markets of each kind are tried (a long run: 20000).
"""
import itertools
import os
import random
import subprocess
from fractions import Fraction

import pytest

import test_prices as prices
from conftest import BIN
from fake import LIMIT

MARKETS = int(os.environ.get("SOUK_MARKETS_WELFARE", "1000"))
MICRO = 10**6


class Market:
    """jobs: (value, user); providers: (reserve, CPUs, speed); amounts in whole micro-units."""

    def __init__(self, jobs, providers):
        self.jobs, self.providers = jobs, providers
        self.top = max(p[2] for p in providers)

    def with_values(self, values):
        return Market([(values.get(i, v), u) for i, (v, u) in enumerate(self.jobs)], self.providers)

    def question(self, algorithm="welfare"):
        lines = ["reset", f"set solver {algorithm}"]
        lines += [f"ap {i + 1} {money(r)} 1000 {cpus} 0 {speed}"
                  for i, (r, cpus, speed) in enumerate(self.providers)]
        lines += [f"aj {i + 1} {money(v)} 0 1 {i} -1 {u}" for i, (v, u) in enumerate(self.jobs)]
        return "\n".join(lines + ["go", "alloc", "info", "payment", "info"]) + "\n"


def money(amount):
    whole, part = divmod(amount, MICRO)
    return f"{whole}.{part:06}"


def ask(markets, algorithm="welfare"):
    """(provider by job, payment by job) of each market; providers and jobs from 0."""
    text = "".join(market.question(algorithm) for market in markets)
    done = subprocess.run([BIN / "solver"], input=text.encode(), capture_output=True, timeout=LIMIT)
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
            if len(parts) == 1:
                if int(value):
                    parts[0][int(job) - 1] = int(value) - 1
            else:
                parts[1][int(job) - 1] = int(round(Fraction(value) * MICRO))
    assert len(answers) == len(markets)
    return answers


def optimum(values, providers, top):
    """The greatest welfare x fastest speed of any assignment: over how many places of each kind are
    used, the greater values to the faster places (the rearrangement inequality)."""
    kinds = {}
    for reserve, cpus, speed in providers:
        kinds[speed, reserve] = kinds.get((speed, reserve), 0) + cpus
    values = sorted(values, reverse=True)
    best = 0
    ranges = [range(min(n, len(values)) + 1) for n in kinds.values()]
    order = list(kinds)
    for counts in itertools.product(*ranges):
        if sum(counts) > len(values):
            continue
        speeds = sorted((s for (s, _), n in zip(order, counts) for _ in range(n)), reverse=True)
        costs = sum(r * top * n for (_, r), n in zip(order, counts))
        best = max(best, sum(v * s for v, s in zip(values, speeds)) - costs)
    return best


def gains(market, values, answer, user):
    """The gain of a user by an answer, times the fastest speed, if its jobs are worth `values`."""
    return sum(values[j] * market.providers[p][2] - answer[1][j] * market.top
               for j, p in answer[0].items() if market.jobs[j][1] == user)


def worth_of(market, answer, of=lambda user: True):
    return sum(market.jobs[j][0] * market.providers[p][2] - market.providers[p][0] * market.top
               for j, p in answer[0].items() if of(market.jobs[j][1]))


def prices_by_place(market, answer):
    """The greatest payment for each kind (speed, reserve) of place. Where a place is empty, that is
    the reserve."""
    used = [sum(1 for p in answer[0].values() if p == i) for i in range(len(market.providers))]
    prices = {}
    for i, (reserve, cpus, speed) in enumerate(market.providers):
        if used[i] < cpus:
            prices[speed, reserve] = reserve
    for j, p in answer[0].items():
        reserve, _, speed = market.providers[p]
        prices.setdefault((speed, reserve), 0)
        prices[speed, reserve] = max(prices[speed, reserve], answer[1][j])
    return prices


def examine_one(market, answer):
    """Lists the mistakes in one answer, without looking for lies."""
    wrong = []
    places, paid = answer
    top = market.top
    if set(places) != set(paid):
        return [("who runs and who pays differ", sorted(places), sorted(paid))]
    for i, (_, cpus, _) in enumerate(market.providers):
        if sum(1 for p in places.values() if p == i) > cpus:
            wrong.append(("a machine holds more than it has", i))
    best, got = optimum([v for v, _ in market.jobs], market.providers,
                        top), worth_of(market, answer)
    if got != best:
        wrong.append(("welfare", got / top / MICRO, "of", best / top / MICRO))
    for j, p in places.items():
        reserve, _, speed = market.providers[p]
        if paid[j] < reserve:
            wrong.append(("below the reserve", j, paid[j], reserve))
        if paid[j] * top > market.jobs[j][0] * speed:
            wrong.append(("pays more than it is worth", j, paid[j]))
    prices = prices_by_place(market, answer)
    one_each = len({u for _, u in market.jobs}) == len(market.jobs)
    # a user with several jobs pays less than its places' prices.
    for j, (value, _) in enumerate(market.jobs if one_each else []):
        mine = value * market.providers[places[j]][2] - paid[j] * top if j in places else 0
        for (speed, reserve), price in prices.items():
            if value * speed - price * top > mine + top:
                wrong.append(("prefers another's place", j, speed, reserve, price / MICRO))
    for user in {u for _, u in market.jobs}:
        others = optimum([v for v, u in market.jobs if u != user], market.providers, top)
        costs = sum(market.providers[p][0] * top for j, p in places.items()
                    if market.jobs[j][1] == user)
        due = others - worth_of(market, answer, lambda u: u != user) + costs
        has = sum(paid[j] * top for j in places if market.jobs[j][1] == user)
        # a class price and a share are rounded down to a micro-unit.
        if not due - 2 * len(places) * top <= has <= due:
            wrong.append(
                ("pays other than the others lose", user, has / top / MICRO, due / top / MICRO))
    return wrong


def lies_of(market, rng):
    """Draws other values for a user's jobs: for each job one by one, and for several at once."""
    steps = sorted({v for v, _ in market.jobs} | {r for r, _, _ in market.providers} |
                   {0, 60 * MICRO})
    for j in range(len(market.jobs)):
        low = rng.choice(steps)
        yield {j: low + rng.choice((0, -1, 1, MICRO // 2)) if low else 0}
    for user in {u for _, u in market.jobs}:
        own = [j for j, (_, u) in enumerate(market.jobs) if u == user]
        if len(own) > 1:
            yield {j: max(0, rng.choice(steps) + rng.choice((0, MICRO // 2))) for j in own}
            yield {j: 0 for j in own[1:]}


def examine(markets, mechanism, rng):
    """Lists the mistakes of a mechanism in these markets: (market number, what, ...)."""
    asked, about = [], []
    for number, market in enumerate(markets):
        asked.append(market)
        about.append((number, None))
        for lie in lies_of(market, rng):
            asked.append(market.with_values(lie))
            about.append((number, lie))
    wrong, truth = [], {}
    for (number, lie), market, answer in zip(about, asked, mechanism(asked)):
        if lie is None:
            truth[number] = answer
            wrong += [(number, *what) for what in examine_one(market, answer)]
            continue
        honest = markets[number]
        values = [v for v, _ in honest.jobs]
        user = honest.jobs[next(iter(lie))][1]
        more = gains(honest, values, answer, user) - gains(honest, values, truth[number], user)
        if more > 2 * len(values) * honest.top:  # rounding again
            wrong.append((number, "a lie gains", lie, more / honest.top / MICRO))
        if len(lie) == 1:
            [(j, bid)] = lie.items()
            speed = [honest.providers[a[0][j]][2] if j in a[0] else 0
                     for a in (truth[number], answer)]
            if ((bid > values[j] and speed[1] < speed[0]) or
                (bid < values[j] and speed[1] > speed[0])):
                wrong.append((number, "a higher bid runs slower", lie, speed))
    return wrong


def draw(rng, speeds, reserves, users):
    kinds = [(rng.choice(reserves) * MICRO, rng.choice(speeds)) for _ in range(rng.randint(1, 4))]
    providers = [(r, rng.randint(1, 2), s)
                 for r, s in (rng.choice(kinds) for _ in range(rng.randint(1, 5)))]
    jobs = [(rng.randint(0, 40) * MICRO, i if users == 0 else rng.randrange(users))
            for i in range(rng.randint(1, 8))]
    return Market(jobs, providers)


ALL, SOME = list(range(25)), [0, 3, 7, 12]
KINDS = {
    "one speed, one reserve": ([100], [5], 0),
    "one speed, reserves": ([100], ALL, 0),
    "speeds, no reserve": ([100, 80, 50, 30], [0], 0),
    "speeds, one reserve": ([100, 80, 50, 30], [7], 0),
    "speeds, reserves": ([100, 80, 50, 30], ALL, 0),
    "odd speeds, few reserves": ([97, 61, 13], SOME, 0),
    "one speed, users": ([100], ALL, 3),
    "speeds, reserves, users": ([100, 80, 50, 30], ALL, 3),
    "speeds, few reserves, two users": ([100, 70, 40], SOME, 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_allocation_is_the_best_and_no_lie_pays(kind):
    rng = random.Random(kind)
    for _ in range(0, MARKETS, 100):  # a hundred at once, so that the answers stay few
        markets = [draw(rng, *KINDS[kind]) for _ in range(min(100, MARKETS))]
        wrong = examine(markets, ask, rng)
        assert wrong == [], [(what, vars(markets[what[0]])) for what in wrong[:1]]


# Deliberate bugs: each is a mechanism that is wrong in one point, and the search above must say so.
def repriced(price):
    """The true places, with payments by `price(market, job, provider, paid, answer)`."""
    def mechanism(markets):
        return [(answer[0], {j: price(m, j, answer[0][j], answer[1][j], answer) for j in answer[0]})
                for m, answer in zip(markets, ask(markets))]
    return mechanism


def waiting(market, answer):
    """The values that have no place, the greatest first; zeros after them."""
    return sorted((v for j, (v, _) in enumerate(market.jobs) if j not in answer[0]),
                  reverse=True) + [0, 0]


def asked_as(change):
    """The true mechanism, of markets that are changed before."""
    return lambda markets: ask([change(market) for market in markets])


def reserves_only_raise(markets):
    """Ignores reserves when it decides places and prices, and raises payments to them
    afterwards."""
    free = ask([Market(m.jobs, [(0, c, s) for _, c, s in m.providers]) for m in markets])
    out = []
    for m, (places, paid) in zip(markets, free):
        stays = {j: p for j, p in places.items()
                 if m.providers[p][0] * m.top <= m.jobs[j][0] * m.providers[p][2]}
        out.append((stays, {j: max(paid[j], m.providers[p][0]) for j, p in stays.items()}))
    return out


def greatest_bid_is_lost(markets):
    """A job that bids above 35 and is not alone loses its place."""
    out = []
    for m, (places, paid) in zip(markets, ask(markets)):
        keep = {j: p for j, p in places.items() if m.jobs[j][0] <= 35 * MICRO or len(places) == 1}
        out.append((keep, {j: paid[j] for j in keep}))
    return out


def own_jobs_one_by_one(markets):
    """Prices each job as if its user had no other: two jobs of a user each pay for the same
    loser."""
    asked, of = [], []
    answers = ask(markets)
    for n, (m, answer) in enumerate(zip(markets, answers)):
        for j in answer[0]:
            asked.append(m.with_values({i: 0 for i, (_, u) in enumerate(m.jobs)
                                        if u == m.jobs[j][1] and i != j}))
            of.append((n, j))
    out = [(places, dict(paid)) for places, paid in answers]
    for (n, j), (_, paid) in zip(of, ask(asked)):
        reserve = markets[n].providers[answers[n][0][j]][0]
        out[n][1][j] = max(reserve, paid.get(j, reserve))
    return out


BUGS = {
    "the greedy with its critical prices": ("speeds, reserves",
                                            lambda markets: ask(markets, "greedy_migration")),
    "pays its bid": ("speeds, reserves",
                     repriced(lambda m, j, p, paid, a: m.jobs[j][0] * m.providers[p][2] // m.top)),
    "pays the reserve alone": ("one speed, one reserve",
                               repriced(lambda m, j, p, paid, a: m.providers[p][0])),
    "pays the next bid, and not the reserve": ("speeds, reserves", repriced(
        lambda m, j, p, paid, a: waiting(m, a)[0] * m.providers[p][2] // m.top)),
    "the second who waits sets the price": ("speeds, no reserve", repriced(
        lambda m, j, p, paid,
        a: min(paid, max(m.providers[p][0], waiting(m, a)[1] * m.providers[p][2] // m.top)))),
    "one price for all": ("speeds, reserves", repriced(
        lambda m, j, p, paid, a: max(min(a[1].values()), m.providers[p][0]))),
    "the price is scaled by speed twice": ("odd speeds, few reserves", repriced(
        lambda m, j, p, paid, a: max(m.providers[p][0], paid * m.providers[p][2] // m.top))),
    "a thousandth too much": ("speeds, one reserve",
                              repriced(lambda m, j, p, paid, a: paid + paid // 1000)),
    "reserves only raise the price": ("one speed, reserves", reserves_only_raise),
    "the greatest bids lose": ("one speed, one reserve", greatest_bid_is_lost),
    "own jobs price each other": ("speeds, reserves, users", asked_as(
        lambda m: Market([(v, i) for i, (v, _) in enumerate(m.jobs)], m.providers))),
    "own jobs are priced one by one": ("one speed, users", own_jobs_one_by_one),
    "all users are one": ("speeds, few reserves, two users",
                          asked_as(lambda m: Market([(v, 0) for v, _ in m.jobs], m.providers))),
    "a class of places is missing": ("speeds, reserves", asked_as(lambda m: Market(
        m.jobs, m.providers[:-1] + [(40 * MICRO, 1, 1)] if len(m.providers) > 1 else m.providers))),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_search_finds_a_deliberate_bug(bug):
    kind, mechanism = BUGS[bug]
    rng = random.Random(kind)
    markets = [draw(rng, *KINDS[kind]) for _ in range(150)]
    assert examine(markets, mechanism, rng) != []


# Some jobs here need several CPUs or memory. The mechanism is monotone, with critical prices that
# cover the reserves. A lie can gain only by moving a job at the margin of a class; how often one
# does in small markets is bounded here, so that it cannot grow.
def lies_in_mixed_markets(kind, number, algorithm):
    """(markets, those where a lie of one job gains, welfare of all / 10^6); asserts what holds in
    each."""
    rng, lying, welfare = random.Random(kind), 0, 0
    for _ in range(number):
        market = prices.draw(rng, *prices.KINDS[kind])
        questions, of = [market.question()], []
        for job in range(len(market.jobs)):
            levels = market.levels(job)
            of += [(job, (low + high) // 2) for low, high in zip(levels, levels[1:])]
        questions += [market.question(job, bid) for job, bid in of]
        truth, *answers = prices.ask([q.replace("reset", f"reset\nset solver {algorithm}", 1)
                                      for q in questions])
        gained = False
        speeds = {}
        for (job, _), answer in zip(of, answers):
            value, speed = market.jobs[job][0], prices.speed_in(market, answer, job)
            honest = value * prices.speed_in(market, truth, job) - truth[1].get(job, 0) * market.top
            gained |= value * speed - answer[1].get(job, 0) * market.top > honest + 2 * market.top
            speeds.setdefault(job, []).append(speed)
        assert all(s == sorted(s) for s in speeds.values()), vars(market)
        for job, place in truth[0].items():
            if place:
                reserve, value = market.providers[place - 1][0], market.jobs[job][0]
                assert reserve <= truth[1][job] <= value, vars(market)
                welfare += (value * prices.speed_in(market, truth, job) / market.top -
                            reserve) * market.jobs[job][1] / MICRO
        lying += gained
    return lying, welfare


@pytest.mark.parametrize("kind", [k for k in prices.KINDS if "wide" in k])
def test_with_mixed_sizes_bids_are_monotone_and_few_lies_gain(kind):
    number = max(60, MARKETS // 15)
    lying, welfare = lies_in_mixed_markets(kind, number, "welfare")
    if kind.startswith("one speed"):
        assert lying == 0
    else:
        greedy_lying, greedy_welfare = lies_in_mixed_markets(kind, number, "greedy_migration")
        assert lying < 0.22 * number and lying < greedy_lying / 2 and welfare > greedy_welfare


def test_with_mixed_sizes_own_jobs_do_not_price_each_other():
    # Machines of 4 CPUs at 3 and 5; one user's jobs fill more than there is, another bids 9 for two
    # CPUs and waits.
    text = "set solver welfare\nap 1 3 1000 4 0 100\nap 2 5 1000 4 0 100\n"
    text += "".join(f"aj {n} {40 - n} 0 2 {n} -1 1000\n" for n in range(1, 6))
    alone = subprocess.run([BIN / "solver"], input=(text + "go\npayment\n").encode(),
                           capture_output=True, timeout=LIMIT)
    assert alone.stdout.decode() == "1 3\n2 3\n3 5\n4 5\n"
    other = subprocess.run([BIN / "solver"],
                           input=(text + "aj 9 9 0 2 9 -1 9\ngo\npayment\n").encode(),
                           capture_output=True, timeout=LIMIT)
    # Without the user the other one would have two CPUs at 3, and gain 6 by each. So the user pays
    # 6 more in all.
    assert other.stdout.decode() == "1 3\n2 5\n3 5\n4 9\n"
