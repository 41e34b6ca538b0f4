# SPDX-License-Identifier: GPL-2.0-or-later
"""The market as one decision left it: what prices are, by the definitions of docs/market.md."""
from assignment import assign
from places import Places
from values import AT_RESERVE, ceil_div


class Market(Places):
    def __init__(self):
        self.options, self.nodes, self.jobs, self.turn = {}, {}, {}, []
        self.now, self.moves = 0, []  # when jobs were moved while there was a cap of moves
        self.unknown_before = None  # moves before that may be missing in `moves`
        self.forget()

    def forget(self):
        """Drops what was reckoned of a decision, so that it is reckoned anew."""
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
            self.rank = {j.index: (-j.counts(), j.t, j.k) for j in self.jobs.values()}
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
        """Returns what the job pays per CPU-hour by definition. A job that is held at its place has
        no turn under proportional_share: it may be priced as the first or as the last."""
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
        if solver in AT_RESERVE:
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

    def empty(self):
        return {n.index: list(self.room[n.index]) for n in self.accepting}

    def without(self, job, by_user):
        """The rooms that the bids before the job leave, and the bids after it. A job that does not
        compete has its own room back for this: the others choose among that, too, and the jobs of
        its user have what they have without it."""
        others = [other for other in self.competing if other is not job]
        before = [other for other in others if self.rank[other.index] < self.rank[job.index]]
        rooms = self.empty()
        took = [self.put(rooms, other) for other in before]
        if not job.competes() and job.slot in rooms:
            rooms = self.empty()
            rooms[job.slot][0] += job.c
            rooms[job.slot][1] += job.m
            for other, node in zip(before, took):
                if by_user and other.u == job.u and node:
                    rooms[node.index][0] -= other.c
                    rooms[node.index][1] -= other.m
            for other in before:
                if not (by_user and other.u == job.u):
                    self.put(rooms, other)
        return rooms, others[len(before):]

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
        rooms, after = self.without(job, by_user)
        high = job.v
        for other in after + [None]:
            if other and by_user and other.u == job.u:
                continue
            low = job.level_with(other) if other else 0
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
        rooms, after = self.without(job, by_user)
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
