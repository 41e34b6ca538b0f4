# SPDX-License-Identifier: GPL-2.0-or-later
"""make install into a root of its own: all is there, and it runs from there."""
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

from conftest import BIN

ROOT = pathlib.Path(__file__).parents[2]
BUILD = BIN.resolve().parent


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """A prefix that was installed, and then moved: nothing in it may know where it was."""
    at = tmp_path_factory.mktemp("installed")
    done = subprocess.run(["make", "-s", f"BUILD={BUILD}", "install", f"DESTDIR={at}/one",
                           "PREFIX=/opt/souk"], cwd=ROOT, capture_output=True, text=True,
                          timeout=300, env={**os.environ, "MAKEFLAGS": ""})
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (at / "one").iterdir()] == ["opt"], "nothing lies beside the prefix"
    shutil.move(at / "one/opt/souk", at / "moved")
    return at / "moved"


def test_every_program_runs_from_where_it_was_installed(prefix):
    programs = [*(prefix / "bin").iterdir(), *(prefix / "sbin").iterdir()]
    assert len(programs) == 14
    for program in programs:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0 and done.stdout.startswith(program.name + " (souk) "), done


def test_every_program_may_be_run_by_everybody_where_it_was_built():
    for program in BIN.iterdir():
        assert program.stat().st_mode & 0o055 == 0o055, program


def test_a_tool_finds_the_program_that_works_for_it(prefix, tmp_path):
    """marketctl has souk-ledger read the records, which is in lib/souk."""
    (tmp_path / "state.db").write_bytes(b"none")
    done = subprocess.run([prefix / "bin/marketctl", "ledger", "verify", "--db",
                           tmp_path / "state.db"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "state.db" in done.stderr, done
    (prefix / "lib/souk/souk-ledger").rename(prefix / "lib/souk/away")
    try:
        done = subprocess.run([prefix / "bin/marketctl", "ledger", "verify", "--db",
                               tmp_path / "state.db"], capture_output=True, text=True, timeout=20)
        assert "souk-ledger" in done.stderr and "No such file" in done.stderr, done
    finally:
        (prefix / "lib/souk/away").rename(prefix / "lib/souk/souk-ledger")


@pytest.mark.skipif(os.geteuid() != 0, reason="the demo needs root")
def test_the_demo_is_installed_and_two_at_once_do_not_meet(prefix):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("\0souk-demo")
        done = subprocess.run([prefix / "bin/souk", "demo"], capture_output=True, text=True,
                              timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (
        1, "", "demo: another one runs on this host\n"), done


@pytest.mark.skipif(os.geteuid() != 0, reason="the demo needs root")
def test_what_make_demo_builds_is_enough_for_its_story(tmp_path):
    """README's first command, where nothing else was built."""
    made = subprocess.run(["make", "-s", f"BUILD={BUILD}", "--eval=what:; @echo $(DEMO_BINS)",
                           "what"], cwd=ROOT, capture_output=True, text=True, timeout=60,
                          check=True, env={**os.environ, "MAKEFLAGS": ""}).stdout.split()
    assert len(made) > 8, made
    for program in made:
        shutil.copy(ROOT / program, tmp_path)
    done = subprocess.run(["python3", ROOT / "scripts/demo", "--fast", tmp_path],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "complete, in order, once" in done.stdout, done.stdout


def test_what_comes_along_is_there(prefix):
    for path in ("share/man/man1/srun.1.gz", "share/man/man5/agentd.conf.5.gz",
                 "share/man/man8/marketd.8.gz", "share/bash-completion/completions/srun",
                 "share/zsh/site-functions/_souk", "share/doc/souk/examples/agentd.conf",
                 "share/doc/souk/docs/move.md", "lib/sysusers.d/souk.conf",
                 "lib/tmpfiles.d/souk.conf", "include/souk.h", "lib/libsouk.so.0",
                 "lib/pkgconfig/souk.pc", "lib/python3/dist-packages/souk.py",
                 "lib/souk/souk-ask", "lib/souk/souk-init", "lib/souk/souk-files",
                 "lib/souk/souk-handshake", "lib/souk/souk-inspect", "lib/souk/souk-root",
                 "lib/souk/souk-demo"):
        assert (prefix / path).exists(), path
    units = sorted((prefix / "lib/systemd/system").iterdir())
    assert [u.name for u in units] == ["souk-agentd.service", "souk-backup.service",
                                       "souk-backup.timer", "souk-leave.service",
                                       "souk-marketd.service", "souk-web.service"]
    for unit in units:
        if unit.suffix == ".timer":
            continue
        where = {"souk-web": "bin", "souk-backup": "lib/souk",
                 "souk-leave": "lib/souk"}.get(unit.stem, "sbin")
        assert f"ExecStart=/opt/souk/{where}/" in unit.read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_takes_the_units(prefix, tmp_path):
    for unit in (prefix / "lib/systemd/system").iterdir():
        text = unit.read_text().replace("/opt/souk", str(prefix))
        (tmp_path / unit.name).write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / unit.name],
                              capture_output=True, text=True, timeout=60)
        ours = [line for line in done.stderr.splitlines() if unit.name in line]
        assert ours == [] and done.returncode == 0, done.stderr


# The scores that docs/security.md states, and a tenth more: systemd-analyze uses the weights of the
# systemd that is installed here.
SCORES = {"souk-agentd": 8.9, "souk-marketd": 1.3, "souk-web": 1.0, "souk-backup": 1.0,
          "souk-leave": 0.8}


@pytest.mark.parametrize("unit", SCORES)
@pytest.mark.skipif(not shutil.which("systemd-analyze"),
                    reason="systemd-analyze is of Debian's package systemd, which is not here")
def test_a_unit_leaves_no_more_open_than_is_said(unit):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                           ROOT / f"contrib/systemd/{unit}.service"], capture_output=True,
                          text=True, timeout=60, env={**os.environ, "LC_ALL": "C"})
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze looks at files (--offline) since version 250")
    score = re.search(r"Overall exposure level for .*: ([0-9.]+) ", done.stdout)
    assert score and float(score[1]) <= SCORES[unit], done.stdout + done.stderr


def test_what_jobs_would_inherit_is_not_in_the_unit_of_agentd():
    """Filters of system calls, and another view of the files, go to what agentd starts."""
    unit = (ROOT / "contrib/systemd/souk-agentd.service").read_text()
    keys = re.findall("^([A-Za-z]+)=", unit, re.M)
    inherited = re.compile("SystemCall|Restrict|Protect|Private|LockPersonality|MemoryDeny|"
                           "ReadOnly|ReadWrite|Inaccessible|Temporary|Bind|Root|User$|DynamicUser")
    assert [k for k in keys if inherited.match(k)] == []


@pytest.mark.parametrize("daemon", ["agentd", "marketd"])
def test_the_sample_is_a_configuration_and_so_is_all_that_it_names(prefix, tmp_path, daemon):
    users = tmp_path / "users.map"  # a file that is read
    users.write_text("uni/* = -\n")
    sample = (prefix / f"share/doc/souk/examples/{daemon}.conf").read_text().replace(
        "/etc/souk/users.map", str(users))
    for text in (sample, sample.replace("\n#", "\n").replace("\n ", "\n# ")):
        (tmp_path / "d.conf").write_text(text)
        done = subprocess.run([prefix / "sbin" / daemon, "--config", tmp_path / "d.conf",
                               "--check-config"], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
