# SPDX-License-Identifier: GPL-2.0-or-later
"""souk up and souk down know the processes that they have started, and end them. They ask for
daemons that live already, and take state again that was kept."""
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from codes import IN_JSON, refused
from conftest import (BIN, HERE, LIMIT, Market, alive, bring_up, kill, mount_points, read_text,
                      until)


def daemons_of(m):
    """Processes of a daemon of this market, by their command lines. (What one of them starts has
    its own for a moment.)"""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            words = read_text(f"/proc/{name}/cmdline").split("\0")
            if len(words) > 2 and words[1] == "--config" and words[2].startswith(m.run_dir + "/"):
                found[int(name)] = read_text(f"/proc/{name}/stat")
    return [pid for pid, stat in found.items()
            if stat and int(stat.rsplit(")", 1)[1].split()[1]) not in found]


def test_a_full_run_directory_does_not_hide_what_was_started(fit, tmp_path):
    m = Market("--nodes", "1")
    small = m.run_dir
    m.run_dir += "/run"
    m.env.update(SOUK_RUN=m.run_dir, SOUK_STATE=str(tmp_path / "state"))
    os.mkdir(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "souk-test", small], check=True)
    try:
        for market in bring_up(m):
            first = market.daemon("n1")["pid"]
            filler = small + "/filler"
            with open(filler, "wb", buffering=0) as f, pytest.raises(OSError):
                while True:
                    f.write(b"x" * 4096)
            os.kill(first, signal.SIGKILL)
            agents = lambda: [p for p in daemons_of(market)
                              if "agentd" in read_text(f"/proc/{p}/cmdline")]
            second = until("it is started again", lambda: [p for p in agents() if p != first])
            until("it is connected", lambda: [p["connected"] for p in market.providers()] == [True])
            # The supervisor knows it: it writes it down when there is room, and starts no other.
            os.unlink(filler)
            until("it is written down", lambda: market.daemon("n1")["pid"] == second[0])
            assert market.daemon("n1")["restarts"] == 1 and agents() == second
            # Without room and without a supervisor, a process that was started meanwhile is found
            # all the same.
            with open(filler, "wb", buffering=0) as f, pytest.raises(OSError):
                while True:
                    f.write(b"x" * 4096)
            os.kill(second[0], signal.SIGKILL)
            third = until("it is started a third time",
                          lambda: [p for p in agents() if p != second[0]])
            supervisor = market.daemons()["supervisor"]
            os.kill(supervisor, signal.SIGKILL)
            until("the supervisor is gone", lambda: not alive(supervisor))
            down = market.tool("souk", "down", "--force", check=False, limit=100)
            assert down.returncode == 0 and not any(alive(p) for p in third), down
            os.unlink(filler)
            market.tool("souk", "up", *market.options)  # so that it can be taken down
    finally:
        subprocess.run(["umount", small], check=True)
        os.rmdir(small)


def test_down_refuses_while_a_job_lives_and_says_what_to_do(fit):
    for m in bring_up(Market("--nodes", "1")):
        job = m.srun("-p", 5, "sh", "-c", "read line; echo $line", stdin=subprocess.PIPE)
        m.until_runs(job.id)
        state = m.daemons()["state_dir"]
        why = refused(m.tool("souk", "down", check=False), "not_possible")
        assert "(n1: 1)" in why and "--force" in why and "--keep" in why, why
        assert os.path.exists(state + "/market/state.db")
        # souk down also refuses when no daemon can be asked, because the job is written down.
        supervisor, n1 = m.daemons()["supervisor"], m.daemon("n1")["pid"]
        os.kill(supervisor, signal.SIGKILL)
        until("the supervisor is gone", lambda: not alive(supervisor))
        os.kill(n1, signal.SIGKILL)
        until("agentd is gone", lambda: not alive(n1))
        assert "(n1: 1)" in refused(m.tool("souk", "down", check=False), "not_possible")
        m.note_family()


def test_down_without_jobs_needs_no_word(fit):
    for m in bring_up(Market("--nodes", "1")):
        assert m.tool("srun", "-p", 5, "echo", "hi").stdout == "hi\n"
        m.note_family()
        assert m.tool("souk", "down", limit=100).stdout == "the market is down\n"
        assert not m.leftovers() and not os.path.exists(m.run_dir)
        m.tool("souk", "up", *m.options)


def reboot(m):
    """Simulates a reboot: the state directory stays, and nothing of /run, of processes, of groups
    and of namespaces."""
    m.note_family()
    supervisor = m.daemons()["supervisor"]
    kill(filter(alive, [supervisor, *sorted(m.family)]))
    until("all are gone", lambda: not any(alive(p) for p in m.family))
    for name in os.listdir("/run/netns"):
        if name.startswith(m.tag + "-"):
            os.unlink("/run/netns/" + name)
    for point in [p for p in mount_points() if p.startswith(m.env["SOUK_STATE"])]:
        subprocess.run(["umount", "-l", point], check=True)
    for root in mount_points(("cgroup", "cgroup2")):
        for where, _, _ in os.walk(f"{root}/{m.tag}", topdown=False):
            os.rmdir(where)
    shutil.rmtree(m.run_dir)


@pytest.mark.parametrize("how", ["kept", "rebooted", "supervisor ended"])
def test_the_state_survives_and_up_takes_it_again(fit, tmp_path, how):
    m = Market("--nodes", "2", "--speeds", "100,70", "--prices", "2,3")
    m.env["SOUK_STATE"] = str(tmp_path / "state")
    for market in bring_up(m):
        assert market.tool("srun", "-p", 50, "echo", "hi").stdout == "hi\n"
        job = market.tool("srun", "-p", 50, "--detach", "sh", "-c",
                          "x=0; while [ $x -lt 100000000 ]; do x=$((x+1)); done").stdout.strip()
        market.until_runs(job)
        if how == "kept":
            done = market.tool("souk", "down", "--keep", limit=100)
            assert "souk up takes it again" in done.stdout and not os.path.exists(market.run_dir)
        else:
            market.tool("marketctl", "--hold", "freeze", job)
            market.until_job(job, "is frozen",
                             lambda j: j["status"] == "suspend" and "going_to" not in j)
            if how == "rebooted":
                reboot(market)
            else:
                supervisor = market.daemons()["supervisor"]
                market.note_family()
                os.kill(supervisor, signal.SIGTERM)  # as at a shutdown
                until("all are gone", lambda: not any(alive(p) for p in market.family), 60)
        refused(market.tool("souk", "down", check=False), "not_possible")
        assert market.tool("souk", "up", "--nodes", "1", check=False).returncode == 2
        up = market.tool("souk", "up")  # of what it is made was kept
        assert "taken again" in up.stdout
        market.until_up()
        # A node is connected a moment before it has said what it offers.
        until("all is offered as before", lambda: [
            (p["node"], p["speed"], p["reserve"], p["on_market"])
            for p in market.providers()] == [("n1", 100, 2, True), ("n2", 70, 3, True)])
        assert len([j for j in market.list_jobs() if j["status"] == "finish"]) == 1
        if how != "kept":
            market.tool("marketctl", "thaw", job, check=False)
            market.tool("marketctl", "release", job, check=False)
        market.until_runs(job)
        market.tool("marketctl", "cancel", job)
        until("it has ended", lambda: not market.live())
    assert not os.path.exists(tmp_path / "state")


IDLE = """
import socket, sys, os
os.setgroups([]); os.setgid(65534); os.setuid(int(sys.argv[2]))
held = []
try:
    while len(held) < int(sys.argv[3]):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(40)
        s.connect(sys.argv[1])
        # A greeted connection stays: the hello of a tool, frame type 1.
        try:
            s.sendall(bytes.fromhex(sys.argv[4]))
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused already: the reason is there to read
        head = s.recv(4096)
        if b"too many connections of this user" in head:
            print("refused after", len(held), head[-120:], flush=True)
            break
        held.append(s)
    else:
        print("took", len(held), flush=True)
except OSError as e:
    print("broke after", len(held), e, flush=True)
sys.stdin.read()
"""


def hello():
    """Returns the first message of a tool, as the tool itself sends it."""
    path = f"/tmp/souk-test-hello-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        try:
            s.listen(1)
            tool = subprocess.Popen([f"{BIN}/pvdctl", "--socket", path, "status"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
            c, _ = s.accept()
            with c:
                data = c.recv(4096)
            tool.wait(LIMIT)
        finally:
            os.unlink(path)
    return data[:8 + struct.unpack_from("<I", data)[0]]


@pytest.mark.parametrize("daemon", ["n1", "market"])
def test_one_user_s_idle_connections_lock_nobody_else_out(fit, daemon):
    for m in bring_up(Market("--nodes", "1")):
        path = m.daemon(daemon)["socket"]
        for part in (m.run_dir, os.path.dirname(path)):
            os.chmod(part, 0o755)
        enough = 8200 if daemon == "n1" else 300
        first = hello()
        holders = []
        try:
            for uid in (65001, 65002):
                holder = subprocess.Popen(
                    [sys.executable, "-c", IDLE, path, str(uid), str(enough), first.hex()],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                          (8192 + 512, 8192 + 512))
                    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 8704 else None)
                holders.append(holder)
                said = holder.stdout.readline()
                assert said.startswith("refused after") and int(said.split()[2]) > 10, said
            # Root, and another user, are served.
            tool = ("pvdctl", "status") if daemon == "n1" else ("marketctl", "status")
            assert m.tool(tool[0], "--socket", path, *tool[1:]).returncode == 0
            other = subprocess.run([f"{BIN}/{tool[0]}", "--socket", path, *tool[1:]], user=65003,
                                   group=65534, extra_groups=[], capture_output=True, text=True,
                                   timeout=LIMIT)
            assert other.returncode == 0, other
            # The tools, too, tell the user why he is refused.
            same = subprocess.run([f"{BIN}/{tool[0]}", "--socket", path, *tool[1:]], user=65001,
                                  group=65534, extra_groups=[], capture_output=True, text=True,
                                  timeout=LIMIT, env={**os.environ, **IN_JSON})
            refused(same, "too_many")
        finally:
            for holder in holders:
                holder.stdin.close()
                holder.wait(LIMIT)
                holder.stdout.close()


KILLED = """import os, signal, sys
from conftest import Market
market = Market("--nodes", "1").up()
print(market.run_dir, market.daemons()["market"]["pid"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)"""


def test_a_market_of_a_test_that_is_killed_goes():
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=HERE, stdout=subprocess.PIPE,
                          text=True, timeout=LIMIT, env={**os.environ, "SOUK_BIN": BIN})
    run_dir, pid = done.stdout.split()
    assert done.returncode == -signal.SIGKILL
    until("it is taken down", lambda: not alive(int(pid)) and not os.path.exists(run_dir))


def test_who_asks_for_more_cpus_than_the_host_has_is_told(fit):
    m = Market("--nodes", "1", "--cpus", "1024")
    said, tool = [], m.tool

    def note(*words, **how):
        said.append(tool(*words, **how))
        return said[-1]
    m.tool = note
    for market in bring_up(m):
        up = next(done for done in said if done.args[1:2] == ["up"])
        assert f"this host has {os.cpu_count()}, and no node offers more" in up.stderr
        assert market.providers()[0]["cpus"] == os.cpu_count()
