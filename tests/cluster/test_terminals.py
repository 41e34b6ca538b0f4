# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that hold terminals of their own, moved and frozen at any moment of their work
(moving.py)."""
import contextlib
import os
import random
import re
import subprocess
import threading

import pytest

from conftest import until
from moving import check_ended, forms, move_about, need
from test_net import FABRIC
from test_programs import on_terminal

# Counts until a line comes, and reads it. (bash that is stopped within a `read -t 0.02` drops a
# line that has just come.)
COUNT = "i=0; while ! read -t 0; do echo $i; i=$((i+1)); sleep 0.02; done; read x; echo end"


def check_count(job, lines):
    assert lines[-1] == "end" and lines[:-1] == [str(i) for i in range(len(lines) - 1)]


def end_by_a_line(market, job, *before):
    """Sends the job its last line, and checks its output. A program between the job and its lines
    may echo them, so only whole numbers count."""
    job.printed(job.lines() + 3)
    job.process.stdin.write(b"over\n")
    job.process.stdin.flush()
    lines = [line.rstrip("\r") for line in check_ended(market, job)]
    check_count(job, [line for line in lines if re.fullmatch(r"\d+|end", line)])
    return lines


@forms(0)
def test_script(market, form):
    need("script")
    job = market.srun("--move", form, "-p", 50, "script", "-qefc", f"tty; exec bash -c '{COUNT}'",
                      "/dev/null", stdin=subprocess.PIPE)
    job.printed(5)
    move_about(market, job, form)
    assert end_by_a_line(market, job)[0] == "/dev/pts/0"


@forms(2)
def test_lines_typed_at_any_moment(market, form):
    """Each line is read once and in order, also those that come while the job is on its way."""
    need("script")
    job = market.srun("--move", form, "-p", 50, "script", "-qefc",
                      "stty -echo; while read x; do echo got $x; done", "/dev/null",
                      stdin=subprocess.PIPE)
    over, typed, r = threading.Event(), 0, random.Random(form)

    def type_lines():
        nonlocal typed
        while not over.wait(r.uniform(0, 0.01)):
            job.process.stdin.write(b"%d\n" % typed)
            job.process.stdin.flush()
            typed += 1
    typist = threading.Thread(target=type_lines)
    typist.start()
    try:
        job.printed(5)
        move_about(market, job, form)
    finally:
        over.set()
        typist.join()
    assert [int(got) for got in re.findall(r"got (\d+)\r?$", "\n".join(check_ended(market, job)),
                                           re.M)] == list(range(typed))


EXPECT = """
log_user 0
set timeout 60
spawn bash --norc --noprofile
send "PS1=''; stty -echo; echo rea''dy\\r"
expect ready
for {set i 0} {![string length [gets_now]]} {incr i} {
    send "echo \\$(($i * 7))-done\\r"
    expect -re "(\\[0-9]+)-done" {} timeout {puts timeout; exit 3} eof {puts eof; exit 4}
    puts "$i $expect_out(1,string)"
}
send "exit 5\\r"
expect eof
puts "end [lindex [wait] 3]"
"""
GETS_NOW = """
fconfigure stdin -blocking 0
proc gets_now {} { gets stdin line; return [expr {[eof stdin] ? "over" : ""}] }
"""


@forms(1)
def test_expect(market, tmp_path, form):
    need("expect")
    (tmp_path / "job").write_text(GETS_NOW + EXPECT)
    job = market.srun("--move", form, "-p", 50, "expect", tmp_path / "job", stdin=subprocess.PIPE)
    job.printed(5)
    move_about(market, job, form)
    job.printed(job.lines() + 5)
    *lines, end = check_ended(market, job)
    assert end == "end 5" and lines == [f"{i} {7 * i}" for i in range(len(lines))]


@pytest.mark.parametrize("program", ["tmux", "screen"])
@forms(2)
def test_a_terminal_multiplexer(market, tmp_path, form, program):
    """Its server is a daemon, its client stands on the job's terminal, and a shell on one of the
    server's."""
    need(program)
    start = {"tmux": f"tmux -f /dev/null -S {tmp_path}/socket new-session bash --norc --noprofile",
             "screen": "screen -c /dev/null bash --norc --noprofile"}[program]
    (tmp_path / "screens").mkdir(mode=0o700)

    def between(t, i):
        t.type(b"echo w$((%d * 11))w $(tty)\r" % i)
        t.shows(rb"w%dw /dev/pts/1" % (i * 11))

    with on_terminal(market, form, between, "env", "TERM=xterm", f"SCREENDIR={tmp_path}/screens",
                     *start.split()) as t:
        between(t, 1000)
        t.type(b"exit\r")
        assert t.ends() == 0


RANKS = """
import array, select, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
me, n, turn, over = world.Get_rank(), world.Get_size(), 0, False
data = array.array("q", range(me * 4096, me * 4096 + 4096))
while not over:
    there = array.array("q", bytes(8 * len(data)))
    world.Sendrecv(data, (me + 1) % n, 0, there, (me - 1) % n, 0)
    data = there
    data[turn % 4096] += turn
    total = world.allreduce(sum(data))
    over = world.bcast(bool(me == 0 and select.select([0], [], [], 0.005)[0]), 0)
    if me == 0: print(turn, total, flush=True)
    turn += 1
print("end", flush=True) if me == 0 else None
"""


@pytest.mark.parametrize("way", ["shared memory", "tcp"])
@forms(0)
def test_four_ranks_of_mpi(market, tmp_path, form, way):
    """mpirun holds ptys, its ranks a connection to it each."""
    need("mpirun")
    (tmp_path / "ranks.py").write_text(RANKS)
    with_what = "self,tcp" if way == "tcp" else "self,vader"
    job = market.srun("--move", form, "-p", 50, "--net=own", "mpirun", "--allow-run-as-root",
                      "--oversubscribe", "-np", 4, "--mca", "btl", with_what, "/usr/bin/python3",
                      tmp_path / "ranks.py", stdin=subprocess.PIPE)
    job.printed(5)
    move_about(market, job, form)
    job.printed(job.lines() + 5)
    *lines, end = check_ended(market, job)
    total, turns = sum(range(4 * 4096)), []
    for turn in range(len(lines)):
        total += 4 * turn
        turns.append(f"{turn} {total}")
    assert end == "end" and lines == turns


@contextlib.contextmanager
def ssh_server(market, path):
    """Runs an ssh server that is on no node, and takes only the key in `path`."""
    for name in ("host", "user"):
        subprocess.run(["dropbearkey", "-t", "ed25519", "-f", path / name], check=True,
                       capture_output=True)
    public = subprocess.run(["dropbearkey", "-y", "-f", path / "user"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    (path / "authorized_keys").write_text(next(line for line in public.splitlines()
                                               if line.startswith("ssh-")) + "\n")
    subprocess.run(["dropbearconvert", "dropbear", "openssh", path / "user", path / "key"],
                   check=True, capture_output=True)
    (path / "key").chmod(0o600)
    home = os.path.expanduser("~")
    inside = (f"mkdir -p {home}/.ssh && mount -t tmpfs -o mode=700 souk {home}/.ssh && "
              f"cp {path}/authorized_keys {home}/.ssh/ && "
              f"exec dropbear -F -E -s -r {path}/host -P {path}/pid -p {FABRIC}:2022")
    server = subprocess.Popen(["nsenter", f"--net=/run/netns/{market.tag}-fabric", "unshare", "-m",
                               "sh", "-c", inside], stderr=open(path / "log", "w"))
    try:
        until("the server listens", lambda: (path / "pid").exists())
        yield ["ssh", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o",
               "UserKnownHostsFile=/dev/null",
               "-o", "LogLevel=ERROR", "-i", path / "key", "-p", 2022, f"root@{FABRIC}"]
    finally:
        server.terminate()
        server.wait(20)


@forms(1)
def test_an_ssh_client(market, tmp_path, form):
    need("ssh", "dropbear")
    with ssh_server(market, tmp_path) as client:
        job = market.srun("--move", form, "-p", 50, "--net=own", *client, f"bash -c '{COUNT}'",
                          stdin=subprocess.PIPE)
        job.printed(5)
        move_about(market, job, form)
        end_by_a_line(market, job)
        job.end()
