# SPDX-License-Identifier: GPL-2.0-or-later
"""srun is the job's terminal: its bytes, its signals, its status."""
import fcntl
import hashlib
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import termios
import time

from conftest import BIN, LIMIT, Late, until


def test_the_exit_status_is_the_jobs_own(market):
    assert market.tool("srun", "-p", 5, "true").returncode == 0
    assert market.tool("srun", "-p", 5, "sh", "-c", "exit 7", check=False).returncode == 7
    assert market.tool("srun", "-p", 5, "sh", "-c", "kill -KILL $$",
                       check=False).returncode == 128 + 9
    assert market.tool("srun", "-p", 5, "sh", "-c", "kill -TERM $$",
                       check=False).returncode == 128 + 15


def test_stdout_and_stderr_are_byte_exact_and_apart(market):
    program = ("import os,random\nr=random.Random(%d)\n"
               "for i in range(64):\n os.write(1,r.randbytes(16384))\n os.write(2,b'E'*100)\n")
    done = market.tool("srun", "-q", "-p", 5, "/usr/bin/python3", "-c", program % 3, text=False)
    r = random.Random(3)
    sent = b"".join(r.randbytes(16384) for _ in range(64))
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(sent).digest()
    assert done.stderr == b"E" * 6400


def test_stdin_passes_through_byte_exact_and_ends(market):
    data = random.Random(4).randbytes(1_000_003)
    done = market.tool("srun", "-q", "-p", 5, "cat", input=data, text=False)
    assert len(done.stdout) == len(data) and done.stdout == data
    assert market.tool("srun", "-q", "-p", 5, "cat", input=b"", text=False).stdout == b""


def test_arguments_environment_directory_and_umask_arrive(market, tmp_path):
    words = ["a b", "", "'q\" $HOME *", "é\n"]
    program = (
        "import sys,os,json;"
        "print(json.dumps([sys.argv[1:],os.environ['SOUK_T'],os.getcwd(),os.umask(0),"
        "os.getuid()]))")
    tmp_path.chmod(0o755)
    done = market.tool("srun", "-q", "-p", 5, "/usr/bin/python3", "-c", program, *words,
                       cwd=tmp_path, umask=0o037, env={**market.env, "SOUK_T": "x = y"})
    assert json.loads(done.stdout) == [words, "x = y", str(tmp_path), 0o037, os.getuid()]


def test_detach_prints_the_id_and_attach_gets_the_whole_output(market):
    id = market.tool("srun", "-p", 5, "--detach", "sh", "-c", "seq 1 1000; exit 3").stdout.strip()
    assert re.fullmatch(r"n\d+\.\d+", id)
    attached = market.tool("srun", "-q", "--attach", id, check=False)
    assert attached.stdout == "".join(f"{i}\n" for i in range(1, 1001))
    assert attached.returncode == 3


def test_attach_follows_a_job_that_runs(market):
    id = json.loads(market.tool("srun", "-p", 5, "--detach", "--json", "sh", "-c",
                                "seq 5; sleep 1000").stdout)["id"]
    terminal = market.srun("--attach", id)
    terminal.printed(5)
    market.until_runs(id)
    market.tool("marketctl", "cancel", id)
    assert terminal.wait() == 255
    assert terminal.out == b"1\n2\n3\n4\n5\n"


def test_fifty_short_jobs_at_once_all_end_right(market):
    jobs = [market.srun("-p", 5, "--node", f"n{i % 3 + 1}", "sh", "-c", f"echo {i}; exit {i % 3}")
            for i in range(50)]
    assert [j.wait(100) for j in jobs] == [i % 3 for i in range(50)]
    assert [bytes(j.out) for j in jobs] == [b"%d\n" % i for i in range(50)]
    assert len({j.id for j in jobs}) == 50


class Terminal:
    """An srun on a terminal of its own."""

    def __init__(self, market, *args, command=None):
        self.master, slave = pty.openpty()
        self.resize(33, 101)
        self.seen = b""
        self.process = subprocess.Popen(
            command or [f"{BIN}/srun", *map(str, args)], env=market.env,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self.master)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text)

    def shows(self, pattern, limit=LIMIT, count=1):
        end = time.monotonic() + limit
        while len(re.findall(pattern, self.seen)) < count:
            if not select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                raise Late(f"{pattern} not within {limit} s, only {self.seen[-300:]}")
            try:
                data = os.read(self.master, 65536)
            except OSError:  # EIO: the other end is closed
                data = b""
            assert data, f"the terminal closed without {pattern}: {self.seen[-300:]}"
            self.seen += data

    def ends(self, limit=LIMIT):
        end = time.monotonic() + limit
        while self.process.poll() is None:
            assert time.monotonic() < end, f"srun does not end: {self.seen[-300:]}"
            self.take(0.05)
        while self.take(0):  # what it has written since
            pass
        return self.process.returncode

    def take(self, limit):
        """True if there was something."""
        if not select.select([self.master], [], [], limit)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO: the other end is closed
            return False
        self.seen += data
        return bool(data)


def test_ctrl_c_on_a_terminal_ends_the_job_with_130(market):
    with Terminal(market, "-p", 5, "sh", "-c", "echo ready; exec sleep 1000") as t:
        t.shows(rb"ready")
        t.type(b"\x03")
        assert t.ends() == 130


def test_ctrl_z_stops_the_job_and_srun_and_fg_goes_on_with_both(market):
    with Terminal(market, command=["bash", "--norc", "-i"]) as t:
        t.type(b"srun -p 5 sh -c 'echo up-$((1+1)); read x; echo got $x'\r")
        t.shows(rb"up-2\r")
        t.type(b"\x1a")
        t.shows(rb"Stopped")
        t.type(b"fg\r")
        t.shows(rb"fg\r\n.*srun -p 5")
        t.type(b"word\r")
        t.shows(rb"got word")


def test_the_window_size_reaches_the_job_at_the_start_and_when_it_changes(market):
    with Terminal(market, "-p", 5, "bash", "-c", "trap 'echo now $(stty size)' WINCH; echo first "
                  "$(stty size); while :; do read -t 0.2 x; done") as t:
        t.shows(rb"first 33 101")
        t.resize(44, 77)
        t.shows(rb"now 44 77")
        t.type(b"\x03")
        t.ends()


def test_a_shell_on_a_terminal_answers_after_moves(market):
    with Terminal(market, "-v", "-p", 50, "bash", "--norc", "-i") as t:
        t.shows(rb"srun: job (\S+?)\s")
        id = re.search(rb"srun: job (\S+?)\s", t.seen)[1].decode()
        t.type(b"x=41; echo value $((x+1))\r")
        t.shows(rb"value 42")
        for i, node in enumerate(("n2", "n3", "n1")):
            market.until_runs(id)
            market.tool("marketctl", "--hold", "move", id, node)
            market.until_runs(id, node)
            t.type(b"x=$((x+1)); echo step%d $((x+1)) $(tty)\r" % i)
            t.shows(rb"step%d %d /dev/pts/\d+" % (i, 43 + i))
        t.resize(20, 60)
        t.type(b"stty size\r")
        t.shows(rb"20 60")
        t.type(b"sleep 1000\r")
        t.shows(rb"sleep 1000")
        until("sleep runs", lambda: market.processes(id, "sleep") == 1)
        t.type(b"\x03")
        t.type(b"exit 9\r")
        assert t.ends() == 9


def test_keys_on_the_terminal_of_a_job_that_waits_or_is_frozen_are_for_srun(market):
    with Terminal(market, "-p", 0.1, "cat") as t:
        t.shows(rb"waits [^\r]*its price 0.1")
        t.type(b"\x03")
        assert t.ends() == 130
    with Terminal(market, command=["bash", "--norc", "-i"]) as t:
        t.type(b"srun -p 0.1 cat\r")
        t.shows(rb"waits [^\r]*its price 0.1")
        t.type(b"typed before\r\x1a")
        t.shows(rb"Stopped")
        t.type(b"fg; echo status $?\r")
        # The shell's fg prints the command again, whatever TERM is.
        t.shows(rb"Stopped +srun -p 0.1 cat\r\n(.*\n)*(.*\r)?srun -p 0.1 cat\r\n")
        market.tool("pvdctl", "--node", "n2", "set", "price", "0.05")
        t.shows(rb"typed before\r\n(.*\n)*typed before\r\n")
        t.type(b"\x03")
        t.shows(rb"status 130")
    with Terminal(market, "-v", "-p", 50, "cat") as t:
        t.shows(rb"started on n1")
        id = re.search(rb"srun: job (\S+?)\s", t.seen)[1].decode()
        market.tool("marketctl", "--hold", "freeze", id)
        t.shows(rb"frozen on n1")
        t.type(b"\x03")
        t.shows(rb"once more to cancel it")
        assert market.job(id)["status"] == "suspend"
        t.type(b"\x03")
        assert t.ends() == 130


def test_a_lost_terminal_leaves_the_job_which_another_one_attaches_to(market):
    with Terminal(market, "-v", "-p", 50, "cat") as t:
        t.shows(rb"started on n1")
        id = re.search(rb"srun: job (\S+?)\s", t.seen)[1].decode()
        t.process.send_signal(signal.SIGHUP)
        assert t.ends() == 128 + signal.SIGHUP
        assert f"job {id} goes on: srun --attach {id}".encode() in t.seen
    with Terminal(market, "-v", "--attach", id) as t:
        t.type(b"still here\r")
        t.shows(rb"still here\r\n(.*\n)*still here\r\n")
        t.type(b"\x04")
        assert t.ends() == 0


def test_a_job_that_stops_by_itself_and_goes_on_by_itself_does_not_stop_srun(market):
    program = ("(until grep -q 'State:.T' /proc/$$/status; do :; done; kill -CONT $$) & kill -STOP "
               "$$; echo b")
    assert market.tool("srun", "-q", "-p", 5, "sh", "-c", program).stdout == "b\n"


def test_a_terminal_that_is_not_the_controlling_one_works_as_any(market):
    with Terminal(market, command=["setsid", "--wait", f"{BIN}/srun", "-p", "50", "bash", "--norc",
                                   "-i"]) as t:
        t.shows(rb"[#$] ")
        t.type(b"echo value $((41+1))\r")
        t.shows(rb"value 42")
        # The job's shell echoes the words once. The terminal outside must not echo them again.
        assert t.seen.count(b"echo value") == 1
        t.type(b"exit 9\r")
        assert t.ends() == 9


def test_a_stdout_that_takes_nothing_is_a_failure(market):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([f"{BIN}/srun", "-p", "5", "echo", "hi"], env=market.env,
                              stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=LIMIT)
    assert done.returncode == 1 and '"code":"ENOSPC"' in done.stderr, done
    done = subprocess.run(f"{BIN}/srun -p 5 echo hi >&-", shell=True, env=market.env,
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          timeout=LIMIT)
    assert done.returncode == 1 and '"code":"EBADF"' in done.stderr, done


def test_a_stdin_that_cannot_be_read_is_refused_as_its_program_would_have_failed(market, tmp_path):
    (tmp_path / "out").write_text("")
    for path, flags, status in ((tmp_path, os.O_RDONLY, 1), (tmp_path / "out", os.O_WRONLY, 1),
                                ("/dev/null", os.O_WRONLY, 0)):  # nohup gives that
        stdin = os.open(path, flags)
        job = market.srun("-p", 50, "cat", stdin=stdin)
        os.close(stdin)
        assert job.wait() == status and not job.out, path
