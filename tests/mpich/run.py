# SPDX-License-Identifier: GPL-2.0-or-later
"""MPICH's own tests as gangs of a component for each process: unmoved, and while a random component
moves each second. A test passes if it says `No Errors` once and ends with 0. One that moves is run
again for some seconds, as most are shorter than a move. Called by scripts/check-mpich, which builds
the tests. Exit 0 if all have passed."""
import argparse
import collections
import json
import os
import random
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
import gangs  # noqa: E402
import suite  # noqa: E402

MODES = ("unmoved", "moved")


def arguments():
    p = argparse.ArgumentParser(prog="check-mpich", description=__doc__.split(". ")[0])
    p.add_argument("tests", nargs="*", metavar="TEST",
                   help="only these (coll/allred or coll; default: all)")
    p.add_argument("--list", action="store_true", help="say what would run and what not, and leave")
    p.add_argument("--every-line", action="store_true",
                   help="of the suite's lists; by default of each program the line with the most "
                        "processes that can be run")
    p.add_argument("--random", type=int, metavar="N", help="so many, drawn by --seed")
    p.add_argument("--seed", type=int, default=1, help="of what moves, too")
    p.add_argument("--modes", default=",".join(MODES), help="(default: %(default)s)")
    p.add_argument("--seconds", type=int, default=4,
                   help="run a test that moves again until so long (default: %(default)s)")
    p.add_argument("--every", type=float, default=1, metavar="SECONDS",
                   help="from one order to move to the next (default: %(default)s)")
    p.add_argument("--processes", type=int, default=8, metavar="N",
                   help="skip what needs more (default: %(default)s)")
    p.add_argument("--nodes", type=int,
                   help="of the market (default: half as many CPUs again as --processes)")
    p.add_argument("--memory", default="1G", help="of each component (default: %(default)s)")
    p.add_argument("--limit", type=float, default=120, metavar="SECONDS",
                   help="of each run (default: %(default)s)")
    p.add_argument("--stop", action="store_true",
                   help="wait for a line on stdin before a run that is late is cancelled")
    p.add_argument("--logs", metavar="DIRECTORY",
                   help="keep there what the daemons have said when a run fails (SOUK_LOG=debug)")
    p.add_argument("--json", metavar="FILE", help="write everything there, after each run")
    p.add_argument("--suite", required=True, help=argparse.SUPPRESS)
    return p.parse_args()


def chosen(options):
    """The tests to run, and of those that are not the reason: {label: reason}."""
    wanted, ours, left = options.tests, {}, {}
    for test in suite.load(options.suite):
        if wanted and not {test.name, os.path.dirname(test.name)} & set(wanted):
            continue
        if why := test.why_not(options.processes):
            left[test.label] = why
            continue
        key = test.label if options.every_line else test.name
        if key not in ours or ours[key].processes < test.processes:
            ours[key] = test
    tests = list(ours.values())
    if options.random:
        drawn = random.Random(options.seed).sample(tests, min(options.random, len(tests)))
        tests = [t for t in tests if t in drawn]
    return tests, left


def line_of(mode, test, row):
    extra = f", {row['rounds']} rounds, {row['moves']} moves" if mode == "moved" else ""
    if row["pauses"]:
        extra += f", longest pause {max(row['pauses']):.0f} ms"
    lines = [f"{mode:8} {row['result']:4} {test.label}: {row['seconds']} s{extra}"]
    if row["why"]:
        lines += [f"    {row['why']}", *("    | " + said for said in row["said"])]
        lines += ["    " + told for told in row.get("late", [])]
    lines += [f"    an order was refused: {why}" for why in sorted(set(row["refused"]))]
    return "\n".join(lines)


def summary(cells, left):
    rows = []
    for mode in MODES:
        came = [columns[mode] for columns in cells.values() if mode in columns]
        if not came:
            continue
        count = collections.Counter(row["result"] for row in came)
        rows.append(f"{mode}: {count['pass']} passed, {count['fail']} failed, "
                    f"{sum(row['seconds'] for row in came):.0f} s")
        if mode == "moved":
            pauses = sorted(p for row in came for p in row["pauses"])
            still = sum(row["moves"] == 0 for row in came)
            rows.append(f"  {sum(row['rounds'] for row in came)} rounds, "
                        f"{sum(row['moves'] for row in came)} moves; {still} ended before one")
            if pauses:
                median, p99 = pauses[len(pauses) // 2], pauses[len(pauses) * 99 // 100]
                rows.append(f"  {len(pauses)} pauses: median {median:.0f} ms, p99 {p99:.0f} ms, "
                            f"longest {pauses[-1]:.0f} ms")
        rows += [f"  failed: {label}: {columns[mode]['why']}"
                 for label, columns in sorted(cells.items())
                 if mode in columns and columns[mode]["result"] == "fail"]
    for why, count in sorted(collections.Counter(left.values()).items()):
        rows.append(f"not run: {count} lines ({why})")
    return rows


def run_all(options, tests, top):
    cells = {}
    for mode in options.modes.split(","):
        with gangs.Gangs(options, top) as market:
            for test in tests:
                row = market.run(test, mode)
                cells.setdefault(test.label, {})[mode] = row
                print(line_of(mode, test, row), flush=True)
                if options.json:
                    with open(options.json, "w") as f:
                        json.dump(cells, f, indent=1, sort_keys=True)
    return cells


def main():
    options = arguments()
    for mode in options.modes.split(","):
        if mode not in MODES:
            sys.exit(f"check-mpich: no mode {mode!r}: it is one of {', '.join(MODES)}")
    tests, left = chosen(options)
    if not tests:
        sys.exit("check-mpich: no such test here")
    if options.list:
        print("\n".join([t.label for t in tests] +
                        [f"not run: {label}: {why}" for label, why in left.items()]))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it has begun ends with it
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mpich", dir="/var/tmp",
                                     ignore_cleanup_errors=True) as top:
        os.chmod(top, 0o755)
        cells = run_all(options, tests, top)
    print("\n".join(["", *summary(cells, left)]))
    bad = any(row["result"] != "pass" for columns in cells.values() for row in columns.values())
    print(f"mpich: {len(tests)} tests, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
