# SPDX-License-Identifier: GPL-2.0-or-later
"""srun on a terminal of the tests' own (pty), under a shell with job control, against a scripted
agentd."""
import fcntl
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import pytest

from conftest import BIN
from fake import LIMIT, RUNNING, STOPPED, read_until
from protobuf import decode


class Shell:
    """srun as the foreground job of job_control.py on a new terminal."""

    def __init__(self, *args):
        self.terminal, slave = pty.openpty()
        self.size(33, 111)
        report, report_end = os.pipe()
        orders_end, self.orders = os.pipe()

        def setup():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            # Low numbers may be anything: move both out of the way first.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in (report_end, orders_end)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        script = pathlib.Path(__file__).with_name("job_control.py")
        self.process = subprocess.Popen([sys.executable, script, *args], stdin=slave, stdout=slave,
                                        stderr=slave, preexec_fn=setup, close_fds=False)
        for fd in (slave, report_end, orders_end):
            os.close(fd)
        self.report = report
        self.unread = b""
        self.pid = int(self.line().split()[1])

    def line(self):
        if b"\n" not in self.unread:
            self.unread += read_until(self.report, b"\n")
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def size(self, rows, cols):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def is_raw(self):
        flags = termios.tcgetattr(self.terminal)
        return not flags[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def type(self, data):
        os.write(self.terminal, data)

    def go_on(self):
        os.write(self.orders, b"\n")

    def end(self):
        for pid in (self.pid, self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for fd in (self.terminal, self.report, self.orders):
            os.close(fd)


@pytest.fixture
def shell(agentd):
    shells = []

    def start(*args, status="never"):
        shells.append(Shell(BIN / "srun", "--socket", agentd.path, "--status", status, *args))
        return shells[-1]
    yield start
    for each in shells:
        each.end()


def of_kind(connection, wanted):
    """The next frame of this type, passing over acknowledgements and sizes."""
    while True:
        kind, fields = connection.receive()
        if kind == wanted:
            return fields
        assert kind in ("output_ack", "winch", "input"), kind


def running_job(shell, agentd):
    sh = shell("-p", "3", "cat")
    connection = agentd.accept()
    submit = connection.accept_job()
    connection.output(1, 0, b"ready\r\n")
    assert read_until(sh.terminal, b"ready\r\n") == b"ready\r\n"  # raw by now: no \r added
    assert sh.is_raw()
    return sh, connection, submit


def test_the_status_line_of_a_job_with_a_terminal_goes_before_the_job_writes(shell, agentd):
    sh = shell("-p", "3", "cat", status="line")
    connection = agentd.accept()
    connection.accept_job()
    shown = read_until(sh.terminal, b"n1.7")
    assert shown.startswith(b"\rsrun: n1.7"), shown
    connection.output(1, 0, b"ready\r\n")
    shown += read_until(sh.terminal, b"ready\r\n")
    assert re.fullmatch(rb"\rsrun: n1\.7[^\r]*\r\x1b\[Kready\r\n", shown), shown


def test_keys_are_bytes_for_the_job_and_the_terminal_is_put_back(shell, agentd):
    sh, connection, submit = running_job(shell, agentd)
    spec = decode(submit[1][0])
    assert spec[10] == [1] and spec[11] == [33] and spec[12] == [111]
    sh.type(b"\x03\x1a\x04:q\r")
    typed = b""
    while len(typed) < 6:
        typed += of_kind(connection, "input")[2][0]
    assert typed == b"\x03\x1a\x04:q\r"
    sh.size(40, 90)
    assert of_kind(connection, "winch") == {1: [40], 2: [90]}
    connection.exit(4 << 8)
    assert sh.line() == "exited 4 cooked"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGALRM])
def test_the_terminal_is_put_back_when_srun_itself_is_killed(shell, agentd, number):
    sh, connection, _ = running_job(shell, agentd)
    os.kill(sh.pid, number)
    assert sh.line() == f"exited {-number} cooked"


def test_the_terminal_is_put_back_when_the_agentd_stays_away(shell, agentd):
    sh = shell("--patience", "0.2", "-p", "3", "cat")
    connection = agentd.accept()
    connection.accept_job()
    agentd.die()
    assert sh.line() == "exited 1 cooked"
    assert b"The job goes on: srun --attach n1.7\r\n" in read_until(sh.terminal, b"n1.7\r\n")


def test_a_job_that_stops_itself_stops_srun_until_it_is_continued(shell, agentd):
    sh, connection, _ = running_job(shell, agentd)
    for _ in range(2):
        sh.type(b"\x1a")
        assert of_kind(connection, "input")[2] == [b"\x1a"]
        connection.send("notice", {1: STOPPED, 2: "stopped"})
        assert sh.line() == "stopped cooked"
        sh.size(20, 60)
        sh.go_on()
        assert of_kind(connection, "signal") == {1: [signal.SIGCONT]}
        assert sh.is_raw()
    connection.exit()
    assert sh.line() == "exited 0 cooked"


def test_a_reattached_terminal_tells_its_size_again(shell, agentd):
    sh, connection, _ = running_job(shell, agentd)
    agentd.die()
    sh.size(50, 70)
    agentd.listen()
    connection = agentd.accept()
    connection.welcome()
    connection.expect("attach")
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING, 3: 1, 5: 7})
    assert of_kind(connection, "winch") == {1: [50], 2: [70]}
    assert sh.is_raw()
    connection.exit()
    assert sh.line() == "exited 0 cooked"


def test_attach_to_a_job_with_a_terminal_takes_the_terminal(shell, agentd):
    sh = shell("--attach", "n1.7")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("attach")
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING, 3: 1})
    assert of_kind(connection, "winch") == {1: [33], 2: [111]}
    assert sh.is_raw()
    sh.type(b"x")
    assert of_kind(connection, "input")[2] == [b"x"]
    connection.exit()
    assert sh.line() == "exited 0 cooked"


def attached(shell, agentd, tty):
    sh = shell("--attach", "n1.7")
    connection = agentd.accept()
    connection.welcome()
    connection.expect("attach")
    connection.send("attached", {1: {1: "n1", 2: 7}, 2: RUNNING, 3: tty})
    read_until(sh.terminal, b"~. at the start of a line leaves it running")
    return sh, connection


@pytest.mark.parametrize("tty", [1, 0])
def test_a_key_leaves_a_job_that_was_attached_running(shell, agentd, tty):
    sh, connection = attached(shell, agentd, tty)
    sh.type(b"a\n~.\n" if tty == 0 else b"a\r~.")
    typed = b""
    with pytest.raises(EOFError):  # no signal, and no end of its input
        while True:
            fields = of_kind(connection, "input")
            assert 3 not in fields
            typed += fields[2][0]
    assert typed.strip() == b"a"
    assert sh.line() == "exited 0 cooked"
    assert b"detached; job n1.7 goes on: srun --attach n1.7" in read_until(sh.terminal, b"n1.7\r")


def test_a_tilde_elsewhere_is_a_key_like_others(shell, agentd):
    sh, connection = attached(shell, agentd, 1)
    sh.type(b"a~.\r~~.\r~x\r")
    typed = b""
    while len(typed) < 10:
        typed += of_kind(connection, "input")[2][0]
    assert typed == b"a~.\r~.\r~x\r"
    connection.exit()
    assert sh.line() == "exited 0 cooked"


def test_words_on_a_raw_terminal_begin_at_the_left(shell, agentd):
    sh, connection, _ = running_job(shell, agentd)
    connection.send("error", {1: "job n1.7 is moving"})
    assert read_until(sh.terminal, b"\n") == b"srun: job n1.7 is moving\r\n"
    connection.exit()
    assert sh.line() == "exited 0 cooked"


class Bare:
    """srun on a terminal that is nobody's controlling terminal, as after su -c."""

    def __init__(self, *args):
        self.terminal, slave = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
        self.process = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)
        os.close(slave)


def test_a_terminal_that_is_not_the_controlling_one_is_raw_too(agentd):
    sh = Bare(BIN / "srun", "--socket", agentd.path, "--status=never", "-p", "3", "cat")
    try:
        connection = agentd.accept()
        submit = connection.accept_job()
        assert decode(submit[1][0])[10] == [1]
        connection.output(1, 0, b"ready\r\n")
        assert read_until(sh.terminal, b"ready\r\n") == b"ready\r\n"
        os.write(sh.terminal, b"a\x03b")
        typed = b""
        while len(typed) < 3:
            typed += of_kind(connection, "input")[2][0]
        assert typed == b"a\x03b"
        connection.output(1, 7, b"seen")
        assert read_until(sh.terminal, b"seen") == b"seen"  # nothing that was typed has been echoed
        connection.exit()
        assert sh.process.wait(LIMIT) == 0
        assert termios.tcgetattr(sh.terminal)[3] & termios.ICANON
    finally:
        sh.process.kill()
        sh.process.wait()
        os.close(sh.terminal)


def test_a_terminal_that_hangs_up_leaves_the_job(agentd):
    for hangup, then in (("detach", None), ("kill", "input")):
        sh = Bare(BIN / "srun", "--socket", agentd.path, "--status=never", "--hangup", hangup,
                  "-p", "3", "cat")
        try:
            connection = agentd.accept()
            connection.accept_job()
            connection.output(1, 0, b"ready\r\n")
            read_until(sh.terminal, b"ready\r\n")
            os.close(sh.terminal)
            if then:  # the end of its input, as ever
                assert 3 in of_kind(connection, then)
                continue
            with pytest.raises(EOFError):
                of_kind(connection, "signal")  # nor an input: that would end a shell
            assert sh.process.wait(LIMIT) == 129
        finally:
            sh.process.kill()
            sh.process.wait()
