# SPDX-License-Identifier: GPL-2.0-or-later
"""The market is killed while money moves: what was acknowledged is there, nothing is there twice,
and no money comes or goes."""
import itertools
import threading
from decimal import Decimal

SENDER, TAKER = "7001", "7002"
PART = Decimal("0.25")


def balance(market, who):
    return Decimal(str(market.ctl("marketctl", "account", who)[0]["balance"]))


def test_money_that_moves_while_the_market_is_killed_is_there_once(market):
    market.tool("marketctl", "deposit", SENDER, "1000")
    market.tool("marketctl", "deposit", TAKER, "1")
    end, said, numbers = threading.Event(), [], itertools.count()

    def send():
        while not end.is_set():
            note = f"payment {next(numbers)}"
            done = market.tool("marketctl", "--patience", "20s", "transfer", TAKER, PART, "--of",
                               SENDER, "--note", note, check=False)
            said.append((note, done.returncode == 0))
    senders = [threading.Thread(target=send) for _ in range(4)]
    for s in senders:
        s.start()
    try:
        for _ in range(4):
            before = len(said)
            while len(said) < before + 6:
                pass_time(market)
            market.kill_daemon("market")
    finally:
        end.set()
        for s in senders:
            s.join(60)
    entries = market.ctl("marketctl", "statement", TAKER)
    notes = [e["note"] for e in entries if "note" in e]
    assert len(notes) == len(set(notes))
    assert {note for note, good in said if good} <= set(notes) <= {note for note, _ in said}
    assert balance(market, TAKER) == 1 + PART * len(notes)
    assert balance(market, SENDER) == 1000 - PART * len(notes)
    market.tool("marketctl", "ledger", "verify")


def pass_time(market):
    """A question to the market is what takes it."""
    market.tool("marketctl", "--patience", "20s", "status")
