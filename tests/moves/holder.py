# SPDX-License-Identifier: GPL-2.0-or-later
"""A job that has what rows of the table say. usage: holder.py [--set] DIRECTORY ROW...
For each line of its input it prints that line and the state of each row as JSON: {"ROW": state}.
What a row could not set up is {"lacks": why}. Rows that ask for it have a process of their own; all
others share one. With --set it asks once, and waits for a signal."""
import json
import os
import signal
import sys

import rows


LIMIT = 10  # seconds for the answer of a process, and a third of that for a row of the shared one


def set_up(name, directory):
    os.makedirs(directory, exist_ok=True)
    before = open_files()
    try:
        return rows.ROWS[name].set_up(directory)
    except Exception as e:  # whatever a kernel says of what it does not have
        why = f"{type(e).__name__}: {e}"
    for number in open_files() - before:  # a half of a thing is none
        os.close(number)
    return lambda: {"lacks": why}


def open_files():
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return {n for n in numbers if os.path.lexists(f"/proc/self/fd/{n}")}


def state(look, limit):
    """How a row finds its thing; a row of the shared process is interrupted when it takes long."""
    signal.setitimer(signal.ITIMER_REAL, limit) if limit else None
    try:
        return look()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0) if limit else None


def late(*_):
    raise TimeoutError("no answer in time")


class Worker:
    """A process that has some of the rows."""
    def __init__(self, numbered, directory, limit=None):
        down, up = os.pipe(), os.pipe()
        self.names, self.ended = [name for _, name in numbered], None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(down[1]), os.close(up[0])
            if limit:
                signal.signal(signal.SIGALRM, late)
            looks = {name: set_up(name, f"{directory}/{i}") for i, name in numbered}
            while os.read(down[0], 1):
                found = {name: state(look, limit) for name, look in looks.items()}
                rows.write(up[1], json.dumps(found) + "\n")
            os._exit(0)
        os.close(down[0]), os.close(up[1])
        self.down, self.up = down[1], up[0]

    def ask(self):
        try:
            os.write(self.down, b"?")
            said = rows.line_of(self.up, LIMIT)
            return json.loads(said)
        except (OSError, ValueError):
            return dict.fromkeys(self.names, "no answer in time" if self.lives() else
                                 f"it has ended ({self.ended})")

    def lives(self):
        if self.ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.ended = os.waitstatus_to_exitcode(status) if pid else None
        return self.ended is None


def main():
    waits = sys.argv[1] == "--set"
    directory, *names = sys.argv[1 + waits:]
    rows.load()
    os.makedirs(directory, exist_ok=True)
    numbered = list(enumerate(names))
    crowd = [(i, name) for i, name in numbered if not rows.ROWS[name].alone]
    workers = [Worker([one], directory) for one in numbered if rows.ROWS[one[1]].alone]
    workers += [Worker(crowd, directory, LIMIT / 3)] if crowd else []
    if waits:
        for worker in workers:
            worker.ask()
        signal.pause()
    while line := sys.stdin.readline():
        state = {}
        for worker in workers:
            state |= worker.ask()
        print(line.strip(), json.dumps(state), flush=True)


if __name__ == "__main__":
    main()
