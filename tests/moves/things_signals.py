# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of signals."""
import ctypes
import os
import signal
import struct
import threading
import time

from rows import LIBC, Differs, child, row, status, syscall

SIGNALS = "signals"


@row(SIGNALS, "the mask", alone=True)
def mask(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [10, 12, 34, 50, 64])
    return lambda: status("SigBlk")


@row(SIGNALS, "the mask of each thread", alone=True)
def masks(place):
    found = []

    def run(number, ready):
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        found.append(threading.get_native_id())
        ready.set()
        threading.Event().wait()
    for number in (40, 41):
        ready = threading.Event()
        threading.Thread(target=run, args=(number, ready), daemon=True).start()
        ready.wait(5)
    return lambda: [status("SigBlk", pid=f"self/task/{t}") for t in found]


@row(SIGNALS, "what is caught and what is ignored", alone=True)
def handlers(place):
    signal.signal(10, lambda *_: None)
    for number in (12, 13, 45):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(17, signal.SIG_IGN)
    return lambda: status("SigIgn", "SigCgt")


def action(number):
    found = ctypes.create_string_buffer(32)
    syscall(13, number, 0, found, 8)
    return found.raw.hex()


@row(SIGNALS, "flags of a handler (sigaction)", alone=True)
def actions(place):
    restorer, = struct.unpack_from("Q", bytes.fromhex(action(2)), 16)
    handler = ctypes.cast(LIBC.abs, ctypes.c_void_p).value
    how = 0x4 | 0x08000000 | 0x10000000 | 0x40000000 | 0x04000000
    syscall(13, 40, struct.pack("4Q", handler, how, restorer, 1 << 11), 0, 8)
    syscall(13, 41, struct.pack("4Q", handler, 0x80000000 | 0x04000000, restorer, 0), 0, 8)
    return lambda: [action(40), action(41)]


@row(SIGNALS, "a stack of its own (sigaltstack)", alone=True)
def altstack(place):
    stack = ctypes.create_string_buffer(65536)
    kept.append(stack)
    new = struct.pack("QixxxxQ", ctypes.addressof(stack), 0, 65536)
    syscall(131, new, 0)

    def look():
        found = ctypes.create_string_buffer(24)
        syscall(131, 0, found)
        return found.raw.hex()
    return look


kept = []


def info():
    """The next signal that waits."""
    mask = struct.pack("Q", (1 << 64) - 1)
    found = ctypes.create_string_buffer(128)
    if LIBC.syscall(128, mask, found, struct.pack("qq", 0, 0), ctypes.c_size_t(8)) < 0:
        return None
    return found


@row(SIGNALS, "a signal that waits", alone=True)
def pending(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [10, 12])
    os.kill(os.getpid(), 10)
    os.kill(os.getpid(), 12)
    return lambda: status("SigPnd", "ShdPnd")


@row(SIGNALS, "a signal that waits for a thread", alone=True)
def pending_thread(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [10])
    signal.pthread_kill(threading.get_ident(), 10)
    return lambda: status("SigPnd", "ShdPnd")


@row(SIGNALS, "a queue of real-time signals with values", alone=True)
def queue(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [40, 41])
    said = [(41, 7), (40, 1), (40, 2), (40, 3), (41, 8)]
    for number, value in said:
        LIBC.sigqueue(os.getpid(), number, ctypes.c_void_p(value))

    def look():
        found = []
        while (one := info()) is not None:
            number, error, code, pid, uid = struct.unpack_from("iii4xii", one.raw)
            found.append((number, code, pid == os.getpid(), uid,
                          struct.unpack_from("q", one.raw, 24)[0]))
        for number, *_, value in found:
            LIBC.sigqueue(os.getpid(), number, ctypes.c_void_p(value))
        return found
    return look


@row(SIGNALS, "who has sent what waits (siginfo)", alone=True)
def sender(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    me = os.getpid()
    raw = struct.pack("iii4xii", 40, 5, -7, 4711, 77) + b"any bytes at all" + bytes(80)
    LIBC.syscall(129, me, 40, ctypes.create_string_buffer(raw.ljust(128, b"\0")))

    def look():
        found = info()
        if found is None:
            return None
        LIBC.syscall(129, me, 40, found)
        return found.raw[:48].hex()
    return look


@row(SIGNALS, "a signal that waits for who is stopped", alone=True,
     outcome=Differs("A process that `SIGSTOP` has stopped gets a signal that waits for it"))
def stopped(place):
    other = child(lambda: None)
    os.kill(other.pid, signal.SIGSTOP)
    os.waitpid(other.pid, os.WUNTRACED)
    os.kill(other.pid, signal.SIGUSR1)
    return lambda: [status("State", pid=other.pid), status("ShdPnd", pid=other.pid)]


@row(SIGNALS, "SIGCHLD that nobody waits for (SA_NOCLDWAIT)", alone=True)
def no_wait(place):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def look():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            return "it is gone"
        return "it was left"
    return look


@row(SIGNALS, "who waits for a signal (sigwait)", alone=True)
def waits(place):
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [40])
        os._exit(signal.sigwait([40]))

    def look():
        return [os.waitpid(pid, os.WNOHANG)[0], status("SigBlk", pid=pid)]
    time.sleep(0.1)
    return look


@row(SIGNALS, "how often a timer has run over, in its signal (si_overrun)", alone=True,
     outcome=Differs("The signal of a timer that waits (timer_create(2)) does not say"))
def overrun(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [41])
    event = ctypes.create_string_buffer(struct.pack("qiii", 0, 41, 0, 0) + bytes(44))
    timer = ctypes.c_int()
    syscall(222, 1, event, ctypes.byref(timer))
    syscall(223, timer.value, 0, struct.pack("4q", 0, 1_000_000, 0, 1_000_000), 0)

    def look():
        time.sleep(0.05)
        found = info()
        return found is not None and struct.unpack_from("i", found.raw, 20)[0] > 10
    return look
