# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of timers, but for timerfd."""
import ctypes
import signal
import struct
import threading

from rows import row, shown, syscall

TIMERS = "timers"


for word, which in {"ITIMER_REAL": 0, "ITIMER_VIRTUAL": 1, "ITIMER_PROF": 2}.items():
    @row(TIMERS, word, alone=True)
    def itimer(place, which=which):
        signal.setitimer(which, 5000, 60)

        def look():
            left, each = signal.getitimer(which)
            # The kernel adds a tick to a timer of CPU time each time that it is set.
            return [4000 < left < 5001, round(each)]
        return look


@row(TIMERS, "alarm", alone=True)
def alarm(place):
    signal.alarm(5000)

    def look():
        left = signal.alarm(0)
        signal.alarm(left)
        return 4000 < left <= 5000
    return look


def made(clock, notify=0, number=40, thread=0, value=0x1234):
    event = ctypes.create_string_buffer(struct.pack("qiii", value, number, notify, thread) +
                                        bytes(44))
    timer = ctypes.c_int()
    syscall(222, clock, event, ctypes.byref(timer))
    return timer.value


def left_of(timer):
    now = ctypes.create_string_buffer(32)
    syscall(224, timer, now)
    each, _, left, _ = struct.unpack("4q", now.raw)
    return [each, 4000 < left <= 5000]


for word, clock in {"CLOCK_REALTIME": 0, "CLOCK_MONOTONIC": 1, "CLOCK_PROCESS_CPUTIME_ID": 2,
                    "CLOCK_THREAD_CPUTIME_ID": 3, "CLOCK_BOOTTIME": 7, "CLOCK_TAI": 11}.items():
    @row(TIMERS, f"POSIX timer of {word}", alone=True)
    def posix(place, clock=clock):
        timer = made(clock)
        syscall(223, timer, 0, struct.pack("4q", 60, 0, 5000, 0), 0)
        return lambda: left_of(timer)


@row(TIMERS, "POSIX timer of another thread (SIGEV_THREAD_ID)", alone=True)
def of_thread(place):
    ready = threading.Event()
    number = []

    def run():
        number.append(threading.get_native_id())
        ready.set()
        threading.Event().wait()
    threading.Thread(target=run, daemon=True).start()
    ready.wait(5)
    timer = made(1, 4, 40, number[0])
    syscall(223, timer, 0, struct.pack("4q", 60, 0, 5000, 0), 0)
    return lambda: [left_of(timer), described(timer)]


def described(timer):
    """Returns the lines of /proc/self/timers that are of it."""
    with open("/proc/self/timers") as f:
        parts = ("\n" + f.read()).split("\nID: ")
    return next(p.splitlines()[1:] for p in parts if p.startswith(f"{timer}\n"))


@row(TIMERS, "POSIX timer that tells nobody (SIGEV_NONE)", alone=True)
def silent(place):
    timer = made(1, 1)
    syscall(223, timer, 0, struct.pack("4q", 60, 0, 5000, 0), 0)
    return lambda: [left_of(timer), described(timer)]


@row(TIMERS, "POSIX timers that are not set, with gaps in their numbers", alone=True)
def gaps(place):
    timers = [made(1) for _ in range(5)]
    for timer in timers[1:4]:
        syscall(226, timer)

    def look():
        now = ctypes.create_string_buffer(32)
        return [(t, syscall(224, t, now), now.raw.hex()) for t in (timers[0], timers[4])]
    return look


@row(TIMERS, "how often a timer has run over (timer_getoverrun)", alone=True)
def overrun(place):
    signal.pthread_sigmask(signal.SIG_BLOCK, [41])
    timer = made(1, 0, 41)
    syscall(223, timer, 0, struct.pack("4q", 0, 0, 0, 1000), 0)
    signal.sigwait([41])
    return lambda: syscall(225, timer)


shown(TIMERS, "calls that wait for a span",
      "cluster/test_waits.py::test_a_span_lasts_as_long_over_moves_and_a_freeze")
