# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of several components (gangs), by brute force over small markets: the solver's text protocol
alone, and none of its code.

Who gets what is worked out here from the words of market/core/gang_turns.hpp and
docs/market.md: every way to spread the components over the machines is tried. What each has to pay
follows from the speed x(b) that it would get for each bid b, worked out the same way, by the
definition (v x(v) - integral of x) / fastest speed. Then each bid at which x could change is told
to the solver in place of the true one: none may pay. SOUK_MARKETS sets how many markets of each
kind are tried.
"""
import itertools
import os
import random
import subprocess
from fractions import Fraction

import pytest

from conftest import BIN
from fake import LIMIT

MARKETS = int(os.environ.get("SOUK_MARKETS", "60"))
MICRO = 10**6
TINY = Fraction(1, 2)  # less than a micro-unit


def money(amount):
    whole, part = divmod(amount, MICRO)
    return f"{whole}.{part:06}"


class Bidder:
    """A single job, or a gang: value in micro-units, what each component needs (CPUs, memory), how
    many of these are required; the others are optional. `only`: of each component the one machine
    for it, or None. `spread`: at most so many on one machine, or 0. `few`: on few machines.
    `near`: None, or the longest round trip (0: any) and the least bandwidth among them."""

    def __init__(self, value, needs, required, user):
        self.value, self.needs, self.required, self.user = value, needs, required, user
        self.only, self.spread, self.few = [None] * len(needs), 0, False
        self.near = None

    def cut(self, count):
        self.needs, self.only = self.needs[:count], self.only[:count]

    def lie(self):
        """The rules for where the required components may lie."""
        return self.only[:self.required], self.spread, self.few, self.near

    def line(self, key, value=None):
        value = money(self.value if value is None else value)
        if len(self.needs) == 1:
            cpus, memory = self.needs[0]
            return f"aj {key} {value} {memory} {cpus} 0 -1 {self.user}"
        parts = [f"{c}:{m}" + ("" if self.only[i] is None else f"@{self.only[i] + 1}") +
                 (":optional" if i >= self.required else "")
                 for i, (c, m) in enumerate(self.needs)]
        how = (["pack"] if self.few else []) + ([f"spread={self.spread}"] if self.spread else [])
        if self.near == (0, 0):
            how += ["near"]
        elif self.near:
            how += [f"near={self.near[0]}:{self.near[1]}"]
        return f"ag {key} {value} 0 -1 {self.user} " + " ".join(how + parts)


class Market:
    """providers: (reserve in micro-units, cpus, memory, speed). networks: of each the network that
    it is of, or 0, and from it to the others of that the round trip and the bandwidth."""

    def __init__(self, bidders, providers, networks=None):
        self.bidders, self.providers = bidders, providers
        self.networks = networks or [(0, 0, 0)] * len(providers)
        self.keys, key = [], 1
        for bidder in bidders:
            self.keys.append(key)
            key += len(bidder.needs)
        self.order = sorted(range(len(providers)), key=lambda p: (
            -providers[p][3], providers[p][0], p))
        self.top = max(p[3] for p in providers)

    def rank(self, i):
        return -self.bidders[i].value, self.keys[i]

    def question(self, liar=None, bid=None):
        lines = ["reset"]
        lines += [f"ap {i + 1} {money(r)} {mem} {cpus} 0 {speed}" +
                  (f" near={n}:{trip}:{mbit}" if n else "")
                  for i, ((r, cpus, mem, speed), (n, trip, mbit)) in enumerate(
                      zip(self.providers, self.networks))]
        lines += [b.line(key, bid if i == liar else None)
                  for i, (b, key) in enumerate(zip(self.bidders, self.keys))]
        return "\n".join(lines + ["go", "alloc", "info", "payment", "info"]) + "\n"

    def levels(self):
        at = sorted({0} | {b.value for b in self.bidders} | {p[0] for p in self.providers})
        return at + [at[-1] + MICRO]

    # The definition

    def rooms(self):
        return {p: [self.providers[p][1], self.providers[p][2]] for p in self.order}

    def first_way(self, rooms, machines, needs, only, taken, spread):
        """Into as few of the machines in order as possible; back from the last of these, each has
        the fewest of the largest. `taken`: how many are on each already, for the bound."""
        shapes = sorted({n for n, o in zip(needs, only) if o is None}, reverse=True)
        for end in range(1, len(machines) + 1):
            best = None
            for places in itertools.product(range(end), repeat=len(needs)):
                if any(o not in (None, machines[at]) for o, at in zip(only, places)):
                    continue
                if spread and any(places.count(at) + taken.get(machines[at], 0) > spread
                                  for at in places):
                    continue
                if not self.holds(rooms, machines, needs, places):
                    continue
                counts = [sum(1 for n, o, at in zip(needs, only, places)
                              if at == m and n == shape and o is None)
                          for m in reversed(range(end)) for shape in shapes]
                if best is None or (counts, places) < best:
                    best = counts, places
            if best is not None:
                return [machines[at] for at in best[1]], end
        return None, 0

    def pack(self, rooms, needs, bid, lie=None):
        """Machines of these components, and their speed."""
        only, spread, few, near = lie or ([None] * len(needs), 0, False, None)
        machines = [p for p in self.order if self.providers[p][0] <= bid]
        if near is not None:
            return self.pack_near(rooms, machines, needs, (only, spread, few, near))
        where, end = self.first_way(rooms, machines, needs, only, {}, spread)
        if where is None:
            return None, 0
        if few:
            where = self.fewer(rooms, machines, end, needs, only, spread, where)
        return where, min(self.providers[p][3] for p in where)

    def together(self, machines, near):
        """All largest sets of these machines that are near each other."""
        def may(p):
            network, trip, mbit = self.networks[p]
            return network and (near[0] == 0 or 0 < trip <= near[0]) and mbit >= near[1]
        sets = {}
        for p in machines:
            sets.setdefault(self.networks[p][0] if may(p) else ("alone", p), []).append(p)
        return list(sets.values())

    def pack_near(self, rooms, machines, needs, lie):
        """Among the sets of machines that are near each other, chooses the one whose last needed
        machine comes first."""
        only, spread, few, near = lie
        ways = []
        for some in self.together(machines, near):
            where, end = self.first_way(rooms, some, needs, only, {}, spread)
            if where is not None:
                ways.append((machines.index(some[end - 1]), some, where, end))
        if not ways:
            return None, 0
        _, some, where, end = min(ways)
        if few:
            where = self.fewer(rooms, some, end, needs, only, spread, where)
        return where, min(self.providers[p][3] for p in where)

    def fewer(self, rooms, machines, end, needs, only, spread, where):
        """The largest rooms first, of machines up to the class of the last one, those with named
        components before all."""
        def of_class(p):
            return self.providers[p][3], self.providers[p][0]
        while end < len(machines) and of_class(machines[end]) == of_class(machines[end - 1]):
            end += 1
        rest = [i for i, o in enumerate(only) if o is None]
        left, taken = {p: list(rooms[p]) for p in machines}, {}
        for need, p in zip(needs, only):
            if p is not None:
                left[p] = [left[p][0] - need[0], left[p][1] - need[1]]
                taken[p] = taken.get(p, 0) + 1
        shapes = {needs[i] for i in rest}

        def worth(p):
            if len(shapes) != 1:
                return (p in taken, *left[p])
            cpus, memory = next(iter(shapes))
            holds = min(left[p][0] // cpus, left[p][1] // memory if memory else len(rest),
                        spread - taken.get(p, 0) if spread else len(rest), len(rest))
            return p in taken, holds, 0
        largest = sorted(machines[:end], key=worth, reverse=True)
        at, _ = self.first_way(left, largest, [needs[i] for i in rest], [None] * len(rest), taken,
                               spread)
        other = list(where)
        for i, p in zip(rest, at or []):
            other[i] = p
        return other if at and len(set(other)) < len(set(where)) else where

    def holds(self, rooms, machines, needs, places):
        for at in set(places):
            inside = [n for n, m in zip(needs, places) if m == at]
            if any(sum(n[k] for n in inside) > rooms[machines[at]][k] for k in (0, 1)):
                return False
        return True

    def put(self, rooms, needs, bid, lie=None):
        where, speed = self.pack(rooms, needs, bid, lie)
        for p, need in zip(where or [], needs):
            rooms[p][0] -= need[0]
            rooms[p][1] -= need[1]
        return where, speed

    @staticmethod
    def alone(bidder, component):
        return [bidder.only[component]], 0, False, None

    def greedy(self, rooms, bidders):
        """Places the bidders greedily. Returns for each component key its machine, or None.
        `bidders`: (number, bid, required part only)."""
        out = {}
        for i in bidders:
            b, key = self.bidders[i], self.keys[i]
            where, _ = self.put(rooms, b.needs[:b.required], b.value, b.lie())
            for c in range(len(b.needs)):
                out[key + c] = None if where is None or c >= b.required else where[c]
            if where is not None:
                for c in range(b.required, len(b.needs)):
                    single, _ = self.put(rooms, [b.needs[c]], b.value, self.alone(b, c))
                    out[key + c] = single and single[0]
        return out

    def allocation(self):
        return self.greedy(self.rooms(), sorted(range(len(self.bidders)), key=self.rank))

    def speed_for(self, i, bid, part=None):
        """The speed that bidder i would get for this bid, or its optional component `part`."""
        b, rooms = self.bidders[i], self.rooms()
        others = [k for k in range(len(self.bidders)) if k != i and not
                  (self.bidders[k].user == b.user and self.rank(k) > self.rank(i))]
        if part is None:
            self.greedy(rooms, sorted((k for k in others if self.bidders[k].value > bid),
                                      key=self.rank))
            return self.pack(rooms, b.needs[:b.required], bid, b.lie())[1]
        before = [k for k in others if self.bidders[k].value > bid or self.rank(k) < self.rank(i)]
        order = sorted(before + [i], key=self.rank)
        at = order.index(i)
        self.greedy(rooms, order[:at])
        self.put(rooms, b.needs[:b.required], b.value, b.lie())
        for c in range(b.required, part):
            self.put(rooms, [b.needs[c]], b.value, self.alone(b, c))
        self.greedy(rooms, order[at + 1:])
        return self.pack(rooms, [b.needs[part]], bid, self.alone(b, part))[1]

    def price(self, i, speed, part=None):
        """Computes the price by its definition: the speed counts only up to the one that the bidder
        has."""
        b, levels = self.bidders[i], self.levels()
        area, low = Fraction(0), 0
        for high in [v for v in levels if 0 < v <= b.value]:
            area += (high - low) * min(speed, self.speed_for(i, Fraction(low + high, 2), part))
            low = high
        return (b.value * speed - area) / self.top

    def bounded(self, price, provider, bid):
        return min(max(int(price), self.providers[provider][0]), bid)


def ask(markets_and_lies):
    """Asks the solver about each (market, liar, bid). Returns the place of each component, and what
    it pays."""
    text = "".join(m.question(liar, bid) for m, liar, bid in markets_and_lies) + "exit\n"
    done = subprocess.run([BIN / "solver"], input=text, capture_output=True, text=True,
                          timeout=10 * LIMIT, check=True)
    assert "error" not in done.stdout, done.stdout
    answers, part, parts = [], [], []
    for line in done.stdout.splitlines():
        if line.startswith("solver "):
            parts.append(part)
            part = []
            if len(parts) == 2:
                places = {int(j): int(p) - 1 for j, p in (x.split() for x in parts[0])}
                prices = {int(j): round(Fraction(p) * MICRO)
                          for j, p in (x.split() for x in parts[1])}
                answers.append((places, prices))
                parts = []
        else:
            part.append(line)
    return answers


def lay(rng, bidder, machines):
    """How the gang wants to lie: on named machines, apart, together."""
    for i in range(len(bidder.needs)):
        if rng.random() < 0.3:
            bidder.only[i] = rng.randrange(machines)
    if rng.random() < 0.4 and bidder.required == len(bidder.needs):
        bidder.spread = rng.randint(1, 2)
    bidder.few = rng.random() < 0.4
    if rng.random() < 0.6 and bidder.required == len(bidder.needs):
        bidder.near = rng.choice([(0, 0), (0, 0), (100, 0), (0, 10), (100, 10)])


def some_networks(rng, machines):
    return [(rng.randint(0, 2), rng.choice([0, 50, 200]), rng.choice([0, 5, 50]))
            for _ in range(machines)]


def draw(rng, kind, laid=False):
    speeds = [100] if kind == "equal" else [50, 100, 150, 200]
    reserves = [0] if kind == "speeds" else [0, 1, 2, 3, 5]
    providers = [(rng.choice(reserves) * MICRO, rng.randint(1, 4), rng.randint(2, 8),
                  rng.choice(speeds)) for _ in range(rng.randint(2, 4))]
    bidders = []
    for i in range(rng.randint(3, 6)):
        user = rng.randint(1, 3) if kind == "users" else i + 1
        value = rng.randint(1, 9) * MICRO + rng.randint(0, 999) * 1000
        if rng.random() < 0.45:
            bidders.append(Bidder(value, [(rng.randint(1, 2), rng.randint(0, 3))], 1, user))
            continue
        count = rng.randint(2, 3)
        alike = rng.random() < 0.5
        one = rng.randint(1, 2), rng.randint(0, 2)
        needs = [one if alike else (rng.randint(1, 3), rng.randint(0, 3)) for _ in range(count)]
        optional = rng.randint(0, 2) if rng.random() < 0.3 else 0
        bidders.append(Bidder(
            value, needs + [(rng.randint(1, 2), rng.randint(0, 2)) for _ in range(optional)],
            count, user))
        if laid:
            lay(rng, bidders[-1], len(providers))
    return Market(bidders, providers, some_networks(rng, len(providers)) if laid else None)


@pytest.mark.parametrize("laid", [False, True])
@pytest.mark.parametrize("kind", ["equal", "speeds", "both", "users"])
def test_every_place_and_price_of_a_gang_is_the_defined_one(kind, laid):
    # Method: markets by a seed; places and payments from the solver against those worked out here.
    # `laid`: components are for named machines, at most so many on one, on few, or near
    # each other.
    rng = random.Random(f"gangs {kind} {laid}")
    markets = [draw(rng, kind, laid) for _ in range(MARKETS)]
    gangs = 0
    for n, (market, answer) in enumerate(zip(markets, ask([(m, None, None) for m in markets]))):
        places, prices = answer
        wanted = {k: p for k, p in market.allocation().items() if p is not None}
        assert places == wanted, f"{kind} market {n}\n{market.question()}"
        for i, bidder in enumerate(market.bidders):
            for c in range(len(bidder.needs)):
                key = market.keys[i] + c
                if key not in wanted:
                    continue
                own = wanted[key]
                required = range(market.keys[i], market.keys[i] + bidder.required)
                optional = c >= bidder.required
                speed = min(market.providers[wanted[k]][3] for k in
                            ([key] if optional else required))
                price = market.price(i, speed, c if optional else None)
                assert prices[key] == market.bounded(price, own, bidder.value), \
                    f"{kind} market {n} job {key}: {float(price)}\n{market.question()}"
                gangs += bidder.required > 1
    assert gangs > MARKETS // (4 if laid else 2)


def test_components_are_where_they_must_be_and_no_more_on_one_machine_than_may():
    # Method: one gang of like components alone, against every way to put them: it runs if there is
    # any way, as fast as the best, and with pack on as few machines as any way that is as fast and
    # meets no higher reserve.
    rng = random.Random("lie")
    markets = []
    for _ in range(4 * MARKETS):
        count, need = rng.randint(2, 4), (rng.randint(1, 2), rng.randint(0, 2))
        bidder = Bidder(9 * MICRO, [need] * count, count, 1)
        providers = [(rng.randint(0, 1) * MICRO, rng.randint(1, 6), rng.randint(2, 9),
                      rng.choice([50, 100])) for _ in range(rng.randint(2, 4))]
        lay(rng, bidder, len(providers))
        markets.append(Market([bidder], providers, some_networks(rng, len(providers))))
    packed = refused = near = 0
    for n, (market, (places, _)) in enumerate(zip(markets, ask([(m, None, None)
                                                                for m in markets]))):
        b, providers = market.bidders[0], market.providers
        ways = [w for w in itertools.product(range(len(providers)), repeat=len(b.needs))
                if market.holds(market.rooms(), range(len(providers)), b.needs, w)
                and all(o in (None, p) for o, p in zip(b.only, w))
                and not (b.spread and any(w.count(p) > b.spread for p in w))
                and (b.near is None or any(set(w) <= set(some) for some in market.together(
                    range(len(providers)), b.near)))]
        if not ways:
            assert not places, f"market {n}\n{market.question()}"
            refused += 1
            continue
        chosen = [places[1 + i] for i in range(len(b.needs))]
        near += b.near is not None and len(set(chosen)) > 1
        assert tuple(chosen) in ways, f"market {n}\n{market.question()}"

        def speed(way):
            return min(providers[p][3] for p in way)

        def worst(way):
            return min((providers[p][3], -providers[p][0]) for p in way)
        assert speed(chosen) == max(map(speed, ways)), f"market {n}\n{market.question()}"
        if b.few:
            # near: of the nodes that are near those chosen, which networks came first
            alike = ways if b.near is None else [w for w in ways if any(
                set(w) | set(chosen) <= set(some)
                for some in market.together(range(len(providers)), b.near))]
            least = min(len(set(w)) for w in alike if worst(w) >= max(map(worst, alike)))
            assert len(set(chosen)) == least, f"market {n}\n{market.question()}"
            packed += len(b.needs) - least
    assert packed > MARKETS // 2 and refused > MARKETS // 4 and near > MARKETS // 8


@pytest.mark.parametrize("laid", [False, True])
@pytest.mark.parametrize("kind", ["equal", "speeds"])
def test_no_lie_of_a_gang_pays_and_a_higher_bid_never_makes_it_slower(kind, laid):
    # Method: each bidder bids half way between any two levels where its speed could change.
    rng = random.Random(f"lies {kind} {laid}")
    questions, meant = [], []
    for n in range(MARKETS):
        market = draw(rng, kind, laid)
        for b in market.bidders:
            b.cut(b.required)  # an optional component is a bidder of its own
        market = Market(market.bidders, market.providers, market.networks)
        levels = market.levels()
        for i, bidder in enumerate(market.bidders):
            bids = [(a + b) // 2 for a, b in zip(levels, levels[1:])]
            for bid in [bidder.value] + sorted(bids):
                questions.append((market, i, bid))
                meant.append((n, market, i, bid))
    answers = ask(questions)
    truth = slowest = None
    for (n, market, i, bid), (places, prices) in zip(meant, answers):
        bidder, keys = market.bidders[i], None
        keys = range(market.keys[i], market.keys[i] + bidder.required)
        runs = [k for k in keys if k in places]
        assert len(runs) in (0, bidder.required), f"{kind} market {n}: a part of job {keys[0]}"
        speed = min((market.providers[places[k]][3] for k in runs), default=0)
        gain = sum(bidder.needs[k - keys[0]][0] *
                   (Fraction(bidder.value * speed, market.top) - prices[k]) for k in runs)
        if bid == bidder.value:
            truth, slowest = gain, 0
            continue
        cpus = sum(c for c, _ in bidder.needs)
        assert gain <= truth + cpus, f"{kind} market {n} job {keys[0]}: {money(bid)} pays"
        assert speed >= slowest, f"{kind} market {n} job {keys[0]}: slower at {money(bid)}"
        slowest = speed


@pytest.mark.parametrize("kind", ["equal", "speeds", "both"])
def test_of_gangs_that_need_the_same_nobody_runs_slower_than_one_that_bids_less(kind):
    # Method: two gangs of equal needs in each market; the one with the higher bid is at least as
    # fast, and pays at least as much in all.
    rng = random.Random(f"envy {kind}")
    markets = []
    for _ in range(MARKETS):
        market = draw(rng, kind)
        twin = next((b for b in market.bidders if len(b.needs) > 1), None)
        if twin is None:
            continue
        twin.cut(twin.required)
        other = Bidder(rng.randint(1, 9) * MICRO + 500, twin.needs, twin.required, 99)
        markets.append(Market(market.bidders + [other], market.providers))
    both = 0
    for market, (places, _) in zip(markets, ask([(m, None, None) for m in markets])):
        speeds = {}
        for i, b in enumerate(market.bidders):
            at = [places.get(market.keys[i] + c) for c in range(b.required)]
            speeds[i] = 0 if None in at else min(market.providers[p][3] for p in at)
        last = len(market.bidders) - 1
        for i, b in enumerate(market.bidders[:-1]):
            if b.needs == market.bidders[last].needs:
                high, low = sorted((i, last), key=market.rank)
                assert speeds[high] >= speeds[low]
                both += speeds[low] > 0
    assert both > 0


@pytest.mark.parametrize("line,words", [
    ("ag 1 5 0 -1 7 1:0:optional 2:0", "the first component cannot be optional"),
    ("ag 1 5 0 -1 7 1:0 1:0:optional 2:0", "the optional ones come last"),
    ("ag 1 5 0 -1 7 10000x1:0", "with at most 1024 components"),
    ("ag 1 5 0 -1 7 1000x1:0 1000x1:0", "2000 components are more than 1024"),
    ("ag 1 5 0 -1 7 1", "is not [COUNTx]CPUS:MEMORY[@PROVIDER][:optional]"),
    ("ag 1 5 0 -1 7 0x1:0", "is not [COUNTx]CPUS:MEMORY[@PROVIDER][:optional]"),
    ("ag 1 5 0 -1 7 1:0@0", "is not [COUNTx]CPUS:MEMORY[@PROVIDER][:optional]"),
    ("ag 1 5 0 -1 7 spread=0 1:0", "spread=N: '0' is no number above 0"),
    ("ag 1 5 0 -1 7 pack", "no component: PART is missing"),
    ("ag 1 5 0 -1 7 near=x 1:0", "near=x is not near=US[:MBIT]"),
    ("ag 1 5 0 -1 7 near=1:-2 1:0", "near=1:-2 is not near=US[:MBIT]"),
    ("ag 1 5 0 -1 7 near 1:0 1:0:optional", "no component is optional where only so many"),
    ("ap 1 1 1 1 0 near=", "near= is not near=NETWORK[:US:MBIT]"),
    ("ap 1 1 1 1 0 near=1:2:x", "near=1:2:x is not near=NETWORK[:US:MBIT]"),
    ("ap 1 1 1 1 0 100 near=0", "near=0 is not near=NETWORK[:US:MBIT]"),
    ("ag 1 5 0 -1 7 spread=1 1:0 1:0:optional", "no component is optional where only so many"),
    ("ag 1 5 0 -1 7", "the form is: ag id value start run uid"),
    ("ag 8 5 0 -1 7 4x1:0", "job 9 is there already"),
    ("set solver welfare", "places no jobs of several components, and there are some")])
def test_what_cannot_be_a_gang_is_one_line_and_changes_nothing(line, words):
    lines = ["aj 9 1 0 1 0 -1", "ag 20 1 0 -1 7 2x1:0", "lj", "info", line, "lj", "info", "exit"]
    done = subprocess.run([BIN / "solver"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True, timeout=LIMIT, check=True)
    before, rest = done.stdout.split("solver greedy_migration jobs 3 providers 0 time 0\n")[:2]
    error, after = rest.split("\n", 1)
    assert error.startswith("error: ") and words in error
    assert after == before
