# SPDX-License-Identifier: GPL-2.0-or-later
"""srun --check: whether a program or a process could move, said before anything is submitted."""
import json
import os
import subprocess
import sys

import pytest

from conftest import BIN

IO_URING = """
import ctypes, sys, time
page = ctypes.create_string_buffer(120)
fd = ctypes.CDLL(None).syscall(425, 4, page)
print(fd, flush=True)
time.sleep(100)
"""


def check(*words):
    done = subprocess.run([f"{BIN}/srun", "--check", *map(str, words)], text=True,
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def run_with(word):
    """The processes that have it in their command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if word.encode() in f.read().split(b"\0"):
                    yield pid
        except OSError:  # it has ended
            pass


def test_a_program_that_holds_nothing_could_move_and_is_ended_after_the_look():
    seconds = f"100.{os.getpid()}"  # as no other process sleeps
    status, said, told = check("--check-for", "0.5", "sleep", seconds)
    assert (status, told) == (0, "")
    assert said == "nothing is found that would keep it from moving\n"
    assert not list(run_with(seconds))


def test_what_a_program_or_a_process_holds_is_named_with_its_code():
    held = subprocess.Popen([sys.executable, "-c", IO_URING], stdout=subprocess.PIPE, text=True)
    try:
        if int(held.stdout.readline()) < 0:
            pytest.skip("this kernel gives no io_uring")
        status, said, told = check(held.pid)
        assert (status, told) == (1, "")
        assert said.startswith(f"cannot move: process {held.pid} (python")
        assert said.endswith("[holds_io_uring]\n")
        status, said, told = check("--json", held.pid)
        answer = json.loads(said)
        assert status == 1 and answer["why_code"] == "holds_io_uring" and not answer["can_move"]
        assert held.poll() is None  # it was only looked at
    finally:
        held.kill()
        held.wait()
    # Long enough for it to begin: what is looked at again and again is ended when it is found.
    status, said, told = check("--check-for", "50", sys.executable, "-c", IO_URING)
    assert status == 1 and said.endswith("[holds_io_uring]\n")


@pytest.mark.parametrize("makes, code, named", [
    ("h = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); at = h.fileno()", "holds_mptcp",
     "has an MPTCP socket open (file {}); it can move with plain TCP"),
    ("r, at = os.pipe2(os.O_DIRECT)", "holds_packet_pipe", "has a pipe of packets open (file {});"),
    ("h = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0); at = h.fileno()",
     "holds_unsupported", "has a socket of the kind ALG open (file {});"),
    ("c = ctypes.CDLL(None); at = c.syscall(447, 0); os.ftruncate(at, 4096); "
     "c.mmap(None, ctypes.c_size_t(4096), 3, 1, at, ctypes.c_long(0)); os.close(at)",
     "holds_secret_memory", "has secret memory (mapped at ")])
def test_what_a_program_holds_is_named_with_what_would_help(makes, code, named):
    program = ("import ctypes, os, socket, sys\ntry:\n    " + makes +
               "\nexcept OSError: at = 'none'\nprint(at, flush=True)\nsys.stdin.read()")
    held = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    with held:
        at = held.stdout.readline().strip()
        if at != "none":
            status, said, told = check(held.pid)
        held.stdin.close()
    if at == "none":
        pytest.skip("this kernel has none")
    assert (status, told) == (1, "") and said.endswith(f"[{code}]\n"), said
    assert said.startswith(f"cannot move: process {held.pid} (python") and named.format(at) in said


@pytest.mark.parametrize("words, status, why", [
    (["no-such-program"], 1, "srun: no-such-program: No such file or directory\n"),
    ([4194303], 1, "srun: there is no process 4194303\n"),
    ([], 2, "srun: --check: the program, or the number of a process, is missing "
            "(see srun --help)\n"),
    (["--check-for", "x", "true"], 2, "srun: --check-for: 'x' is no time such as 90s, 30m, 1.5h, "
                                      "2d (see srun --help)\n")])
def test_what_cannot_be_looked_at_is_one_line(words, status, why):
    assert check(*words) == (status, "", why)
