# SPDX-License-Identifier: GPL-2.0-or-later
"""Why does it not run, when will it, what did it cost: of ten staged situations, each answered the
same by marketctl, mmon, JSON, souk-web and srun."""
import html
import json
import re
import subprocess

import pytest

from conftest import until
from test_web import Web

SLEEP = ("sleep", "1000")
HOLDS_IO_URING = ("python3", "-c", "import ctypes, time; p = ctypes.create_string_buffer(120); "
                  "assert ctypes.CDLL(None).syscall(425, 8, p) >= 0; time.sleep(1000)")


@pytest.fixture
def web(market):
    one = Web(market)
    yield one
    one.end()


def ask(market, *args):
    return json.loads(market.tool("marketctl", "--json", *args).stdout)


def full(market, price=40):
    """A job on every node."""
    jobs = [market.srun("-p", price, *SLEEP) for _ in market.nodes()]
    for job in jobs:
        market.until_runs(job.id)
    return jobs


# Each function brings a job (or node) into a state. It returns the job or node that is asked about,
# the code, and a test of its reason.

def outbid(market):
    full(market)
    return market.srun("-p", 30, *SLEEP), "outbid", lambda r: 40 < r["bid"] <= 41


def memory_too_big(market):
    most = max(p["memory_mb"] for p in market.providers())
    return (market.srun("-p", 30, "-m", f"{most + 1024}M", *SLEEP), "too_much_memory",
            lambda r: (r["mb"], r["most"]) == (most + 1024, most))


def node_off(market):
    market.tool("pvdctl", "--node", "n3", "market", "off")
    return "n3", "node_off", lambda r: True


def waits_for_another(market):
    first = market.srun("-p", 40, *SLEEP)
    return (market.srun("-p", 40, "--after", first.id, *SLEEP), "waits_for_job",
            lambda r: first.id in r["cause"])


def budget_used(market):
    for node in market.nodes():
        market.tool("pvdctl", "--node", node, "set", "price", "100")
    return (market.srun("-p", 200, "-b", "0.02", *SLEEP), "budget_used",
            lambda r: r["limit"] == 0.02)


def cannot_move(market):
    return (market.srun("-p", 40, *HOLDS_IO_URING), "cannot_move",
            lambda r: r["cause_code"] == "holds_io_uring")


def displaced(market):
    low = market.srun("-p", 20, *SLEEP)
    market.until_runs(low.id)
    high = full(market)
    return low, "displaced", lambda r: (r["job"] in [j.id for j in high] and 20 <= r["price"] <= 40
                                        and 40 <= r["bid"] <= 41)


def owner_is_back(market):
    for node in ("n2", "n3"):
        market.tool("pvdctl", "--node", node, "market", "off")
    job = market.srun("-p", 40, *SLEEP)
    market.until_runs(job.id, "n1")
    market.tool("pvdctl", "--node", "n1", "market", "off")
    return job, "no_provider", lambda r: True


def held(market):
    job = market.srun("-p", 40, *SLEEP)
    market.until_runs(job.id)
    market.tool("marketctl", "--hold", "freeze", job.id)
    return job, "held_frozen", lambda r: True


def limit_of_user(market):
    market.tool("marketctl", "user", "limit", "root", "--jobs", "1")
    market.until_runs(market.srun("-p", 40, *SLEEP).id)
    return market.srun("-p", 40, *SLEEP), "user_jobs", lambda r: True


STAGES = (outbid, memory_too_big, node_off, waits_for_another, budget_used, cannot_move, displaced,
          owner_is_back, held, limit_of_user)


@pytest.fixture
def no_limit(market):
    yield
    market.tool("marketctl", "user", "limit", "root", "--jobs", "none")


def reason_of(market, id, code, holds):
    seen = []

    def probe():
        done = market.tool("marketctl", "--json", "why", id, check=False)
        # The market may not have heard of it yet.
        seen[:] = json.loads(done.stdout)["reasons"] if done.returncode == 0 else [done.stderr]
        if done.returncode != 0:
            return None
        return next((r for r in seen if r["code"] == code and holds(r)), None)
    try:
        return until(f"{id}: {code}", probe)
    except AssertionError as late:
        raise AssertionError(f"{late}; it says {seen}") from None


def words(page):
    """The text of a page."""
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.__name__)
def test_why_and_when_are_answered_the_same_everywhere(market, web, no_limit, stage):
    what, code, holds = stage(market)
    of_node = isinstance(what, str)
    id = what if of_node else what.id
    text, cause = "", reason_of(market, id, code, holds).get("cause_code", "")
    coded = f"[{code}: {cause}]" if cause else f"[{code}]"

    def told():
        """Compares the three places and returns their differences. The reason may change meanwhile,
        so each round asks for its words again."""
        nonlocal text
        now = text = reason_of(market, id, code, holds)["text"]
        people = market.tool("marketctl", "why", id).stdout
        page = words(web.page(f"/{'node' if of_node else 'job'}/{id}"))
        wrong = []
        if f"{now}  {coded}" not in people:
            wrong.append(("marketctl why", people))
        if f"{now} {coded}" not in page:
            wrong.append(("souk-web", page))
        once = market.tool("mmon", "--once").stdout
        if of_node:
            return wrong + ([] if re.search(rf"^{id} +off", once, re.M) else [("mmon", once)])
        job = market.job(id)
        listed = next(j for j in ask(market, "list-jobs") if j["id"] == id)
        if code == "cannot_move":  # it runs; what it holds is said beside
            said = (job["can_move"], job["cannot_move"], job["cannot_move_code"])
            return wrong + ([] if said == (False, now, cause) else [("job", job)])
        for place, seen in (("job", job), ("list-jobs", listed)):
            said = seen["reason"]
            if (seen["comment"], said["code"], said["text"]) != (now, code, now):
                wrong.append((place, seen))
        for place, lines in (("mmon", once), ("marketctl job", market.tool("marketctl", "job",
                                                                           id).stdout)):
            if now not in lines:
                wrong.append((place, lines))
        return wrong

    wrong = None
    for _ in range(5):  # prices may change between two of the questions
        wrong = told()
        if not wrong:
            break
    assert not wrong
    if not of_node:
        what.said(re.escape(text).replace("\\ ", " "))  # and its own terminal


def test_what_a_job_cost_is_the_same_everywhere(market, web):
    """The job is displaced, goes on and ends. Its receipts say why each of its stays ended."""
    low = market.srun("-p", 20, "--json", "cat", stdin=subprocess.PIPE)
    market.until_runs(low.id)
    high = full(market)
    market.until_job(low.id, "is frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "cancel", high[0].id)
    market.until_runs(low.id)
    low.process.stdin.close()
    assert low.wait() == 0
    summary = json.loads(low.told[-1])
    job = market.until_job(low.id, "has ended", lambda j: j["status"] == "finish")
    receipts = until("the receipts", lambda: [r for r in ask(market, "receipts", "--job", low.id)])
    cost = round(sum(r["paid"] for r in receipts), 6)
    listed = next(j for j in ask(market, "history") if j["id"] == low.id)
    assert [job["cost"], listed["cost"], summary["cost"]] == [cost] * 3 and cost > 0
    # The job may have been displaced from one place to the next before it was frozen.
    codes = [r["reason"] for r in reversed(receipts)]
    assert codes[-1] == "ended" and set(codes[:-1]) == {"displaced"}, receipts
    page = words(web.page(f"/job/{low.id}"))
    assert re.search(rf"Cost\s+{re.escape(f'{cost:f}'.rstrip('0'))}\s", page), page
    assert "displaced" in words(web.page(f"/ledger?job={low.id}"))
    people = market.tool("marketctl", "receipts", "--job", low.id).stdout
    assert "displaced" in people and "ended" in people
