# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel keeps many things for a job (things.c holds one of each: terminals, pipes, FIFOs,
sockets, timers, signals, files). All of them are unchanged after a move, after a move that failed,
after a freeze and after a checkpoint, in every form of a move."""
import contextlib
import ctypes
import os
import re
import subprocess
import threading

import pytest

from conftest import read_text
from moving import FORMS
from test_checkpoints import checkpoint
from test_job_parts import check_refused

HERE = os.path.dirname(os.path.abspath(__file__))
RENAME_EXCHANGE = 2


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    program = tmp_path_factory.mktemp("things") / "things"
    subprocess.run(["gcc", "-O2", "-o", program, f"{HERE}/things.c", "-lutil"], check=True,
                   timeout=60)
    return program


def begin(market, things, path, *options, locks=False):
    path.mkdir()
    job = market.srun("-p", 50, *options, things, path, *(["locks"] if locks else []),
                      stdin=subprocess.PIPE)
    job.printed(1)
    return job


def finish(job):
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    assert job.wait() == 0 and not job.told, job.told
    return bytes(job.out).decode().splitlines()


def check(market, things, path, job, locks=False):
    assert finish(job) == finish(begin(market, things, path / "unmoved", locks=locks))
    assert sorted(os.listdir(path / "job")) == sorted({*os.listdir(path / "unmoved"), "growing"})


def move(market, job, there):
    market.tool("marketctl", "--hold", "move", job.id, there, check=False)
    market.until_runs(job.id, there)


@contextlib.contextmanager
def other_named(path):
    """No job comes back with a file whose name is another's: the two change names on and on."""
    over = threading.Event()
    names = [os.fsencode(path / name) for name in ("growing", "other")]
    libc = ctypes.CDLL(None, use_errno=True)

    def change():
        assert libc.renameat2(-100, names[0], -100, names[1], RENAME_EXCHANGE) == 0

    def change_on():
        # It ends as it began: after an even number of changes.
        while not over.wait(0.0005):
            change()
            over.wait(0.0005)
            change()
        os.unlink(names[1])
    with open(names[1], "wb"):
        pass
    thread = threading.Thread(target=change_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def fail_to_move(market, job, path, there):
    here, failed = market.until_runs(job.id)["where"], market.job(job.id)["failed_moves"]
    to = there

    def order():
        market.tool("marketctl", "--hold", "move", job.id, to, check=False)

    def has_failed(j):
        nonlocal to
        if j["failed_moves"] == failed and j["where"] == to and j["status"] == "run":
            # The name was that of the same file at the dump and at the restore.
            to = here if to == there else there
            order()
        return j["failed_moves"] > failed
    with other_named(path):
        order()
        market.until_job(job.id, "has failed to move", has_failed)
    market.tool("marketctl", "release", job.id, check=False)
    # The job stays here, even if the move was tried again meanwhile.
    market.tool("marketctl", "--hold", "move", job.id, here, check=False)
    market.until_runs(job.id, here)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("locks", [False, True], ids=["", "with-locks"])
def test_a_move_that_works(market, things, tmp_path, form, locks):
    job = begin(market, things, tmp_path / "job", "--move", form, locks=locks)
    for there in ("n2", "n3", "n1"):
        move(market, job, there)
    assert market.job(job.id)["failed_moves"] == 0
    check(market, things, tmp_path, job, locks)


@pytest.mark.parametrize("form", FORMS)
def test_a_move_that_fails(market, things, tmp_path, form):
    job = begin(market, things, tmp_path / "job", "--move", form)
    for _ in range(2):
        fail_to_move(market, job, tmp_path / "job", "n2")
    check(market, things, tmp_path, job)


def test_a_freeze_and_a_thaw(market, things, tmp_path):
    job = begin(market, things, tmp_path / "job")
    for there in ("n1", "n2"):
        market.tool("marketctl", "--hold", "freeze", job.id, check=False)
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "--hold", "thaw", job.id, there, check=False)
        market.until_runs(job.id, there)
    check(market, things, tmp_path, job)


@pytest.mark.parametrize("locks", [False, True], ids=["", "with-locks"])
def test_a_checkpoint(market, things, tmp_path, locks):
    job = begin(market, things, tmp_path / "job", "--checkpoint-every", "1s", locks=locks)
    move(market, job, "n2")
    for _ in range(2):
        checkpoint(market, job)
    check(market, things, tmp_path, job, locks)


PING = """
import select, socket, sys
open("/proc/sys/net/ipv4/ping_group_range", "w").write("0 77")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
s.settimeout(10)
def ask(n):
    s.sendto(bytes([8, 0, 0, 0, 0, 0, 0, n]) + b"souk", ("127.0.0.1", 0))
    return s.recv(100)[8:].decode()
print(ask(1), flush=True)
sys.stdin.read()
print(ask(2), open("/proc/sys/net/ipv4/ping_group_range").read().split())
"""


def test_an_icmp_socket_and_who_may_make_one(market):
    job = market.srun("-p", 50, "--net=own", "/usr/bin/python3", "-c", PING, stdin=subprocess.PIPE)
    job.printed(1)
    for there in ("n2", "n3"):
        move(market, job, there)
    job.process.stdin.close()
    assert job.wait() == 0 and bytes(job.out).decode().splitlines() == ["souk", "souk ['0', '77']"]


QUEUE = """
import ctypes, os, sys, time
c = ctypes.CDLL(None, use_errno=True)
q = c.mq_open(b"/souk-queue", os.O_CREAT | os.O_RDWR, 0o600, None)
assert q >= 0, os.strerror(ctypes.get_errno())
if sys.argv[1] == "closed": os.close(q)
n = 0
while True:
    print(n, flush=True)
    n += 1
    time.sleep(0.02)
"""


@pytest.mark.parametrize("how", ["open", "closed"])
def test_a_posix_message_queue_keeps_a_job_where_it_is(market, how):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", QUEUE, how)
    job.printed(3)
    check_refused(market, job, "has a POSIX message queue")


POLICY = """
import os, sys
child = os.fork()
if child == 0:
    while True: os.read(0, 1) or os._exit(0)
os.sched_setscheduler(child, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(3))
print("set", flush=True)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
"""


def policies(pids):
    """The scheduling policies of the processes that still run. A process that dumped or restored
    the job may be among them and end at any moment."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            yield os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority


def test_a_real_time_policy(market):
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", POLICY, stdin=subprocess.PIPE)
    job.printed(1)
    for there in ("n2", "n3"):
        move(market, job, there)
        (_, _, pids), = market.capsules(job.id, there)
        assert (os.SCHED_RR | os.SCHED_RESET_ON_FORK, 3) in policies(pids)
    job.process.stdin.close()
    assert job.wait() == 0 and not job.told


def test_a_real_time_policy_is_not_lost_where_no_time_is_left_for_it(market):
    group = re.search('cgroup = "(.*)"', read_text(f"{market.run_dir}/n2/agentd.conf"))[1]
    limit = f"/sys/fs/cgroup/cpu/{group}/jobs/cpu.rt_runtime_us"
    if not os.path.exists(limit):
        pytest.skip("this kernel divides no real-time among groups")
    with open(limit, "w") as f:
        f.write("0")
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", POLICY, stdin=subprocess.PIPE)
    job.printed(1)
    assert market.until_runs(job.id)["where"] == "n1"
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_job(job.id, "has failed to move", lambda j: j["failed_moves"] > 0)
    assert any("real-time policy" in line
               for line in read_text(f"{market.run_dir}/n2/log").splitlines())
    market.tool("marketctl", "release", job.id)
    market.until_runs(job.id, "n1")
    (_, _, pids), = market.capsules(job.id, "n1")
    assert (os.SCHED_RR | os.SCHED_RESET_ON_FORK, 3) in policies(pids)
    job.process.stdin.close()
    assert job.wait() == 0 and not job.told
