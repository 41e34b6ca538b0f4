# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of timers, but for timerfd."""
import ctypes
import os
import signal
import struct
import threading
import time

from rows import Differs, comes, row, shown, syscall, text

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


@row(TIMERS, "the time that a clock has counted (CLOCK_MONOTONIC, CLOCK_BOOTTIME)",
     outcome=Differs("CLOCK_MONOTONIC"))
def counted(place):
    def apart(clock):
        """Whatever interrupts between the two readings makes this greater."""
        return min(-time.clock_gettime(clock) + time.time() for _ in range(20))
    first = [apart(clock) for clock in (1, 7)]
    return lambda: [apart(clock) - then < 0.02 for clock, then in zip((1, 7), first)]


def burnt(span):
    end = time.process_time() + span
    while time.process_time() < end:
        pass


def sleeps(rest):
    """A thread that sleeps for 0.6 s of the process's CPU time."""
    def set_up(place):
        said, used = [], [0]
        span = ctypes.create_string_buffer(struct.pack("qq", 0, 600_000_000))
        left = ctypes.create_string_buffer(16)

        def run():
            where = {"there": span, "elsewhere": left, "nowhere": None}[rest]
            said.append(ctypes.CDLL(None).syscall(230, 2, 0, span, where))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        comes(lambda: text(f"/proc/self/task/{thread.native_id}/syscall").startswith("230 "))

        def look():
            burnt(0.2)
            used[0] += 0.2
            if used[0] > 0.75:
                comes(lambda: said, 1)
                return said == [0]
            return used[0] > 0.55 or not said
        return look
    return set_up


row(TIMERS, "sleep of CPU time (clock_nanosleep), the rest where the span was", alone=True)(
    sleeps("there"))
row(TIMERS, "sleep of CPU time (clock_nanosleep), the rest elsewhere", alone=True)(
    sleeps("elsewhere"))
row(TIMERS, "sleep of CPU time (clock_nanosleep), of which no rest is told", alone=True,
    outcome=Differs("A sleep of CPU time (clock_nanosleep(2)) without a place for its rest",
                    ("thawed",)))(
    sleeps("nowhere"))


# int 0x80 of these: nanosleep(ebx, ecx), then exit(-eax).
CODE_32 = bytes.fromhex("b8a2000000" "bb00000000" "b900000000" "cd80" "f7d8" "89c3" "b801000000"
                        "cd80")


def program_of_32_bits(path, rest):
    at, head = 0x08048000, 52 + 32
    code = bytearray(CODE_32)
    struct.pack_into("I", code, 6, at + head + len(CODE_32))
    struct.pack_into("I", code, 11, at + head + len(CODE_32) + rest if rest >= 0 else 0)
    whole = bytes(code) + struct.pack("iiii", 5000, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x7fELF\1\1\1" + bytes(9) + struct.pack(
            "HHIIIIIHHHHHH", 2, 3, 1, at + head, 52, 0, 0, 52, 32, 1, 0, 0, 0))
        f.write(struct.pack("8I", 1, 0, at, at, head + len(whole), head + len(whole), 7, 4096))
        f.write(whole)
    os.chmod(path, 0o700)


class Sleep32:
    """A program of 32 bits that sleeps. After a move it sleeps by what its arguments say then, and
    the kernel has read anew: what was left as the move interrupted it. That is less than was left
    at the last look, and not less by more than the time that has passed in all. A pipe has another
    number after a move."""
    def __init__(self, program):
        self.pid = os.fork()
        if self.pid == 0:
            os.execv(program, ["program"])
        comes(lambda: text(f"/proc/{self.pid}/syscall").startswith("162 "))
        self.begun, self.pipe = time.time(), os.pipe()
        self.number, self.span, self.left, self.looked = self.pipe_number(), 5000, 5000, 0
        self.look()

    def pipe_number(self):
        return os.fstat(self.pipe[0]).st_ino

    def look(self):
        call, at, *_ = text(f"/proc/{self.pid}/syscall").split()
        with open(f"/proc/{self.pid}/mem", "rb", 0) as memory:
            seconds, fraction = struct.unpack("ii", os.pread(memory.fileno(), 8, int(at, 16)))
        span, now, number = seconds + fraction / 1e9, time.monotonic(), self.pipe_number()
        if span == self.span and number == self.number:
            lasts = True
            self.left -= now - self.looked if self.looked else 0
        else:
            lasts = 4999 - (time.time() - self.begun) < span < self.left
            self.left = span
        self.looked, self.number, self.span = now, number, span
        return [os.waitpid(self.pid, os.WNOHANG), call, lasts]


def sleeps_in_32_bits(where):
    def set_up(place):
        program_of_32_bits(f"{place}/program", where)
        return Sleep32(f"{place}/program").look
    return set_up


for word, where in {"the rest where the span was": 0, "the rest elsewhere": 8}.items():
    row(TIMERS, f"sleep of a program of 32 bits, {word}", alone=True, needs="such programs")(
        sleeps_in_32_bits(where))
row(TIMERS, "sleep of a program of 32 bits, of which no rest is told", alone=True,
    needs="such programs", outcome=Differs("and so does any sleep of a program of 32 bits that has "
                                           "none"))(
    sleeps_in_32_bits(-1))
