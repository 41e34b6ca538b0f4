# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves of others that make room for a job of several components (market/core/room_maker.hpp),
by brute force over small markets: the solver's text protocol alone, and none of its code.

A market is decided, some jobs end, and a gang comes. Without the gang the solver says who is where
then: a gang that waits changes nothing of that. From there every set of moves within the rules is
tried here: the gang has a place if and only if it fits as things are, or one of them makes room and
pays for itself.
SOUK_MARKETS sets how many markets of each kind are tried."""
import itertools
import os
import random
import subprocess

import pytest

from conftest import BIN
from fake import LIMIT

MARKETS = int(os.environ.get("SOUK_MARKETS", "60"))
GANG = 50  # the id of the gang's first component


class Market:
    """`machines`: (CPUs, memory, speed, reserve). `jobs` by id: (value, CPUs, memory), in the order
    of their coming; those in `ended` go before the gang comes. `gang`: value, needs."""

    def __init__(self, rng, kind):
        speeds = [100, 100, 200] if kind == "speeds" else [100]
        self.machines = [(rng.randint(3, 5), rng.randint(4, 9), rng.choice(speeds),
                          rng.choice([0, 0, 0, 1])) for _ in range(rng.randint(2, 3))]
        self.jobs = {i + 1: (rng.randint(2, 9), rng.randint(1, 3), rng.randint(0, 2))
                     for i in range(rng.randint(5, 9))}
        self.ended = rng.sample(sorted(self.jobs), rng.randint(1, len(self.jobs) // 2))
        one = rng.randint(2, 4), rng.randint(0, 3)
        alike = rng.random() < 0.6
        count = rng.randint(1, 3) if alike else 2
        needs = [one if alike else (rng.randint(1, 4), rng.randint(0, 3)) for _ in range(count)]
        self.gang = rng.randint(1, 8), needs
        # bytes/s of the network, of which a move's pause follows, and the time that must pay for it
        self.link, self.horizon = (rng.choice([10_000, 100_000]), 60) if kind == "horizon" else (
            1, 0)

    def question(self, with_gang=True):
        lines = ["reset", f"set link {self.link}", f"set horizon {self.horizon}s"]
        lines += [f"ap {i + 1} {r} {memory} {cpus} 0 {speed}"
                  for i, (cpus, memory, speed, r) in enumerate(self.machines)]
        lines += [f"aj {j} {v} {memory} {cpus} {j} -1"
                  for j, (v, cpus, memory) in self.jobs.items()]
        lines += ["go", "alloc", "info"] + [f"dj {j}" for j in self.ended]
        value, needs = self.gang
        if with_gang:
            lines += [f"ag {GANG} {value} 99 -1 7 " + " ".join(f"{c}:{m}" for c, m in needs)]
        return "\n".join(lines + ["time 100", "go", "payment", "info", "lj", "info"]) + "\n"

    # The rules

    def need(self, j):
        return self.gang[1][j - GANG] if j >= GANG else self.jobs[j][1:]

    def value(self, j):
        return self.gang[0] if j >= GANG else self.jobs[j][0]

    def rank(self, j):
        return -self.value(j), 99 if j >= GANG else j, j

    def room(self, places, machine, rank):
        """The room that is left on a machine beside the jobs that rank before."""
        there = [self.need(j) for j, p in places.items() if p == machine and self.rank(j) < rank]
        return tuple(self.machines[machine][k] - sum(n[k] for n in there) for k in (0, 1))

    def packs(self, places):
        """The greatest speed at which the gang fits beside those that rank before it; 0: none."""
        value, needs = self.gang
        best = 0
        rooms = {m: self.room(places, m, self.rank(GANG)) for m in range(len(self.machines))
                 if self.machines[m][3] <= value}
        for way in itertools.product(rooms, repeat=len(needs)):
            if all(sum(n[k] for n, w in zip(needs, way) if w == m) <= rooms[m][k]
                   for m in set(way) for k in (0, 1)):
                best = max(best, min(self.machines[m][2] for m in way))
        return best

    def moves(self, places, running):
        """Each set of moves within the rules, as {job: machine}."""
        gang = self.rank(GANG)

        def usable(m):
            return self.machines[m][3] <= self.gang[0]
        movers = [j for j, p in places.items() if running.get(j) == p and self.rank(j) < gang
                  and usable(p)]
        options = [[None] + [m for m in range(len(self.machines)) if m != places[j] and
                             self.machines[m][2:] == self.machines[places[j]][2:]] for j in movers]
        rooms = [self.room(places, m, gang) for m in range(len(self.machines))]
        for choice in itertools.product(*options):
            moved = {j: m for j, m in zip(movers, choice) if m is not None}
            arrive = [[self.need(j) for j, to in moved.items() if to == m]
                      for m in range(len(self.machines))]
            if moved and len(moved) <= 8 and all(
                    sum(n[k] for n in arrive[m]) <= rooms[m][k]
                    for m in range(len(self.machines)) for k in (0, 1)):
                yield moved

    def pays(self, moved, places, speed):
        if self.horizon == 0:
            return True
        gain = self.gang[0] * sum(c for c, _ in self.gang[1]) * speed * self.horizon * 1000
        cost = 0
        for j in moved:
            pause_ms = -(-self.need(j)[1] * 10**9 // self.link // 1)  # of 10^6 bytes a MB
            cost += self.value(j) * self.need(j)[0] * self.machines[places[j]][2] * pause_ms
        return cost <= gain

    def nobody_before_gains(self, moved, places):
        after = {**places, **moved}
        for m in {places[j] for j in moved}:
            for j in self.present():
                if j in moved or self.rank(j) >= self.rank(GANG) or self.machines[m][3] > \
                        self.value(j):
                    continue
                at = places.get(j)
                if at is not None and not self.is_better(m, at, j):
                    continue
                cpus, memory = self.need(j)
                before = self.room(places, m, self.rank(j))
                then = self.room(after, m, self.rank(j))
                if then[0] >= cpus and then[1] >= memory and not (
                        before[0] >= cpus and before[1] >= memory):
                    return False
        return True

    def is_better(self, m, at, j):
        (_, _, speed, reserve), (_, _, now, asked) = self.machines[m], self.machines[at]
        if self.horizon and self.need(j)[1] > 0:
            return False  # of one speed: no move that costs anything gains
        return speed > now or (speed == now and reserve < asked)

    def present(self):
        return [j for j in self.jobs if j not in self.ended]

    def should_run(self, places, running):
        for moved in self.moves(places, running):
            speed = self.packs({**places, **moved})
            if speed and self.pays(moved, places, speed) and \
                    self.nobody_before_gains(moved, places):
                return True
        return False


def ask(markets, with_gang):
    """Asks the solver about each market: where every job is before some end, and afterwards; and
    what all pay."""
    text = "".join(m.question(with_gang) for m in markets) + "exit\n"
    done = subprocess.run([BIN / "solver"], input=text, capture_output=True, text=True,
                          timeout=10 * LIMIT, check=True)
    assert "error" not in done.stdout, done.stdout
    parts, part = [], []
    for line in done.stdout.splitlines():
        if line.startswith("solver "):
            parts.append(part)
            part = []
        else:
            part.append(line.split())
    for first, payments, jobs in zip(parts[::3], parts[1::3], parts[2::3]):
        running = {int(j): int(p) - 1 for j, p in first if int(p) > 0}
        places = {int(j[0]): int(j[6]) - 1 for j in jobs if int(j[6]) > 0}
        yield running, places, {int(j): float(p) for j, p in payments}


@pytest.mark.parametrize("kind", ["equal", "speeds", "horizon"])
def test_a_gang_has_a_place_if_some_moves_make_room_and_pay(kind):
    # Method: markets by a seed, and every set of moves of each.
    rng = random.Random(f"room {kind}")
    markets = [Market(rng, kind) for _ in range(20 * MARKETS)]
    made = refused = 0
    asked = zip(markets, ask(markets, False), ask(markets, True))
    for n, (market, before, after) in enumerate(asked):
        running, places, _ = before
        _, then, paid = after
        at = f"{kind} market {n}\n{market.question()}"
        if market.packs(places):
            assert GANG in then, at
            continue
        if any(running.get(j, p) != p for j, p in places.items()):
            continue  # who had to move anyhow chooses a machine of his class at the end
        wanted = market.should_run(places, running)
        assert (GANG in then) == wanted, at
        refused += not wanted
        if not wanted:
            assert then == places, at
            continue
        made += 1
        check(market, places, then, paid, at)
    assert made > MARKETS // 10 and refused > MARKETS


def check(market, places, then, paid, at):
    """No machine holds more than it has. Who ranks before the gang is in the same class, at most
    eight have moved, and nobody pays more than he bids or less than the owner asks."""
    for m, (cpus, memory, _, _) in enumerate(market.machines):
        there = [market.need(j) for j, p in then.items() if p == m]
        assert sum(c for c, _ in there) <= cpus and sum(s for _, s in there) <= memory, at
    moved = 0
    for j in market.present():
        if market.rank(j) > market.rank(GANG):
            continue
        assert (j in then) == (j in places), at
        if j in then:
            moved += then[j] != places[j]
            assert market.machines[then[j]][2:] == market.machines[places[j]][2:], at
    assert 0 < moved <= 8, at
    for j, price in paid.items():
        assert market.machines[then[j]][3] <= price <= market.value(j), at


def test_why_a_job_gives_way_and_that_it_does_so_once():
    # Two machines of four CPUs, three jobs of two: one of these moves to the other machine.
    lines = ["ap 1 0 100 4 0", "ap 2 0 100 4 0", "aj 1 9 1 2 0 -1", "aj 2 8 1 2 1 -1",
             "aj 3 7 1 2 2 -1", "aj 4 6 1 2 3 -1", "go", "dj 2", "dj 4", "ag 50 1 9 -1 7 4:1",
             "go", "alloc", "info", "go", "alloc", "info", "exit"]
    done = subprocess.run([BIN / "solver"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True, timeout=LIMIT, check=True)
    first, second, _ = done.stdout.split("solver greedy_migration")
    assert len({line.split()[1] for line in first.splitlines() if line.split()[0] in "13"}) == 1
    assert any(line.startswith("50 ") for line in first.splitlines())
    assert not [line for line in second.splitlines()[1:] if line.strip()]
