# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of programs share these fixtures and settings."""
import signal

# The process that started us may ignore signals (nohup, a background job), and children inherit
# that. Our children shall not.
for _ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP,
                 signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(_ignored) == signal.SIG_IGN:
        signal.signal(_ignored, signal.default_int_handler if _ignored == signal.SIGINT
                      else signal.SIG_DFL)
