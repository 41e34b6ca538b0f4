# SPDX-License-Identifier: GPL-2.0-or-later
"""A node maps the users of other homes to its own accounts. With real daemons, a user without an
account is refused once and with the reason, a job stays the user that it began as, and groups are
the node's."""
import contextlib
import os
import shutil
import subprocess

from codes import refused
import programs
from conftest import BIN, read_text, until

SOMEBODY = 4321


@contextlib.contextmanager
def users(market, node, text, least=1000):
    """The node with that map of users, and with guest_uid_min as where souk up has not set it."""
    path = f"{market.run_dir}/{node}/agentd.conf"
    before = read_text(path)
    try:
        with open(f"{market.run_dir}/{node}/users.map", "w") as f:
            f.write(text.replace("SITE", market.tag))
        with open(path, "w") as f:
            f.write(before.replace("guest_uid_min = 0", f"guest_uid_min = {least}"))
            f.write(f'user_map = "{market.run_dir}/{node}/users.map"\n')
        market.kill_daemon(node)
        yield
    finally:
        with open(path, "w") as f:
            f.write(before)
        market.kill_daemon(node)


@contextlib.contextmanager
def only(market, *nodes):
    """Takes all other nodes off the market."""
    off = [n for n in ("n1", "n2", "n3") if n not in nodes]
    for node in off:
        market.tool("pvdctl", "--node", node, "market", "off")
    try:
        yield
    finally:
        for node in off:
            market.tool("pvdctl", "--node", node, "market", "on")


def as_somebody(market, tmp, *command):
    """The output of a job of a plain user of n1. (He may not come to where srun lies.)"""
    os.makedirs(tmp, exist_ok=True)
    os.chmod(tmp, 0o755)
    shutil.copy(f"{BIN}/srun", f"{tmp}/srun")
    return subprocess.Popen([f"{tmp}/srun", "--node", "n1", "-p", "50", *command], cwd="/tmp",
                            env={**market.env, "HOME": "/tmp"}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, user=SOMEBODY,
                            group=SOMEBODY, extra_groups=[], text=True)


def test_a_user_is_another_one_on_the_node_that_says_so(market):
    with users(market, "n2", "SITE/* = nobody\n"), only(market, "n2"):
        job = as_somebody(market, f"/var/tmp/souk-map-{os.getpid()}", "sh", "-c",
                          "id -u; id -g; id -G")
        out, err = job.communicate(timeout=60)
        shutil.rmtree(f"/var/tmp/souk-map-{os.getpid()}")
        assert job.returncode == 0 and out.split() == ["65534"] * 3, (out, err)


def test_a_user_who_is_nobody_there_runs_elsewhere_and_the_node_is_asked_once(market):
    with users(market, "n2", f"SITE/{SOMEBODY} = -\n"), only(market, "n2", "n3"):
        job = as_somebody(market, f"/var/tmp/souk-map-{os.getpid()}", "id", "-u")
        out, err = job.communicate(timeout=60)
        shutil.rmtree(f"/var/tmp/souk-map-{os.getpid()}")
        assert job.returncode == 0 and out == f"{SOMEBODY}\n", (out, err)
        refused = read_text(f"{market.run_dir}/n2/log").count("is nobody here (user_map)")
        assert refused <= 1, refused


def test_a_user_who_is_nobody_anywhere_waits_and_is_told_why(market):
    with users(market, "n2", f"SITE/{SOMEBODY} = -\n"), only(market, "n2"):
        job = as_somebody(market, f"/var/tmp/souk-map-{os.getpid()}", "--detach", "id", "-u")
        number = job.communicate(timeout=60)[0].strip()
        shutil.rmtree(f"/var/tmp/souk-map-{os.getpid()}")
        market.until_job(number, "says why",
                         lambda j: j.get("last_failed_code") == "user_refused")
        tries = read_text(f"{market.run_dir}/n2/log").count("is nobody here (user_map)")
        market.tool("pvdctl", "--node", "n2", "set", "price", 2)
        until("the market decides again", lambda: next(
            p for p in market.providers() if p["node"] == "n2")["reserve"] == 2)
        market.tool("pvdctl", "--node", "n2", "unset", "price")
        assert read_text(f"{market.run_dir}/n2/log").count("is nobody here (user_map)") == tries
        market.tool("marketctl", "cancel", number)


def test_a_job_does_not_move_to_where_its_user_is_another_one(market):
    """The move is refused before the job stops, and the reason names both users."""
    with users(market, "n2", "SITE/root = nobody\n"):
        job = market.srun("--node", "n1", "-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
        job.printed(3)
        where = market.job(job.id)["where"]
        market.tool("marketctl", "move", job.id, "n2")
        market.until_job(job.id, "is refused",
                         lambda j: j.get("last_failed_code") == "user_refused")
        job.printed(job.lines() + 3)
        told = market.job(job.id)
        assert told["where"] == where and told["migrations"] == 0 and told["freezes"] == 0, told
        job.process.stdin.close()
        assert job.wait() == 7


def test_check_config_and_the_doctor_show_the_map(market):
    with users(market, "n2", "lab/* = nobody\nlab/eve = root\nfar/x = nosuchuser\n"):
        conf = f"{market.run_dir}/n2/agentd.conf"
        shown = subprocess.run([f"{BIN}/agentd", "--check-config", "--config", conf],
                               capture_output=True, text=True, timeout=30).stdout
        for line in ("lab/* = nobody: uid 65534, gid 65534",
                     "lab/eve = root: no job of another node runs as user 0 here",
                     "far/x = nosuchuser: its account here is to be nosuchuser",
                     f"{market.tag}/* = the same user as at its home (without a line)",
                     "2 of these lines name nobody who may run here"):
            assert line in shown, (line, shown)
        doctor = market.doctor("n1", "--agentd", conf, "--marketd", "/nonexistent")
        assert "lab/eve = root" in doctor, doctor
    path = f"{market.run_dir}/n2/wrong.map"
    with open(path, "w") as f:
        f.write("# nothing\nlab = x\n")
    with open(f"{market.run_dir}/n2/wrong.conf", "w") as f:
        f.write(read_text(f"{market.run_dir}/n2/agentd.conf") + f'user_map = "{path}"\n')
    done = subprocess.run([f"{BIN}/agentd", "--check-config", "--config",
                           f"{market.run_dir}/n2/wrong.conf"], capture_output=True, text=True,
                          env=market.env)
    assert "line 2" in refused(done, "invalid", 2), done
