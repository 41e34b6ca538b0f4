# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-audit [--receipts FILE] [--seen N:HASH] [--quiet] LOG ...

Replays the decision log of a market (marketctl decisions export; docs/decision-log.md has its
grammar) and confirms each price, allocation and receipt by the definitions of docs/market.md. It
shares no code with the market. LOG may be - (stdin).

  --receipts FILE   the answer of `marketctl --json receipts`: each is compared with the log (given
                    again: those of the next LOG)
  --seen N:HASH     a head that `marketctl status` showed earlier: the log must contain it
  --quiet           only what is wrong
  --why NAME        says why this job pays what it pays, or what this node's places cost, and no
                    more
  --at SECONDS      with --why: then (Unix time; default: at the end)
  --json            with --why: as JSON
  --help            this text
  --version         show the version and end

Exit status 0: all is confirmed; 1: something is wrong, a line each; 2: wrong usage, or no log.
"""
import getopt
import json
import re
import sys
from decimal import Decimal

from audit import Audit
from values import plain
from version import VERSION
from why import explain


AMOUNT_MAX = Decimal(10) ** 18
FIELDS = {"receipt": int, "job": str, "node": str, "paid": Decimal, "run_s": Decimal}


def field_of(receipt, name, kind):
    value = receipt[name]
    if kind is Decimal and type(value) is int:
        value = Decimal(value)
    if type(value) is not kind or (kind is not str and not abs(value) < AMOUNT_MAX):
        raise ValueError(f"'{name}' is {plain(str(value)[:40])}")
    return value


def read_receipts(path):
    """Those of use. ValueError: the file is no answer of `marketctl --json receipts`."""
    with (sys.stdin if path == "-" else open(path)) as file:
        try:
            every = json.load(file, parse_float=Decimal)
        except RecursionError:
            raise ValueError("too deep") from None
    if type(every) is not list or not all(type(receipt) is dict for receipt in every):
        raise ValueError("no list of receipts (marketctl --json receipts)")
    checked = []
    for number, receipt in enumerate(every, 1):
        try:
            if field_of(receipt, "kind", str) != "use":
                continue
            fields = {name: field_of(receipt, name, kind) for name, kind in FIELDS.items()}
            if "decided_to" in receipt:
                fields["decided_to"] = field_of(receipt, "decided_to", int)
        except KeyError as name:
            raise ValueError(f"receipt {number} of the file has no {name}") from None
        except ValueError as error:
            raise ValueError(f"receipt {number} of the file: {error}") from None
        checked.append(fields)
    return checked


def help_source():
    """Returns the text of --help, in the form of tools/common/args.cpp."""
    usage, about, options, notes = __doc__.strip().split("\n\n")
    listed = [(name, value or "", about) for name, value, about in
              re.findall(r"^  --(\S+)(?: ([A-Z:]+))?  +(.*(?:\n {8}.*)*)", options, re.M)]
    letters = {"quiet": "q", "help": "h"}
    return {"program": "souk-audit", "synopsis": usage.partition(" ")[2],
            "about": about, "notes": notes,
            "options": [{"letter": letters.get(name, ""), "name": name, "value": value,
                         "help": about} for name, value, about in listed]}


def main(argv):
    try:
        options, files = getopt.gnu_getopt(argv, "qh", [
            "receipts=", "seen=", "quiet", "help", "version", "why=", "at=", "json", "help-source"])
    except getopt.GetoptError as error:
        print(f"souk-audit: {error}", file=sys.stderr)
        return 2
    given = dict(options)
    if "-h" in given or "--help" in given:
        print(__doc__.strip())
        return 0
    if "--help-source" in given:
        print(json.dumps(help_source()))
        return 0
    if "--version" in given:
        print(f"souk-audit (souk) {VERSION}")
        return 0
    if not files:
        print("souk-audit: a log is wanted (marketctl decisions export FILE)", file=sys.stderr)
        return 2
    seen = given.get("--seen", "").rpartition(":")[2] or None
    quiet = "-q" in given or "--quiet" in given
    bad = False
    of_logs = [value for key, value in options if key == "--receipts"]
    for number, path in enumerate(files):
        try:
            receipts = read_receipts(of_logs[number]) if number < len(of_logs) else None
            with (sys.stdin if path == "-" else open(path)) as file:
                lines = file.read().split("\n")
        except (OSError, ValueError) as error:
            print(f"souk-audit: {path}: {plain(str(error))}", file=sys.stderr)
            return 2
        while lines and not lines[-1]:
            lines.pop()
        if "--why" in given:
            try:
                until = int(Decimal(given["--at"]) * 10**9) if "--at" in given else 1 << 63
            except (ArithmeticError, ValueError):
                print(f"souk-audit: --at: {plain(given['--at'])} is no Unix time", file=sys.stderr)
                return 2
            return explain(lines, given["--why"], until, "--json" in given)
        audit = Audit(lines, seen, receipts)
        audit.run()
        bad = bad or bool(audit.wrong)
        before = f"{path}: " if len(files) > 1 else ""
        for line in audit.show():
            print(before + plain(line))
        if quiet:
            continue
        for note in audit.notes:
            print(before + plain(note))
        said = (f"{audit.decisions} decisions, {audit.prices} prices, {audit.forces} in force, "
                f"{len(audit.receipts_found)} receipts")
        print(f"{before}{said}: " +
              (f"{len(audit.wrong)} are not as they should be" if audit.wrong else "confirmed") +
              f"; head {audit.decision}:{audit.head}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
