# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-web runs with a real market. These tests look at its pages, at whom it answers, and at its
limits."""
import os
import re
import select
import signal
import subprocess
import time

import pytest

from codes import refused
from conftest import LIMIT, until
from web_pages import Web

SLEEP = ["sh", "-c", "echo up; read x; exit 3"]
EVIL = "<script>alert(1)</script>\"'&"
CONNECTIONS, WATCHERS = 96, 64


def heard(sock, word):
    """Reads from the socket until this word has come, and returns all that was read."""
    data = b""
    while word not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


@pytest.fixture
def web(market):
    started = []

    def start(*options, **how):
        started.append(Web(market, *options, **how))
        return started[-1]

    yield start
    assert [w.end() for w in started] == [0] * len(started)


def rows(text, kind):
    return re.findall(rf'<tr><td[^>]*><span><a href="/{kind}/([^"]+)"', text)


def test_the_pages_show_a_job_from_its_start_to_its_end(market, web):
    job = market.srun("-p", 50, "--name", EVIL, *SLEEP, stdin=subprocess.PIPE)
    job.printed(1)
    here = market.until_runs(job.id)["where"]
    there = next(n for n in market.nodes() if n != here)
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    w = web()
    board = w.page("/")
    assert rows(board, "node") == sorted(market.nodes()) and rows(board, "job") == [job.id]
    one = until("the story is told", lambda: (p := w.page("/job/" + job.id)) and
                "moved, stop-and-copy" in p and p)
    for page in (board, one, w.page("/jobs"), w.page("/node/" + there)):
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;" in page
    assert one.count('<rect class="run"') == 2, one
    for node in (here, there):
        assert f"<span>{node}</span>" in one and f'href="/node/{node}"' in one
    assert rows(w.page("/jobs?state=run"), "job") == [job.id]
    assert rows(w.page("/jobs?state=wait"), "job") == []
    assert rows(w.page(f"/jobs?node={there}"), "job") == [job.id]
    assert rows(w.page("/nodes?match=2"), "node") == ["n2"]
    assert "<polyline" in w.page("/prices?span=6h")
    job.process.stdin.write(b"x\n")
    job.process.stdin.close()
    assert job.wait() == 3
    until("it is in the history", lambda: job.id in rows(w.page("/history"), "job"))
    picture = until("its receipts are there", lambda: (p := w.page("/time?span=1h")) and
                    p.count(f'<a href="/job/{job.id}"') == 2 and p)
    names = re.search(r'<div class="names">(.*?)</div>', picture)[1]
    assert re.findall(r"<span>(\w+)</span>", names) == sorted(market.nodes())
    ledger = w.page("/ledger?job=" + job.id)
    paid = market.ctl("marketctl", "receipts", "--job", job.id)
    assert len(paid) == 2 and re.findall(r'"Receipt" class="number"><span>(\d+)', ledger) == [
        str(r["receipt"]) for r in paid]
    assert "<span>user root</span>" in w.page("/ledger")
    market.tool("marketctl", "deposit", "root", "2.5", "--note", "for <tests>")
    statement = w.page("/statement?of=root")
    assert "for &lt;tests&gt;" in statement and "<span>deposit</span>" in statement
    entries = market.ctl("marketctl", "statement", "root", "--limit", "50")
    assert re.findall(r'"Receipt" class="number"><span>(\d+)', statement) == [
        str(e["receipt"]) for e in entries]
    assert 'href="/statement?of=root"' in w.page("/ledger?user=root")
    for by in ("user", "node", "day"):
        until(f"the report by {by} has it", lambda: "<tbody>" in w.page("/report?by=" + by))
    until("its end is told",
          lambda: "<dt>Exit status</dt><dd>3</dd>" in w.page("/job/" + job.id))


def test_who_is_neither_root_nor_the_jobs_user_sees_what_the_market_tells_all(market, web):
    job = market.srun("-p", 50, "--name", "secret", *SLEEP, stdin=subprocess.PIPE)
    job.printed(1)
    w = web("--open", user=65534, group=65534, extra_groups=[])
    assert rows(w.page("/"), "job") == [job.id] and "secret" not in w.page("/")
    one = w.page("/job/" + job.id)
    assert "asks as neither" in one and "secret" not in one


def test_long_lists_come_in_pages(market, web):
    said = market.tool("srun", "-p", 1, "--array", "1-120", "--detach", "sleep", "1000").stdout
    w = web()
    want = until("the market has all", lambda: (j := market.live()) and len(j) == 120 and j)
    first = min(want, key=lambda j: j["array_index"])["id"]
    folded = w.page("/jobs")
    assert rows(folded, "job") == [] and f">{first}[120]</a>" in folded
    assert f'href="/jobs?open={first}" aria-expanded="false"' in folded
    opened = w.page("/jobs?open=" + first)
    parts = re.findall(r'<tr class="part"><td[^>]*><span><a href="/job/([^"]+)"', opened)
    assert len(parts) == 50 and set(parts) < {j["id"] for j in want}
    seen, at = [], "/jobs?group=" + first
    for _ in range(4):
        page = w.page(at)
        seen += rows(page, "job")
        more = re.search(r'<a rel="next" href="([^"]+)"', page)
        if not more:
            break
        assert len(rows(page, "job")) == 50
        at = more[1].replace("&amp;", "&")
    assert sorted(seen) == sorted(j["id"] for j in want), said
    for odd in ("after=nonsense", "group=x", "open=x", "state=odd"):
        assert w.ask("/jobs?" + odd)[0] == 400, odd
    assert rows(w.page(f"/jobs?state=frozen&group={first}"), "job") == []
    market.tool("marketctl", "cancel", "--all")


def test_only_who_has_the_key_and_names_the_server_is_answered(market, web):
    w = web()
    assert w.ask("/")[0] == 200 and w.ask("/", Cookie="")[0] == 403
    assert w.ask("/", Cookie=f"souk-{w.port}=0123")[0] == 403
    assert w.ask("/events", Cookie="")[0] == 403
    status, headers, _ = w.ask("/jobs?" + w.key, Cookie="")
    assert status == 302 and headers["Location"] == "/jobs"
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    assert headers["Set-Cookie"].split(";")[0] == w.cookie["Cookie"]
    for host in ("evil.example", f"evil.example:{w.port}", "127.0.0.1:1", "127.0.0.1.evil"):
        status, _, text = w.ask("/", Host=host)
        assert status == 421 and "--host" in text, host
    assert w.ask("/", Host=f"localhost:{w.port}")[0] == 200
    named = web("--host", "souk.example")
    assert named.ask("/", Host="souk.example")[0] == 200
    refused(market.tool("souk-web", "--listen", "0.0.0.0:0", check=False), "invalid")
    refused(market.tool("souk-web", "--listen", f"127.0.0.1:{w.port}", check=False),
            "not_possible")


def test_what_is_no_request_for_a_page_is_refused(market, web):
    w = web()
    for path, want in (("/job/n1.99999", 404), ("/job/x", 400), ("/node/n9", 404), ("/none", 404),
                       ("/node/%2e%2e", 400), ("/jobs?state=odd", 400), ("/prices?span=1y", 400),
                       ("/time?span=1y", 400), ("/report?by=all", 400), ("/ledger?job=x", 400),
                       ("/ledger?user=nobody-here", 400), ("/statement?of=nobody-here", 400),
                       ("/jobs?user=" + "a" * 65, 400), ("/../../etc/passwd", 404)):
        assert w.ask(path)[0] == want, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert w.ask("/", method)[0] == 405, method
    sock = w.raw("GET / HTTP/1.1", f"Host: {w.host}", *(f"X-{i}: {'a' * 500}" for i in range(100)))
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass  # what it had not read is what it resets for
    assert b"200 OK" not in data
    assert w.raw("\0\1\2 nonsense").recv(65536).startswith(b"HTTP/1.1 400")
    assert w.ask("/")[0] == 200


def test_watchers_and_connections_have_a_bound(market, web):
    w = web()
    watching = [w.watch() for _ in range(WATCHERS)]
    for sock in watching:
        heard(sock, b"event: tick")
    refused = w.watch()
    assert b"as many watch already" in heard(refused, b"serves")
    for sock in [refused, *watching]:
        sock.close()

    def again():
        sock = w.watch()
        data = sock.recv(65536)
        sock.close()
        return b"200 OK" in data

    until("a place is free again", again)
    # A connection may find no place; which one depends on when the watching ones are gone.
    idle = [w.raw() for _ in range(CONNECTIONS + 1)]
    told = select.select(idle, [], [], LIMIT)[0]
    assert told and b"too many connections" in heard(told[0], b"just now")
    for sock in idle:
        sock.close()
    until("it answers again", lambda: w.ask("/")[0] == 200)


def test_a_market_that_is_away_is_told_and_waited_for(market, web, tmp_path):
    path = tmp_path / "market.sock"
    w = web("--socket", str(path))
    status, headers, text = w.ask("/")
    assert status == 503 and headers["Retry-After"] and "cannot reach the daemon" in text
    assert w.ask("/style.css")[0] == 200
    watching = w.watch()
    heard(watching, b"event: trouble")
    os.symlink(f"{market.run_dir}/market/marketd.sock", path)
    heard(watching, b"event: tick")
    watching.close()
    assert w.ask("/")[0] == 200


def test_pages_beside_a_market_that_hangs_say_so_within_seconds(market, web):
    w = web()
    assert "n1" in w.page("/")
    pid = market.daemon("market")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until("what was kept is old", lambda: w.ask("/nodes")[0] == 503)
        began = time.monotonic()
        for path in ("/", "/jobs", "/prices", "/job/n1.1"):
            status, _, text = w.ask(path)
            assert status == 503 and "has not answered within 4 s" in text, (path, status, text)
        assert time.monotonic() - began < 20
    finally:
        os.kill(pid, signal.SIGCONT)
    until("the pages are back", lambda: w.ask("/")[0] == 200)
