# SPDX-License-Identifier: GPL-2.0-or-later
"""agentd is a user of its own. These tests look at that user's rights on the machine, at the files
that an attacker in agentd's place can write to, and at a node that was root's and becomes that
user's while its jobs run on."""
import os
import signal
import stat
import subprocess

import pytest

from cluster import AGENT_USER, BIN, Market, bring_up, read_text, until
from no_rights import echoes, ends_well, root_of, write

USER = int(AGENT_USER) if AGENT_USER.isdigit() else 0
RIGHTS = "net_bind_service ipc_lock sys_nice perfmon bpf"
# Opens each of these to be written to; directories: makes a file there. Says which it could.
TRIES = """import os, sys
for path in sys.argv[1:]:
    try:
        made = os.path.isdir(path)
        name = path + "/made-by-agentd" if made else path
        os.close(os.open(name, os.O_WRONLY | (os.O_CREAT if made else 0), 0o600))
        if made: os.unlink(name)
        print(path)
    except OSError as e:
        if e.errno not in (1, 13, 26, 30): raise
"""
pytestmark = pytest.mark.skipif(USER == 0, reason="agentd is root in this run")


def as_agentd(*paths):
    """Returns those of the paths that a process with agentd's user and rights can write to."""
    rights = ",".join(f"+{right}" for right in RIGHTS.split())
    said = subprocess.run(
        ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs",
         f"--inh-caps=-all,{rights}", f"--ambient-caps=-all,{rights}",
         f"--bounding-set=-all,{rights}", "/usr/bin/python3", "-c", TRIES, *map(str, paths)],
        capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout.split("\n")[:-1]


def owners(top):
    """Lists the paths below a directory by the user who owns them."""
    found = {}
    for where, names, files in os.walk(top):
        for name in [".", *names, *files]:
            path = os.path.join(where, name)
            found.setdefault(os.lstat(path).st_uid, []).append(path)
    return found


def user_of(market, node):
    status = read_text(f"/proc/{market.daemon(node)['pid']}/status")
    return status.split("\nUid:\t")[1].split()[0]


def test_who_takes_agentd_over_writes_no_file_of_roots(market):
    run, agent = market.run_dir, market.daemon("n1")["pid"]
    init = min(p for _, _, pids in
               [*market.capsules(echoes(market, "--node", "n1").id)] for p in pids)
    roots = ["/etc", "/etc/passwd", "/etc/shadow", "/root", "/usr/bin", BIN, f"{BIN}/agentd",
             f"{BIN}/souk-root", run, f"{run}/n1", f"{run}/n1/agentd.conf", f"{run}/instance.json",
             f"{run}/state", f"{run}/state/market", "/proc/1/mem", "/proc/sys/kernel/core_pattern",
             f"/proc/{root_of(market, 'n1')}/mem", f"/proc/{agent}/mem",
             f"/proc/{market.daemon('market')['pid']}/mem", f"/proc/{init}/mem",
             f"/proc/{init}/root/run"]
    assert as_agentd(*roots) == []
    own = [f"{run}/state/n1", f"{run}/state/n1/images", f"{run}/state/n1/state.db"]
    assert as_agentd(*own) == own


def test_what_is_that_users_is_agentds_state_alone(market):
    """Files that CRIU and souk-init have made count too: in a move, in a freeze, and for a job that
    has ended."""
    job = echoes(market, "--node", "n1")
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    states = [f"{market.run_dir}/state/{n}" for n in market.nodes()]
    for state in states:
        theirs = owners(state)
        roots = [p for p in theirs.pop(0, []) if "/guests/" not in p]
        assert set(theirs) == {USER} and roots == [], roots
    kept = [p for _, paths in owners(market.run_dir).items() for p in paths
            if os.lstat(p).st_uid == USER and not p.startswith(tuple(states))]
    assert kept == []
    market.note_family()  # others may have the same user's processes on this machine
    names = {read_text(f"/proc/{p}/comm").strip() for p in market.family
             if f"\nUid:\t{USER}\t" in read_text(f"/proc/{p}/status")}
    assert names == {"agentd"}
    market.tool("marketctl", "release", job.id)
    market.until_runs(job.id)
    write(job, b"again\n")
    job.printed(1)
    ends_well(job, "again")


def test_a_mode_or_an_owner_lets_nobody_else_in(market):
    for node in market.nodes():
        for uid, paths in owners(f"{market.run_dir}/state/{node}").items():
            for path in paths:
                mode = os.lstat(path).st_mode
                assert stat.S_ISSOCK(mode) or stat.S_ISLNK(mode) or mode & 0o77 == 0 or \
                    "/guests/" in path or mode & 0o22 == 0, (uid, path, oct(mode))


def test_a_state_that_is_not_as_it_should_be_makes_no_agentd_root(market):
    """A link in place of a directory, which whoever takes agentd over can lay there."""
    state, old = f"{market.run_dir}/state/n1", market.daemon("n1")["pid"]
    before = sorted(os.listdir("/etc")), os.stat("/etc")
    os.rename(f"{state}/refused", f"{state}/away")
    os.symlink("/etc", f"{state}/refused")
    try:
        os.kill(old, signal.SIGKILL)
        until("it does not start", lambda: f"hand over {state}" in
              read_text(f"{market.run_dir}/n1/log"))
        now = os.stat("/etc")
        assert (now.st_uid, now.st_mode) == (before[1].st_uid, before[1].st_mode)
        assert sorted(os.listdir("/etc")) == before[0]
    finally:
        os.unlink(f"{state}/refused")
        os.rename(f"{state}/away", f"{state}/refused")
    market.until_up()
    assert user_of(market, "n1") == str(USER)


@pytest.fixture
def roots_market():
    yield from bring_up(Market("--nodes", "2", "--speeds", "100,80", "--agent-user", "root"))


def becomes(market, user):
    """Makes each agentd that user at its next start."""
    for node in market.nodes():
        path = f"{market.run_dir}/{node}/agentd.conf"
        with open(path) as f:
            lines = [line for line in f if not line.startswith("user =")]
        with open(path, "w") as f:
            f.writelines([*lines, f'user = "{user}"\n'])
        market.kill_daemon(node)
        assert user_of(market, node) == ("0" if user == "root" else str(user))


def test_a_node_that_was_roots_is_handed_over_and_back_with_its_jobs(roots_market):
    market = roots_market
    running, frozen = echoes(market, "--node", "n1"), echoes(market, "--node", "n2")
    market.tool("marketctl", "--hold", "freeze", frozen.id)
    market.until_job(frozen.id, "is frozen", lambda j: j["status"] == "suspend")
    count = 0
    for user in (USER, "root"):
        becomes(market, user)
        for node in ("n2", "n1"):
            market.tool("marketctl", "--hold", "move", running.id, node)
            market.until_runs(running.id, node)
            write(running, b"x\n")
            count += 1
            running.printed(count)
    market.tool("marketctl", "release", frozen.id)
    market.until_runs(frozen.id)
    write(frozen, b"y\n")
    frozen.printed(1)
    ends_well(frozen, "y")
    ends_well(running, *["x"] * count)
    for node in market.nodes():
        assert set(owners(f"{market.run_dir}/state/{node}")) == {0}


def test_an_agentd_that_cannot_be_that_user_stays_root_and_says_why(roots_market):
    market = roots_market
    path = f"{market.run_dir}/n1/agentd.conf"
    with open(path) as f:
        lines = [line for line in f if not line.startswith("user =")]
    for name, why in (("_souk-nobody-has-it", "this machine has no user _souk-nobody-has-it"),):
        with open(path, "w") as f:
            f.writelines([*lines, f'user = "{name}"\n'])
        market.kill_daemon("n1")
        assert user_of(market, "n1") == "0"
        until("it says so", lambda why=why: why in read_text(f"{market.run_dir}/n1/log"))
    # Nobody else may look through the directory above its state.
    above = f"{market.run_dir}/state"
    os.chmod(above, 0o700)
    try:
        with open(path, "w") as f:
            f.writelines([*lines, f'user = "{USER}"\n'])
        market.kill_daemon("n1")
        assert user_of(market, "n1") == "0"
        until("it says so", lambda: f"agentd stays root user={USER}" in
              read_text(f"{market.run_dir}/n1/log"))
    finally:
        os.chmod(above, 0o755)
    job = echoes(market, "--node", "n1")
    write(job, b"z\n")
    job.printed(1)
    ends_well(job, "z")
