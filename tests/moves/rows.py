# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of what a process can have: its rows register themselves here (things_*.py), the job
that has them is holder.py, tests/cluster/test_moves.py compares, and scripts/what-moves writes
docs/what-moves.md from it.

A row sets its thing up and returns a function that says how it finds it, as a value that JSON has:
equal before and after whatever befalls the job. It is asked several times, so it puts back what it
takes. It gets a directory of its own."""
import ast
import ctypes
import dataclasses
import fcntl
import importlib
import os
import platform
import select
import threading
import time
import typing

LIBC = ctypes.CDLL(None, use_errno=True)
MODULES = ("files", "events", "sockets", "process", "family", "namespaces", "ipc", "times",
           "memory", "signals", "working")


@dataclasses.dataclass(frozen=True)
class Refused:
    """It keeps its job from moving. `code` is one of docs/reasons.md, `words` are in what is said.
    With check=False only an order to move finds it, and docs/move.md says so."""
    code: str
    words: str
    check: bool = True


@dataclasses.dataclass(frozen=True)
class Differs:
    """It is not as before. `sentence` stands in docs/move.md; `ways` are those that change it.
    `drawn`: it is a number that a kernel draws, which may be the same again."""
    sentence: str
    ways: tuple = ("moved", "thawed", "back")
    drawn: bool = False


@dataclasses.dataclass(frozen=True)
class Uncheckpointed:
    """It is as before when its job moves and thaws, but no job with it goes back to a checkpoint.
    `sentence` stands in docs/move.md."""
    sentence: str


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    section: str
    set_up: typing.Callable
    outcome: object = None  # None: as before
    needs: str = ""         # what a machine may lack; then the row says why, and counts as skipped
    alone: bool = False     # it needs a process of its own
    by: str = ""            # FILE::TEST of tests that show it; then the table does not run it


ROWS: typing.Dict[str, Row] = {}


def row(section, name, **how):
    """Registers a function as the row of that name."""
    def register(set_up):
        key = f"{section}: {name}"
        assert key not in ROWS, key
        ROWS[key] = Row(name, section, set_up, **how)
        return set_up
    return register


def shown(section, name, by, **how):
    """Registers what a test elsewhere shows already."""
    row(section, name, by=by, **how)(None)


def load():
    for name in MODULES:
        importlib.import_module(f"things_{name}")
    return ROWS


# ---- what rows are made of

def failed(what):
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def call(name, *args):
    """A function of the C library; its failure is raised."""
    done = getattr(LIBC, name)(*args)
    if done < 0:
        raise failed(name)
    return done


def syscall(number, *args):
    if platform.machine() != "x86_64":
        raise OSError(f"system call {number} has another number here")
    LIBC.syscall.restype = ctypes.c_long
    done = LIBC.syscall(ctypes.c_long(number), *(
        ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if done < 0:
        raise failed(f"system call {number}")
    return done


def prctl(*args):
    return call("prctl", *[ctypes.c_ulong(a) for a in (*args, 0, 0, 0, 0)[:5]])


def text(path):
    with open(path, errors="replace") as f:
        return f.read()


def status(*keys, pid="self"):
    """Lines of /proc/PID/status."""
    lines = dict(line.split(":", 1) for line in text(f"/proc/{pid}/status").splitlines())
    return [lines[key].strip() for key in keys]


def fdinfo(fd, *keys):
    """Lines of /proc/self/fdinfo/FD with these keys."""
    lines = [line.split(":", 1) for line in text(f"/proc/self/fdinfo/{fd}").splitlines()
             if ":" in line]
    return [" ".join(value.split()) for key, value in lines if key.strip() in keys]


# These count as a file is opened, and say nothing of it later.
AT_OPEN = 0o100000 | os.O_DIRECTORY | 0o20000000  # O_LARGEFILE, O_DIRECTORY, __O_TMPFILE


def flags(fd):
    return f"{fcntl.fcntl(fd, fcntl.F_GETFL) & ~AT_OPEN:o} {fcntl.fcntl(fd, fcntl.F_GETFD)}"


def link(fd):
    return os.readlink(f"/proc/self/fd/{fd}")


def child(work):
    """A process that does this and then waits; returns when it has. What `work` returns, if
    anything, is called for each ask()."""
    down, up = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(down[1]), os.close(up[0])
        try:
            look = work()
            os.write(up[1], b"set\n")
        except BaseException as e:
            os.write(up[1], f"{type(e).__name__}: {e}\n".encode())
            os._exit(1)
        while os.read(down[0], 1):
            os.write(up[1], (repr(look() if look else None) + "\n").encode())
        os._exit(0)
    os.close(down[0]), os.close(up[1])
    said = line_of(up[0])
    if said != "set":
        os.waitpid(pid, 0)
        raise OSError(said)
    return Child(pid, down[1], up[0])


@dataclasses.dataclass
class Child:
    pid: int
    down: int
    up: int

    def ask(self):
        os.write(self.down, b"?")
        return ast.literal_eval(line_of(self.up))


def threads(count, work):
    """Threads that have done work(i) and wait; their numbers."""
    found = []
    for i in range(count):
        ready = threading.Event()

        def run():
            work(i)
            found.append(threading.get_native_id())
            ready.set()
            threading.Event().wait()
        threading.Thread(target=run, daemon=True).start()
        if not ready.wait(5):
            raise OSError("a thread could not do it")
    return found


def comes(holds, limit=3):
    """Waits until that holds, for so many seconds at most."""
    end = time.monotonic() + limit
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


def line_of(fd, limit=None):
    """A line from a pipe, without its end."""
    said = b""
    while not said.endswith(b"\n"):
        if limit is not None and not select.select([fd], [], [], limit)[0]:
            raise TimeoutError("no answer in time")
        more = os.read(fd, 65536 if limit else 1)
        if not more:
            return said.decode(errors="replace") or "it has ended"
        said += more
    return said.decode(errors="replace").rstrip("\n")


def write(fd, said):
    said = said.encode()
    while said:
        said = said[os.write(fd, said):]
