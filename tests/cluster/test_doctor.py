# SPDX-License-Identifier: GPL-2.0-or-later
"""souk doctor finds mistakes in a node's keys and certificates, and names the command that mends
each."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import LIMIT, Market, bring_up, until


def trust(market, daemon="agentd", config="n2/agentd.conf", more=()):
    """Returns the doctor's findings about the keys of a daemon: {need: (is it met, what was found,
    remedy)}."""
    none = "/nonexistent"
    files = {"agentd": none, "marketd": none, daemon: f"{market.run_dir}/{config}"}
    said = market.doctor("n2", "--json", "--agentd", files["agentd"], "--marketd",
                         files["marketd"], *more)
    return {n["name"]: (n["met"], n["found"], n["mend"]) for n in json.loads(said)}


def test_a_node_and_a_market_in_order_have_nothing_to_mend(market):
    said = trust(market)
    for name in ("agentd user", "agentd files", "agentd certificate", "agentd key",
                 "souk-root files", "issuing authority", "clock", "agentd", "market"):
        assert said[name][0], (name, said[name])
    assert said["clock"][1] == "as the market's"
    said = trust(market, "marketd", "market/marketd.conf")
    for name in ("marketd files", "marketd certificate", "marketd key", "marketd"):
        assert said[name][0], (name, said[name])


def test_a_key_that_others_can_read_is_named_and_the_remedy_mends_it(market):
    identity = f"{market.run_dir}/state/n2/identity"
    os.chmod(f"{identity}/key.pem", 0o644)
    met, found, mend = trust(market)["agentd files"]
    assert not met and found == f"{identity}/key.pem can be read by others"
    subprocess.run(mend, shell=True, check=True, timeout=LIMIT)
    assert trust(market)["agentd files"][0]


def test_a_key_of_another_certificate_is_named(market, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl(1)")
    key = f"{market.run_dir}/state/n2/identity/key.pem"
    shutil.copy2(key, tmp_path / "key")
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-out", key], check=True, timeout=LIMIT,
                       capture_output=True)
        said = trust(market)
        wrong = {name: words for name, words in said.items() if not words[0]}
        assert any("another key" in found or "key" in found
                   for name, (_, found, mend) in wrong.items() if name.startswith("agentd")), said
        assert any("souk node renew" in mend for _, _, mend in wrong.values()), wrong
    finally:
        shutil.copy2(tmp_path / "key", key)
    assert trust(market)["agentd key"][0]


def test_a_daemon_that_says_much_does_not_hold_the_doctor_up(market, tmp_path):
    """A map of users far longer than what the doctor reads of it."""
    conf = tmp_path / "agentd.conf"
    with open(f"{market.run_dir}/n2/agentd.conf") as f:
        lines = [line for line in f if not line.startswith("user_map")]
    (tmp_path / "map").write_text("".join(f"lab/user{i} = -\n" for i in range(20_000)))
    conf.write_text("".join(lines) + f'user_map = "{tmp_path}/map"\n')
    said = market.doctor("n2", "--json", "--agentd", conf, "--marketd", "/nonexistent")
    assert "users" in {n["name"] for n in json.loads(said)}


def test_a_file_of_the_state_that_is_not_agentds_is_named(market):
    images = f"{market.run_dir}/state/n2/images"
    owner = os.stat(images).st_uid
    os.chown(images, 0 if owner else 1, -1)
    try:
        met, found, _ = trust(market)["agentd user"]
        assert not met and found.startswith(f"{images} is not of the owner of ")
    finally:
        os.chown(images, owner, -1)
    assert trust(market)["agentd user"][0]


@pytest.mark.parametrize("what", ["mode", "owner", "market"])
def test_what_souk_root_keeps_is_looked_at(market, what):
    kept = f"{market.run_dir}/state/n2-root"
    pinned = f"{kept}/market.pem"
    with open(pinned, "rb") as f:
        was = f.read()
    try:
        if what == "mode":
            os.chmod(kept, 0o755)
        elif what == "owner":
            os.chown(kept, 65534, -1)
        else:
            with open(f"{market.run_dir}/state/n2/identity/certificate.pem", "rb") as other:
                certificate = other.read()
            with open(pinned, "wb") as f:
                f.write(certificate)
        met, found, mend = trust(market)["souk-root files"]
        assert not met and kept in mend
        assert ("another market" if what == "market" else "is not root's alone") in found
        if what != "market":
            subprocess.run(mend, shell=True, check=True, timeout=LIMIT)
            assert trust(market)["souk-root files"][0]
    finally:
        os.chmod(kept, 0o700)
        os.chown(kept, 0, -1)
        with open(pinned, "wb") as f:
            f.write(was)
    assert trust(market)["souk-root files"][0]


def test_a_node_that_was_revoked_is_named(fit):
    for market in bring_up(Market("--nodes", "2")):
        assert trust(market)["market"][0]
        market.tool("souk", "node", "revoke", "n2")
        until("it is cut off", lambda: not trust(market)["market"][0])
        until("it says so", lambda: "revoked" in trust(market)["market"][1])
        assert "souk setup node --join TOKEN" in trust(market)["market"][2]


def test_an_agentd_that_does_not_run_is_named(market, tmp_path):
    conf = tmp_path / "agentd.conf"
    with open(f"{market.run_dir}/n2/agentd.conf") as f:
        lines = [line for line in f if not line.startswith("socket")]
    conf.write_text("".join(lines) + f'socket = "{tmp_path}/none.sock"\n')
    said = json.loads(market.doctor("n2", "--json", "--agentd", conf, "--marketd", "/nonexistent"))
    need = next(n for n in said if n["name"] == "agentd")
    assert not need["met"] and need["mend"].startswith("systemctl start souk-agentd")


def test_the_market_s_machine_is_asked_for_its_own_needs_and_backups(market, tmp_path):
    words = ("--backups", tmp_path)
    said = trust(market, "marketd", "market/marketd.conf", words)
    assert "CRIU" not in said and not any("make deps" in mend for _, _, mend in said.values())
    assert said["backups"] == (False, f"there is no copy of the market's records in {tmp_path}",
                               "systemctl enable --now souk-backup.timer, or marketctl backup FILE "
                               "each night")
    copy = tmp_path / "market-2026-01-01.db"
    copy.write_text("")
    os.utime(copy, (0, 0))
    assert "old" in trust(market, "marketd", "market/marketd.conf", words)["backups"][1]
    os.utime(copy)
    assert trust(market, "marketd", "market/marketd.conf", words)["backups"][0]
    plain = market.doctor("n2", "--agentd", "/nonexistent", "--marketd",
                          f"{market.run_dir}/market/marketd.conf")
    assert "This machine keeps a market." in plain and "cannot run a node" not in plain
