# SPDX-License-Identifier: GPL-2.0-or-later
"""A job makes system calls that are not for jobs. Those of a plain user are kept from them
everywhere; what holds after a restore is tried with jobs of root, with system_calls = "limit-all":
only those can be frozen on every machine."""
import os
import platform
import subprocess
import sys

import pytest

from attack_place import place, run_as_somebody  # noqa: F401 (place is a fixture)
from cluster import until

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls")

# Name: number and arguments. Each of them does nothing if it is let through, or is undone.
CALLS = {
    "keyctl": (250, 0, -3, 0), "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0), "perf_event_open": (298, 0, 0, -1, -1, 0), "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0), "pivot_root": (155, 0, 0), "open_tree": (428, -1, 0, 0),
    "fsopen": (430, 0, 0), "setns": (308, -1, 0), "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0), "finit_module": (313, -1, 0, 0), "delete_module": (176, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0), "userfaultfd": (323, 1 << 30),
    "unshare_user": (272, 0x10000000), "clone_user": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": (435, 0, 0), "io_uring_setup": (425, 0, 0),
    "int80_keyctl": (-1,),
}
# keyctl(KEYCTL_GET_KEYRING_ID, session, 0) as a program of 32 bits makes it.
AS_32_BITS = """
import ctypes, mmap
code = bytes([0x53, 0xb8, 32, 1, 0, 0, 0x31, 0xdb, 0xb9, 0xfd, 0xff, 0xff, 0xff, 0x31, 0xd2, 0xcd,
              0x80, 0x5b, 0xc3])
area = mmap.mmap(-1, 4096, prot=7)
area.write(code)
old = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
"""
# A kernel without 32-bit programs (IA32_EMULATION off, some hypervisors) ends who makes such a call
# with SIGSEGV: nobody gets anywhere by it, so there is nothing to keep a job from.
if subprocess.run([sys.executable, "-c", AS_32_BITS + "old()"]).returncode < 0:
    del CALLS["int80_keyctl"]
ASK = f"""
import ctypes, errno, os, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
calls = {CALLS!r}
{AS_32_BITS}
def tried(name, number, *arguments):
    if number < 0:
        status = old()
        return errno.errorcode.get(-status, "done") if status < 0 else "done"
    ctypes.set_errno(0)
    status = libc.syscall(*(ctypes.c_long(a) for a in (number, *arguments)))
    if status == 0 and name.startswith("clone"): os._exit(0)
    return errno.errorcode[ctypes.get_errno()] if status < 0 else "done"
def works():
    threads = [threading.Thread(target=lambda: None) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    return subprocess.run(["/bin/sh", "-c", "cat /proc/self/status | grep ^Seccomp: | wc -l"],
                          capture_output=True, text=True).stdout.strip()
for line in sys.stdin:
    print(works(), *(f"{{n}}={{tried(n, *c)}}" for n, c in calls.items()), flush=True)
"""


def told(line):
    works, *calls = line.split()
    assert works == "1"  # threads, programs and pipes do as ever
    return dict(c.split("=") for c in calls)


def refused(answers):
    """Those that were kept from it: as without the right, or as on a kernel without the call."""
    asked = {"clone3": "ENOSYS", "io_uring_setup": "ENOSYS"}
    return {n for n, error in answers.items() if error == asked.get(n, "EPERM")}


def test_a_plain_users_job_makes_no_call_that_is_not_for_jobs(market, place):  # noqa: F811
    said = run_as_somebody(market, place, "/usr/bin/python3", "-c",
                           ASK.replace("sys.stdin", "[1]"))
    assert refused(told(said)) == set(CALLS)


def test_the_filter_stays_when_a_job_moves_and_is_frozen(market):
    path = f"{market.run_dir}/n1/agentd.conf"
    with open(path) as f:
        before = f.read()

    def configured(text):
        with open(path, "w") as f:
            f.write(text)
        market.kill_daemon("n1")
    configured('system_calls = "limit-all"\n' + before)
    try:
        job = market.srun("-p", 50, "/usr/bin/python3", "-c", ASK, stdin=subprocess.PIPE)
        market.until_runs(job.id, "n1")
        lines = 0

        def ask():
            nonlocal lines
            lines += 1
            job.process.stdin.write(b"\n")
            job.process.stdin.flush()
            job.printed(lines)
            return told(bytes(job.out).decode().splitlines()[-1])
        first = ask()
        assert refused(first) == set(CALLS)
        # n2 limits no job of root: what it restores keeps its filter.
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        market.until_runs(job.id, "n2")
        assert ask() == first
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        market.tool("marketctl", "release", job.id)
        market.until_runs(job.id)
        assert ask() == first
        job.process.stdin.close()
        assert job.wait() == 0
    finally:
        configured(before)
        until("every node is there", lambda: all(p["connected"] for p in market.providers()))


def test_a_job_of_root_has_no_filter_unless_its_node_says_so(market):
    assert os.geteuid() == 0
    job = market.srun("-p", 50, "grep", "^Seccomp:", "/proc/self/status")
    assert job.wait() == 0 and bytes(job.out).split() == [b"Seccomp:", b"0"]
