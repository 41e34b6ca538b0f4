# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs every command that README and the documents show, in the order in which they show it, in a
market of three nodes on this host. An id that they show stands for the job that was submitted last.
Commands that cannot be run here are named, with the test that runs them."""
import contextlib
import os
import pathlib
import re
import subprocess
import tempfile

import pytest

from conftest import BIN, Market, bring_up

ROOT = pathlib.Path(__file__).parents[2]
# A guide must not change a setting that a later one needs.
GUIDES = ["docs/gangs", "docs/getting-started", "docs/user", "docs/owner", "docs/operator",
          "docs/decision-log", "docs/coallocation", "README", "CONTRIBUTING", "docs/certificates",
          "docs/files", "docs/ledger", "docs/mmon", "docs/web", "docs/researcher",
          "docs/reservations", "docs/sites"]
PROGRAMS = ("srun", "marketctl", "pvdctl", "souk", "souk-audit", "souk-web", "mmon", "marketsim",
            "agentd", "marketd", "echo", "apt", "make", "systemctl", "systemd-sysusers",
            "systemd-tmpfiles", "grep")
# These commands need a machine of their own: package managers and service managers. The packages,
# units and targets that they name must exist.
NOT_HERE = ("apt ", "systemctl ", "systemd-sysusers", "systemd-tmpfiles", "make")
# The market of these tests has run these commands already, or must not be ended yet; the last one
# reads a log that is fetched.
DONE = ("souk up", "souk down", "SOUK_LOG=debug souk up", "marketsim coallocation --log")
# These commands need a market with certificates, a guest, or somebody who ends them, so another
# test runs them. Each line names the beginning of the command, the file of that test, and the words
# there.
ELSEWHERE = [
    ("souk setup market", "tools/test_setup.py", 'souk", "setup", "market"'),
    ("souk setup site", "tools/test_setup.py", 'souk", "setup", "site"'),
    ("souk setup addresses", "tools/test_setup.py", '"setup", "addresses"'),
    ("souk setup node --join", "cluster/test_trust.py", '"setup", "node", "--join"'),
    ("souk setup gateway --join", "cluster/test_setup_person.py", '("gateway", "on_market'),
    ("souk token create", "cluster/test_trust.py", '"token", "create"'),
    ("souk operator add", "cluster/test_operators.py", '"operator", "add"'),
    ("marketctl --cert ~/ada", "cluster/test_operators.py", "--cert"),
    ("pvdctl --cert ~/olga", "cluster/test_operators.py", "--machine"),
    ("marketctl site-news", "cluster/test_news.py", '"marketctl", "site-news"'),
    ("souk peer card", "cluster/test_sites.py", '"souk", "peer", "card"'),
    ("souk peer add", "cluster/test_sites.py", '"souk", "peer", "add"'),
    ("souk peer terms", "cluster/test_sites.py", '"souk", "peer", "terms"'),
    ("souk peer status", "cluster/test_sites.py", '"souk", "peer", "status"'),
    ("souk peer settle", "cluster/test_site_jobs.py", '"souk", "peer", "settle"'),
    ("marketctl ledger verify --peer", "cluster/test_site_jobs.py", '"ledger", "verify", "--peer"'),
    ("marketctl ledger export", "cluster/test_site_jobs.py", '"ledger", "export"'),
    ("souk peer list", "cluster/test_sites.py", '"souk", "peer", "list"'),
    ("srun -p 20 --sites", "cluster/test_sites.py", '"--sites", "any"'),
    ("marketctl offers", "cluster/test_sites.py", '"marketctl", "offers"'),
    ("marketctl list-jobs --state run", "cluster/test_site_jobs.py", '"marketctl", "list-jobs"'),
    ("marketctl -X", "cluster/test_sites.py", '"marketctl", "-X", "all"'),
    ("marketctl job lab:n1.7", "cluster/test_site_jobs.py", "lab.market.job(id)"),
    ("marketctl list-jobs --state run", "cluster/test_site_jobs.py", '"marketctl", "list-jobs"'),
    ("marketctl freeze n1.7", "cluster/test_site_jobs.py", '"marketctl", "freeze"'),
    ("marketctl why n1.7", "cluster/test_site_gains.py", '"marketctl", "why", id'),
    ("marketctl move n1.7 uni", "cluster/test_site_moves.py", '"--wait", "60s", "move"'),
    ("marketctl move n1.7 uni:n3", "cluster/test_site_moves.py", '"--wait", "60s", "move"'),
    ("marketctl move n1.7 n4", "cluster/test_site_moves.py", '"marketctl", "move", job.id, to'),
    ("marketctl job uni:n1.7", "cluster/test_sites.py", 'job(f"uni:{id}")'),
    ("souk-web", "cluster/web_pages.py", 'program="souk-web"'),
    ("pvdctl evict", "cluster/test_owner_rules.py", '"evict", job.id'),
    ("pvdctl watch", "tools/test_pvdctl.py", '"pvdctl", "watch"'),
    ("srun --in", "cluster/test_reservations.py", '"--in", place'),
    ("marketctl give", "cluster/test_reservations.py", '"give", place'),
    ("srun -p 40 --resource", "cluster/test_resources.py", '"--resource", "gpu"'),
    # The files of this one must lie where they can be copied by reference.
    ("srun -p 40 --files=home --checkpoint-every 10m --files-snapshot",
     "cluster/test_files_snapshot.py", '"--files-snapshot"'),
    ("srun -p 40 -N 3 --mpi", "cluster/test_gang_exec.py", '"-N", "3", "--mpi"'),
    ("srun -p 40 -N 3 --exec", "cluster/test_gang_exec.py", '"-N", "3", "--exec"'),
    ("marketctl web-token", "cluster/test_web_orders.py", "web-token"),
]
ALL_ELSEWHERE = ("docs/certificates", "docs/sites", "docs/web")
MAY_FAIL = {"souk doctor"}  # it says what this machine lacks


@pytest.fixture(scope="module")
def market():
    yield from bring_up(Market("--nodes", "3", "--speeds", "100,80,60"))


@pytest.fixture
def local_path():
    """A directory for srun --local-path. It is not below /tmp, because a job may see another
    /tmp."""
    with tempfile.TemporaryDirectory(prefix="souk-guides.", dir="/var/tmp") as directory:
        yield directory


def commands(guide):
    text = (ROOT / f"{guide}.md").read_text()
    found = re.findall(r"^ {4}(?:\w+[#$] +|# )?(\S.*)$", text, re.M)
    found = [c for c in found if "-->" not in c and not c.startswith("souk vm ")]  # pictures
    return [c for c in found if c.split()[0].partition("=")[0] in (*PROGRAMS, "SOUK_LOG")]


def elsewhere(command):
    """The files that run it, with the words there."""
    bare = command.split("#")[0].strip()
    return [(file, words) for begin, file, words in ELSEWHERE if f"{bare} ".startswith(f"{begin} ")]


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
        for target in re.findall(r"^make +([\w-]+)(?![\w=-])", command):
            assert re.search(rf"^{target}:", makefile, re.M), command


def test_no_document_shows_commands_that_are_not_looked_at():
    shown = {f"docs/{p.stem}" for p in (ROOT / "docs").glob("*.md") if commands(f"docs/{p.stem}")}
    assert shown <= set(GUIDES)


def test_what_is_run_elsewhere_is_run_there():
    used = [found for guide in GUIDES for c in commands(guide) for found in elsewhere(c)]
    assert {file for file, _ in used} == {file for _, file, _ in ELSEWHERE}
    for file, words in used:
        assert words in re.sub(r"\s+", " ", (ROOT / "tests" / file).read_text()), (file, words)


def on_a_terminal(command, env):
    """Runs the command on a terminal: it must show something there, and end at a key."""
    control, terminal = os.openpty()
    process = subprocess.Popen(command, env={**env, "TERM": "xterm"}, stdin=terminal,
                               stdout=terminal, stderr=terminal)
    os.close(terminal)
    try:
        assert os.read(control, 1)
        os.write(control, b"q")
        with contextlib.suppress(OSError):
            while os.read(control, 65536):
                pass
        return process.wait(20)
    finally:
        process.kill()
        process.wait()
        os.close(control)


def a_study(directory):
    """Writes the configuration that docs/researcher.md shows, and a log for it."""
    page = (ROOT / "docs/researcher.md").read_text()
    (directory / "study.conf").write_text(re.search(r"```ini\n(.*?)```", page, re.S)[1])
    jobs = [f"{i} {i * 200} 0 {600 * (i % 7 + 1)} 1 -1 -1 1 -1 -1 1 1 1 -1 -1 -1 -1 -1"
            for i in range(1, 201)]
    (directory / "log.swf").write_text("; MaxProcs: 128\n" + "\n".join(jobs) + "\n")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_the_guide_does_what_it_says(guide, market, tmp_path, local_path):
    config = tmp_path / "agentd.conf"
    config.write_text('market = "192.0.2.1:7070"\n')
    env = {**os.environ, **market.env, "PATH": f"{BIN}:{os.environ['PATH']}:{tmp_path}"}
    (tmp_path / "big.tar").write_bytes(bytes(1 << 20))
    gangs = (ROOT / "docs/gangs.md").read_text()
    (tmp_path / "job.toml").write_text(re.search(r"```toml\n(.*?)```", gangs, re.S)[1])
    a_study(tmp_path)
    for program, seconds in (("simulate", 600), ("jupyter", 600), ("mine", 1),
                             ("worker", 1)):
        (tmp_path / program).write_text(f"#!/bin/sh\nexec sleep {seconds}\n")
        (tmp_path / program).chmod(0o755)
    job, ran = "n1.1", 0
    for command in commands(guide):
        if command.startswith(NOT_HERE + DONE) or elsewhere(command):
            continue
        if command == "mmon":
            assert on_a_terminal(["mmon"], env) == 0
            continue
        line = re.sub(r"\bn1\.\d+\b", job, command)
        line = line.replace("/run/souk/", f"{market.run_dir}/")
        line = re.sub(r"(/var/backups/souk|/tmp)(?=/)", str(tmp_path), line)
        line = re.sub(r"\bann\b", "root", line)  # a member of a project
        line = re.sub(r" /scratch| /data/genomes", f" {local_path}", line)
        line = line.replace("agentd --check-config", f"agentd --config {config} --check-config")
        done = subprocess.run(["bash", "-c", line], env=env, cwd=tmp_path, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=100)
        assert done.returncode == 0 or command in MAY_FAIL, (line, done.stdout, done.stderr)
        if "--detach" in command:
            job = done.stdout.strip()
        ran += 1
    assert ran >= 1 or guide in ALL_ELSEWHERE


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
