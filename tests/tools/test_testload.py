# SPDX-License-Identifier: GPL-2.0-or-later
import re
import resource
import subprocess

import pytest

from conftest import BIN
from fake import LIMIT


def test_the_same_steps_give_the_same_digest_and_lines(tool):
    args = ["-n", "300", "-m", "3", "-e", "100", "-d"]
    status, first, err = tool("testload", *args)
    assert status == 0 and err == ""
    assert re.fullmatch(r"line 1 step 100\nline 2 step 200\nline 3 step 300\ndigest [0-9a-f]{16} "
                        r"steps 300\n", first)
    assert tool("testload", *args)[1] == first
    digests = {tool("testload", "-n", "300", "-d", *more)[1]
               for more in ([], ["-m", "3"], ["-m", "4"], ["-s", "2"])}
    assert len(digests) == 4 and first.splitlines()[-1] + "\n" in digests


def test_it_waits_before_its_last_step(tmp_path):
    args = [BIN / "testload", "-n", "300", "-e", "299", "-d"]
    whole = subprocess.run(args, capture_output=True, timeout=LIMIT, check=True).stdout
    process = subprocess.Popen([*args, "-u", tmp_path / "go"], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"line 1 step 299\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        (tmp_path / "go").touch()
        assert b"line 1 step 299\n" + process.communicate(timeout=LIMIT)[0] == whole
    finally:
        process.kill()
        process.wait()


def test_a_time_is_cpu_time(tool):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert tool("testload", "-t", "0.3") == (0, "", "")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= 0.3


def test_damaged_memory_is_found():
    process = subprocess.Popen([BIN / "testload", "-t", "1000", "-m", "16", "-e", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"line 1 step 1\n"
        with open(f"/proc/{process.pid}/maps") as maps:
            ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps
                      if " rw-p 00000000 00:00 0" in line]
        # Its memory is the smallest that holds 16 MiB: a sanitizer's own may be larger.
        low = min((size, low) for low, high in ranges if (size := high - low) >= 16 << 20)[1]
        with open(f"/proc/{process.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(low + 5000 * 1024 // 2)
            byte = memory.read(1)
            memory.seek(low + 5000 * 1024 // 2)
            memory.write(bytes([byte[0] ^ 1]))
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 1
        assert re.fullmatch(rb"testload: memory is damaged: page \d+, found in step \d+\n", err)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("args, words",
                         [(["-t", "0"], "--time: '0'"), (["-m", "lots"], "--memory: 'lots'"),
                          (["-n", "0"], "--steps: '0'"), (["now"], "unexpected argument 'now'")])
def test_a_mistake_is_one_line_and_exit_2(tool, args, words):
    status, out, err = tool("testload", *args)
    assert ((status, out) == (2, "") and err.startswith("testload: ") and words in err and
            err.count("\n") == 1)
