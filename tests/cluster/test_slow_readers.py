# SPDX-License-Identifier: GPL-2.0-or-later
"""Tools that never read what agentd sends them: they cost a bounded amount of its memory, and delay
nobody else."""
import os
import re
import socket
import struct
import subprocess

from conftest import BIN, LIMIT, read_text, until

DEAF, AHEAD_MB = 24, 1  # so much agentd sends ahead of each terminal
MB = 1 << 20


def field(number, value):
    if isinstance(value, bytes):
        return bytes([number << 3 | 2, len(value)]) + value
    out = bytes([number << 3])
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def frame(kind, body):
    return struct.pack("<IHH", len(body), kind, 0) + body


def attach(path, home, seq):
    s = socket.socket(socket.AF_UNIX)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(path)
    hello = struct.pack("<BI", 1 << 3 | 5, 0x4B554F53) + field(2, 2)
    s.sendall(frame(1, hello) + frame(82, field(1, field(1, home.encode()) + field(2, seq))))
    return s


def memory_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", read_text(f"/proc/{pid}/status"))[1]) / 1024


def test_terminals_that_never_read_cost_a_bounded_amount_of_memory_and_delay_nobody(market):
    agent = market.daemon("n1")
    program = (f"import os,sys; sys.stdin.readline(); [os.write(1, b'%07d' % i * 146 + b'\\n"
               f"') for i in range({16 * 1024})]")
    job = market.srun("-p", "40", "/usr/bin/python3", "-c", program, stdin=-1)
    market.until_runs(job.id)
    path = f"{market.run_dir}/n1/agentd.sock"
    home, seq = job.id.split(".")
    deaf = [attach(path, home, int(seq)) for _ in range(DEAF)]
    try:
        for s in deaf:  # it has answered, and is left alone from here on
            s.settimeout(20)
            assert s.recv(8)
        before = memory_mb(agent["pid"])
        job.process.stdin.write(b"go\n")
        job.process.stdin.close()
        job.printed(12 * 1024)
        grown = memory_mb(agent["pid"]) - before
        assert grown < DEAF * AHEAD_MB * 2 + 16, f"{grown:.0f} MB more"
        other = market.srun("--node", "n1", "-p", "50", "echo", "quick")
        assert other.wait() == 0 and bytes(other.out) == b"quick\n"
        assert job.wait() == 0
        assert bytes(job.out) == b"".join(b"%07d" % i * 146 + b"\n" for i in range(16 * 1024))
    finally:
        for s in deaf:
            s.close()
    assert market.daemon("n1")["pid"] == agent["pid"] and os.path.exists(path)


def small_spool(market):
    """n1 keeps 1 MB of a stream that no terminal has written; its configuration as it was comes
    back."""
    path = f"{market.run_dir}/n1/agentd.conf"
    before = read_text(path)
    with open(path, "a") as f:
        f.write("output_mb = 1\n")
    market.kill_daemon("n1")
    return path, before


def test_output_that_was_held_back_for_a_slow_reader_comes_and_the_job_ends(market, tmp_path):
    path, before = small_spool(market)
    state = market.daemon("n1")["state_dir"]
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    try:
        for where in ("n1", "n2"):  # its own node's job, and one that runs elsewhere
            id = market.tool("srun", "--node", "n1", "-p", 40, "-d", "sh", "-c",
                             "read x <$0; head -c 20M /dev/zero", fifo).stdout.strip()
            market.until_runs(id)
            if where == "n2":
                market.tool("marketctl", "move", id, "n2", "--hold")
                market.until_runs(id, "n2")
            reader = subprocess.Popen([f"{BIN}/srun", "--node", "n1", "--attach", id],
                                      env=market.env, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE)
            with open(fifo, "w") as f:
                f.write("go\n")
            stored = f"{state}/home/{id.split('.')[1]}.out"
            until("the spool is full", lambda: os.stat(stored).st_size >= MB)
            assert reader.communicate(timeout=LIMIT)[0] == bytes(20 * MB) and reader.returncode == 0
    finally:
        with open(path, "w") as f:
            f.write(before)
        market.kill_daemon("n1")


def descriptors(pid):
    return {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}


def limit_files(pid, soft, hard):
    """Sets the limit from a process of the daemon's own user, because root may be in a container
    that forbids it."""
    user = re.search(r"^Uid:\t(\d+)", read_text(f"/proc/{pid}/status"), re.M)[1]
    subprocess.run(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "prlimit",
                    "--pid", str(pid), f"--nofile={soft}:{hard}"], check=True, timeout=LIMIT)


def test_a_job_whose_output_cannot_be_kept_is_refused_before_it_is_durable(market):
    agent = market.daemon("n1")["pid"]
    soft, hard = re.search(r"^Max open files +(\d+) +(\d+)", read_text(f"/proc/{agent}/limits"),
                           re.M).groups()
    known = {j["id"] for j in market.list_jobs()}
    used = descriptors(agent)
    free = [fd for fd in range(len(used) + 2) if fd not in used]

    def refused(last, how):
        until("the tool before is gone", lambda: descriptors(agent) <= used)
        limit_files(agent, last + 1, hard)
        done = market.tool("srun", "--node", "n1", "-p", 5, *how, "true", check=False)
        limit_files(agent, soft, hard)
        assert done.returncode == 1 and "Too many open files" in done.stderr, done
        return done.stderr

    try:
        for last in free[:2]:  # the tool's connection, and one file of two
            for how in ([], ["--detach"]):
                said = refused(last, how)
                if "the accounts of this machine cannot be read: " in said:
                    # Known for a minute once they were read: then only the output is in the way.
                    market.tool("srun", "--node", "n1", "-p", 5, "true")
                    known = {j["id"] for j in market.list_jobs()}
                    said = refused(last, how)
                assert "its output cannot be kept: " in said
    finally:
        limit_files(agent, soft, hard)
    assert market.tool("srun", "--node", "n1", "-p", 5, "echo", "here").stdout == "here\n"
    assert len({j["id"] for j in market.list_jobs()} - known) == 1
