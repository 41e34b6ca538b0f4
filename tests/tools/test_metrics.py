# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of marketd over HTTP, and what contrib/ makes of them."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BIN = pathlib.Path(os.environ.get("SOUK_BIN", "build/bin")).absolute()
LIMIT = 20


@pytest.fixture
def page(tmp_path):
    # An address of this process alone: a port that is free on another's may be taken by then.
    at = f"127.1.{os.getpid() >> 8 & 255}.{os.getpid() & 255}", 7079
    (tmp_path / "market.toml").write_text(
        f'listen = "127.0.0.1:0"\nsocket = "{tmp_path}/m.sock"\ninsecure = true\n'
        f'state = "{tmp_path}/state"\nmetrics = "{at[0]}:{at[1]}"\n')
    daemon = subprocess.Popen([BIN / "marketd", "--config", tmp_path / "market.toml"],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in daemon.stderr:
            if "ready" in line:
                break
        yield at
    finally:
        daemon.terminate()
        assert daemon.wait(LIMIT) == 0
        daemon.stderr.close()


def get(at, path="/metrics"):
    with urllib.request.urlopen(f"http://{at[0]}:{at[1]}{path}", timeout=LIMIT) as answer:
        return answer.headers, answer.read().decode()


def test_the_page_is_what_prometheus_takes(page):
    headers, text = get(page)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'souk_market_jobs{state="waiting"} 0' in text
    assert 'souk_market_standing_jobs 0' in text
    assert 'souk_market_nodes{state="free"} 0' in text
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True,
                              text=True, timeout=LIMIT)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_other_pages_and_methods_are_refused_and_a_long_request_is_cut_off(page):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(page, "/")
    with socket.create_connection(page, LIMIT) as s:
        s.sendall(b"POST /metrics HTTP/1.1\r\n\r\n")
        assert s.recv(64).startswith(b"HTTP/1.1 405 ")
    with socket.create_connection(page, LIMIT) as s:
        s.sendall(b"GET /" + b"x" * 8_190)
        s.settimeout(LIMIT)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
    assert "souk_build_info" in get(page)[1]


def test_more_connections_than_allowed_are_closed_and_the_page_stays(page):
    some = [socket.create_connection(page, LIMIT) for _ in range(16)]
    with socket.create_connection(page, LIMIT) as one_more:
        assert one_more.recv(1) == b""
    for s in some:
        s.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert s.recv(64).startswith(b"HTTP/1.1 200 ")
        s.close()
    # a place is free again when the daemon has seen that one went
    for _ in range(200):
        try:
            get(page)
            return
        except (urllib.error.URLError, ConnectionError):
            pass
    raise AssertionError("no connection is taken any more")


def test_rules_and_board_use_figures_that_there_are():
    sources = "".join((ROOT / f).read_text() for f in ("market/daemon/market_figures.cpp",
                                                       "agentd/daemon/node_figures.cpp"))
    known = set(re.findall(r"souk_\w+", sources))
    rules = ROOT / "contrib/prometheus/souk.rules.yml"
    board = json.loads((ROOT / "contrib/grafana/souk.json").read_text())
    used = set(re.findall(r"souk_\w+", rules.read_text()))
    for panel in board["panels"]:
        for target in panel["targets"]:
            used |= set(re.findall(r"souk_\w+", target["expr"]))
    assert used and used <= known
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True,
                              timeout=LIMIT)
        assert done.returncode == 0, done.stdout + done.stderr
