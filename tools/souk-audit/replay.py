# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the decision log (docs/decision-log.md has its grammar): the chain of hashes, and the
market as each decision left it."""
import hashlib

from market import Market
from values import UNREADABLE, Job, Node, Wrong


class Replay:
    def __init__(self, lines):
        self.lines = lines
        self.wrong, self.notes = [], []
        self.names = {}
        self.market = Market()
        self.now, self.decision, self.head, self.segment = 0, None, None, None
        self.decisions, self.heads = 0, set()
        self.before_start, self.gap = set(), False
        self.since_start = None  # the first decision
        self.undecided = self.round = False
        self.later, self.unknown = set(), set()
        self.restated = None
        self.users_last = False  # a user has the same pseudonym in all segments
        self.ended = False

    def complain(self, what, job=None, said=None, reckoned=None):
        self.wrong.append((self.now, self.decision, self.called(job), what, said, reckoned))

    def called(self, job):
        if job is None:
            return ""
        pseudonym = job if isinstance(job, str) else job.id
        return self.names.get(pseudonym, pseudonym)

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
        if lines and lines[0].startswith("S "):
            try:
                self.begin_segment(lines[0])
            except UNREADABLE as error:
                self.head = self.head or "0" * 64
                self.complain(f"a segment that cannot be read ({error!r}): {lines[0][:80]}")
        elif self.head is None:
            self.head = "0" * 64
            self.complain("the log does not begin with a segment")
        text = "".join(line + "\n" for line in lines)
        self.head = hashlib.sha256(f"{self.head}\n{text}".encode()).hexdigest()
        if self.head[:12] != said:
            self.complain("the chain of hashes is broken here", None, said, self.head[:12])
        self.heads.add(self.head)
        self.read_block(lines)

    def read_block(self, lines):
        for line in lines:
            try:
                self.line(line)
            except UNREADABLE as error:
                self.complain(f"a line that cannot be read ({error!r}): {line[:80]}")
        try:
            self.settle()
        except UNREADABLE as error:
            self.complain(f"a decision that cannot be reckoned ({error!r})")

    def begin_segment(self, line):
        _, version, segment, at, head = line.split(" ")
        self.now = int(at)
        if version not in ("1", "2", "3", "4"):
            raise Wrong(f"version {version} of the log is not known")
        self.users_last = version in ("1", "2")
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
            self.decide()
        handler = getattr(self, "on_" + {"=": "same"}.get(kind, kind), None)
        if handler is None:
            raise Wrong("unknown kind")
        handler(words)

    def job(self, index):
        return self.market.jobs[int(index)]

    def decide(self):
        self.undecided = False
        self.market.now = self.now
        self.placed()
        self.market.end_decision()
        for job in self.market.jobs.values():
            if job.slot is not None:
                job.state, job.place = "r", job.slot
            else:
                job.price = None
                if job.state == "r":
                    job.state = "f"

    def settle(self):
        """The end of a decision: of a round of prices each job has one."""
        if self.undecided:
            self.decide()
        if not self.round:
            return
        self.round = False
        for job in self.market.jobs.values():
            if job.slot is not None and job.index not in self.later:
                self.priced(job)

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
        before = self.market
        if why == "rotation":
            if self.decision is None:  # the export begins here
                self.since_start = number
                self.decision = number
            elif number != self.decision:
                self.complain("a segment begins with another decision", None, number, self.decision)
            else:
                self.restated = self.market
            self.market = Market()
            self.market.follow(before if self.restated else None, self.now)
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
            self.market.follow(None, self.now if why == "gap" else None)
            self.decision = number
            if self.since_start is None:
                self.since_start = number
        else:
            if self.decision is None:
                raise Wrong("it does not begin with a snapshot")
            if number != self.decision + 1:
                self.complain("a decision is missing", None, number, self.decision + 1)
            self.decision = number
        self.decisions += why != "rotation"
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
            elif key in ("k", "v", "c", "m", "t", "y", "d", "w"):
                setattr(job, key, int(value))
            elif key == "s":
                job.state = value[0]
                job.place = int(value[1:]) if value[1:] else None
                job.at = job.slot = job.place if job.state == "r" else None
            elif key == "p":
                job.pin = value
            elif key == "b":
                job.barred = tuple(int(n) for n in value.split(",")) if value else ()
            elif key == "f":
                home, *counts = value.split(",")
                job.files = (home, *(int(n) for n in counts)) if home else None
                if job.files and len(job.files) != 4:
                    raise Wrong(key)
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
        self.later = set(self.market.jobs) if words == ["*"] else {int(word) for word in words}

    def on_p(self, words):
        job = self.job(words[0])
        job.price = int(words[1])
        self.priced(job)

    def on_k(self, words):
        self.job(words[0]).price = int(words[1])

    def on_same(self, words):
        for word in words:
            self.priced(self.job(word))

    def on_w(self, words):
        job = self.job(words[0])
        job.offered = int(words[1])
        self.told_to_start(job)

    def on_f(self, words):
        sold = words[-1] == "sold"  # ahead, or its place is paid by another job
        if sold:
            words = words[:-1]
        job, node, new = self.job(words[0]), words[1], [int(word) for word in words[2:]]
        price, run, amount, rest, cpus, open_amount, open_run = new
        if job.paid:
            self.charged(job, run, amount, rest)
        if job.receipt is None:
            job.receipt = (run - open_run, amount - open_amount)
        before = job.paid
        job.paid = (price, node, run, amount, rest, cpus)
        if before is not None and not sold:
            self.in_force(job, before)

    def on_c(self, words):
        job, (seq, run, amount, rest) = self.job(words[0]), [int(word) for word in words[1:]]
        if job.paid is None:
            raise Wrong("a receipt of a job that pays nothing")
        self.charged(job, run, amount, rest)
        ran, paid = job.receipt
        self.posted(job, seq, run - ran, amount - paid)
        job.receipt = (run, amount)
        job.paid = job.paid[:2] + (run, amount, rest, job.paid[5])

    def on_l(self, words):
        job, (run, amount, rest) = self.job(words[0]), [int(word) for word in words[1:]]
        if job.paid:
            self.charged(job, run, amount, rest, True)
            job.paid = job.paid[:2] + (run, amount, rest, job.paid[5])

    def on_u(self, words):
        self.unknown.add(int(words[0]))

    # -- what who reads it looks at

    def placed(self):
        """The newest decision is whole."""

    def priced(self, job):
        """The job's price was reckoned."""

    def told_to_start(self, job):
        """At the price job.offered."""

    def in_force(self, job, before):
        """job.paid holds from now on, where `before` held."""

    def charged(self, job, run, amount, rest, may_be_less=False):
        """The job's account stands at that; job.paid is how it stood before."""

    def posted(self, job, number, run, amount):
        """A receipt of the job."""
