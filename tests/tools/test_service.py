# SPDX-License-Identifier: GPL-2.0-or-later
"""marketd tells a service manager that it is ready, that it is alive, and that it has read its
configuration again."""
import os
import pathlib
import signal
import socket
import struct
import subprocess

import pytest

from conftest import BIN


SO_TIMESTAMP = 29  # asm-generic/socket.h


class Manager:
    """Listens as a service manager does, and starts the daemon with a watchdog of that many ms."""

    def __init__(self, directory, watchdog_ms):
        self.path = f"{directory}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
        self.socket.bind(self.path)
        self.socket.settimeout(20)
        self.config = directory / "m.conf"
        self.base = (f'listen = "127.0.0.1:0"\nsocket = "{directory}/s"\n'
                     f'state = "{directory}/state"\ninsecure = true\n')
        self.config.write_text(self.base)
        env = {**os.environ, "NOTIFY_SOCKET": self.path}
        if watchdog_ms:
            env["WATCHDOG_USEC"] = str(watchdog_ms * 1000)
        self.log = open(directory / "log", "w")
        self.daemon = subprocess.Popen([f"{BIN}/marketd", "--config", self.config], env=env,
                                       stderr=self.log)

    def hears(self, word):
        while True:
            data, ((_, _, sent), *_), *_ = self.socket.recvmsg(4096, 64)
            text, (s, us) = data.decode(), struct.unpack("@ll", sent)
            self.told_at = s + us / 1e6  # by the kernel: this process may come to it much later
            if word in text.split("\n"):
                return text

    def logged(self):
        with open(self.log.name) as f:  # self.log and the daemon have one place in it
            return f.read()

    def end(self):
        self.daemon.send_signal(signal.SIGCONT)
        self.daemon.terminate()
        status = self.daemon.wait(20)
        self.socket.close()
        self.log.close()
        return status


@pytest.fixture
def manager(tmp_path):
    made = []

    def make(watchdog_ms=0):
        made.append(Manager(tmp_path, watchdog_ms))
        return made[-1]
    yield make
    for one in made:
        assert one.end() == 0


def test_the_watchdog_is_kept_by_the_loop(manager):
    m = manager(watchdog_ms=300)
    m.hears("READY=1")
    times = []
    for _ in range(5):
        m.hears("WATCHDOG=1")
        times.append(m.told_at)
    assert times[-1] - times[0] > 0.2, "it is told at its time, not all at once"
    m.daemon.send_signal(signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(m.daemon.pid, os.WUNTRACED)[1])
    m.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        while True:  # what was told before
            m.socket.recv(4096)
    m.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        m.hears("WATCHDOG=1")


def test_nobody_is_told_where_nobody_watches(manager):
    m = manager()
    m.hears("READY=1")
    m.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        m.hears("WATCHDOG=1")


def test_sighup_reads_the_configuration_again_and_says_what_counts(manager):
    m = manager()
    m.hears("READY=1")
    m.config.write_text(m.base + "finished_max = 7\njobs_max = 9\n")
    m.daemon.send_signal(signal.SIGHUP)
    assert "MONOTONIC_USEC=" in m.hears("RELOADING=1")
    m.hears("READY=1")
    log = m.logged()
    assert 'in_force=finished_max' in log.replace('"', ""), log
    assert "some of the configuration counts from the next start" in log and "jobs_max" in log


def test_a_configuration_that_is_wrong_changes_nothing(manager):
    m = manager()
    m.hears("READY=1")
    m.config.write_text(m.base + "finished_max = -1\n")
    m.daemon.send_signal(signal.SIGHUP)
    m.hears("RELOADING=1")
    m.hears("READY=1")
    assert "finished_max" in m.logged() and m.daemon.poll() is None


LEAVE = pathlib.Path(__file__).parents[2] / "contrib/systemd/souk-leave"
STATUS = '{{"node":"n1","on_market":{},"set_by_owner":[{}]}}'
BY_HAND = '{"name":"price","value":"15","configuration":"0"},' \
    '{"name":"market","value":"on","configuration":"off"}'


@pytest.mark.parametrize("manager_is, status, off, back", [
    ("stopping", STATUS.format("true", ""), ["market off"], ["unset market"]),
    ("stopping", STATUS.format("true", BY_HAND), ["market off"], ["market on"]),
    ("stopping", STATUS.format("false", ""), [], []),  # off before: off after
    ("running", STATUS.format("true", ""), [], []),  # the unit alone is stopped
])
def test_guests_leave_when_the_machine_goes_down_and_may_come_when_it_is_up(
        tmp_path, manager_is, status, off, back):
    said = tmp_path / "said"
    for name, text in (("systemctl", f"echo {manager_is}"), ("pvdctl", f"""
case $* in *status*) echo '{status}' ;; *) echo "$*" >> {said} ;; esac""")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SOUK_LEAVE_NOTE": f"{tmp_path}/note"}

    def leave(word):
        said.write_text("")
        subprocess.run([LEAVE, word], env=env, check=True, timeout=20)
        return [line.replace("--patience 1m ", "") for line in said.read_text().splitlines()]
    assert (leave("off"), leave("back"), leave("back")) == (off, back, [])
