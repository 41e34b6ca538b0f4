# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a price is what it is."""
import json
import sys

from assignment import assign
from replay import Replay
from values import AT_RESERVE, UNREADABLE, money, plain


class Enough(Exception):
    """The log has gone past the moment that is asked about."""


class Why(Replay):
    """Replays the log up to a moment, and says why a job pays what it pays then."""

    def __init__(self, lines, until):
        super().__init__(lines)
        self.until = until

    def time(self, word):
        if int(word) > self.until:
            raise Enough
        super().time(word)

    def tell(self, name):
        """Returns what is known of the job or node, and the sentence `text`; None: no such name."""
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
        if not node.a:
            text = (f"{self.called(job)} pays {money(price)} on {node.id} while it runs: {node.id} "
                    "takes nobody now, so nobody else can have its place, and the last price "
                    "holds, or what it would cost now where that is less")
            return {**said, "steps": [], "text": text}
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
        if solver in AT_RESERVE:
            return [], f"the reserve of {node.id}"
        if solver == "proportional_share":
            return [], "what the bids after its turn, and reserves, would take its place at"
        if solver == "welfare" and market.exact:
            return self.wanted_by(job, node)
        return self.lost_to(job, node)

    def wanted_by(self, job, node):
        """Explains the price of a class: who would take one more place of its speed."""
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
        """Explains a critical price: the bid or the reserve at which the job would lose each step
        of speed."""
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
                if other.w != job.w:
                    steps[-1]["counts_as"] = other.counts() / 10**6
            held = then
        if not steps or held == own:
            return steps, f"the reserve of {node.id} is {money(node.r)}, and nobody bids for it"
        parts = []
        for step in steps:
            below = money(round(step["below"] * 10**6))
            place = f"its place on {node.id}" if not parts else f"the speed of {step['node']} too"
            if "job" in step:
                bid = f"bid {money(round(step['bid'] * 10**6))}"
                if "counts_as" in step:
                    bid += f", which counts as {money(round(step['counts_as'] * 10**6))}"
                parts.append(f"below {below} it loses {place} to {step['job']} ({bid})")
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
    try:
        said = Why(lines, until).tell(name)
    except UNREADABLE as error:
        print(f"souk-audit: the log cannot be read: {plain(repr(error))}", file=sys.stderr)
        return 1
    if said is None:
        print(f"souk-audit: {plain(name)} is no node, and no job that the log names to you at that "
              "time", file=sys.stderr)
        return 1
    print(json.dumps(said) if as_json else plain(said["text"]))
    return 0
