# SPDX-License-Identifier: GPL-2.0-or-later
"""A process has what it was given from outside, or has asked for, wherever it runs."""
import signal
import subprocess

import pytest

from conftest import LIMIT, until
from moving import FORMS, check_ended, move_about

# Each line: all that it was given.
GIVEN = """
umask 037
echo 0x7f >/proc/self/coredump_filter
echo 77777 >/proc/self/timerslack_ns
printf 'my name' >/proc/self/comm
while ! read -t 0; do
    echo $(uname -m) $(cat /proc/self/personality) $(ionice -p $$) $(nice) $(umask) \
         $(cat /proc/$$/coredump_filter) $(cat /proc/$$/timerslack_ns) $(cat /proc/$$/comm)
    sleep 0.05
done
echo end
"""
LOOP = "n=0; while ! read -t 0; do echo $((n++)); sleep 0.02; done; echo end"


@pytest.mark.parametrize("form", FORMS)
def test_what_was_set_of_a_process_is_as_before(market, form):
    job = market.srun("--move", form, "-p", 50, "setarch", "i686", "-R", "ionice", "-c", "2", "-n",
                      "7", "nice", "-n", "5", "bash", "-c", GIVEN, stdin=subprocess.PIPE)
    job.printed(1)
    move_about(market, job, form)
    job.printed(job.lines() + 2)
    *lines, end = check_ended(market, job)
    assert end == "end" and len(set(lines)) == 1, set(lines)
    assert lines[0].split() == ["i686", "00040008", "best-effort:", "prio", "7", "5", "0037",
                                "0000007f", "77777", "my", "name"]


@pytest.mark.parametrize("form", FORMS)
def test_a_signal_for_the_end_of_its_parent_does_not_come_with_a_move(market, form):
    job = market.srun("--move", form, "-p", 50, "setpriv", "--pdeathsig", "TERM", "bash", "-c",
                      LOOP, stdin=subprocess.PIPE)
    job.printed(1)
    move_about(market, job, form)
    job.printed(job.lines() + 2)
    *lines, end = check_ended(market, job)
    assert lines == [str(n) for n in range(len(lines))] and end == "end"


BUSY = """
import time
print("up", flush=True)
while True:
    print(time.process_time(), flush=True)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
"""


def test_a_limit_of_cpu_time_counts_what_was_used_before_a_move(market):
    job = market.srun("-p", 50, "bash", "-c", f"ulimit -S -t 4; exec /usr/bin/python3 -c '{BUSY}'")
    until("it has used two of its four seconds",
          lambda: any(float(line) > 2 for line in bytes(job.out).decode().split("\n")[1:-1]))
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    assert job.wait(LIMIT) == 128 + signal.SIGXCPU
    values = [float(v) for v in bytes(job.out).decode().split() if v != "up"]
    total, last = 0.0, 0.0
    for value in values:
        total += value - last if value >= last else value
        last = value
    assert 3 < total < 5.2


READS = """
import os, sys
with open("/proc/self/comm", "w") as f:
    f.write("a longer name")
fd = os.open("/proc/self/comm", os.O_RDONLY)
print(os.read(fd, 4), flush=True)
sys.stdin.readline()
print(os.read(fd, 100), flush=True)
"""


def test_who_has_read_a_part_of_a_file_of_proc_reads_on_in_what_it_says(market):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", READS, stdin=subprocess.PIPE)
    job.printed(1)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait(LIMIT) == 0
    assert bytes(job.out).decode().splitlines() == [str(b"a lo"), str(b"nger name\n")]


def test_the_pids_of_two_jobs_are_not_the_same(market):
    def pids():
        job = market.srun("-p", 50, "bash", "-c", "echo $$; bash -c 'echo $$'; :")
        assert job.wait() == 0
        return [int(p) for p in bytes(job.out).decode().split()]
    all_ = [pids() for _ in range(3)]
    assert len({p[0] for p in all_}) == 3 and all(p[0] > 1000 and p[1] > p[0] for p in all_), all_
