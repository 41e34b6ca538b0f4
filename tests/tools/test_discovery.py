# SPDX-License-Identifier: GPL-2.0-or-later
"""A node finds its market by DNS, from a server of the test's own in a network namespace; and souk
setup asks a person at a terminal (a pty) what it must know, and shows what it changes first."""
import json
import os
import subprocess

import pytest

from conftest import BIN
from person import Person

HERE = os.path.dirname(__file__)
LAB = {"_souk._tcp.lab.test": [[10, 0, 7070, "market.lab.test"], [20, 0, 7171, "late.lab.test"]]}


@pytest.fixture
def with_dns(tmp_path):
    """Runs a command where that DNS server, and no other, is asked."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")

    def run(command, records, search="other.test lab.test"):
        resolv = tmp_path / "resolv.conf"
        resolv.write_text(f"nameserver 127.0.0.1\nsearch {search}\n" if search
                          else "nameserver 127.0.0.1\nsearch .\n")
        shell = (f"ip link set lo up && mount --bind {resolv} /etc/resolv.conf && exec "
                 f"/usr/bin/python3 {HERE}/dns_server.py 127.0.0.1 '{json.dumps(records)}' "
                 f"\"$@\"")
        return subprocess.run(["unshare", "--net", "--mount", "sh", "-c", shell, "sh", *command],
                              capture_output=True, text=True, timeout=60)
    return run


def agentd(directory, text=""):
    config = directory / "agentd.conf"
    config.write_text(f'node = "n1"\nlisten = "127.0.0.1:7071"\n{text}')
    return [f"{BIN}/agentd", "--check-config", "--config", str(config)]


def test_a_node_that_is_told_no_market_takes_the_one_that_dns_names(with_dns, tmp_path):
    done = with_dns(agentd(tmp_path), LAB)
    assert done.returncode == 0, done.stderr
    assert 'market = "market.lab.test:7070"' in done.stdout


def test_a_market_that_is_configured_is_taken_and_dns_not_asked(with_dns, tmp_path):
    done = with_dns(agentd(tmp_path, 'market = "127.0.0.1:9"\n'), LAB)
    assert done.returncode == 0 and 'market = "127.0.0.1:9"' in done.stdout, done.stderr


@pytest.mark.parametrize("records,search,why", [
    ({}, "lab.test", "DNS has no SRV record _souk._tcp.lab.test"),
    ({"_souk._tcp.lab.test": [[0, 0, 0, "."]]}, "lab.test", "DNS has no SRV record"),
    ({"_souk._tcp.lab.test": None}, "lab.test", "no DNS server answers for _souk._tcp.lab.test"),
])
def test_why_no_market_is_found_is_one_line(with_dns, tmp_path, records, search, why):
    done = with_dns(agentd(tmp_path), records, search)
    assert done.returncode == 2
    assert why in done.stderr and "market: missing" in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_certificates_dns_names_no_market(with_dns, tmp_path):
    done = with_dns(agentd(tmp_path, "insecure = true\n"), LAB)
    assert done.returncode == 2 and "market: missing" in done.stderr


@pytest.fixture
def place(tmp_path):
    (tmp_path / "state").mkdir()
    config = tmp_path / "marketd.conf"
    config.write_text(f'insecure = true\nstate = "{tmp_path}/state"\n')
    return tmp_path, config


def test_setup_shows_what_it_changes_and_changes_nothing_without_a_yes(place):
    tmp_path, config = place
    before = config.read_text()
    person = Person(f"{BIN}/souk", "setup")
    person.sees(r"market, node .*client.*\[node\]: ").types("supermarket")
    person.sees(r"\[node\]: ").types("node")
    person.sees("The token: ").types("")
    person.sees("The token: ").types("no token at all")
    person.sees("token")
    assert person.ends() == 1
    assert config.read_text() == before and not list((tmp_path / "state").iterdir())


def market(tmp_path, config):
    return [f"{BIN}/souk", "setup", "market", "--no-restart", "--config", str(config),
            "--root-key", str(tmp_path / "root.key")]


def test_setup_with_all_it_needs_asks_nothing_and_says_first_what_it_does(place):
    tmp_path, config = place
    person = Person(*market(tmp_path, config))
    person.sees("is going to(.|\n)*keys and certificates(.|\n)*root.key(.|\n)*`insecure` out")
    person.sees("certificates are in")
    assert person.ends() == 0
    assert "insecure" not in config.read_text() and (tmp_path / "root.key").exists()


def test_without_a_terminal_what_lacks_is_wrong_usage():
    for words in (["setup"], ["setup", "node"], ["setup", "client"],
                  ["setup", "gateway"]):
        done = subprocess.run([f"{BIN}/souk", *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_an_answer_that_does_not_come_changes_nothing(place):
    person = Person(f"{BIN}/souk", "setup", "node")
    person.sees("The token: ").types("\x04")
    assert person.ends() == 1
