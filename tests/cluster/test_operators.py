# SPDX-License-Identifier: GPL-2.0-or-later
"""marketctl and pvdctl from another host: with the certificate of an operator, or of a node's
owner, and what these may do. The other host is the market's network, without a daemon's socket."""
import json
import os
import pathlib
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from codes import IN_JSON, refused
from conftest import BIN, read_text, until

ROOT = pathlib.Path(__file__).parents[2]
LIB = pathlib.Path(BIN).resolve().parent / "lib"


def made(market, tmp_path, name, *more):
    """A certificate, with the market's address beside it."""
    out = f"{tmp_path}/{name}"
    market.tool("souk", "operator", "add", name, "--out", out, "--market",
                market.daemon("market")["address"], *more)
    assert os.stat(f"{out}/key.pem").st_mode & 0o777 == 0o600
    return out


def elsewhere(market, tool, *words, home="/nonexistent", **more):
    env = {"PATH": os.environ["PATH"], "SOUK_RUN": "/nonexistent", "HOME": home, **IN_JSON,
           **more}
    return subprocess.run(["nsenter", f"--net=/run/netns/{market.tag}-fabric", f"{BIN}/{tool}",
                           *words], env=env, capture_output=True, text=True, timeout=60)


API = """
import json, sys
sys.path.insert(0, sys.argv[1])
import souk
with souk.Souk(market=sys.argv[2] or None, cert=sys.argv[3] or None) as market:
    print(json.dumps([sorted(p["node"] for p in market.ask("list-providers")), market.list()]))
    try:
        market.submit(["true"], price=1)
    except souk.Error as e:
        print(e)
    market.cancel("n1.99999")
"""
WEB = """
import re, subprocess, sys, urllib.request
web = subprocess.Popen([sys.argv[1], "--open", "--listen", "127.0.0.1:0", *sys.argv[2:]],
                       stdout=subprocess.PIPE, text=True)
try:
    link = web.stdout.readline().strip()
    for path in ("", "nodes", "nodes?match=n"):
        with urllib.request.urlopen(link + path, timeout=30) as page:
            nodes = set(re.findall("/node/(n[0-9])", page.read().decode()))
            print(page.status, *sorted(nodes))
finally:
    web.terminate()
    web.wait(30)
"""


def program_elsewhere(market, source, *words, **more):
    env = {"PATH": os.environ["PATH"], "SOUK_RUN": "/nonexistent", "HOME": "/nonexistent", **more}
    return subprocess.run(["nsenter", f"--net=/run/netns/{market.tag}-fabric", "/usr/bin/python3",
                           "-c", source, *words], env=env, capture_output=True, text=True,
                          timeout=60)


def logged(market, daemon, text):
    until(f"{daemon} logs it", lambda: text in read_text(f"{market.run_dir}/{daemon}/log"))


def test_an_operator_operates_the_market_from_another_host(market, tmp_path):
    cert = made(market, tmp_path, "ada")
    done = elsewhere(market, "marketctl", "--cert", cert, "status")
    assert done.returncode == 0 and "Hostname" in done.stdout, done
    # as root on the market's own host, and on record with the name
    done = elsewhere(market, "marketctl", "--cert", cert, "user", "limit", "4242", "--jobs", "3")
    assert done.returncode == 0, done
    logged(market, "market", "an operator's word")
    assert re.search(r"an operator's word.*verb=user-limit.*operator=ada",
                     read_text(f"{market.run_dir}/market/log"))
    assert "3" in market.tool("marketctl", "user", "show", "4242").stdout
    market.tool("marketctl", "user", "unlimit", "4242")
    # the other ways to say where and as whom
    address = market.daemon("market")["address"]
    for words, more in ((["--market", address, "--cert", cert], {}),
                        ([], {"SOUK_MARKET": address, "SOUK_CERT": cert}),
                        ([], {"SOUK_CERT": cert})):
        assert elsewhere(market, "marketctl", *words, "list-providers", **more).returncode == 0
    os.makedirs(f"{tmp_path}/home/.config/souk")
    os.rename(cert, f"{tmp_path}/home/.config/souk/operator")
    done = elsewhere(market, "marketctl", "list-providers", home=f"{tmp_path}/home")
    assert done.returncode == 0 and "n3" in done.stdout, done
    refused(elsewhere(market, "marketctl", "--market", address, "status"), "not_found")
    # A plain user is told as before that nothing is there.
    assert elsewhere(market, "marketctl", "status").returncode == 1


def test_an_operator_looks_at_a_node_and_its_owner_changes_it(market, tmp_path):
    ada = made(market, tmp_path, "ada2")
    owner = made(market, tmp_path, "olga", "--owner", "n2")
    for cert in (ada, owner):
        done = elsewhere(market, "pvdctl", "--cert", cert, "--machine", "n2", "status")
        assert done.returncode == 0 and "on market" in done.stdout, done
        assert elsewhere(market, "pvdctl", "--cert", cert, "--machine", "n2",
                         "guests").returncode == 0
    refused(elsewhere(market, "pvdctl", "--cert", ada, "--machine", "n2", "set", "price", "7"),
            "not_allowed")
    done = elsewhere(market, "pvdctl", "--cert", owner, "--machine", "n2", "set", "price", "7")
    assert done.returncode == 0, done
    logged(market, "n2", "a word from another host")
    try:
        until("n2 asks 7", lambda: float(next(
            p for p in market.providers() if p["node"] == "n2")["reserve"]) == 7)
        for verb in ("off", "on"):
            done = elsewhere(market, "pvdctl", "--cert", owner, "--machine", "n2", "market", verb)
            assert done.returncode == 0, done
    finally:
        market.tool("pvdctl", "--node", "n2", "unset", "price")
    for code, *words in (("not_allowed", "--machine", "n3"),
                         ("not_found", "--machine", "nowhere"), ("invalid",)):
        refused(elsewhere(market, "pvdctl", "--cert", owner, *words, "status"), code)
    # At the market an owner is nobody in particular.
    done = elsewhere(market, "marketctl", "--cert", owner, "user", "limit", "1", "--jobs", "1")
    assert done.returncode == 1, done
    node = f"{market.run_dir}/state/n1/identity"
    done = elsewhere(market, "pvdctl", "--cert", node, "--market",
                     market.daemon("market")["address"], "--machine", "n2", "status")
    assert done.returncode == 1, done


def test_who_is_revoked_is_refused_by_the_market_and_by_nodes(market, tmp_path):
    ada = made(market, tmp_path, "ada3")
    owner = made(market, tmp_path, "otto", "--owner", "n2")
    assert elsewhere(market, "pvdctl", "--cert", owner, "--machine", "n2",
                     "status").returncode == 0
    for name in ("ada3", "otto"):
        market.tool("souk", "node", "revoke", name)
    for done in (elsewhere(market, "marketctl", "--cert", ada, "--patience", "0", "status"),
                 elsewhere(market, "pvdctl", "--cert", owner, "--machine", "n2", "--patience", "0",
                           "status")):
        assert done.returncode == 1 and "revoked" in done.stderr, done


@pytest.mark.skipif(LIB.parent.name.startswith("build-"),
                    reason="a library with a sanitizer needs a program that has it")
def test_a_program_asks_by_libsouk_with_an_operators_certificate(market, tmp_path):
    cert = made(market, tmp_path, "ada4")
    address = market.daemon("market")["address"]
    library = {"SOUK_LIBRARY": str(LIB / "libsouk.so.0")}
    module = str(ROOT / "tools/libsouk")
    for words, more in (((address, cert), {}), (("", cert), {}), (("", ""), {"SOUK_CERT": cert})):
        done = program_elsewhere(market, API, module, *words, **library, **more)
        lines = done.stdout.splitlines()
        assert json.loads(lines[0]) == [sorted(market.nodes()), []], done
        assert "on a node of the market" in lines[1] or "no agentd runs" in lines[1], done
        # an operator's word is heard, and answered
        assert "no such job: n1.99999" in done.stderr, done
    done = program_elsewhere(market, API, module, address, f"{tmp_path}/none", **library)
    assert "there is no certificate" in done.stderr, done
    done = program_elsewhere(market, API, module, "", "", **library)
    assert "no agentd runs" in done.stderr, done


def test_souk_web_shows_a_market_of_another_host(market, tmp_path):
    cert = made(market, tmp_path, "ada5")
    every = " ".join(sorted(market.nodes()))
    done = program_elsewhere(market, WEB, f"{BIN}/souk-web", "--cert", cert)
    assert (done.returncode, done.stdout) == (0, f"200 {every}\n" * 3), done
    done = elsewhere(market, "souk-web", "--cert", cert, "--node", "n1")
    refused(done, "invalid")


@pytest.mark.parametrize("words", [["--owner", "no node"], ["--days", "400"]])
def test_what_nobody_can_be_given_is_refused(market, tmp_path, words):
    done = market.tool("souk", "operator", "add", "eve", "--out", f"{tmp_path}/eve", *words,
                       check=False)
    assert done.returncode in (1, 2) and not os.path.exists(f"{tmp_path}/eve/certificate.pem")


def test_pages_on_another_host_ask_over_one_connection_until_it_breaks(market, tmp_path):
    cert = made(market, tmp_path, "eve")
    address = market.daemon("market")["address"]
    env = {"PATH": os.environ["PATH"], "SOUK_RUN": "/nonexistent", "HOME": "/nonexistent"}
    web = subprocess.Popen(["nsenter", f"--net=/run/netns/{market.tag}-fabric", f"{BIN}/souk-web",
                            "--cert", cert, "--listen", "127.0.0.1:0", "--open"], env=env,
                           stdout=subprocess.PIPE, text=True)
    url = web.stdout.readline().strip()

    def page(path):
        def get():
            try:
                with urllib.request.urlopen(url + path, timeout=60) as answer:
                    return answer.read().decode()
            except urllib.error.HTTPError as away:
                return str(away)
        return market.in_netns("fabric", get)

    def connections():
        said = market.in_netns("fabric", lambda: subprocess.check_output(
            ["ss", "-Htn", "state", "established", "dst", address], text=True))
        return {line.split()[2] for line in said.splitlines()}
    assert "n3" in page("nodes")
    first = connections()
    assert len(first) == 1, first
    for path in ("", "jobs", "history", "prices", "node/n1", "ledger", "report"):
        page(path)
    assert connections() == first
    market.kill_daemon("market")
    until("the market is back", lambda: "n3" in page("nodes") and connections())
    assert len(connections()) == 1 and connections() != first
    web.terminate()
    assert web.wait(60) == 0
