#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The attack run as a table: brings a market up, tries everything in attempts.py, and shows who
tried what and what it got. Exit status 1 if anything was not refused. Usage: show.py [--json]"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def table(rows):
    heads = {"who": "who", "what": "tries", "got": "gets"}
    wide = {key: max([len(r[key]) for r in rows] + [len(head)]) for key, head in heads.items()}
    for row in [heads, *rows]:
        yield "  ".join(row[key].ljust(wide[key]) for key in heads).rstrip()


def main():
    with tempfile.TemporaryDirectory() as d:
        out = f"{d}/attempts.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short",
             f"{HERE}/test_attempts.py"], env={**os.environ, "SOUK_ATTACK_TABLE": out},
            stdout=sys.stderr)
        try:
            with open(out) as f:
                rows = json.load(f)
        except FileNotFoundError:
            return 1
    if "--json" in sys.argv[1:]:
        print(json.dumps(rows, indent=1))
    else:
        print("\n".join(table(rows)))
        bad = sum(not r["refused"] for r in rows)
        print(f"{len(rows)} attempts, {bad} succeeded or failed otherwise than expected")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
