# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares what a log says with what is due."""
import time

from replay import Replay
from values import money

HOUR = 3_600_000_000_000  # ns; an account's rest is in micro-units x ns of it
DIFFERENCES_SHOWN = 200


class Audit(Replay):
    def __init__(self, lines, seen=None, receipts=None):
        super().__init__(lines)
        self.seen, self.receipts = seen, receipts
        self.prices, self.forces, self.receipts_found = 0, 0, {}
        self.new_forces, self.unconfirmed = [], 0

    def run(self):
        super().run()
        if self.seen and self.seen not in self.heads:
            self.complain(f"the head that was seen earlier is not in this log: {self.seen[:16]}...")
        if self.receipts is not None:
            self.compare_receipts()

    def read_block(self, lines):
        reserves = {n.id: n.r for n in self.market.nodes.values()}
        bids = {j.id: j.v for j in self.market.jobs.values()}
        self.new_forces = []
        super().read_block(lines)
        self.end_restatement()
        for force in self.new_forces:
            self.check_force(*force, reserves, bids)

    def has_gangs(self):
        """There are jobs of several components, or with named resources, whose places and prices
        are not reckoned here."""
        return "1" in (self.market.options.get("gangs"), self.market.options.get("named"))

    def placed(self):
        if self.has_gangs():
            if not self.unconfirmed:
                self.notes.append(f"decision {self.decision} and others place jobs of several "
                                  "components, or with named resources: their places and prices "
                                  "are not confirmed")
            self.unconfirmed += 1
            return
        for job, what in self.market.misplaced():
            self.complain(what, job)

    def told_to_start(self, job):
        if self.has_gangs():
            return
        node = self.market.nodes.get(job.slot)
        due = self.market.price(job, job.offered) if node else None
        if node and job.offered not in (node.r, due):
            self.complain("the price that it was told to start at", job, money(job.offered),
                          money(due))

    def in_force(self, job, before):
        self.new_forces.append((job, before, job.paid, {job.price, job.offered} - {None}))

    def posted(self, job, number, run, amount):
        self.receipts_found[number] = (job.id, run, amount, job.paid[1], self.decision, self.now)

    def show(self):
        for at, decision, job, what, said, reckoned in self.wrong[:DIFFERENCES_SHOWN]:
            try:
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 10**9))
                when += f".{at // 10**6 % 1000:03} UTC"
            except (OverflowError, OSError, ValueError):
                when = f"{at} ns"
            line = f"{when}, decision {decision}"
            line += f", job {job}: " if job else ": "
            line += what
            if said is not None or reckoned is not None:
                line += f": said {said}, reckoned {reckoned}"
            yield line
        if len(self.wrong) > DIFFERENCES_SHOWN:
            yield f"... and {len(self.wrong) - DIFFERENCES_SHOWN} more"

    def priced(self, job):
        if self.has_gangs():
            return
        self.prices += 1
        if job.slot is None or job.slot not in self.market.nodes:
            self.complain("a price of a job without a place", job)
            return
        due, node = self.market.price(job, job.price), self.market.nodes[job.slot]
        if job.price != due:
            self.complain(f"its price on {node.id}", job, money(job.price), money(due))
        elif not min(node.r, job.v) <= job.price <= job.v:
            self.complain("its price is above its bid or below the reserve", job, money(job.price))

    def check_force(self, job, before, paid, candidates, reserves, bids):
        """A price that comes into force is the one that was reckoned, or, where the job has just
        come, the one before, between the reserve (if the bid covers it) and the bid."""
        self.forces += 1
        price, node = paid[:2]
        if price == job.offered:
            return  # it was told to start at that, and its place is to be another
        known = {n.id: n.r for n in self.market.nodes.values()}
        closed = {n.id for n in self.market.nodes.values() if not n.a}
        if node == before[1] and node in closed and price <= before[0]:
            candidates.add(price)  # what it would cost if the node took jobs: not reckoned
        candidates.add(before[0])  # its bid or the reserve has passed it
        for reserve in {known.get(node), reserves.get(node)} - {None}:
            for bid in {job.v, bids.get(job.id, job.v)}:
                least = min(reserve, bid)
                if any(price == min(max(c, least), bid) for c in candidates):
                    return
        if node in known:
            self.complain(f"the price in force on {node}", job, money(price),
                          " or ".join(sorted(money(c) for c in candidates)) or "none")

    def charged(self, job, run, amount, rest, may_be_less=False):
        """Checks the amount since the last charge: it is price x CPUs x run time, to the fraction
        of a micro-unit, or less if the job's budget or its user's day ended."""
        price, _, ran, had, left, cpus = job.paid
        due = price * cpus * (run - ran)
        got = (amount - had) * HOUR + rest - left
        if got != due and not (may_be_less and got < due):
            self.complain("what it was charged", job, money(amount - had),
                          money((due + left) // HOUR))

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
        self.restated_users([(old, jobs[old.id]) for old in before.jobs.values()
                             if old.id in jobs])
        for old in before.jobs.values():
            new = jobs.pop(old.id, None)
            if new is None:
                self.complain("the new segment lacks it", old)
                continue
            where = [(m.nodes[j.slot].id if j.slot is not None else None)
                     for m, j in ((before, old), (self.market, new))]
            if where[0] != where[1] or any(
                    getattr(old, key) != getattr(new, key)
                    for key in ("v", "c", "m", "t", "y", "d", "w", "files", "pin", "held",
                                "price")):
                self.complain("the new segment says it otherwise", old)
            new.receipt, new.offered = old.receipt, old.offered
            if old.paid and new.paid and old.paid[:2] != new.paid[:2]:
                self.complain("the new segment has another price in force", old,
                              money(new.paid[0]), money(old.paid[0]))
            if old.paid and new.paid:
                new.paid = old.paid[:2] + new.paid[2:]
        for new in jobs.values():
            self.complain("the new segment has it, and the log did not", new)

    def restated_users(self, pairs):
        """Users may have other pseudonyms in the new segment, but jobs of one user stay together,
        and no two users become one."""
        new_of, old_of = {}, {}
        for old, new in pairs:
            if (new_of.setdefault(old.u, new.u) != new.u or old_of.setdefault(new.u, old.u) != old.u
                    or (self.users_last and old.u != new.u)):
                self.complain("the new segment has it as another user's", old, new.u, old.u)

    def compare_receipts(self):
        by_id = {id: pseudonym for pseudonym, id in self.names.items()}
        mine = {}
        for r in self.receipts:
            seq = r["receipt"]
            mine[seq] = r
            pseudonym = by_id.get(r["job"])
            said = int(r["paid"] * 1000000)
            if seq not in self.receipts_found:
                decided = r.get("decided_to", 0)
                if (self.since_start is not None and decided >= self.since_start and
                        decided not in self.before_start and not self.gap and
                        seq not in self.unknown):
                    self.complain(f"receipt {seq} of {r['job']} is not in the log", None,
                                  money(said), "nothing")
                continue
            id, run, paid, node, decision, at = self.receipts_found[seq]
            self.now = at
            if pseudonym is not None and id != pseudonym:
                self.complain(f"receipt {seq} is of another job", id, r["job"], self.called(id))
            if said != paid:
                self.complain(f"receipt {seq}: paid", id, money(said), money(paid))
            if r["node"] != node:
                self.complain(f"receipt {seq}: node", id, r["node"], node)
            if abs(r["run_s"] * 10**9 - run) > 1000:
                self.complain(f"receipt {seq}: run time in s", id, r["run_s"], run / 10**9)
            if r.get("decided_to", decision) != decision:
                self.complain(f"receipt {seq}: decision", id, r["decided_to"], decision)
        if not mine:
            return
        for seq, (id, _, paid, *_rest) in self.receipts_found.items():
            if id in self.names and seq not in mine and min(mine) < seq < max(mine):
                self.complain(f"receipt {seq} is missing", id, "nothing", money(paid))
