# SPDX-License-Identifier: GPL-2.0-or-later
"""The least of a shell with job control: session leader on a terminal, runs ARGV as its foreground
job. On stdin's side channel (fd 3) it says `stopped MODE` or `exited STATUS MODE`, MODE being the
terminal's settings then; on a line from fd 4 it continues the job. What it does to the terminal is
what any shell does."""
import os
import signal
import sys
import termios

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
report, orders = os.fdopen(3, "w", buffering=1), os.fdopen(4)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    report.close()
    orders.close()
    os.execv(sys.argv[1], sys.argv[1:])
print("pid", child, file=report)
while True:
    _, status = os.waitpid(child, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    lflag = termios.tcgetattr(0)[3]
    mode = "cooked" if lflag & termios.ICANON and lflag & termios.ECHO else "raw"
    if not os.WIFSTOPPED(status):
        print("exited", os.waitstatus_to_exitcode(status), mode, file=report)
        break
    print("stopped", mode, file=report)
    orders.readline()
    os.tcsetpgrp(0, child)
    os.killpg(child, signal.SIGCONT)
