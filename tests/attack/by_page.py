# SPDX-License-Identifier: GPL-2.0-or-later
"""Attacks on a souk-web that takes orders: by a site that a user's browser shows, by somebody who
has seen a token, and by a user who has logged in."""
import contextlib

from stage import attempt, root_job, SOMEBODY


@contextlib.contextmanager
def page(s, **how):
    """Runs a souk-web that takes orders. It is root's, unless `how` names another user."""
    import web_pages  # of tests/cluster
    s.somebody("souk-web", "--version", check=True)  # he has a copy
    web = web_pages.Web(s.market, "--open", "--actions", program=f"{s.place}/souk-web", **how)
    try:
        yield web_pages.Visitor(web)
    finally:
        web.end()


def token(s):
    return s.somebody("marketctl", "web-token", check=True).stdout.strip()


def told(answer, status):
    got, _, text = answer
    assert got == status, (got, text)
    return text


@attempt("another site", "sends the form that cancels a job, without a log-in", "log in first")
def site_without_cookie(s):
    job = root_job(s)
    try:
        with page(s) as v:
            said = told(v.post(f"/job/{job.id}/cancel", {"form": "0" * 40}), 403)
        assert s.runs(job)
        return said
    finally:
        job.end()


@attempt("another site", "has the browser of who has logged in send that form",
         "not sent from a page of this souk-web")
def site_with_cookie(s):
    job = root_job(s)
    try:
        with page(s) as v:
            assert v.log_in(s.market.tool("marketctl", "web-token").stdout.strip())[0] == 303
            action, key = v.form_of(f"/job/{job.id}/cancel")
            said = told(v.post(action, {"form": key}, Origin="https://evil.example"), 403)
            for origin in (v.origin, "null"):  # it cannot read the key of the form
                told(v.post(action, {"form": "0" * len(key)}, Origin=origin), 403)
        assert s.runs(job)
        return said
    finally:
        job.end()


@attempt("another site", "logs the browser in as the attacker",
         "not sent from a page of this souk-web")
def site_logs_in(s):
    with page(s) as v:
        return told(v.post("/login", {"form": "0" * 40, "token": token(s)},
                           Origin="https://evil.example"), 403)


@attempt("hostile user", "logs in at a page with a token that was used", "was used")
def token_again(s):
    with page(s) as v:
        once = token(s)
        assert v.log_in(once)[0] == 303
        return told(type(v)(v.web).log_in(once), 403)


@attempt("hostile user", "has root log in at a souk-web of his", "may not serve others")
def token_of_another(s):
    with page(s, user=SOMEBODY, group=SOMEBODY, extra_groups=[]) as v:
        return told(v.log_in(s.market.tool("marketctl", "web-token").stdout.strip()), 403)


@attempt("hostile user", "guesses tokens", "too many wrong tokens")
def token_guessed(s):
    with page(s, user=SOMEBODY, group=SOMEBODY, extra_groups=[]) as v:
        for i in range(10):
            told(v.log_in(f"{i:032x}"), 403)
        return told(v.log_in(token(s)), 429)


@attempt("hostile user", "has logged in, and cancels somebody else's job by the page",
         "belongs to another user")
def page_cancels_anothers(s):
    job = root_job(s)
    try:
        with page(s) as v:
            assert v.log_in(token(s))[0] == 303
            said = told(v.order(job.id, "cancel"), 409)
            for verb, why in (("move", "only root may"), ("thaw", "another user"),
                              ("freeze", "another user"), ("release", "another user")):
                assert why in told(v.order(job.id, verb, node="n2"), 409)
        assert s.runs(job)
        return said
    finally:
        job.end()
