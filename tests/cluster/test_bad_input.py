# SPDX-License-Identifier: GPL-2.0-or-later
"""Wrong input is answered by one line and a status, and changes nothing."""
import json
import os
import random
import signal
import socket
import struct
import subprocess

import pytest

import programs
from conftest import BIN, LIMIT, Market, bring_up, mount_points, read_text, until


def refused(done, status, *words):
    lines = done.stderr.strip().splitlines()
    assert done.returncode in ([status] if isinstance(status, int) else status), done.stderr
    assert len(lines) == 1 and not done.stdout, (done.stdout, done.stderr)
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize("argv, status, word", [
    (["srun", "--bogus", "true"], 2, "--bogus"),
    (["srun", "true"], 2, "--max-price"),
    (["srun", "-p", "0", "true"], 2, "more than 0"),
    (["srun", "-p", "-1", "true"], 2, "-1"),
    (["srun", "-p", "5EUR", "true"], 2, "5EUR"),
    (["srun", "-p", "nan", "true"], 2, "nan"),
    (["srun", "-p", "1e99", "true"], 2, "1e99"),
    (["srun", "-p", "", "true"], 2, "price"),
    (["srun", "-p", "5"], 2, "program"),
    (["srun", "-p", "5", "-m", "lots", "true"], 2, "lots"),
    (["srun", "-p", "5", "-m", "-3", "true"], 2, "-3"),
    (["srun", "-p", "5", "-c", "0", "true"], 2, "0"),
    (["srun", "-p", "5", "-b", "-1", "true"], 2, "-1"),
    (["srun", "-p", "5", "--node", "n99", "true"], 1, "n99"),
    (["srun", "-p", "5", "--tcp=keep", "true"], 2, "neither close nor refuse"),
    (["srun", "-p", "5", "--net=mine", "true"], 2, "neither host nor own"),
    (["srun", "-p", "5", "--net=own", "--tcp=close", "true"], 2, "--tcp is for --net=host"),
    (["srun", "-J", "n1.999", "-p", "4", "--tcp=close"], 2, "--tcp"),
    (["srun", "-p", "5", "/no/such/program"], 1, "/no/such/program"),
    (["srun", "-p", "5", "no-such-program"], 1, "no-such-program"),
    (["srun", "-p", "5", "/etc/passwd"], 1, "Permission denied"),
    (["srun", "-J", "n1.999", "-p", "4"], 1, "n1.999"),
    (["srun", "--attach", "n1.999"], 1, "n1.999"),
    (["srun", "-p", "5", "/usr"], 1, "Is a directory"),
    (["pvdctl", "--bogus"], 2, "--bogus"),
    (["pvdctl", "set", "price", "x"], (1, 2), "x"),
    (["pvdctl", "set", "price", "-1"], 2, "-1"),
    (["pvdctl", "set", "speed", "0"], (1, 2), "speed"),
    (["pvdctl", "set", "memory", "4XB"], (1, 2), "4XB"),
    (["pvdctl", "set", "colour", "3"], (1, 2), "colour"),
    (["pvdctl", "market", "maybe"], 2, "on or off"),
    (["marketctl", "--bogus"], 2, "--bogus"),
    (["marketctl", "conquer"], 2, "conquer"),
    (["marketctl", "job", "n1.999"], 1, "n1.999"),
    (["marketctl", "cancel", "x"], (1, 2), "x"),
    (["marketctl", "move", "n1.999", "n2"], 1, "n1.999"),
    (["souk", "conquer"], 2, "conquer"),
    (["souk", "up", "--bogus"], 2, "--bogus"),
    (["souk", "up", "--nodes", "0"], 2, "--nodes"),
    (["souk", "up", "--speeds", "1,2"], 2, "--speeds"),
    (["souk", "up"], 1, "up already"),
    (["testload", "--bogus"], 2, "--bogus"),
    (["agentd", "--bogus"], 2, "--bogus"),
    (["marketd", "--config"], 2, "--config: needs a file"),
    (["agentd", "--config", "/no/such/file"], 2, "/no/such/file: "),
], ids=lambda v: "_".join(v) if isinstance(v, list) else "")
def test_bad_words_are_refused_in_one_line_and_change_nothing(market, argv, status, word):
    def state():
        told = ("node", "reserve", "speed", "cpus", "memory_mb", "on_market")
        return ([[p[key] for key in told] for p in market.providers()],
                [(j["id"], j["status"]) for j in market.list_jobs()])
    before = state()
    refused(market.tool(argv[0], *argv[1:], check=False), status, word)
    assert state() == before


@pytest.mark.parametrize("text, word, status",
                         [("echo a script\n", "Exec format error", 126),
                          ("#!/no/such/interpreter\n", "No such file or directory", 127)])
def test_a_file_that_the_kernel_does_not_run_is_named_with_the_reason(market, tmp_path, text, word,
                                                                      status):
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(0o755)
    refused(market.tool("srun", "-p", 5, script, check=False), status, str(script), word)
    until("the market knows that it has ended", lambda: not market.live())


def test_a_directory_that_the_user_may_not_enter_or_that_is_gone_is_refused_at_once(market,
                                                                                    tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    enter = ("import os, sys; os.chdir(sys.argv[1]); srun = os.open(sys.argv[2], os.O_RDONLY); {};"
             "os.execve(srun, sys.argv[2:], os.environ)")
    for what, word in (("os.setgroups([]), os.setgid(65534), os.setuid(65534)",
                        "Permission denied"), ("os.rmdir(sys.argv[1])", "No such file")):
        done = subprocess.run(["/usr/bin/python3", "-c", enter.format(what), str(closed),
                               f"{BIN}/srun", "-p", "5", "true"], env=market.env,
                              capture_output=True, text=True, timeout=40)
        refused(done, 1, "working directory", word)
    assert not market.live()


def test_a_move_to_a_node_that_does_not_exist_is_refused_and_the_job_runs_on(market):
    job = market.srun("-p", 5, "sleep", "100000")
    market.until_runs(job.id, "n1")
    refused(market.tool("marketctl", "move", job.id, "n99", check=False), 1, "n99")
    assert market.job(job.id)["status"] == "run"


def test_down_with_nothing_up_says_so_and_makes_nothing(market):
    env = {**market.env, "SOUK_RUN": market.run_dir + "-none"}
    for verb in ("down", "status"):
        refused(market.tool("souk", verb, env=env, check=False), 1, "no market is up")
    assert not os.path.exists(env["SOUK_RUN"])
    done = market.tool("srun", "-p", 5, "--patience", 1, "true", env=env, check=False)
    refused(done, 1)


def test_a_second_market_on_the_same_port_or_state_does_not_start(market, tmp_path):
    conf = f"{market.run_dir}/market/marketd.conf"
    enter = ["nsenter", f"--net=/run/netns/{market.tag}-fabric"]
    how = dict(capture_output=True, text=True, timeout=30, env=market.env)
    refused(subprocess.run([*enter, f"{BIN}/marketd", "--config", conf], **how), 1, "in use")
    other = tmp_path / "marketd.conf"
    address = market.daemon("market")["address"]
    other.write_text(f'listen = "{address}"\nsocket = "{tmp_path}/s"\nstate = "{tmp_path}/state"\n'
                     'insecure = true\n')
    done = subprocess.run([*enter, f"{BIN}/marketd", "--config", str(other)], **how)
    assert done.returncode == 1 and "7070" in done.stderr and "in use" in done.stderr.lower(), done
    refused(subprocess.run([f"{BIN}/agentd", "--config", f"{market.run_dir}/n1/agentd.conf"],
                           **how), 1, "in use")
    assert market.tool("srun", "-p", 5, "true").returncode == 0


GARBAGE = [b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096, b"\xff" * 4096,
           struct.pack("<I", 0x7fffffff) + b"x" * 64, struct.pack(">I", 0x7fffffff) + b"x" * 64,
           b"\x01", random.Random(5).randbytes(100_000), b""]


@pytest.mark.parametrize("place",
                         ["market tcp", "market unix", "agent tcp", "agent unix", "supervisor"])
def test_garbage_on_a_socket_harms_nobody(market, place):
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    job.printed(3)
    before = market.daemons()
    who, kind = (place.split() + [""])[:2]
    daemon = before["market"] if who == "market" else before["nodes"][0]

    def send():
        for data in GARBAGE + [random.Random(seed).randbytes(600) for seed in range(30)]:
            if who == "supervisor":
                s, to = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
                         market.run_dir + "/notify.sock")
                data = data[:4096]
            elif kind == "unix":
                s, to = socket.socket(socket.AF_UNIX), daemon["socket"]
            else:
                s, (host, port) = socket.socket(), daemon["address"].split(":")
                to = (host, int(port))
            with s:
                s.settimeout(LIMIT)
                s.connect(to)
                try:
                    s.sendall(data)
                    if who != "supervisor":
                        s.shutdown(socket.SHUT_WR)
                        while s.recv(65536):
                            pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
    market.in_netns("fabric", send)
    after = market.daemons()
    assert [(d["pid"], d["restarts"]) for d in [after["market"], *after["nodes"]]] == \
           [(d["pid"], d["restarts"]) for d in [before["market"], *before["nodes"]]]
    assert market.tool("srun", "-p", 5, "--node", "n1", "true").returncode == 0
    job.printed(job.lines() + 3)
    job.process.stdin.close()
    assert job.wait() == 7
    programs.check_chain(job.out)


def test_an_agent_without_a_market_stays_up_and_says_so(market, tmp_path):
    conf, log = tmp_path / "agentd.conf", tmp_path / "log"
    text = read_text(f"{market.run_dir}/n1/agentd.conf")
    for key, value in (("listen", market.daemon("n1")["address"].replace(":7071", ":7999")),
                       ("node", "n9"),
                       ("market", market.daemon("market")["address"].replace(":7070", ":7998")),
                       ("socket", f"{tmp_path}/s"), ("state", f"{tmp_path}/state"),
                       ("cgroup", f"{market.tag}/n9")):
        old = next(line for line in text.splitlines() if line.startswith(key + " ="))
        text = text.replace(old, f'{key} = "{value}"')
    conf.write_text(text + "insecure = true\n")
    with open(log, "wb") as out:
        enter = ["nsenter", f"--net=/run/netns/{market.tag}-n1"]
        agent = subprocess.Popen([*enter, f"{BIN}/agentd", "--config", str(conf)],
                                 env=market.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        def status():
            assert agent.poll() is None, read_text(log)
            done = market.tool("pvdctl", "--socket", tmp_path / "s", "status", check=False)
            return done.returncode == 0 and ":7998" in done.stdout and done
        assert until("pvdctl says what is wrong", status)
        until("the log says so", lambda: ":7998" in read_text(log))
        waiting = market.srun("--socket", f"{tmp_path}/s", "-p", 5, "true")
        assert waiting.id.startswith("n9.")
        waiting.end()
        assert agent.poll() is None
    finally:
        agent.terminate()
        try:
            agent.wait(LIMIT)
        finally:
            if agent.poll() is None:
                agent.kill()
                agent.wait(10)
            for point in mount_points():  # in memory: images on their way, records of capsules
                if point.startswith(f"{tmp_path}/state/"):
                    subprocess.run(["umount", "-l", point], check=True, timeout=10)


def test_with_a_full_disk_a_job_is_not_frozen_but_runs_on_and_loses_nothing(fit):
    m = Market("--nodes", "1")
    images = f"{m.run_dir}/state/n1/images"
    os.makedirs(images)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "souk-test", images],
                   check=True, timeout=10)
    for market in bring_up(m):
        job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
        market.until_runs(job.id, "n1")
        job.printed(3)
        after = len(job.words)
        market.tool("marketctl", "--hold", "freeze", job.id)
        job.said(r"(?i)no space|disk", after=after)
        lines = job.lines()
        job.printed(lines + 5)
        assert [n for n, _, _ in market.capsules(job.id)] == ["n1"]
        assert market.job(job.id)["freezes"] == 0
        market.tool("marketctl", "release", job.id)
        job.printed(job.lines() + 5)
        job.process.stdin.close()
        assert job.wait() == 7
        programs.check_chain(job.out)
        until("nothing half-written is left", lambda: not os.listdir(images))


def test_up_that_fails_leaves_nothing(market):
    m = Market("--solver", "no-such-solver")
    refused(m.tool("souk", "up", *m.options, check=False), 2, "--solver", "no-such-solver",
            "greedy_migration")
    m.note_family()
    assert not m.leftovers()


def test_an_up_that_is_interrupted_leaves_nothing(fit):
    m = Market("--nodes", "1")
    up = subprocess.Popen([f"{BIN}/souk", "up", *m.options], env=m.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        m.tag = until("it has begun", lambda: json.loads(read_text(f"{m.run_dir}/instance.json") or
                                                         "{}").get("tag"), pause=0.001)
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(40) != 0
    m.note_family()
    until("nothing is left", lambda: not m.leftovers())


def test_a_market_s_directory_may_be_named_from_where_one_stands(fit, tmp_path):
    env = {**os.environ, "SOUK_RUN": "r", "PATH": BIN + ":" + os.environ["PATH"]}

    def tool(*argv):
        return subprocess.run(argv, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=100)
    try:
        up = tool("souk", "up", "--nodes", "1")
        assert up.returncode == 0, up.stderr
        assert tool("srun", "-p", "5", "pwd").stdout == f"{tmp_path}\n"
    finally:
        down = tool("souk", "down")
    assert down.returncode == 0 and not os.listdir(tmp_path), down


def test_a_market_whose_supervisor_died_is_taken_down_by_hand(fit):
    for m in bring_up(Market("--nodes", "1")):
        m.srun("-p", 5, "sleep", "100000").said("started")
        m.note_family()
        os.kill(m.daemons()["supervisor"], 9)
        until("the supervisor is gone", lambda: not m.daemons()["supervisor"])
        refused(m.tool("souk", "up", check=False), 1, "souk down")
