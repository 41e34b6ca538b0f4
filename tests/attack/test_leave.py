# SPDX-License-Identifier: GPL-2.0-or-later
"""These jobs try to keep more than they were given: privileges, limits, keys, and processes outside
of their capsule. Jobs of a plain user start everywhere; the jobs that are frozen here are root's
own."""
import os
import shutil
import signal
import socket
import subprocess

import pytest

from attack_place import SOMEBODY, place, run_as_somebody  # noqa: F401 (place is a fixture)
from cluster import BIN, until

KEYS = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
def keyring(): return libc.syscall(250, 0, ctypes.c_int(-3), 0)
def status(): return [l.split()[1] for l in open("/proc/self/status") if l[:10] == "NoNewPrivs"][0]
for line in sys.stdin: print(keyring(), status(), flush=True)
"""


def test_a_set_user_id_program_gains_nothing_in_a_job(market, place):  # noqa: F811
    shutil.copy("/usr/bin/id", f"{place}/id")
    os.chmod(f"{place}/id", 0o4755)
    assert run_as_somebody(market, place, f"{place}/id", "-u") == f"{SOMEBODY}\n"


def test_a_jobs_bounding_set_is_empty_and_it_has_no_capability(market, place):  # noqa: F811
    sets = run_as_somebody(market, place, "grep", "^Cap", "/proc/self/status").split()[1::2]
    assert [int(s, 16) for s in sets] == [0] * 5


def test_a_socket_in_run_is_not_there_for_a_job(market, place):  # noqa: F811
    """As a container engine's, or a user's own services'."""
    path = f"/run/souk-attack-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        try:
            os.chmod(path, 0o777)
            door.listen()
            said = run_as_somebody(market, place, "/usr/bin/python3", "-c",
                                   "import socket\ns = socket.socket(socket.AF_UNIX)\n"
                                   f"try: print(s.connect('{path}'))\n"
                                   "except OSError as e: print(type(e).__name__)\n")
            assert said == "FileNotFoundError\n"
        finally:
            os.unlink(path)
    assert run_as_somebody(market, place, "stat", "-c", "%a %u", f"/run/user/{SOMEBODY}",
                           "/run/lock") == f"700 {SOMEBODY}\n1777 0\n"


def open_files(pid):
    """The files that the process has open now. It opens and closes others meanwhile, so an entry
    may be gone before we read it."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            pass


def test_a_submitter_gets_no_more_than_the_limits_that_he_has(market, place):  # noqa: F811
    """srun reads its limits and sends them; what it says is wrong by the time agentd hears it."""
    shutil.copy(f"{BIN}/srun", f"{place}/srun")
    agentd = market.daemon("n1")["pid"]
    os.kill(agentd, signal.SIGSTOP)
    try:
        srun = subprocess.Popen([f"{place}/srun", "-p", "50", "cat", "/proc/self/limits"],
                                env=market.env, cwd=place, stdout=subprocess.PIPE, text=True,
                                user=SOMEBODY, group=SOMEBODY, extra_groups=[],
                                stdin=subprocess.DEVNULL)
        # srun reads its limits before it connects.
        until("it waits for an answer", lambda: any(
            file.startswith("socket:") for file in open_files(srun.pid)))
        subprocess.run(["prlimit", "--pid", str(srun.pid), "--nofile=200:300", "--core=0:0"],
                       check=True, user=SOMEBODY, group=SOMEBODY, extra_groups=[])
    finally:
        os.kill(agentd, signal.SIGCONT)
    said = {line[:20].strip(): line.split()[-3:-1] for line in srun.communicate()[0].splitlines()}
    assert said["Max open files"] == ["300", "300"]
    assert said["Max core file size"] == ["1", "1"]  # a byte, which is none (core_mb_max)


def thaw(market, job):
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    market.tool("marketctl", "release", job.id)
    market.until_runs(job.id)


def test_no_two_jobs_share_a_session_keyring_also_when_they_were_frozen(market):
    jobs, seen, gains = [], [], []
    for _ in range(2):
        jobs.append(market.srun("-p", 50, "/usr/bin/python3", "-c", KEYS, stdin=subprocess.PIPE))
        market.until_runs(jobs[-1].id)

    def ask(job):
        lines = job.lines()
        job.process.stdin.write(b"\n")
        job.process.stdin.flush()
        job.printed(lines + 1)
        serial, gain = bytes(job.out).decode().splitlines()[-1].split()
        seen.append(int(serial))
        gains.append(gain)
    for job in jobs:
        ask(job)
    if seen[0] < 0:
        pytest.skip("this kernel, or who runs this container, allows no keys")
    for job in jobs:
        thaw(market, job)
        ask(job)
    assert len(set(seen)) == 4, seen  # a restore makes new ones
    assert gains == ["1"] * 4  # and privileges are not gained by what was restored either


def test_a_private_tmp_is_the_jobs_alone_and_goes_along(market):
    configurations = [f"{market.run_dir}/{n}/agentd.conf" for n in market.nodes()]

    def set_private(text):
        for node, path in zip(market.nodes(), configurations):
            with open(path, "w") as f:
                f.write(text(olds[path]))
            market.kill_daemon(node)
    olds = {}
    for path in configurations:
        with open(path) as f:
            olds[path] = f.read()
    name = f"souk-attack-{os.getpid()}"
    set_private(lambda old: "private_tmp = true\n" + old)
    try:
        job = market.srun("-p", 50, "/usr/bin/python3", "-c",
                          f"import os, sys\nf = open('/tmp/{name}', 'w+')\n"
                          "for line in sys.stdin:\n"
                          "    f.write('word ')\n    f.flush()\n    f.seek(0)\n"
                          "    words = len(f.read().split())\n"
                          "    print(sorted(os.listdir('/tmp')), words, flush=True)",
                          stdin=subprocess.PIPE, cwd="/")  # the tree may lie in /tmp
        where = market.until_runs(job.id)["where"]
        for n in range(1, 4):
            job.process.stdin.write(b"\n")
            job.process.stdin.flush()
            job.printed(n)
            there = "n2" if where == "n1" else "n1"
            if n < 3:
                market.tool("marketctl", "--hold", "move", job.id, there)
                where = market.until_runs(job.id, there)["where"]
            assert not os.path.exists(f"/tmp/{name}")
        assert bytes(job.out).decode().splitlines() == [f"['{name}'] {n}" for n in range(1, 4)]
        job.process.stdin.close()
        assert job.wait() == 0
    finally:
        set_private(lambda old: old)
    until("every node is there", lambda: all(p["connected"] for p in market.providers()))
