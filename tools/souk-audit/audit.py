#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
# Long: one program in one file, for a user to read whole and to take along.
"""souk-audit [--receipts FILE] [--seen N:HASH] [--quiet] LOG ...

Replays the decision log of a market (marketctl decisions export; docs/decision-log.md has its
grammar) and confirms each price, allocation and receipt by the definitions of docs/market.md. It
shares no code with the market. LOG may be - (stdin).

  --receipts FILE   the answer of `marketctl --json receipts`: each is compared with the log (given
                    again: those of the next LOG)
  --seen N:HASH     a head that `marketctl status` showed earlier: the log must contain it
  --quiet           only what is wrong
  --why NAME        says why this job pays what it pays, or what this node's places cost, and no
                    more; --at SECONDS: then (Unix time; default: at the end), --json: as JSON

Exit status 0: all is confirmed; 1: something is wrong, a line each; 2: wrong usage, or no log.
"""
import getopt
import hashlib
import json
import sys
import time
from decimal import Decimal

VERSION = "@SOUK_VERSION@"  # make writes it
HOUR = 3_600_000_000_000  # ns; an account's rest is in micro-units x ns of it
DIFFERENCES_SHOWN = 200


class Wrong(Exception):
    """A line of the log that cannot be read."""


class Node:
    def __init__(self, index):
        self.index = index
        self.id, self.k, self.r, self.s, self.c, self.m, self.a = "", 0, 0, 0, 0, 0, 1

    def choice(self):
        return (-self.s, self.r)


class Job:
    def __init__(self, index):
        self.index = index
        self.id, self.k, self.u = "", 0, ""
        self.v, self.c, self.m, self.t, self.y, self.d = 0, 1, 0, 0, -1, -1
        self.state, self.place, self.pin, self.barred = "w", None, "-", ()
        self.held = False
        self.slot = self.at = None  # the node that it is to run on; where it was before
        self.price = self.offered = None  # reckoned last; that it was told to start at
        self.paid = None  # in force: (price, node, run time, amount, rest, CPUs)
        self.receipt = None  # (run time, amount) up to the newest receipt

    def competes(self):
        return self.pin == "-" and not self.held


def money(micro):
    if micro is None:
        return "nothing"
    text = f"{Decimal(micro) / 1000000:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ceil_div(a, b):
    return -(-a // b)


# ------------------------------------------------------------------------------------------------
# The market as one decision left it, and what prices are by definition


class Market:
    def __init__(self):
        self.options, self.nodes, self.jobs, self.turn = {}, {}, {}, []
        self.forget()

    def forget(self):
        """What is reckoned of a decision is reckoned anew."""
        self.known, self.ready = {}, None

    def number(self, key):
        return int(self.options.get(key, "0"))

    def prepare(self):
        if self.ready:
            return
        self.ready = True
        self.accepting = sorted((n for n in self.nodes.values() if n.a),
                                key=lambda n: (-n.s, n.r, n.k))
        self.top = max((n.s for n in self.accepting), default=0)
        self.competing = [j for j in self.jobs.values() if j.competes()]
        if self.options.get("solver") == "proportional_share":
            turn = {index: at for at, index in enumerate(self.turn)}
            last = len(turn)
            self.rank = {j.index: (turn.get(j.index, last), 0, 0) for j in self.jobs.values()}
        else:
            self.rank = {j.index: (-j.v, j.t, j.k) for j in self.jobs.values()}
        self.competing.sort(key=lambda j: self.rank[j.index])
        self.guests = {n: [] for n in self.nodes}
        for j in self.jobs.values():
            if j.slot is not None:
                self.guests[j.slot].append(j)
        self.room = {}  # beside those whom nobody can displace
        for n in self.nodes.values():
            fixed = [j for j in self.guests[n.index] if not j.competes()]
            self.room[n.index] = (n.c - sum(j.c for j in fixed), n.m - sum(j.m for j in fixed))
        self.least = {n.index: n.r for n in self.accepting}  # that a bid must be to enter
        if self.options.get("solver") == "welfare" and self.number("program") == 0:
            self.relaxed()

    # -- classes of equal places, for the welfare algorithm

    def relaxed(self):
        """The best assignment of CPUs to classes (speed, reserve), and where that is exact."""
        self.classes, per_cpu = [], None
        for n in self.accepting:
            cpus, memory = self.room[n.index]
            if not self.classes or self.classes[-1][:2] != (n.s, n.r):
                self.classes.append((n.s, n.r, 0))
            if cpus > 0:
                self.classes[-1] = (n.s, n.r, self.classes[-1][2] + cpus)
                per_cpu = memory // cpus if per_cpu is None else min(per_cpu, memory // cpus)
        self.exact = all(j.c == 1 and not j.barred and (per_cpu is None or j.m <= per_cpu)
                         for j in self.competing)
        self.units = [j for j in self.competing for _ in range(j.c)]
        self.costed = [(s, r * self.top, n) for s, r, n in self.classes]
        self.best, self.cuts = assign([j.v for j in self.units], self.costed)
        if not self.exact:
            self.entry_values()

    def entry_values(self):
        """Sizes differ: the least value of each class at which nobody who is placed prefers a
        slower one. At the lowest such levels of the classes a bid enters the fastest class that it
        prefers to all slower ones and to none."""
        levels, used, before = [], [], 0
        for (speed, cost, _), cut in zip(self.costed, self.cuts):
            level = max([cost] + [f_level - (f_speed - speed) * f_least
                                  for f_speed, f_level, f_least in used])
            levels.append(level)
            if cut > before:
                used.append((speed, level, self.units[cut - 1].v))
            before = cut
        entry = {}
        for (speed, reserve, _), level in zip(self.classes, levels):
            steps = [ceil_div(level, speed)]
            steps += [ceil_div(level - other, speed - slower)
                      for (slower, _, _), other in zip(self.classes, levels) if slower < speed]
            entry[speed, reserve] = max(0, *steps, reserve)
        for n in self.accepting:
            self.least[n.index] = entry[n.s, n.r]

    def class_price(self, speed, cost):
        """The lowest competitive price: what one more place of that speed would be worth to all,
        and at least the cost of one."""
        key = ("class", speed, cost)
        if key not in self.known:
            more = sorted(self.costed + [(speed, 0, 1)], key=lambda c: (-c[0], c[1]))
            best, _ = assign([j.v for j in self.units], more)
            self.known[key] = max(cost, best - self.best)
        return self.known[key]

    def user_part(self, user):
        """(paid, whole): what the others lose by this user's jobs, of what their classes' prices
        are above the costs. Jobs of one user so never price each other (Clarke)."""
        key = ("user", user)
        if key in self.known:
            return self.known[key]
        mine = [at for at, j in enumerate(self.units) if j.u == user]
        placed = [at for at in mine if at < (self.cuts[-1] if self.cuts else 0)]
        part = (1, 1)
        if placed and len(mine) > 1 and not self.too_many_steps():
            whole = gains = 0
            for at in placed:
                speed, cost, _ = self.costed[next(c for c, cut in enumerate(self.cuts) if at < cut)]
                whole += self.class_price(speed, cost) - cost
                gains += self.units[at].v * speed - cost
            others, _ = assign([j.v for j in self.units if j.u != user], self.costed)
            if whole:
                part = (min(others - (self.best - gains), whole), whole)
        self.known[key] = part
        return part

    def too_many_steps(self):
        """Beyond this the market lets each job pay the price of its class (docs/market.md)."""
        if "steps" not in self.known:
            placed, all_of = {}, {}
            for at, j in enumerate(self.units):
                all_of[j.u] = all_of.get(j.u, 0) + 1
                placed[j.u] = placed.get(j.u, 0) + (at < (self.cuts[-1] if self.cuts else 0))
            steps = sum((placed[u] + 2) * len(self.classes) for u in placed
                        if placed[u] and all_of[u] > 1)
            self.known["steps"] = steps > 4_000_000
        return self.known["steps"]

    # -- prices

    def price(self, job, said=None):
        """What the job pays per CPU-hour by definition. A job that is held at its place has no turn
        under proportional_share: it may be priced as the first or as the last."""
        self.prepare()
        if job.index not in self.known:
            self.known[job.index] = self.reckon(job)
        if (said != self.known[job.index] and not job.competes() and
                self.options.get("solver") == "proportional_share"):
            rank = self.rank[job.index]
            self.rank[job.index] = (-1, 0, 0)
            self.known[job.index] = self.reckon(job)
            self.rank[job.index] = rank
        return self.known[job.index]

    def reckon(self, job):
        at = self.nodes[job.slot]
        pricing, solver = self.options.get("pricing"), self.options.get("solver")
        if pricing == "first":
            return self.bounded(job.v * min(at.s, self.top), job)
        if pricing == "uniform":
            running = [j for j in self.jobs.values() if j.slot is not None]
            low = min(j.v for j in running)
            high = max(self.nodes[j.slot].r for j in running)
            part = abs(low - high) * self.number("k") // 1000
            one = high + (part if low >= high else -part)
            return min(max(one, at.r), job.v)
        if solver == "balance":
            return min(job.v, at.r)
        if solver == "welfare" and self.exact:
            return self.share_of_class(job, at)
        by_user = self.options.get("users") == "1"
        if solver == "proportional_share":
            return self.bounded(self.met_in_turn(job, by_user), job)
        return self.bounded(job.v * min(at.s, self.top) - self.area(job, by_user), job)

    def bounded(self, numerator, job):
        price = numerator // self.top if self.top else 0
        return min(max(price, self.nodes[job.slot].r), job.v)

    def share_of_class(self, job, at):
        price = at.r
        if at.a and self.top:
            whole = self.class_price(at.s, at.r * self.top) // self.top
            paid, of = self.user_part(job.u)
            price += (whole - at.r) * paid // of
            price = max(at.r, min(price, job.v * at.s // self.top))
        return min(price, job.v)

    def without(self, job):
        """The rooms that the bids before the job leave, and the bids after it."""
        rooms = {n.index: list(self.room[n.index]) for n in self.accepting}
        after = []
        for other in self.competing:
            if other is job:
                continue
            if self.rank[other.index] < self.rank[job.index]:
                self.put(rooms, other)
            else:
                after.append(other)
        if not job.competes() and job.slot in rooms:  # its room is what it competes for from here
            rooms[job.slot][0] += job.c
            rooms[job.slot][1] += job.m
        return rooms, after

    def admits(self, n, job, bid):
        return self.least[n.index] <= bid and n.index not in job.barred

    def fits(self, rooms, n, job):
        return rooms[n.index][0] >= job.c and rooms[n.index][1] >= job.m

    def put(self, rooms, job):
        for n in self.accepting:
            if self.fits(rooms, n, job) and self.admits(n, job, job.v):
                rooms[n.index][0] -= job.c
                rooms[n.index][1] -= job.m
                return n
        return None

    def steps(self, job, by_user):
        """(high, low, speed, node, other) with falling bids: for a bid between low and high the job
        would get this node; below low it loses it to the other job, or to the node's own reserve
        (None). The others choose in the order of their bids, from nothing."""
        rooms, after = self.without(job)
        high = job.v
        for other in after + [None]:
            if other and by_user and other.u == job.u:
                continue
            low = other.v if other else 0
            while high > low:  # with this room, down through the reserves
                node = next((n for n in self.accepting if n.index not in job.barred and
                             self.fits(rooms, n, job) and self.least[n.index] < high), None)
                if node is None:
                    break
                end = max(low, self.least[node.index])
                yield high, end, node.s, node, other if end == low and other else None
                high = end
            if not any(self.fits(rooms, n, job) for n in self.accepting):
                return
            high = min(high, low)
            if other:
                self.put(rooms, other)

    def area(self, job, by_user):
        """The integral from 0 to its bid of x(b), the speed that it would get for bid b, up to the
        speed that it has."""
        own = min(self.nodes[job.slot].s, self.top)
        return sum((high - low) * min(speed, own)
                   for high, low, speed, _, _ in self.steps(job, by_user))

    def met_in_turn(self, job, by_user):
        """Under proportional_share the order is the turn, whatever the bids: each bid after the
        job's turn that takes its best place, and each reserve above such a bid, had to be met."""
        own = min(self.nodes[job.slot].s, self.top)
        rooms, after = self.without(job)
        bid, total, tried = job.v, 0, 0

        def best_from(start):
            for at in range(start, len(self.accepting)):
                n = self.accepting[at]
                if self.fits(rooms, n, job) and self.admits(n, job, bid):
                    return at
            return len(self.accepting)

        def speed():
            return min(own, self.accepting[tried].s) if tried < len(self.accepting) else 0

        tried = best_from(0)
        within = speed()
        total = (own - within) * job.v

        def lose(at, left_with):
            nonlocal bid, tried, within, total
            bid = min(bid, left_with)
            tried = best_from(tried + 1)
            total += (within - speed()) * at
            within = speed()

        def fall_to(low):
            while within > 0 and self.least[self.accepting[tried].index] > low:
                least = self.least[self.accepting[tried].index]
                lose(least, least - 1)

        for other in after:
            if within <= 0:
                break
            if by_user and other.u == job.u:
                continue
            fall_to(other.v)
            if within > 0:
                best = self.accepting[tried]
                if self.put(rooms, other) is best and not self.fits(rooms, best, job):
                    lose(other.v, other.v)
        fall_to(0)
        return total

    # -- who is where

    def misplaced(self):
        """What is wrong with the allocation: (job or None, what)."""
        self.prepare()
        solver, program = self.options.get("solver"), self.number("program")
        for n in self.nodes.values():
            free = [j for j in self.guests[n.index] if j.competes()]
            cpus, memory = self.room[n.index]
            if free and (sum(j.c for j in free) > cpus or sum(j.m for j in free) > memory):
                yield free[-1], f"{n.id} holds more than it has"
            for j in free:
                if not n.a or n.r > j.v or n.index in j.barred:
                    yield j, f"it may not be on {n.id}"
        for j in self.jobs.values():
            if j.pin == "f" and j.slot is not None:
                yield j, "it is held frozen, and has a place"
            if j.pin == "s" and j.place in self.nodes and j.slot != j.place:
                yield j, "it is held at its place, and is not there"
        if program:
            return
        if solver == "balance":
            yield from self.unbalanced()
        elif solver == "welfare" and self.exact:
            if self.plain():
                yield from self.off_the_best()
        else:
            yield from self.envious(solver == "proportional_share")

    def plain(self):
        return not (self.number("horizon") or self.number("min-stay") or
                    self.number("moves-max"))

    def off_the_best(self):
        placed = self.cuts[-1] if self.cuts else 0
        for at, j in enumerate(self.units):
            want = None
            if at < placed:
                want = self.classes[next(c for c, cut in enumerate(self.cuts) if at < cut)][:2]
            n = self.nodes.get(j.slot)
            has = (n.s, n.r) if n else None
            if has != want:
                named = ["no place" if not place else f"speed {place[0]} at {money(place[1])}"
                         for place in (has, want)]
                yield j, f"it has {named[0]}, by the best assignment {named[1]}"

    def envious(self, in_turn):
        """A faster machine where the job would fit beside those that rank above it."""
        if self.number("moves-max"):
            return
        for j in self.competing:
            stays = j.slot is not None and j.at == j.slot
            if stays and in_turn:
                continue
            here = self.nodes.get(j.slot)
            wanted = self.speed_worth_a_move(j, here) if stays else 0
            for n in self.accepting:
                if here and n.choice() >= here.choice():
                    break
                if n.s < wanted or not self.admits(n, j, j.v):
                    continue
                cpus, memory = self.room[n.index]
                above = [g for g in self.guests[n.index]
                         if g.competes() and self.rank[g.index] < self.rank[j.index]]
                if (sum(g.c for g in above) + j.c <= cpus and
                        sum(g.m for g in above) + j.m <= memory):
                    yield j, f"it has {here.id if here else 'no place'}, and {n.id} is better"
                    break

    def speed_worth_a_move(self, j, here):
        """With a horizon: value x CPUs x (s' - s) / fastest x horizon must be the cost at least."""
        if not self.number("horizon"):
            return 0
        horizon = max(1, self.number("horizon") // 1_000_000)
        link = self.number("link")
        size = j.y if j.y >= 0 else j.m * 1_000_000
        paused = size if j.d < 0 else min(size, size * j.d // link)
        carried = size if j.d < 0 else size + paused
        pause = min(ceil_div(paused * 1_000_000_000 // link, 1_000_000), 1 << 36)
        cost = ceil_div(carried * self.number("byte-cost"), 1_000_000_000)
        lost = j.v * j.c * here.s * pause + cost * self.top * 3_600_000
        if lost == 0:
            return 0
        gained = j.v * j.c * horizon
        return here.s + ceil_div(lost, gained) if gained else 1 << 30

    def unbalanced(self):
        """Nobody who waits fits anywhere; nobody finds a lower load elsewhere."""
        used = {n.index: sum(j.c for j in self.guests[n.index]) for n in self.accepting}
        held = {n.index: sum(j.m for j in self.guests[n.index]) for n in self.accepting}
        for j in self.competing:
            here = self.nodes.get(j.slot)
            for n in self.accepting:
                if n is here or not self.admits(n, j, j.v):
                    continue
                if used[n.index] + j.c > n.c or held[n.index] + j.m > n.m:
                    continue
                if not here:
                    yield j, f"it waits, and {n.id} has room"
                    break
                load = used[here.index] * n.c * n.s
                if here.a and (used[n.index] + j.c) * here.c * here.s < load:
                    yield j, f"it is on {here.id}, and on {n.id} the load is lower"
                    break


def assign(values, classes):
    """The greatest sum of value x speed - cost over all assignments of falling values to places,
    and the cuts of the greatest such assignment: how many have this class or a faster one. The
    greater value has the greater speed, so that a count for each class says all; F[n] is the best
    with n jobs in the classes so far."""
    if not classes:
        return 0, []
    sums = [0]
    for value in values:
        sums.append(sums[-1] + value)
    layers, best = [], [0]
    for speed, cost, slots in classes:
        total = min(len(values), len(best) - 1 + slots)
        layer = [None] * (total + 1)
        for before, welfare in enumerate(best):
            for n in range(before, min(total, before + slots) + 1):
                w = welfare + speed * (sums[n] - sums[before]) - cost * (n - before)
                if layer[n] is None or w > layer[n]:
                    layer[n] = w
        layers.append(best)
        best = layer
    greatest = max(best)
    n = max(i for i, w in enumerate(best) if w == greatest)
    cuts, welfare = [], greatest
    for (speed, cost, slots), before in zip(reversed(classes), reversed(layers)):
        cuts.append(n)
        for m in range(min(n, len(before) - 1), max(-1, n - slots - 1), -1):
            if before[m] + speed * (sums[n] - sums[m]) - cost * (n - m) == welfare:
                n, welfare = m, before[m]
                break
    return greatest, cuts[::-1]


# ------------------------------------------------------------------------------------------------
# The log


class Audit:
    def __init__(self, lines, seen=None, receipts=None):
        self.lines, self.seen, self.receipts = lines, seen, receipts
        self.wrong, self.notes = [], []
        self.names, self.salts = {}, {}
        self.market = Market()
        self.now, self.decision, self.head, self.segment = 0, None, None, None
        self.counts = dict.fromkeys(("decisions", "prices", "in force", "receipts", "blocks"), 0)
        self.heads, self.posted, self.unknown = set(), {}, set()
        self.before_start, self.gap = set(), False
        self.since_start = None  # the first decision
        self.undecided = self.round = False
        self.later, self.forces = set(), []
        self.restated = None
        self.ended = False

    # -- saying what is wrong

    def complain(self, what, job=None, said=None, reckoned=None):
        self.wrong.append((self.now, self.decision, self.called(job), what, said, reckoned))

    def called(self, job):
        if job is None:
            return ""
        pseudonym = job if isinstance(job, str) else job.id
        return self.names.get(pseudonym, pseudonym)

    def show(self):
        for at, decision, job, what, said, reckoned in self.wrong[:DIFFERENCES_SHOWN]:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 10**9))
            line = f"{when}.{at // 10**6 % 1000:03} UTC, decision {decision}"
            line += f", job {job}: " if job else ": "
            line += what
            if said is not None or reckoned is not None:
                line += f": said {said}, reckoned {reckoned}"
            yield line
        if len(self.wrong) > DIFFERENCES_SHOWN:
            yield f"... and {len(self.wrong) - DIFFERENCES_SHOWN} more"

    # -- reading

    def run(self):
        body = [line for line in self.lines if not line.startswith(("N ", "E"))]
        self.read_names([line for line in self.lines if line.startswith("N ")])
        self.ended = bool(self.lines) and self.lines[-1] == "E"
        block = []
        for line in body:
            if line.startswith("# "):
                self.block(block, line[2:])
                block = []
            else:
                block.append(line)
        if block:
            self.complain(f"the log ends in the middle of a block of {len(block)} lines")
        if not self.ended:
            self.complain("the log has no end: it was cut")
        if self.seen and self.seen not in self.heads:
            self.complain(f"the head that was seen earlier is not in this log: {self.seen[:16]}...")
        if self.receipts is not None:
            self.compare_receipts()

    def read_names(self, lines):
        for line in lines:
            words = line.split(" ", 5)
            if len(words) < 5:
                self.complain(f"not a name: {line}")
                continue
            _, kind, pseudonym, salt, id = words[:5]
            of = id if kind == "j" else f"uid {id}"
            if hashlib.sha256(f"{salt} {of}".encode()).hexdigest()[:12] != pseudonym:
                self.complain(f"{id} is not the one who has the pseudonym {pseudonym}")
            elif kind == "j":
                self.names[pseudonym] = id

    def block(self, lines, said):
        self.counts["blocks"] += 1
        if lines and lines[0].startswith("S "):
            self.begin_segment(lines[0])
        elif self.head is None:
            self.head = "0" * 64
            self.complain("the log does not begin with a segment")
        text = "".join(line + "\n" for line in lines)
        self.head = hashlib.sha256(f"{self.head}\n{text}".encode()).hexdigest()
        if self.head[:12] != said:
            self.complain("the chain of hashes is broken here", None, said, self.head[:12])
        self.heads.add(self.head)
        before = {n.id: n.r for n in self.market.nodes.values()}
        bids = {j.id: j.v for j in self.market.jobs.values()}
        self.forces = []
        for line in lines:
            try:
                self.line(line)
            except (Wrong, KeyError, ValueError, IndexError, StopIteration) as error:
                self.complain(f"a line that cannot be read ({error!r}): {line[:80]}")
        self.settle()
        self.end_restatement()
        for force in self.forces:
            self.check_force(*force, before, bids)

    def begin_segment(self, line):
        _, version, segment, at, head = line.split(" ")
        self.now = int(at)
        if version != "1":
            raise Wrong(f"version {version} of the log is not known")
        if self.head is not None and head != self.head:
            self.complain("the segment does not follow on the one before it", None, head[:12],
                          self.head[:12])
        if self.segment is not None and int(segment) != self.segment + 1:
            self.complain("a segment is missing", None, segment, self.segment + 1)
        self.head, self.segment = head, int(segment)
        self.heads.add(head)

    def line(self, line):
        kind, _, rest = line.partition(" ")
        words = rest.split(" ") if rest else []
        if kind in "TDPqpkw=" and kind not in "kq" and self.undecided:
            self.check_places()
        handler = getattr(self, "on_" + {"=": "same"}.get(kind, kind), None)
        if handler is None:
            raise Wrong("unknown kind")
        handler(words)

    def job(self, index):
        return self.market.jobs[int(index)]

    # -- lines

    def on_S(self, words):
        pass

    def on_T(self, words):
        self.settle()
        self.time(words[0])

    def time(self, word):
        if int(word) + 5 * 10**9 < self.now:
            self.notes.append(f"the market's clock was set back at decision {self.decision}")
        self.now = int(word)

    def on_D(self, words):
        self.settle()
        number, why = int(words[0]), words[2] if len(words) > 2 else ""
        self.time(words[1])
        if why == "rotation":
            if self.decision is None:  # the export begins here
                self.since_start = number
                self.decision = number
            elif number != self.decision:
                self.complain("a segment begins with another decision", None, number, self.decision)
            else:
                self.restated = self.market
            self.market = Market()
        elif why:
            missing = number - self.decision - 1 if self.decision is not None else 0
            self.before_start.add(self.decision)
            if why == "gap" or missing > 0:
                self.gap = True
                self.notes.append(f"gap: {max(missing, 0)} decisions before {number} are not in "
                                  f"the log ({why})")
            elif self.decision is not None:
                self.notes.append(f"the market was started again before decision {number}")
            if self.decision is not None and number <= self.decision:
                self.complain("decisions are numbered back", None, number, self.decision + 1)
            self.market = Market()
            self.decision = number
            if self.since_start is None:
                self.since_start = number
        else:
            if self.decision is None:
                raise Wrong("it does not begin with a snapshot")
            if number != self.decision + 1:
                self.complain("a decision is missing", None, number, self.decision + 1)
            self.decision = number
        self.counts["decisions"] += why != "rotation"
        self.market.forget()
        for j in self.market.jobs.values():
            j.at = j.slot
        self.undecided = True

    def on_o(self, words):
        self.market.options = dict(word.split("=", 1) for word in words)

    def on_n(self, words):
        index = int(words[0])
        node = self.market.nodes.setdefault(index, Node(index))
        for word in words[1:]:
            key, value = word.split("=", 1)
            if key not in ("id", "k", "r", "s", "c", "m", "a"):
                raise Wrong(key)
            setattr(node, key, value if key == "id" else int(value))

    def on_j(self, words):
        index = int(words[0])
        fields = dict(word.split("=", 1) for word in words[1:])
        if "id" in fields:
            self.market.jobs[index] = Job(index)
        job = self.market.jobs[index]
        for key, value in fields.items():
            if key in ("id", "u"):
                setattr(job, key, value)
            elif key in ("k", "v", "c", "m", "t", "y", "d"):
                setattr(job, key, int(value))
            elif key == "s":
                job.state = value[0]
                job.place = int(value[1:]) if value[1:] else None
                job.at = job.slot = job.place if job.state == "r" else None
            elif key == "p":
                job.pin = value
            elif key == "b":
                job.barred = tuple(int(n) for n in value.split(",")) if value else ()
            else:
                raise Wrong(key)

    def on_h(self, words):
        self.job(words[0]).held = words[1] == "1"

    def on_a(self, words):
        job = self.job(words[0])
        job.slot = None if words[1] == "-" else int(words[1])
        if job.slot is None:
            job.price = None

    def on_g(self, words):
        del self.market.jobs[int(words[0])]

    def on_t(self, words):
        self.market.turn = [int(word) for word in words]

    def on_P(self, words):
        self.settle()
        self.round, self.later = True, set()

    def on_q(self, words):
        self.later = {int(word) for word in words}

    def on_p(self, words):
        job = self.job(words[0])
        job.price = int(words[1])
        self.check_price(job)

    def on_k(self, words):
        self.job(words[0]).price = int(words[1])

    def on_same(self, words):
        for word in words:
            self.check_price(self.job(word))

    def on_w(self, words):
        job = self.job(words[0])
        job.offered = int(words[1])
        node = self.market.nodes.get(job.slot)
        due = self.market.price(job, job.offered) if node else None
        if node and job.offered not in (node.r, due):
            self.complain("the price that it was told to start at", job, money(job.offered),
                          money(due))

    def on_f(self, words):
        job, node, new = self.job(words[0]), words[1], [int(word) for word in words[2:]]
        price, run, amount, rest, cpus, open_amount, open_run = new
        if job.paid:
            self.charge(job, run, amount, rest)
        if job.receipt is None:
            job.receipt = (run - open_run, amount - open_amount)
        before = job.paid
        job.paid = (price, node, run, amount, rest, cpus)
        if before is not None:
            self.forces.append((job, before, job.paid, {job.price, job.offered} - {None}))

    def on_c(self, words):
        job, (seq, run, amount, rest) = self.job(words[0]), [int(word) for word in words[1:]]
        if job.paid is None:
            raise Wrong("a receipt of a job that pays nothing")
        self.charge(job, run, amount, rest)
        ran, paid = job.receipt
        self.posted[seq] = (job.id, run - ran, amount - paid,
                            job.paid[1], self.decision, self.now)
        job.receipt = (run, amount)
        job.paid = job.paid[:2] + (run, amount, rest, job.paid[5])
        self.counts["receipts"] += 1

    def on_l(self, words):
        job, (run, amount, rest) = self.job(words[0]), [int(word) for word in words[1:]]
        if job.paid:
            self.charge(job, run, amount, rest, True)
            job.paid = job.paid[:2] + (run, amount, rest, job.paid[5])

    def on_u(self, words):
        self.unknown.add(int(words[0]))

    # -- judging

    def check_places(self):
        self.undecided = False
        for job, what in self.market.misplaced():
            self.complain(what, job)
        for job in self.market.jobs.values():
            if job.slot is not None:
                job.state, job.place = "r", job.slot
            else:
                job.price = None
                if job.state == "r":
                    job.state = "f"

    def check_price(self, job):
        self.counts["prices"] += 1
        if job.slot is None or job.slot not in self.market.nodes:
            self.complain("a price of a job without a place", job)
            return
        due, node = self.market.price(job, job.price), self.market.nodes[job.slot]
        if job.price != due:
            self.complain(f"its price on {node.id}", job, money(job.price), money(due))
        elif not min(node.r, job.v) <= job.price <= job.v:
            self.complain("its price is above its bid or below the reserve", job, money(job.price))

    def settle(self):
        """The end of a decision: of a round of prices each job has one."""
        if self.undecided:
            self.check_places()
        if not self.round:
            return
        self.round = False
        for job in self.market.jobs.values():
            if job.slot is not None and job.index not in self.later:
                self.check_price(job)

    def end_restatement(self):
        """A new segment says anew what the log has said: it must be the same."""
        before, self.restated = self.restated, None
        if before is None:
            return
        if before.options != self.market.options:
            self.complain("the new segment has other options")
        theirs = {n.id: n for n in self.market.nodes.values()}
        for n in before.nodes.values():
            if n.id not in theirs or any(getattr(n, k) != getattr(theirs[n.id], k)
                                         for k in ("r", "s", "c", "m", "a")):
                self.complain(f"the new segment has {n.id} otherwise")
        jobs = {j.id: j for j in self.market.jobs.values()}
        for old in before.jobs.values():
            new = jobs.pop(old.id, None)
            if new is None:
                self.complain("the new segment lacks it", old)
                continue
            where = [(m.nodes[j.slot].id if j.slot is not None else None)
                     for m, j in ((before, old), (self.market, new))]
            if where[0] != where[1] or any(
                    getattr(old, key) != getattr(new, key)
                    for key in ("u", "v", "c", "m", "t", "y", "d", "pin", "held", "price")):
                self.complain("the new segment says it otherwise", old)
            new.receipt, new.offered = old.receipt, old.offered
            if old.paid and new.paid and old.paid[:2] != new.paid[:2]:
                self.complain("the new segment has another price in force", old,
                              money(new.paid[0]), money(old.paid[0]))
            if old.paid and new.paid:
                new.paid = old.paid[:2] + new.paid[2:]
        for new in jobs.values():
            self.complain("the new segment has it, and the log did not", new)

    def check_force(self, job, before, paid, candidates, reserves, bids):
        """A price that comes into force is the one that was reckoned, or, where the job has just
        come, the one before, between the reserve (if the bid covers it) and the bid."""
        self.counts["in force"] += 1
        price, node = paid[:2]
        if price == job.offered:
            return  # it was told to start at that, and its place is to be another
        known = {n.id: n.r for n in self.market.nodes.values()}
        candidates.add(before[0])  # its bid or the reserve has passed it
        for reserve in {known.get(node), reserves.get(node)} - {None}:
            for bid in {job.v, bids.get(job.id, job.v)}:
                least = min(reserve, bid)
                if any(price == min(max(c, least), bid) for c in candidates):
                    return
        if node in known:
            self.complain(f"the price in force on {node}", job, money(price),
                          " or ".join(sorted(money(c) for c in candidates)) or "none")

    def charge(self, job, run, amount, rest, may_be_less=False):
        """What it cost since is its price x CPUs x run time, to the fraction of a micro-unit; less
        where its budget or its user's day ended."""
        price, _, ran, had, left, cpus = job.paid
        due = price * cpus * (run - ran)
        got = (amount - had) * HOUR + rest - left
        if got != due and not (may_be_less and got < due):
            self.complain("what it was charged", job, money(amount - had),
                          money((due + left) // HOUR))

    def compare_receipts(self):
        by_id = {id: pseudonym for pseudonym, id in self.names.items()}
        mine = {}
        for r in self.receipts:
            seq = r["receipt"]
            if r.get("kind") != "use":
                continue
            mine[seq] = r
            pseudonym = by_id.get(r["job"])
            said = int(Decimal(str(r["paid"])) * 1000000)
            if seq not in self.posted:
                decided = r.get("decided_to", 0)
                if (self.since_start is not None and decided >= self.since_start and
                        decided not in self.before_start and not self.gap and
                        seq not in self.unknown):
                    self.complain(f"receipt {seq} of {r['job']} is not in the log", None,
                                  money(said), "nothing")
                continue
            id, run, paid, node, decision, at = self.posted[seq]
            self.now = at
            if pseudonym is not None and id != pseudonym:
                self.complain(f"receipt {seq} is of another job", id, r["job"], self.called(id))
            if said != paid:
                self.complain(f"receipt {seq}: paid", id, money(said), money(paid))
            if r["node"] != node:
                self.complain(f"receipt {seq}: node", id, r["node"], node)
            if abs(Decimal(str(r["run_s"])) * 10**9 - run) > 1000:
                self.complain(f"receipt {seq}: run time in s", id, r["run_s"], run / 10**9)
            if r.get("decided_to", decision) != decision:
                self.complain(f"receipt {seq}: decision", id, r["decided_to"], decision)
        if not mine:
            return
        for seq, (id, _, paid, *_rest) in self.posted.items():
            if id in self.names and seq not in mine and min(mine) < seq < max(mine):
                self.complain(f"receipt {seq} is missing", id, "nothing", money(paid))


# ------------------------------------------------------------------------------------------------
# Why a price is what it is


class Enough(Exception):
    """The log has gone past the moment that is asked about."""


class Why(Audit):
    """Replays the log up to a moment, and says why a job pays what it pays then."""

    def __init__(self, lines, until):
        super().__init__(lines)
        self.until = until

    def time(self, word):
        if int(word) > self.until:
            raise Enough
        super().time(word)

    def check_price(self, job):
        pass

    def check_force(self, *what):
        pass

    def on_w(self, words):
        self.job(words[0]).offered = int(words[1])

    def check_places(self):
        for job in self.market.jobs.values():
            if job.slot is None:
                job.price = None
        self.undecided = False

    def tell(self, name):
        """What is known of the job or node, with the sentence `text`; None: no such name."""
        try:
            self.run()
        except Enough:
            self.settle()
        self.market.forget()
        for job in self.market.jobs.values():
            if name in (job.id, self.names.get(job.id)):
                return self.of_job(job)
        for node in self.market.nodes.values():
            if name == node.id:
                return self.of_node(node)
        return None

    def as_of(self):
        return {"decision": self.decision, "at_unix_s": self.now / 10**9,
                "solver": self.market.options.get("solver"),
                "pricing": self.market.options.get("pricing")}

    def of_job(self, job):
        said = {"job": self.called(job), "bid": job.v / 10**6, **self.as_of()}
        if job.slot is None:
            if job.paid:
                said["last_price"] = job.paid[0] / 10**6
            return {**said, "text": f"{self.called(job)} has no place, and pays nothing now"}
        node, market = self.market.nodes[job.slot], self.market
        reckoned = market.price(job, job.price)
        price = job.paid[0] if job.paid and job.paid[1] == node.id else reckoned
        said |= {"node": node.id, "reserve": node.r / 10**6, "price": price / 10**6,
                 "reckoned": reckoned / 10**6}
        text = f"{self.called(job)} pays {money(price)} on {node.id}: "
        if price != reckoned:
            text += f"it is to be {money(reckoned)}, as "
        said["steps"], why = self.reasons(job, node)
        return {**said, "text": text + why}

    def reasons(self, job, node):
        market = self.market
        solver, pricing = market.options.get("solver"), market.options.get("pricing")
        if pricing == "first":
            return [], (f"its own bid {money(job.v)}, times the speed {node.s} of {node.id} over "
                        f"the fastest {market.top}, and at least the reserve {money(node.r)}")
        if pricing == "uniform":
            return [], "one price for all, between the highest reserve in use and the lowest bid"
        if solver == "balance":
            return [], f"the reserve of {node.id}"
        if solver == "proportional_share":
            return [], "what the bids after its turn, and reserves, would take its place at"
        if solver == "welfare" and market.exact:
            return self.wanted_by(job, node)
        return self.lost_to(job, node)

    def wanted_by(self, job, node):
        """Of a class's price: who would take one more place of its speed."""
        market = self.market
        if not node.a:
            return [], f"the reserve of {node.id}, which takes nobody now"
        price = market.class_price(node.s, node.r * market.top)
        before, at, steps = [], 0, []
        for (speed, _, _), cut in zip(market.costed, market.cuts):
            before += [speed] * (cut - len(before))
        more = sorted(market.costed + [(node.s, 0, 1)], key=lambda c: (-c[0], c[1]))
        after = []
        for (speed, _, _), cut in zip(more, assign([j.v for j in market.units], more)[1]):
            after += [speed] * (cut - len(after))
        for at, other in enumerate(market.units):
            had = before[at] if at < len(before) else 0
            has = after[at] if at < len(after) else 0
            if has > had:
                steps.append({"job": self.called(other), "bid": other.v / 10**6, "speed": has,
                              "speed_now": had})
        named = ", ".join(f"{s['job']} (bid {money(round(s['bid'] * 10**6))})" for s in steps)
        if price > node.r * market.top and named:
            text = (f"at speed {node.s} a place costs {money(price // market.top)}, the least "
                    f"price at which no more want one than there are; below it would come {named}")
        else:
            text = f"nobody else wants its place for more than the reserve {money(node.r)}"
        paid, whole = market.user_part(job.u)
        if paid != whole:
            text += (f"; of what that is above the reserves its user pays {100 * paid // whole} %, "
                     f"because own jobs do not price each other")
        return steps, text

    def lost_to(self, job, node):
        """Of a critical price: the bid or the reserve at which it would lose each step of speed."""
        market = self.market
        own = min(node.s, market.top)
        by_user = market.options.get("users") == "1"
        pieces = list(market.steps(job, by_user))
        steps, held = [], own
        for at, (high, low, speed, place, other) in enumerate(pieces):
            then = min(pieces[at + 1][2], own) if at + 1 < len(pieces) else 0
            if min(speed, own) <= then:
                continue
            steps.append({"below": low / 10**6, "speed": min(speed, own), "speed_then": then,
                          "node": place.id})
            if other is not None:
                steps[-1] |= {"job": self.called(other), "bid": other.v / 10**6}
            held = then
        if not steps or held == own:
            return steps, f"the reserve of {node.id} is {money(node.r)}, and nobody bids for it"
        parts = []
        for step in steps:
            below = money(round(step["below"] * 10**6))
            place = f"its place on {node.id}" if not parts else f"the speed of {step['node']} too"
            if "job" in step:
                parts.append(f"below {below} it loses {place} to {step['job']} (bid {below})")
            elif step["below"]:
                parts.append(f"below {below} it loses {place}: that is the least bid there")
        text = "; ".join(parts) or f"nobody else bids for its place on {node.id}"
        if len(steps) > 1 or steps[0]["speed"] != market.top:
            text += "; " + " + ".join(
                f"({s['speed']} - {s['speed_then']}) / {market.top} x "
                f"{money(round(s['below'] * 10**6))}" for s in steps) + " is its price"
            if market.price(job) == node.r:
                text += f", raised to the reserve {money(node.r)}"
        return steps, text

    def of_node(self, node):
        market = self.market
        market.prepare()
        guests = sorted(market.guests[node.index], key=lambda j: market.rank[j.index])
        held = [{"job": self.called(j), "cpus": j.c, "bid": j.v / 10**6,
                 "price": (j.paid[0] if j.paid else j.price or 0) / 10**6} for j in guests]
        said = {"node": node.id, "reserve": node.r / 10**6, "speed": node.s, "guests": held,
                **self.as_of()}
        text = f"{node.id} asks at least {money(node.r)}"
        if not node.a:
            text += " and takes nobody now"
        for g in held:
            text += (f"; {g['job']} holds {g['cpus']} CPU{'s' * (g['cpus'] > 1)} and pays "
                     f"{money(round(g['price'] * 10**6))} (bid {money(round(g['bid'] * 10**6))})")
        weakest = [g for g in guests if g.competes()]
        if node.a and sum(g.c for g in guests) < node.c:
            said["next_bid"] = max(node.r, market.least[node.index]) / 10**6
            text += f"; a CPU is free for {money(round(said['next_bid'] * 10**6))}"
        elif node.a and weakest:
            said["next_bid"] = (max(weakest[-1].v + 1, market.least[node.index])) / 10**6
            text += (f"; to have its place another must bid more than "
                     f"{money(weakest[-1].v)}, the bid of {self.called(weakest[-1])}")
        return {**said, "text": text}


def explain(lines, name, until, as_json):
    said = Why(lines, until).tell(name)
    if said is None:
        print(f"souk-audit: {name} is no node, and no job that the log names to you at that time",
              file=sys.stderr)
        return 1
    print(json.dumps(said) if as_json else said["text"])
    return 0


def read_receipts(path):
    with (sys.stdin if path == "-" else open(path)) as file:
        return json.load(file, parse_float=Decimal)


def main(argv):
    try:
        options, files = getopt.gnu_getopt(argv, "qh", [
            "receipts=", "seen=", "quiet", "help", "version", "why=", "at=", "json"])
    except getopt.GetoptError as error:
        print(f"souk-audit: {error}", file=sys.stderr)
        return 2
    given = dict(options)
    if "-h" in given or "--help" in given:
        print(__doc__.strip())
        return 0
    if "--version" in given:
        print(f"souk-audit (souk) {VERSION}")
        return 0
    if not files:
        print("souk-audit: a log is wanted (marketctl decisions export FILE)", file=sys.stderr)
        return 2
    seen = given.get("--seen", "").rpartition(":")[2] or None
    quiet = "-q" in given or "--quiet" in given
    bad = False
    of_logs = [value for key, value in options if key == "--receipts"]
    for number, path in enumerate(files):
        try:
            receipts = read_receipts(of_logs[number]) if number < len(of_logs) else None
            with (sys.stdin if path == "-" else open(path)) as file:
                lines = file.read().split("\n")
        except (OSError, ValueError) as error:
            print(f"souk-audit: {path}: {error}", file=sys.stderr)
            return 2
        while lines and not lines[-1]:
            lines.pop()
        if "--why" in given:
            until = int(Decimal(given["--at"]) * 10**9) if "--at" in given else 1 << 63
            return explain(lines, given["--why"], until, "--json" in given)
        audit = Audit(lines, seen, receipts)
        audit.run()
        bad = bad or bool(audit.wrong)
        before = f"{path}: " if len(files) > 1 else ""
        for line in audit.show():
            print(before + line)
        if quiet:
            continue
        for note in audit.notes:
            print(before + note)
        said = ", ".join(f"{audit.counts[what]} {what}" for what in
                         ("decisions", "prices", "in force", "receipts"))
        print(f"{before}{said}: " +
              (f"{len(audit.wrong)} are not as they should be" if audit.wrong else "confirmed") +
              f"; head {audit.decision}:{audit.head}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
