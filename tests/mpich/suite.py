# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the files `testlist` of MPICH's test suite: how many processes a test has, with which
arguments and variables, how long it may take, and how much memory it needs. It also judges the
output of a test."""
import os
import re


class Test:
    """A line of a list."""

    def __init__(self, root, directory, line):
        words = line.split()
        self.name, self.processes = f"{directory}/{words[0]}", int(words[1])
        self.program = f"{root}/{self.name}"
        said = [w.split("=", 1) for w in words[2:] if "=" in w]
        of = lambda key: [value for k, value in said if k == key]
        self.arguments = of("arg")
        self.variables = [v.split("=", 1) for v in of("env")]
        self.seconds = max(map(float, of("timeLimit")), default=0)
        self.gigabytes = max(map(float, of("mem")), default=0)
        self.fails = bool(of("xfail"))
        self.label = " ".join([self.name, str(self.processes), *self.arguments,
                               *("=".join(v) for v in self.variables)])

    def why_not(self, most):
        """Why it is not run, or nothing."""
        if not os.path.exists(self.program):
            return "not built here"
        if self.fails:
            return "the suite expects that it fails"
        if self.processes > most:
            return f"more than {most} processes"
        if self.gigabytes > 1:
            return "more than 1 GB of memory"
        if any("ASYNC_PROGRESS" in name for name, _ in self.variables):
            return "threads for progress, on CPUs by number"
        return None


def load(root):
    tests = []
    for directory in ("pt2pt", "comm", "coll"):
        with open(f"{root}/{directory}/testlist") as f:
            lines = [line.split("#")[0] for line in f]
        tests += [Test(root, directory, line) for line in lines if line.strip()]
    return tests


def rounds(said):
    """The number of runs of the test, if it has come to its end."""
    return int((re.findall(r"^rounds: (\d+)$", said, re.MULTILINE) or [0])[-1])


def verdict(status, said):
    """Judges the output of a test: None if each round has passed, else the mistake."""
    if status != 0:
        return f"ended with {status}"
    found, wanted = len(re.findall(r"^ *No Errors *$", said, re.MULTILINE)), rounds(said)
    return None if found == wanted > 0 else f"said `No Errors` {found} times in {wanted} rounds"
