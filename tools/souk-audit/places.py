# SPDX-License-Identifier: GPL-2.0-or-later
"""Which places of a decision are wrong, by the rules of docs/market.md."""
from values import LOOK_AHEAD, QUEUES, ceil_div, money


class Places:
    """The part of Market that looks at who is where."""

    def misplaced(self):
        """Yields each fault of the allocation: (job or None, what is wrong)."""
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
        if program or solver in LOOK_AHEAD:
            return
        if solver == "balance":
            yield from self.unbalanced()
        elif solver in QUEUES:
            yield from self.out_of_turn(solver == "fpfs")
        elif solver == "welfare" and self.exact:
            if self.number("horizon") or self.moves_are_spent():
                yield from self.off_the_limits()
            else:
                yield from self.off_the_best()
        else:
            yield from self.envious(solver == "proportional_share")

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

    def off_the_limits(self):
        """Some stay where they are although the best assignment has them elsewhere: a move would
        not pay, or there were too many. Who comes goes where the best assignment has one of its
        rank, or takes a free place that is worth its reserve; nobody waits beside such a place."""
        last, before = {}, 0  # of a class that has room: the first rank that it does not take
        for (speed, reserve, places), cut in zip(self.classes, self.cuts):
            if cut - before < places:
                last[speed, reserve] = cut
            before = cut
        free = {n.index: n.c - sum(g.c for g in self.guests[n.index]) for n in self.accepting}
        memory = {n.index: n.m - sum(g.m for g in self.guests[n.index]) for n in self.accepting}
        for at, j in enumerate(self.units):
            here = self.nodes.get(j.slot)
            if here and j.at == j.slot:
                continue
            if here and at >= last.get((here.s, here.r), at + 1) and not self.worth(here, j):
                yield j, f"it was given {here.id}, which is not worth its reserve to it"
            for n in self.accepting:
                if here and not self.prefers(j, n, here):
                    continue
                above = sum(g.c for g in self.guests[n.index] if not g.competes() or
                            self.rank[g.index] < self.rank[j.index])
                if at < last.get((n.s, n.r), at + 1) and above < n.c and self.admits(n, j, j.v):
                    yield j, f"it has {here.id if here else 'no place'}, and {n.id} is better"
                    break
                if (not here and free[n.index] > 0 and memory[n.index] >= j.m and
                        self.worth(n, j) and self.admits(n, j, j.v)):
                    yield j, f"it waits, and {n.id} has room that is worth its reserve"
                    break

    def worth(self, node, job):
        return job.v * node.s >= node.r * self.top

    def envious(self, in_turn):
        """A faster machine where the job would fit beside those that rank above it."""
        capped = self.moves_are_spent()
        for j in self.competing:
            stays = j.slot is not None and j.at == j.slot
            if stays and (in_turn or capped):
                continue
            here = self.nodes.get(j.slot)
            lost = self.lost_by_move(j, here) if stays and self.number("horizon") else 0
            for n in self.accepting:
                if here and not self.prefers(j, n, here, lost, stays):
                    continue
                if not self.admits(n, j, j.v):
                    continue
                cpus, memory = self.room[n.index]
                above = [g for g in self.guests[n.index]
                         if g.competes() and self.rank[g.index] < self.rank[j.index]]
                if (sum(g.c for g in above) + j.c <= cpus and
                        sum(g.m for g in above) + j.m <= memory):
                    yield j, f"it has {here.id if here else 'no place'}, and {n.id} is better"
                    break

    def moved(self):
        return [j for j in self.jobs.values()
                if None not in (j.at, j.slot) and j.at != j.slot]

    def follow(self, before, unknown_before):
        """Takes the moves from the market before, if that is known: a snapshot does not say
        them."""
        if before:
            self.moves, self.unknown_before = before.moves, before.unknown_before
        else:
            self.unknown_before = unknown_before

    def end_decision(self):
        """Its moves count for as long as the window of the cap."""
        if self.number("moves-max"):
            self.moves = self.recent_moves() + [self.now] * len(self.moved())

    def recent_moves(self):
        since = self.now - self.number("moves-window")
        return [at for at in self.moves if at > since]

    def moves_are_spent(self):
        """Tells whether no move is left. Jobs that may stay then need not go to a better place."""
        most = self.number("moves-max")
        if not most:
            return False
        since = self.now - self.number("moves-window")
        if self.unknown_before is not None and self.unknown_before > since:
            return True
        return len(self.recent_moves()) + len(self.moved()) >= most

    def prefers(self, j, node, here, lost=0, stays=False):
        """Whether it would go to the node, if that has a place, from where the decision has it."""
        files = bool(self.number("horizon") and j.files and
                     self.options.get("solver") != "proportional_share")
        at_home = [n for n in (node, here) if files and n.id == j.files[0]]
        if node is here or not (files or lost):
            return node.choice() < here.choice()
        gain = self.stay(j, node) - self.stay(j, here)
        if stays and (lost or at_home):
            return gain >= max(lost, 1) and j.v > 0
        if at_home:  # where both are as good it comes home; who moves may have had another reason
            return gain > 0 or (gain == 0 and node in at_home and j.at is None)
        return node.choice() < here.choice()

    def stay(self, j, node):
        """Returns what the horizon is worth to the job on that node, in micro-units x speed x ms
        (docs/market.md)."""
        horizon = max(1, self.number("horizon") // 1_000_000)
        if not j.files or node.id == j.files[0]:
            return j.v * j.c * horizon * node.s
        _, volume, requests, round_trip = j.files
        waits = (requests * round_trip + volume * 1_000_000_000 // self.number("link")) // 1_000_000
        goes_on = max(1, horizon * (1000 - min(waits // j.c, 950)) // 1000)
        cost = ceil_div(volume * horizon // 1000 * self.number("byte-cost"), 1_000_000_000)
        return j.v * j.c * goes_on * node.s - cost * self.top * 3_600_000

    def lost_by_move(self, j, here):
        """Returns what a move must gain under a horizon, as stay() reckons."""
        link = self.number("link")
        size = j.y if j.y >= 0 else j.m * 1_000_000
        paused = size if j.d < 0 else min(size, size * j.d // link)
        carried = size if j.d < 0 else size + paused
        pause = min(ceil_div(paused * 1_000_000_000 // link, 1_000_000), 1 << 36)
        cost = ceil_div(carried * self.number("byte-cost"), 1_000_000_000)
        return j.v * j.c * here.s * pause + cost * self.top * 3_600_000

    def out_of_turn(self, any_may_pass):
        """Whose turn it is fits nowhere: of those that some machine could hold the one that came
        first, or everybody if any may pass."""
        used = {n.index: sum(j.c for j in self.guests[n.index]) for n in self.accepting}
        held = {n.index: sum(j.m for j in self.guests[n.index]) for n in self.accepting}
        waiting = sorted((j for j in self.competing if j.slot is None), key=lambda j: (j.t, j.k))
        could = [j for j in waiting if any(
            self.admits(n, j, j.v) and n.c >= j.c and n.m >= j.m for n in self.accepting)]
        for j in could if any_may_pass else could[:1]:
            for n in self.accepting:
                if (self.admits(n, j, j.v) and used[n.index] + j.c <= n.c and
                        held[n.index] + j.m <= n.m):
                    yield j, f"it waits, and {n.id} has room"
                    break

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
