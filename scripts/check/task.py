# SPDX-License-Identifier: GPL-2.0-or-later
"""A task is one process with a limit of time and its output in a file. Several run side by side.

A task is the leader of a session of its own. One that is late gets SIGINT with its whole group, so
that a test can take its market down and say where it stood, and later SIGKILL. When this process is
killed, each task gets SIGINT from the kernel."""
import ctypes
import os
import re
import signal
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
GRACE = 60  # seconds between SIGINT and SIGKILL
WORDS_MAX = 40  # lines of what a failure says

# The lines that say what failed: of Check, pytest, compilers and linkers, zdtm, sanitizers.
REASONS = re.compile(
    r"^(FAILED|ERROR):? |^E  |^\d+ (passed|failed|error)|^[^ ]+:\d+:[FE]:|: (fatal )?error: "
    r"|^make.*\*\*\*|undefined reference|ld returned|terminate called|Segmentation fault|Aborted"
    r"|^check-zdtm: |^  [^ ]+ \([a-z, ]+\): |^zdtm: |runtime error|^SUMMARY|==ERROR")


def shorten(lines, most=WORDS_MAX):
    """Its first and its last lines, each of at most 400 characters but for a reproducer."""
    lines = [line if "reproducer" in line else line[:400] for line in lines]
    if len(lines) <= most:
        return lines
    head = most * 3 // 8
    return [*lines[:head], f"... {len(lines) - most + 1} lines more ...",
            *lines[head + 1 - most:]]


def reasons(text):
    """The lines of an output that say what failed, or its last ones."""
    lines = text.splitlines()
    return shorten([line for line in lines if REASONS.search(line)] or lines[-WORDS_MAX:])


class Failure:
    """A test that failed: its name, the lines that say why, and the task that runs it once more
    alone (None: it is never run again)."""
    def __init__(self, name, words, again=None):
        self.name, self.words, self.again = name, words, again


class Task:
    """One process of a part. It passes when it exits with 0. A kind of task that knows more of
    what failed overrides `found`."""

    def __init__(self, part, name, command, environment=None):
        self.part, self.name, self.command = part, name, command
        self.environment, self.limit = environment or {}, None
        self.beside = False  # takes no lane

    def prepare(self, path):
        """Called before each start, with where the output will be."""

    def start(self, path):
        self.prepare(path)
        self.path, self.begun, self.late = path, time.monotonic(), False
        self.deadline = self.begun + (self.limit or float("inf"))
        self.grace = min(GRACE, self.limit or GRACE)
        with open(path, "wb") as out:
            self.process = subprocess.Popen(self.command, env={**os.environ, **self.environment},
                                            stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG,
                                                                          signal.SIGINT))

    def kill(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def ended(self):
        """Whether it has; ends it when it is late."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        now = time.monotonic()
        self.seconds = now - self.begun
        if pid:
            self.process.returncode = self.status = os.waitstatus_to_exitcode(status)
            self.cpu = usage.ru_utime + usage.ru_stime
            if self.late:
                self.kill(signal.SIGKILL)  # what it left
        elif now > self.deadline:
            self.kill(signal.SIGKILL if self.late else signal.SIGINT)
            self.late, self.deadline = True, now + self.grace
        return pid != 0

    def passed(self):
        return not self.failures()

    def output(self):
        with open(self.path, errors="replace") as f:
            return f.read()

    def failures(self):
        """The tests that failed in it. Nothing of a task that was late is run again: that would
        take as long."""
        output = self.output()
        if self.late:
            return [Failure(self.name, [f"killed after {self.limit:g} s; it stood here:",
                                        *self.stood(output)])]
        found = self.found(output)
        return found or ([Failure(self.name, reasons(output))] if self.status != 0 else [])

    def found(self, output):
        return []

    def said(self, output):
        """Says how much passed."""
        return "passed"

    def stood(self, output):
        """Says where it stood when it was late."""
        return output.splitlines()[-10:]


def idle_ticks():
    """The ticks of all processors up to now, and those in which they were idle."""
    with open("/proc/stat") as f:
        ticks = [int(word) for word in f.readline().split()[1:9]]
    return sum(ticks), ticks[3]


def available_mb():
    with open("/proc/meminfo") as f:
        return int(re.search(r"MemAvailable: +(\d+) kB", f.read())[1]) >> 10


class Lanes:
    """Says whether one more task may start. Two more than there are processors always may. Another
    one may, up to `most`, while a quarter of the processors was idle for half a second and memory
    is left: most tests wait for a kernel, a CRIU or a clock, some compute, and others may use the
    machine as well."""
    MEMORY_MB = 2048
    SPAN = 0.5  # seconds, also from one such start to the next, so that its load is seen

    def __init__(self, most=None):
        cpus = os.cpu_count() or 1
        self.least, self.most = cpus + 2, most or 5 * cpus
        self.begin()

    def begin(self):
        self.begun, self.ticks = time.monotonic(), idle_ticks()

    def open(self, running):
        if running < min(self.least, self.most):
            return True
        if running >= self.most or time.monotonic() < self.begun + self.SPAN:
            return False
        total, idle = (now - then for now, then in zip(idle_ticks(), self.ticks))
        self.begin()
        return idle >= total / 4 and available_mb() >= self.MEMORY_MB


def run(tasks, lanes, directory):
    """Takes them out of the list in its order, starts as many at once as `lanes` lets, and yields
    each when it has ended. Whoever listens may put more into the list meanwhile; who stops
    listening (contextlib.closing) ends those that run."""
    running = []
    try:
        while tasks or running:
            while tasks and lanes.open(sum(not task.beside for task in running)):
                task = tasks.pop(0)
                name = task.part if task.name == task.part else f"{task.part}-{task.name}"
                name = re.sub(r"[^\w.-]", "_", name)[:100]
                task.start(f"{directory}/{name}.log")
                running.append(task)
            for task in [t for t in running if t.ended()]:
                running.remove(task)
                yield task
            time.sleep(0.02)
    finally:
        for task in running:
            task.deadline = 0
        while running:
            running = [t for t in running if not t.ended()]
            time.sleep(0.02)


def run_main(main):
    """Runs the main function of a program, and exits with what it returns. SIGINT, SIGTERM and
    SIGHUP are a KeyboardInterrupt, also where whoever started us ignores them: it ends the tasks
    that run, and the exit status is 130."""
    def stop(*_):
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    sys.stdout.reconfigure(line_buffering=True)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
