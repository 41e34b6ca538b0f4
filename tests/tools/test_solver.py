# SPDX-License-Identifier: GPL-2.0-or-later
import os
import re
import subprocess

from conftest import BIN
from fake import LIMIT


def talk(text, *arguments):
    done = subprocess.run([BIN / "solver", *arguments], input=text.encode(), capture_output=True,
                          timeout=LIMIT)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_every_command_of_the_protocol_is_answered():
    assert talk("info\nap 1 10 1000 1 0\nap 2 5 1000 2 0 50\naj 1 100 100 1 0 60 7\n"
                "aj 2 30 100 1 1 -1 8\nset pricing first\n"
                "go\nalloc\npayment\nlj\nlp\n") == (0, (
                    "solver greedy_migration jobs 0 providers 0 time 0\n"
                    "1 1\n2 2\n"
                    "1 100\n2 15\n"  # half as fast, half as dear
                    "1 7 running 100 100 1 1\n2 8 running 30 100 1 2\n"
                    "1 10 1000 1 100 1\n2 5 1000 2 50 2\n"), "")
    assert talk("ap 1 10 1000 1 0\naj 1 100 100 1 0 60 7\ngo\nalloc\ntime 9\n"
                "aj 2 200 100 1 9 60 8\ngo\nalloc\njfd 1\nuj 1 300\n"
                "go\nalloc\njfd 2\njmd 1\npayment\nup 1 250\ndj 1\ngo\nalloc\npayment\ndp 1\nlp\n"
                "reset\ninfo\nexit\ninfo\n") == (0, (
                    "1 1\n"
                    "1 0\n2 1\n"
                    "1 1\n2 0\n"
                    "1 200\n"
                    "solver greedy_migration jobs 0 providers 0 time 0\n"), "")
    assert (talk("set solver proportional_share\ninfo\n")[1] ==
            "solver proportional_share jobs 0 providers 0 time 0\n")


def test_what_cannot_be_taken_is_an_error_line_and_the_rest_goes_on():
    status, out, err = talk("fly\naj 1 2\naj x 5 10 1 0 -1 1\n\n# a comment\ndj 4\n"
                            "set solver magic\r\ninfo" + "\n" + "z" * 9000 + "\ninfo")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert [line for line in lines if not line.startswith("error: ")] == [
        "solver greedy_migration jobs 0 providers 0 time 0"] * 2
    assert lines[0] == "error: no command 'fly'"
    assert (lines[3] == "error: no job 4" and
            lines[4].startswith("error: algorithm 'magic' is not known"))
    assert (lines[6] == "error: the line is longer than 4096 characters" or
            lines[6].startswith("error: the line is longer than 4096"))


def test_answers_come_as_soon_as_they_are_asked_for():
    process = subprocess.Popen([BIN / "solver"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for n in range(3):
            process.stdin.write(f"aj {n + 1} 5 10 1 0 -1 1\ninfo\n".encode())
            process.stdin.flush()
            assert (process.stdout.readline() ==
                    f"solver greedy_migration jobs {n + 1} providers 0 time 0\n".encode())
        process.stdin.write(b"exit\n")
        process.stdin.flush()
        assert process.wait(timeout=LIMIT) == 0
    finally:
        process.kill()
        process.communicate()


def test_answers_do_not_pile_up_in_memory():
    # 300 lists of 20,000 jobs, 130 MB, asked for at once; what is kept of them is bounded, so the
    # program stays small.
    jobs = "".join(f"aj {n} 5 10 1 0 -1 1\n" for n in range(1, 20_001))
    # AddressSanitizer, where it is there, would keep 256 MB of what was freed.
    env = {**os.environ,
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}
    process = subprocess.Popen([BIN / "solver"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=env)
    try:
        process.stdin.write((jobs + "lj\n" * 300 + "info\n").encode())
        process.stdin.flush()
        read, end = 0, b""
        while b"\nsolver greedy_migration jobs 20000 " not in end:
            piece = os.read(process.stdout.fileno(), 1 << 20)
            assert piece, end
            read, end = read + len(piece), (end + piece)[-200:]
        # (What wait4 says of it has this process's memory of before exec in it.)
        with open(f"/proc/{process.pid}/status") as f:
            most_kb = int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1])
        process.stdin.close()
        assert process.wait(LIMIT) == 0 and read > 130_000_000 and most_kb < 40_000
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_the_algorithm_may_be_named_at_the_start_and_an_unknown_one_is_told_which_there_are():
    assert (talk("info\n", "-s", "proportional_share")[1] ==
            "solver proportional_share jobs 0 providers 0 time 0\n")
    assert (talk("info\nreset\ninfo\n", "-s", "mig")[1] ==
            "solver greedy_migration jobs 0 providers 0 time 0\n" * 2)
    assert talk("ap 1 1 10 1 0\naj 1 9 1 1 0 -1\ngo\npayment\n", "--pricing", "first")[1] == "1 9\n"
    for arguments, names in ((["-s", "whatever"], "greedy_migration, proportional_share, welfare"),
                             (["--pricing", "whatever"], "critical, first, uniform")):
        status, out, err = talk("", *arguments)
        assert ((status, out, err.count("\n")) == (2, "", 1) and
                "'whatever' is not known" in err and names in err)


def test_an_argument_is_wrong_usage_and_a_full_disk_is_a_failure():
    status, out, err = talk("", "--what")
    assert status == 2 and out == "" and err.count("\n") == 1
    status, out, err = talk("", "file")
    assert (status, out) == (2, "") and "'file'" in err
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN / "solver"], input=b"info\n", stdout=full,
                              stderr=subprocess.PIPE, timeout=LIMIT)
    assert (done.returncode == 1 and
            done.stderr.decode() == "solver: writing answers: No space left on device\n")
