# SPDX-License-Identifier: GPL-2.0-or-later
"""CRIU's own tests under plain CRIU, and as jobs that are moved, written down, frozen and thawed in
each form of a move: both columns, and a table of what differs. A job has memory beside the test's,
so that it goes past the image, except in the form `small`. Called by scripts/check-zdtm, which
builds the tests. Exit 0 if whatever passes plain passes as a job."""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
import jobs  # noqa: E402
import suite  # noqa: E402

FORMS = ("small", "auto", "safe", "fast")
RESULTS = ("pass", "refused", "fail", "no start")
PROCESSORS = os.cpu_count() or 1


def arguments():
    p = argparse.ArgumentParser(prog="check-zdtm", description=__doc__.split(". ")[0])
    p.add_argument("tests", nargs="*", metavar="TEST", help="only these (default: all)")
    p.add_argument("--list", action="store_true", help="name the tests and leave")
    p.add_argument("--sample", action="store_true",
                   help="the tests of tests/zdtm/sample, each in one form in turn")
    p.add_argument("--random", type=int, metavar="N", help="so many, drawn by --seed")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--forms", default=",".join(FORMS), help="of a move (default: %(default)s)")
    p.add_argument("--moves", type=int, default=3,
                   help="of each job, and dumps of each test (default: %(default)s)")
    p.add_argument("--ballast", type=int, default=16, metavar="MB",
                   help="of each job but in the form small (default: %(default)s)")
    p.add_argument("--no-checkpoint", action="store_true",
                   help="do not wait for a checkpoint between the moves")
    p.add_argument("--no-plain", action="store_true", help="jobs alone")
    p.add_argument("--parallel", type=int, default=8 * PROCESSORS,
                   help="jobs at once (default: %(default)s)")
    p.add_argument("--nodes", type=int, default=4 * PROCESSORS,
                   help="of the market (default: %(default)s)")
    p.add_argument("--limit", type=float, default=120, metavar="SECONDS",
                   help="of each step (default: %(default)s)")
    p.add_argument("--json", metavar="FILE", help="write everything there")
    p.add_argument("--table", metavar="FILE", help="write the whole table there, too")
    p.add_argument("--keep", action="store_true", help="leave the directory of the tests' files")
    p.add_argument("--suite", required=True, help=argparse.SUPPRESS)
    p.add_argument("--criu", required=True, help=argparse.SUPPRESS)
    p.add_argument("--job", required=True, help=argparse.SUPPRESS)
    return p.parse_args()


def named_in_sample():
    with open(f"{HERE}/sample") as f:
        return [line.split()[0] for line in f if line.strip() and not line.startswith("#")]


def chosen(options):
    """The tests to run, and why others are not."""
    tests, left = suite.load(options.suite), collections.Counter()
    wanted = options.tests or (named_in_sample() if options.sample else [])
    if unknown := set(wanted) - {t.name for t in tests}:
        sys.exit(f"check-zdtm: no such test here: {' '.join(sorted(unknown))}")
    ours = []
    for t in tests:
        if wanted and t.name not in wanted:
            continue
        why = t.why_not() or ("its own look at this machine leaves it out" if t.skips_itself()
                              else None)
        if why:
            left[why] += 1
        else:
            ours.append(t)
    if options.random:
        ours = sorted(random.Random(options.seed).sample(ours, min(options.random, len(ours))),
                      key=lambda t: t.name)
    return ours, left


class Columns:
    """The result of each test in each column: {"result": pass, refused, fail or "no start", "why":
    ...}"""

    def __init__(self, total):
        self.cells, self._lock, self._done, self._total, self._told = ({}, threading.Lock(), 0,
                                                                       total, time.monotonic())

    def put(self, test, column, cell):
        with self._lock:
            self.cells.setdefault(test, {})[column] = cell
            self._done += 1
            if time.monotonic() - self._told > 20:
                self._told = time.monotonic()
                print(f"check-zdtm: {self._done} of {self._total}", file=sys.stderr, flush=True)


def run_plain(options, test, top):
    where = f"{top}/plain/{test.name}"
    plan = {"name": test.name, "command": test.prepare(where), "where": where,
            "environment": suite.ENVIRONMENT, "criu": options.criu, "dump": test.dump_options,
            "restore": test.restore_options, "moves": options.moves, "limit": options.limit}
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net",
            "--ipc", "--uts", "--", sys.executable, f"{HERE}/plain.py", json.dumps(plan)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=12 * options.limit)
    except subprocess.TimeoutExpired:
        return {"result": "fail", "why": "no end"}
    try:
        came = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"result": "fail",
                "why": f"the runner exited {done.returncode}: {done.stderr.strip()[-200:]}"}
    return jobs.cell(came.get("failed"), came.get("refused"), suite.verdict(where, test.name))


def in_parallel(workers, work):
    """Calls each; those that must be alone (their first word) one after another, when the others
    are done."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            for f in concurrent.futures.as_completed([pool.submit(call) for alone, call in work
                                                      if not alone]):
                f.result()
        except BaseException:  # interrupted, say: those that have begun end, no more begin
            pool.shutdown(cancel_futures=True)
            raise
    for alone, call in work:
        if alone:
            call()


def forms_of(options, number):
    forms = options.forms.split(",")
    return [forms[number % len(forms)]] if options.sample else forms


def run_all(options, tests, top):
    forms = {t.name: forms_of(options, i) for i, t in enumerate(tests)}
    columns = Columns(sum(map(len, forms.values())) + (0 if options.no_plain else len(tests)))
    if not options.no_plain:
        in_parallel(max(2, PROCESSORS), [
            (t.exclusive, lambda t=t: columns.put(t.name, "plain", run_plain(options, t, top)))
            for t in tests])
    # The forms run one after the other, because a test binds the same names each time, some of them
    # of the whole node.
    with jobs.Jobs(options, top) as market:
        in_parallel(options.parallel,
                    [(t.exclusive, lambda t=t, f=f: columns.put(t.name, f, market.run(t, f)))
                     for f in FORMS for t in tests if f in forms[t.name]])
    return columns.cells


def differences(cells):
    """The cells that are no pass where plain CRIU passes: test, form."""
    passes = lambda columns, c: columns.get(c, {"result": "pass"})["result"] == "pass"
    return [(name, form) for name, columns in sorted(cells.items()) if passes(columns, "plain")
            for form in columns if not passes(columns, form)]


def table(options, tests, cells):
    columns = ([] if options.no_plain else ["plain"]) + options.forms.split(",")
    wide = max([len(t.name) for t in tests], default=4)
    rows = [f"{'test':{wide}} " + " ".join(f"{c:8}" for c in columns)]
    for t in tests:
        results = [cells[t.name].get(c, {"result": "-"})["result"] for c in columns]
        rows.append(f"{t.name:{wide}} " + " ".join(f"{r:8}" for r in results))
    rows.append("")
    for c in columns:
        count = collections.Counter(row[c]["result"] for row in cells.values() if c in row)
        rows.append(f"{c + ':':10} " + ", ".join(f"{count[r]} {r}" for r in RESULTS if count[r]))
    return rows


def reasons(cells, differ):
    """Why cells are no pass, a line for each reason of a test: of those unlike plain CRIU, or of
    the others."""
    unlike, rows = set(differences(cells)), []
    for name, columns in sorted(cells.items()):
        found = {}
        for form, cell in columns.items():
            if cell["result"] != "pass" and ((name, form) in unlike) == differ:
                found.setdefault(f"{cell['result']}: {cell['why']}", []).append(form)
        rows += [f"  {name} ({', '.join(forms)}): {why}" for why, forms in sorted(found.items())]
    return rows


def main():
    options = arguments()
    for form in options.forms.split(","):
        if form not in FORMS:
            sys.exit(f"check-zdtm: no form {form!r}: it is one of {', '.join(FORMS)}")
    tests, left = chosen(options)
    if options.list:
        print("\n".join(t.name for t in tests))
        return 0
    begun = time.monotonic()
    # Short: the tests bind unix sockets in it.
    top = tempfile.mkdtemp(prefix="zdtm", dir="/var/tmp")
    os.chmod(top, 0o755)
    try:
        cells = run_all(options, tests, top)
    finally:
        if not options.keep:
            shutil.rmtree(top, ignore_errors=True)
    rows = table(options, tests, cells)
    found = differences(cells)
    rows += ["", "no pass under plain CRIU either:", *reasons(cells, differ=False)]
    rows += ["",
             f"passes under plain CRIU and not as a job: {len({name for name, _ in found})} tests"]
    rows += [*reasons(cells, differ=True), ""]
    rows += [f"not run: {count} ({why})" for why, count in sorted(left.items())]
    if options.table:
        with open(options.table, "w") as f:
            f.write("\n".join(rows) + "\n")
    if options.json:
        with open(options.json, "w") as f:
            everything = {"moves": options.moves, "ballast_mb": options.ballast, "tests": cells,
                          "not_run": left}
            json.dump(everything, f, indent=1, sort_keys=True)
    print("\n".join(rows))
    runs, took = sum(len(c) for c in cells.values()), time.monotonic() - begun
    print(f"zdtm: {len(tests)} tests, {runs} runs, {len(found)} differences, {took:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
