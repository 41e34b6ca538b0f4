# SPDX-License-Identifier: GPL-2.0-or-later
"""Every command that the guides and README show is run, in the order in which they show it, in a
market of three nodes on this host. An id that they show stands for the job that was submitted
last."""
import os
import pathlib
import re
import subprocess

import pytest

from conftest import BIN, Market, bring_up

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = ["docs/getting-started", "docs/user", "docs/owner", "docs/operator", "docs/decision-log",
          "docs/coallocation", "README"]
PROGRAMS = ("srun", "marketctl", "pvdctl", "souk", "souk-audit", "marketsim", "agentd", "marketd",
            "echo", "apt", "make", "systemctl", "systemd-sysusers", "systemd-tmpfiles")
# What only a machine of its own can do: package managers and service managers. Their packages,
# units and targets must be those that there are.
NOT_HERE = ("apt ", "systemctl ", "systemd-sysusers", "systemd-tmpfiles", "make")
# What the market of these tests has done, or still needs; a log that is fetched.
DONE = ("souk up", "souk down", "marketsim coallocation --log")
MAY_FAIL = {"souk doctor"}  # it says what this machine lacks


@pytest.fixture(scope="module")
def market():
    yield from bring_up(Market("--nodes", "3", "--speeds", "100,80,60"))


def commands(guide):
    text = (ROOT / f"{guide}.md").read_text()
    found = re.findall(r"^ {4}(\S.*)$", text, re.M)
    return [c for c in found if c.split()[0] in PROGRAMS]


def units_and_packages():
    control = (ROOT / "debian/control").read_text()
    return (set(re.findall(r"^Package: (\S+)$", control, re.M)) |
            {p.stem for p in (ROOT / "contrib/systemd").glob("*.service")})


@pytest.mark.parametrize("guide", GUIDES)
def test_what_is_for_other_machines_names_what_there_is(guide):
    known, makefile = units_and_packages(), (ROOT / "Makefile").read_text()
    for command in commands(guide):
        if not command.startswith(NOT_HERE):
            continue
        for word in re.findall(r"souk-[\w-]+", command):
            assert word in known, command
        for target in re.findall(r"^make +([\w-]+)", command):
            assert re.search(rf"^{target}:", makefile, re.M), command


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_the_guide_does_what_it_says(guide, market, tmp_path):
    config = tmp_path / "agentd.conf"
    config.write_text('market = "192.0.2.1:7070"\n')
    env = {**os.environ, **market.env, "PATH": f"{BIN}:{os.environ['PATH']}"}
    (tmp_path / "big.tar").write_bytes(bytes(1 << 20))
    (tmp_path / "simulate").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "simulate").chmod(0o755)
    job, ran = "n1.1", 0
    for command in commands(guide):
        if command.startswith(NOT_HERE + DONE):
            continue
        line = re.sub(r"\bn1\.1\b", job, command)
        line = re.sub(r"(/var/backups/souk|/tmp)(?=/)", str(tmp_path), line)
        line = line.replace("agentd --check-config", f"agentd --config {config} --check-config")
        done = subprocess.run(["bash", "-c", line], env=env, cwd=tmp_path, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=100)
        assert done.returncode == 0 or command in MAY_FAIL, (line, done.stdout, done.stderr)
        if "--detach" in command:
            job = done.stdout.strip()
        ran += 1
    assert ran >= 1


def test_each_message_of_the_troubleshooting_is_said_somewhere():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    rows = [row.split("|")[1] for row in re.findall(r"^\| .*$", text, re.M)][1:]
    messages = [m for row in rows for m in re.findall(r"`([^`]+)`", row)]
    said = "".join(re.sub(r'"\s*\n\s*"', "", p.read_text())
                   for room in ("agentd", "market", "checkpoint", "kernel", "tools")
                   for p in (ROOT / room).rglob("*.cpp"))
    assert len(messages) >= 10
    for message in messages:
        assert message in said, message
