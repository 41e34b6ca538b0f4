# SPDX-License-Identifier: GPL-2.0-or-later
"""A person at a terminal (a pty), who answers what a program asks."""
import os
import pty
import re
import select
import subprocess
import time


class Person:
    """Starts the program; it is asked on the terminal, and answers there."""

    def __init__(self, *command, **how):
        self.said, (self.terminal, side) = "", pty.openpty()
        self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side,
                                        start_new_session=True, **how)
        os.close(side)

    def sees(self, what):
        end = time.monotonic() + 30
        while not re.search(what, self.said):
            assert time.monotonic() < end, self.said
            if select.select([self.terminal], [], [], 1)[0]:
                try:
                    self.said += os.read(self.terminal, 4096).decode()
                except OSError:
                    assert re.search(what, self.said), self.said
        return self

    def types(self, line):
        os.write(self.terminal, line.encode() + b"\n")
        self.said = ""
        return self

    def ends(self):
        status = self.process.wait(30)
        os.close(self.terminal)
        return status
