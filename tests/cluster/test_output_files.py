# SPDX-License-Identifier: GPL-2.0-or-later
"""A detached job's output goes into the files that its user named, whatever happens to its home,
and srun --wait ends as the job did."""
import os
import pathlib
import pwd
import subprocess
import tempfile

import pytest

from codes import refused
from conftest import BIN, LIMIT, read_text, until

NOBODY = pwd.getpwnam("nobody")


def text(path):
    return path.read_text() if path.exists() else ""


def test_a_detached_job_writes_its_files_through_a_restart_of_its_home(market, tmp_path):
    job = market.tool("srun", "-p", "40", "-d", "-o", "out.%j", "-e", "err.%j", "sh", "-c",
                      "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; "
                      "echo bad >&2", cwd=tmp_path).stdout.strip()
    out, err = tmp_path / f"out.{job}", tmp_path / f"err.{job}"
    until("it is written as it comes", lambda: text(out).count("\n") > 20)
    market.kill_daemon("n1")
    market.until_job(job, "has ended", lambda j: j["status"] == "finish")
    until("all is there", lambda: text(err) == "bad\n" and text(out).count("\n") >= 400)
    assert text(out) == "".join(f"line {i}\n" for i in range(400))


def test_each_job_of_an_array_has_its_files_and_wait_gives_the_greatest_status(market, tmp_path):
    done = market.tool("srun", "-p", "40", "--wait", "--array", "1-5%2", "-o", "out.%a", "sh", "-c",
                       "echo $SOUK_ARRAY_INDEX; echo too >&2; exit $SOUK_ARRAY_INDEX",
                       check=False, cwd=tmp_path)
    assert done.returncode == 5 and done.stdout.startswith("n1."), done.stderr
    for i in range(1, 6):  # stderr goes the same way where nothing else is said
        until("it is written", lambda: text(tmp_path / f"out.{i}") == f"{i}\ntoo\n")


def test_wait_for_a_job_that_is_there_or_gone_or_of_another_home(market):
    job = market.tool("srun", "-p", "40", "-d", "sh", "-c", "echo kept; exit 3").stdout.strip()
    other = market.tool("srun", "--node", "n2", "-p", "40", "-d", "sh", "-c",
                        "exit 4").stdout.strip()
    assert market.tool("srun", f"--wait={job}", check=False).returncode == 3
    assert market.tool("srun", f"--wait={job},{other}", check=False).returncode == 4
    # its output is kept for a user who attaches
    assert market.tool("srun", "--attach", job, check=False).stdout == "kept\n"
    refused(market.tool("srun", "--wait=n1.999", check=False), "not_found")


def test_output_is_read_beside_the_job_and_taken_from_nobody(market, tmp_path):
    go = tmp_path / "go"
    job = market.tool("srun", "-p", "40", "-d", "sh", "-c",
                      f"seq 5; echo bad >&2; while [ ! -e {go} ]; do sleep 0.05; done; "
                      "echo last; exit 3").stdout.strip()
    read = ["marketctl", "output", job]
    until("it has written", lambda: market.tool(*read).stderr == "bad\n")
    assert market.tool(*read, "--lines", "2").stdout == "4\n5\n"
    follow = subprocess.Popen([f"{BIN}/marketctl", "output", "-f", job], env=market.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert follow.stdout.readline() == b"1\n"
    terminal = market.srun("--attach", job)
    terminal.printed(5)  # nothing is missing for who attaches
    terminal.end()
    go.touch()
    assert follow.communicate(timeout=LIMIT) == (b"2\n3\n4\n5\nlast\n", b"bad\n")
    assert market.job(job)["exit"] == 3
    assert market.tool(*read).stdout == "1\n2\n3\n4\n5\nlast\n"  # also after its end


def test_output_is_for_the_user_of_the_job_at_its_home(market):
    job = market.tool("srun", "-p", "40", "-d", "sh", "-c", "echo mine").stdout.strip()
    market.until_job(job, "has ended", lambda j: j["status"] == "finish")
    refused(market.tool("marketctl", "output", job, check=False,
                        user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[]), "not_allowed")
    refused(market.tool("marketctl", "--node", "n2", "output", job, check=False), "not_possible")
    assert market.tool("marketctl", "output", job).stdout == "mine\n"
    refused(market.tool("marketctl", "output", "n1.999999", check=False), "not_found")


@pytest.fixture
def open_dir():
    """A directory that everybody reaches, of root's."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


def test_a_file_is_written_with_its_users_rights_and_what_is_refused_waits(market, open_dir):
    if os.getuid() != 0:
        pytest.skip("only root can submit as another user")
    closed = open_dir / "of-all"
    closed.mkdir()
    closed.chmod(0o777)
    user = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    job = market.tool("srun", "-p", "40", "-d", "-o", "out", "sh", "-c", "echo done",
                      check=False, cwd=closed, **user).stdout.strip()
    out = closed / "out"
    until("it is written", lambda: text(out) == "done\n")
    assert out.stat().st_uid == NOBODY.pw_uid
    # root's directory: said at once, and no file of nobody's comes to be there
    done = market.tool("srun", "-p", "40", "-d", "-o", f"{open_dir}/mine", "sh", "-c", "echo kept",
                       check=False, cwd=closed, **user)
    refused(done, "EACCES")
    assert not (open_dir / "mine").exists()
    second = f"n1.{int(job.split('.')[1]) + 1}"  # there is none
    refused(market.tool("srun", "--attach", second, cwd=closed, check=False, **user), "not_found")


def appenders(market):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = read_text(f"/proc/{pid}/cmdline").split("\0")
        if words[0].endswith("souk-files") and "append" in words and market.has(pid):
            found.append(int(pid))
    return found


def test_a_fifo_without_a_reader_holds_no_writer_and_gets_all_when_one_comes(market, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job = market.tool("srun", "-p", "40", "-d", "-o", fifo, "sh", "-c",
                      "seq 1 30000; exec sleep 1000").stdout.strip()
    log = f"{market.run_dir}/n1/log"
    until("its writer has given up", lambda: "nobody reads this FIFO" in read_text(log))
    until("and holds no place", lambda: not appenders(market))
    want = b"".join(b"%d\n" % i for i in range(1, 30001))
    got = bytearray()
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
        def all_came():
            got.extend(reader.read(10_000) or b"")
            return len(got) >= len(want)

        # a pipe takes 64 KiB, so the rest waits for its reader
        until("all has come", all_came)
    assert got == want
    market.tool("marketctl", "cancel", job)
