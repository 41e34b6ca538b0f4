# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a process's session, children and threads."""
import os
import queue
import signal
import threading
import time

from rows import LIBC, Refused, call, child, prctl, row, status, syscall, text, threads

FAMILY = "process: its family"


@row(FAMILY, "a session of its own", alone=True)
def session(place):
    return child(lambda: (os.setsid(), lambda: [os.getsid(0) == os.getpid(),
                                                os.getpgid(0) == os.getpid()])[1]).ask


@row(FAMILY, "a group of its own", alone=True)
def group(place):
    return child(lambda: (os.setpgid(0, 0), lambda: [
        os.getpgid(0) == os.getpid(), os.getsid(0) == os.getsid(os.getppid())])[1]).ask


@row(FAMILY, "its number, its parent's, and those of its threads", alone=True)
def numbers(place):
    found = threads(3, lambda i: None)
    return lambda: [os.getpid(), os.getppid(), found, sorted(os.listdir("/proc/self/task"))]


@row(FAMILY, "a child that has ended and was not asked for", alone=True)
def zombie(place):
    pid = os.fork()
    if pid == 0:
        os._exit(42)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def look():
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return [found.si_status, found.si_code, found.si_pid == pid]
    return look


@row(FAMILY, "a child that was killed and was not asked for", alone=True)
def killed(place):
    other = child(lambda: None)
    os.kill(other.pid, signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)

    def look():
        found = os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        return [found.si_status, found.si_code]
    return look


@row(FAMILY, "a child that has ended with a status above 127", alone=True)
def status_above(place):
    pid = os.fork()
    if pid == 0:
        os._exit(255)
    return lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_status


@row(FAMILY, "a child that was stopped", alone=True)
def stopped(place):
    other = child(lambda: None)
    os.kill(other.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    return lambda: status("State", pid=other.pid)


@row(FAMILY, "a child that its terminal has stopped (SIGTTIN)", alone=True)
def stopped_by_terminal(place):
    other = child(lambda: os.setpgid(0, 0))
    os.kill(other.pid, signal.SIGTTIN)

    def look():
        found = os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG)
        return [status("State", pid=other.pid), found and found.si_status]
    return look


def other_thread(work):
    """A thread that does this and then says it again each time it is asked."""
    asks, says = queue.SimpleQueue(), queue.SimpleQueue()

    def run():
        try:
            look = work()
            says.put(None)
        except OSError as e:
            says.put(e)
            return
        while True:
            asks.get()
            says.put(look())
    threading.Thread(target=run, daemon=True).start()
    wrong = says.get()
    if wrong:
        raise wrong
    return lambda: (asks.put(1), says.get())[1]


def parts_with(flag, then):
    """The other thread parts with what that flag names; `then` gives its look."""
    def parted():
        call("unshare", flag)
        return then()
    return lambda place: other_thread(parted)


def goes_to_root():
    os.chdir("/")
    return os.getcwd


def opens_root():
    fd = os.open("/", os.O_RDONLY)
    return lambda: os.fstat(fd).st_ino


def compares_networks():
    return lambda: os.readlink("/proc/thread-self/ns/net") == os.readlink("/proc/self/ns/net")


for what, flag, then, words in [
        ("a working directory of its own (CLONE_FS)", 0x200, goes_to_root,
         "a thread with its own working directory"),
        ("descriptors of its own (CLONE_FILES)", 0x400, opens_root,
         "a thread with its own descriptors"),
        ("a network of its own", 0x40000000, compares_networks,
         "a thread with a namespace of its own (net)")]:
    row(FAMILY, f"a thread with {what}", alone=True, outcome=Refused("dump_refused", words))(
        parts_with(flag, then))


@row(FAMILY, "a child with the same working directory (CLONE_FS)", alone=True,
     outcome=Refused("dump_refused", "one and the same working directory"))
def child_fs(place):
    pid = syscall(56, 0x200 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        LIBC.pause()
        os._exit(0)

    def look():
        os.chdir("/tmp"), os.chdir(place)
        return os.readlink(f"/proc/{pid}/cwd") == os.getcwd()
    return look


@row(FAMILY, "I/O priority and slack of timers of one thread", alone=True)
def of_thread(place):
    def state():
        return [syscall(252, 1, 0), prctl(30)]

    def work():
        syscall(251, 1, 0, 2 << 13 | 6)
        prctl(29, 123_456)
        return state
    ask = other_thread(work)
    return lambda: [ask(), state()]


@row(FAMILY, "a child that was stopped, its stop not asked for", alone=True)
def stop_waits(place):
    other = child(lambda: None)
    os.kill(other.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)

    def look():
        found = os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG)
        return found and found.si_status
    return look


@row(FAMILY, "a process whose first thread has ended", alone=True,
     outcome=Refused("first_thread_ended", "first thread"))
def headless(place):
    def work():
        def rest():
            threading.Event().wait()
        threading.Thread(target=rest).start()
        threading.Timer(0.1, lambda: None).start()
        return None
    other = child(work)
    pid = os.fork()
    if pid == 0:
        t = threading.Thread(target=lambda: time.sleep(10000), daemon=True)
        t.start()
        LIBC.syscall(60, 0)
    time.sleep(0.3)
    return lambda: [status("State", pid=pid), other.pid > 0]


@row(FAMILY, "a process that another traces", alone=True, outcome=Refused("is_traced", "traced"))
def traced(place):
    other = child(lambda: None)
    syscall(101, 0x4206, other.pid, 0, 0)
    return lambda: status("TracerPid", pid=other.pid)[0] == str(os.getpid())


@row(FAMILY, "a parent that waits for its child's exec (vfork)", alone=True,
     outcome=Refused("did_not_stop", "did not stop in time", check=False))
def vforked(place):
    def work():
        pid = LIBC.syscall(58)
        if pid == 0:
            LIBC.pause()
    pid = os.fork()
    if pid == 0:
        work()
    time.sleep(0.2)
    return lambda: [status("State", pid=pid)[0].split()[0] in ("D", "S"),
                    len(text(f"/proc/{pid}/task/{pid}/children").split())]


@row(FAMILY, "a process in a group whose leader has ended", alone=True)
def orphaned(place):
    def leader():
        os.setpgid(0, 0)
        member = child(lambda: lambda: os.getpgid(0))
        return lambda: [member.pid, member.ask()]
    first = child(leader)
    member = first.ask()[0]
    os.kill(first.pid, signal.SIGKILL)
    os.waitpid(first.pid, 0)
    return lambda: os.getpgid(member) == first.pid
