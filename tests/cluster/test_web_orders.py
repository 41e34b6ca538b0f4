# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-web --actions with a real market: who logs in with a token of the terminal, what he can
order then, and what is refused."""
import re

import pytest

from codes import refused
from conftest import read_text, until
from web_pages import Visitor, Web

NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
SLEEP = ["sleep", "1000"]


@pytest.fixture
def visit(market):
    started = []

    def start(*options, **how):
        started.append(Web(market, "--actions", *options, **how))
        return Visitor(started[-1])

    yield start
    assert [w.end() for w in started] == [0] * len(started)


def token(market, **how):
    said = market.tool("marketctl", "web-token", **how).stdout.strip()
    assert re.fullmatch("[0-9a-f]{32}", said), said
    return said


def offered(page, job):
    return re.findall(rf'<a class="button[^"]*" href="/job/{job}/(\w+)"', page)


def test_an_operator_logs_in_orders_and_logs_out(market, visit):
    job = market.srun("-p", 50, "--name", "simulate", *SLEEP)
    here = market.until_runs(job.id)["where"]
    there = next(n for n in market.nodes() if n != here)
    v = visit()
    page = v.get("/job/" + job.id)[2]
    assert 'href="/login">Log in' in page and offered(page, job.id) == []
    status, told, _ = v.log_in(token(market))
    assert (status, told["Location"]) == (303, "/")
    assert "; HttpOnly; SameSite=Strict; Max-Age=28" in v.cookie
    page = v.get("/job/" + job.id)[2]
    assert "root, operator" in page
    assert offered(page, job.id) == ["move", "freeze", "hold", "cancel"]
    asked = v.get(f"/job/{job.id}/move")[2]
    assert "simulate: run; root. It goes on there" in asked and "http-equiv" not in asked
    assert re.findall(r'<option value="(\w+)"', asked) == sorted(market.nodes())
    assert market.job(job.id)["where"] == here  # it was only asked
    status, told, _ = v.order(job.id, "move", node=there, hold="yes")
    assert (status, told["Location"]) == (303, "/job/" + job.id)
    market.until_runs(job.id, there)
    assert 'class="notice" role="status"' in v.get("/job/" + job.id)[2]
    assert v.order(job.id, "freeze", hold="yes")[0] == 303
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    assert "release" in offered(v.get("/job/" + job.id)[2], job.id)
    assert v.order(job.id, "thaw")[0] == 303
    assert v.order(job.id, "release")[0] in (303, 409)
    market.until_runs(job.id)
    assert v.order(job.id, "cancel")[0] == 303
    market.until_job(job.id, "is cancelled", lambda j: j["status"] == "finish")
    assert offered(v.get("/job/" + job.id)[2], job.id) == []
    assert re.search(rf'a word by a page.*verb=cancel.*words={job.id}',
                     read_text(f"{market.run_dir}/market/log"))
    key = re.search(r'action="/logout".*?value="(\w+)"', v.get("/")[2])[1]
    old = v.login
    assert v.post("/logout", {"form": key})[0] == 303 and v.cookie.endswith("Max-Age=0")
    v.login = old
    assert v.get(f"/job/{job.id}/cancel")[0] == 403
    assert v.post(f"/job/{job.id}/cancel", {"form": key})[0] == 403


def test_a_user_sees_his_own_jobs_and_orders_them_and_nothing_else(market, visit):
    own = market.srun("-p", 60, "--name", "mine", *SLEEP, cwd="/", **NOBODY)
    other = market.srun("-p", 50, "--name", "secret", *SLEEP)
    for job in (own, other):
        market.until_runs(job.id)
    v = visit(**NOBODY)
    assert v.log_in(token(market, **NOBODY))[0] == 303
    page = v.get("/jobs")[2]
    assert "mine" in page and "secret" not in page
    assert offered(v.get("/job/" + own.id)[2], own.id) == ["freeze", "hold", "cancel"]
    assert v.order(own.id, "hold")[0] == 303
    market.until_job(own.id, "is held", lambda j: j["status"] == "suspend")
    page = v.get("/job/" + own.id)[2]
    assert offered(page, own.id) == ["thaw", "release", "cancel"] and "by its user" in page
    assert v.order(own.id, "release")[0] == 303
    market.until_runs(own.id)
    assert v.order(own.id, "freeze")[0] == 303  # it has a place, so it comes back by itself
    assert v.order(own.id, "hold")[0] == 303
    market.until_job(own.id, "is held", lambda j: j["status"] == "suspend")
    assert v.order(own.id, "thaw")[0] == 303
    market.until_runs(own.id)
    assert offered(v.get("/job/" + other.id)[2], other.id) == []
    for job, verb, why in ((other, "cancel", "belongs to another"),
                           (other, "freeze", "belongs to another"),
                           (other, "hold", "belongs to another"),
                           (other, "release", "belongs to another"),
                           (own, "move", "only root may")):
        status, _, text = v.order(job.id, verb, node="n1")
        assert status == 409 and why in text, (verb, text)
    assert v.order(own.id, "cancel")[0] == 303
    market.until_job(own.id, "is cancelled", lambda j: j["status"] == "finish")
    market.until_runs(other.id)


def test_a_souk_web_of_a_user_serves_nobody_else(market, visit):
    v = visit(**NOBODY)
    status, _, text = v.log_in(token(market))
    assert status == 403 and "may not serve others" in text and not v.login
    # root's may, and gives each the rights that he has
    v = visit()
    assert v.log_in(token(market, **NOBODY))[0] == 303
    assert "operator" not in v.get("/")[2]


def test_only_a_form_of_its_own_from_who_has_logged_in_is_heard(market, visit):
    job = market.srun("-p", 50, *SLEEP)
    market.until_runs(job.id)
    v = visit()
    once = token(market)
    assert v.log_in(once)[0] == 303
    action, key = v.form_of(f"/job/{job.id}/cancel")
    fields = {"form": key}
    for headers in ({"Origin": ""}, {"Origin": "null"}, {"Origin": "http://evil.example"},
                    {"Origin": f"https://evil.example:{v.web.port}"},
                    {"Origin": v.origin + ".evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        status, _, text = v.post(action, fields, **headers)
        assert status == 403 and "not sent from a page" in text, headers
    for wrong in ({}, {"form": ""}, {"form": key[:-1] + "x"}, {"form": "0" * len(key)}):
        assert v.post(action, wrong)[0] == 403, wrong
    mine = v.login
    for login in ("", mine[:-1] + "x", mine.split("=")[0] + "="):
        v.login = login
        status, _, text = v.post(action, fields)
        assert status == 403 and "log in first" in text, login
    v.login = mine
    assert market.job(job.id)["status"] == "run"
    stranger = Visitor(v.web)
    status, _, text = stranger.log_in(once)
    assert status == 403 and "was used" in text
    key = stranger.form_of("/login")[1]
    status, _, text = stranger.post("/login", {"form": key, "token": token(market)},
                                    Origin="http://evil.example")
    assert status == 403 and "not sent from a page" in text
    assert stranger.log_in("<script>")[0] == 400
    # names of nodes and orders are looked at, and what is too much is not read
    assert v.order(job.id, "move", node="<i>")[0] == 400
    assert v.post(f"/job/{job.id}/nothing", fields)[0] == 404
    assert v.post("/board", fields)[0] == 404
    assert v.post(action, {"form": "x" * 5000})[0] == 413
    assert v.web.ask(action, "PUT")[0] == 405
    assert v.order(job.id, "cancel")[0] == 303


def test_wrong_tokens_are_few_and_a_market_that_was_started_anew_knows_no_session(market, visit):
    v = visit()
    assert v.log_in(token(market))[0] == 303
    assert "root, operator" in v.get("/")[2]
    market.kill_daemon("market")
    market.until_up()
    page = until("the visitor is logged out",
                 lambda: (p := v.get("/")[2]) and ">Log in</a>" in p and p)
    assert "operator" not in page
    for _ in range(10):
        assert v.log_in("0" * 32)[0] == 403
    status, _, text = v.log_in(token(market))
    assert status == 429 and "too many wrong tokens" in text


def test_without_actions_nothing_is_ordered(market):
    w = Web(market)
    try:
        v = Visitor(w)
        assert v.get("/login")[0] == 404 and "Log in" not in v.get("/")[2]
        assert v.post("/login", {})[0] == 405
    finally:
        assert w.end() == 0
    for address in ("0.0.0.0:0", "10.0.0.1:0"):
        done = market.tool("souk-web", "--actions", "--listen", address, "--host", "x", check=False)
        refused(done, "invalid")
