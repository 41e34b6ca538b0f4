# SPDX-License-Identifier: GPL-2.0-or-later
"""A market consists of these: nodes, jobs, money. All amounts are whole micro-units."""
from decimal import Decimal

# These algorithms ask the reserve of a place alone; these of them are queues.
QUEUES = ("fcfs", "fpfs", "bounded_overtaking")
# These go by run times, which the log does not have.
LOOK_AHEAD = ("easy", "sjf", "wfp", "conservative")
AT_RESERVE = ("balance", *QUEUES, *LOOK_AHEAD)


WEIGHT_PLAIN = 1024  # of a job that has not waited


class Wrong(Exception):
    """A line of the log that cannot be read."""


# Reading a log that somebody has altered may end in any of these.
UNREADABLE = (Wrong, LookupError, ValueError, TypeError, AttributeError, ArithmeticError,
              StopIteration)


def plain(text):
    """Takes out characters that would command a terminal, because the log may be anybody's."""
    return "".join(c if c.isprintable() else "?" for c in text)


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
        self.w = WEIGHT_PLAIN
        self.state, self.place, self.pin, self.barred = "w", None, "-", ()
        self.files = None  # (home, bytes/s, requests/s, round trip in ns)
        self.held = False
        self.slot = self.at = None  # the node that it is to run on; where it was before
        self.price = self.offered = None  # reckoned last; that it was told to start at
        self.paid = None  # in force: (price, node, run time, amount, rest, CPUs)
        self.receipt = None  # (run time, amount) up to the newest receipt

    def competes(self):
        return self.pin == "-" and not self.held

    def counts(self):
        """Returns what the job's bid counts as in ranks, after its wait."""
        return self.v * self.w // WEIGHT_PLAIN

    def level_with(self, other):
        """Returns what the job would have to bid to rank as the other does; at most its bid."""
        if self.w == other.w:
            return other.v
        return min(self.v, ceil_div(other.counts() * WEIGHT_PLAIN, self.w))


def money(micro):
    if micro is None:
        return "nothing"
    text = f"{Decimal(micro) / 1000000:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ceil_div(a, b):
    return -(-a // b)
