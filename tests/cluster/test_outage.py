# SPDX-License-Identifier: GPL-2.0-or-later
"""Market outage mode, told as one story: the market is away, and what runs runs on at the last
allocation and price; its use is kept at the edge and settled when contact returns, exact to the
micro-unit. And upgrade by restart: every daemon ends and comes back in turn, under load."""
import decimal
import json
import os
import signal
import subprocess

from codes import refused
import programs
from conftest import alive, until
from test_ledger import SPIN, ask, settled

LINE = 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done'


class Outage:
    """marketd is killed, and does not come up again before the end of the block: its configuration
    is broken."""

    def __init__(self, market):
        self.market, self.path = market, f"{market.run_dir}/market/marketd.conf"

    def __enter__(self):
        with open(self.path) as f:
            self.good = f.read()
        with open(self.path, "a") as f:
            f.write("no_such_key = 1\n")
        pid = self.market.daemon("market")["pid"]
        os.kill(pid, signal.SIGKILL)
        until("marketd is dead", lambda: not alive(pid))
        for node in self.market.nodes():
            until(f"{node} has noticed", lambda: not self.status(node)["market"])
        return self

    def status(self, node):
        done = self.market.tool("pvdctl", "--json", "--node", node, "status", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"market": True}

    def __exit__(self, *_):
        with open(self.path, "w") as f:
            f.write(self.good)
        self.market.until_up()


def restart(market, name, number=signal.SIGTERM, killed=lambda: None):
    """Starts a daemon anew. `killed` is called while it is away."""
    old = market.daemon(name)["pid"]
    os.kill(old, number)
    killed()
    until(f"{name} is a new process", lambda: market.daemon(name)["pid"] not in (0, old), 60)
    until(f"{name} is ready", lambda: name == "market" or
          market.tool("pvdctl", "--node", name, "status", check=False).returncode == 0)


def exact_cost(market, id):
    """The sum of the job's receipts must be its price for the time that it ran, stretch by stretch,
    to the micro-unit."""
    receipts = [r for r in ask(market, "receipts", "--job", id) if r["kind"] == "use"]
    job = ask(market, "job", id)
    total = sum(r["price"] * r["run_s"] * r["cpus"] / 3600 for r in receipts)
    micro = decimal.Decimal("0.000001")
    # A receipt of several prices states their mean, in whole micro-units per hour, and its seconds
    # to six digits.
    slack = micro * (1 + len(receipts)) + sum(micro * (r["run_s"] + r["price"]) / 3600
                                              for r in receipts)
    if job["cost"] == job["budget"]:  # what it ran beyond that, until it stood, is not paid for
        assert total >= job["cost"] - slack
        return sum(r["run_s"] for r in receipts)
    assert abs(total - job["cost"]) <= slack, (
        total, job["cost"], "\n".join(json.dumps(r, default=str) for r in receipts))
    return sum(r["run_s"] for r in receipts)


# Long: one story, whose end adds up what every step of it cost.
def test_jobs_run_on_while_the_market_is_away_and_all_adds_up_when_it_is_back(market):
    for node in ("n2", "n3"):
        market.tool("pvdctl", "--node", node, "set", "price", "2")
    steady = market.srun("-p", "40", "sh", "-c", LINE)
    market.until_runs(steady.id, "n1")
    poor = market.srun("-p", "40", "-b", "0.006", *SPIN)  # 10.8 s at 2: until the market is away
    market.until_runs(poor.id, "n2")
    guest = market.srun("-p", "40", *programs.chain_job(), stdin=subprocess.PIPE)
    market.until_runs(guest.id, "n3")
    guest.printed(2)
    with Outage(market) as outage:
        refused(market.tool("marketctl", "list-jobs", check=False), "away")
        refused(market.tool("marketctl", "--node", "n2", "list-jobs", check=False), "away")
        said = refused(market.tool("souk", "node", "renew", "--node", "n1", check=False), "away")
        assert "nothing is renewed: there is no connection to the market" in said
        # Output goes on.
        steady.printed(steady.lines() + 20)
        # A job whose budget ends is frozen by its home.
        market.until_step(poor.id, step="frozen", node="n2")
        assert not market.processes(poor.id, "sh")
        # An owner gets his machine back: without the market nobody knows a better place, so the
        # guest lies there frozen.
        market.tool("pvdctl", "--node", "n3", "market", "off")
        market.until_step(guest.id, step="frozen", node="n3")
        assert not market.processes(guest.id, "python3")
        assert outage.status("n3")["on_market"] is False
        # A new job waits until the market is back, and says why.
        waits = market.srun("-p", "40", "echo", "at last")
        waits.said(f"{waits.id}: no connection to the market at .*; until there is one, what runs "
                   f"goes on and nothing new begins")
        plain = subprocess.Popen(
            [f"{os.path.dirname(waits.argv[0])}/srun", "-p", "40", "echo", "plain"], env=market.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        detached = market.tool("srun", "-p", "40", "--detach", "echo", "later")
        assert "waits: no connection to the market at" in detached.stderr
        id = detached.stdout.strip()
        # The agent of home and guest ends and comes back: the job has not noticed, nor has its
        # clock.
        restart(market, "n1", signal.SIGKILL)
        restart(market, "n2")
        steady.printed(steady.lines() + 20)
        assert len(market.capsules(steady.id)) == 1
    assert market.until_runs(steady.id)["price"] >= 0
    assert (ask(market, "job", steady.id)["places"] == ["n1"] and
            ask(market, "job", steady.id)["freezes"] == 0)
    market.tool("pvdctl", "--node", "n3", "market", "on")
    assert waits.wait() == 0 and bytes(waits.out) == b"at last\n"
    out, err = plain.communicate(timeout=60)
    assert ((plain.returncode, out) == (0, "plain\n") and
            "waits: no connection to the market at" in err), err
    market.until_job(id, "has run", lambda j: j["status"] == "finish")
    assert market.tool("srun", "-q", "--attach", id).stdout == "later\n"
    market.until_job(poor.id, "is frozen",
                     lambda j: j["status"] == "suspend" and j["reason"]["code"] == "budget_used")
    market.until_runs(guest.id)
    guest.printed(guest.lines() + 2)
    guest.process.stdin.close()
    assert guest.wait() == 7
    programs.check_chain(guest.out)
    # No job's clock stood still: each is charged for as long as it printed.
    printed = steady.lines()
    for job in (steady, poor):
        market.tool("marketctl", "cancel", job.id)
        job.wait()
    lines = [int(n) for n in bytes(steady.out).split()]
    assert lines == list(range(1, len(lines) + 1)), "output is missing, or doubled"
    settled(market)
    ran = exact_cost(market, steady.id)
    assert ran >= decimal.Decimal(printed) * decimal.Decimal("0.05"), (ran, printed)
    for job in (poor, guest, waits):
        exact_cost(market, job.id)
    assert ask(market, "job", poor.id)["cost"] <= decimal.Decimal("0.006")
    assert {r["node"] for r in ask(market, "receipts", "--job", guest.id)} >= {"n3"}


def test_a_job_that_ends_while_market_and_home_are_away_is_paid_for_and_its_output_whole(market,
                                                                                         tmp_path):
    go = tmp_path / "go"
    job = market.srun("-p", "40", "sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; "
                      "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; echo $i; exit 5")
    market.until_runs(job.id)
    with Outage(market):
        restart(market, "n1", signal.SIGKILL, killed=go.touch)
        assert job.wait() == 5
    assert bytes(job.out) == b"40000\n"
    ended = market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")
    assert ended["cost"] > 0
    settled(market)
    exact_cost(market, job.id)


def test_homes_keep_to_what_is_left_of_a_users_day_while_the_market_is_away(market):
    spent = ask(market, "user", "show", "0")[0]["spent_today"]
    limit = spent + decimal.Decimal("0.006")  # 10 s for two jobs at a price of 1, or a little more
    market.tool("marketctl", "user", "limit", "0", "--spend-per-day", f"{limit:.6f}")
    try:
        jobs = [market.srun("--node", node, "-p", "40", *SPIN) for node in ("n1", "n2")]
        for job in jobs:
            market.until_runs(job.id)
            job.said(rf"^srun: {job.id}: the {limit.normalize():f} that its user may spend "
                     rf"are used up in \d+ s")
        with Outage(market):
            for job in jobs:
                market.until_step(job.id, step="frozen")
                job.said(f"its share of the {limit.normalize():f} that its user may spend is "
                         f"used up")
        for job in jobs:
            market.until_job(job.id, "says why", lambda j: j["status"] == "suspend" and
                             j["reason"]["code"] == "user_day")
        shown = ask(market, "user", "show", "0")[0]
        assert (shown["spent_today"] <= limit and
                shown["spent_today"] > limit - decimal.Decimal("0.004")), shown
    finally:
        market.tool("marketctl", "user", "unlimit", "0")
    for job in jobs:
        market.until_runs(job.id)
        market.tool("marketctl", "cancel", job.id)
        job.wait()
    settled(market)


def test_every_daemon_restarted_in_turn_under_load_loses_nothing(market):
    jobs = [market.srun("--node", f"n{i + 1}", "-p", 50 + i, *programs.chain_job(),
                        stdin=subprocess.PIPE) for i in range(3)]
    for job in jobs:
        market.until_runs(job.id)
    short = []
    for name in ("market", "n1", "n2", "n3", "market"):
        short.append(market.srun("--node", "n2", "-p", "200", "sh", "-c", "seq 200; exit 3"))
        restart(market, name)
    market.until_up()
    for job in short:
        assert job.wait(90) == 3, job.words[-5:]
        assert bytes(job.out) == "".join(f"{i}\n" for i in range(1, 201)).encode()
    for job in jobs:
        market.until_runs(job.id, limit=90)
        # After a short move to a node and back, two copies are there for a moment.
        until("it is there once", lambda: market.processes(job.id, "python3") == 1)
        job.printed(job.lines() + 3)
        job.process.stdin.close()
        assert job.wait(60) == 7
        programs.check_chain(job.out)
    ids = [j["id"] for j in market.list_jobs()]
    assert len(ids) == len(set(ids)) and {j.id for j in jobs + short} <= set(ids)
    settled(market)
    for job in jobs + short:
        exact_cost(market, job.id)
