# SPDX-License-Identifier: GPL-2.0-or-later
"""A benchmark of a cluster writes its figures into this book, each with its peer and its goal."""
import subprocess
import sys

GOALS = {  # of the ours column, or of the ratio
    'round trip': ('<=', 20, 'ours'),
    'small jobs/s': ('>=', 700, 'ours'), 'small trip': ('<=', 5, 'ours'),
    'jobs/s': ('>=', 200, 'ours'), 'move': ('<=', 1.15, 'ratio'), 'pause': ('<=', 15, 'ours'),
    'disk': ('<=', 1.3, 'ratio'), 'work': ('<=', 1.5, 'ratio'), 'p99': ('<=', 100, 'ours'),
    'resident': ('<=', 10, 'ours'), 'cpu': ('<=', 0.2, 'ours'), 'resumed': ('<=', 10, 'ours'),
}
FAILURES = (OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError)
LIVE_PAUSE_MS = {'pages first': {}, 'post-copy': {64: 25, 512: 50, 2048: 150, 4096: 250}}
LIVE_TOTAL = {'pages first': 2.2, 'post-copy': 1.4}  # x raw copy, of 512 MB


def spread(values):
    s = sorted(values)
    return {'median': s[len(s) // 2], 'min': s[0], 'p90': s[min(len(s) - 1, len(s) * 9 // 10)],
            'n': len(s)}


class Book:
    def __init__(self):
        self.figures, self.problems, self.notes = [], [], []

    def add(self, part, figure, unit, ours, peer=None, peer_name='', goal=None, more=None):
        """`more`: by how much ours may exceed the peer, in `unit`."""
        if not ours:
            return
        row = {'part': part, 'figure': figure, 'unit': unit, 'ours': spread(ours),
               'peer_name': peer_name, 'peer': spread(peer) if peer
               else None, 'ratio': None, 'goal': '', 'met': None}
        if peer and row['peer']['median']:
            row['ratio'] = row['ours']['median'] / row['peer']['median']
        if goal:
            of_live = ('<=', goal, 'ratio' if goal in LIVE_TOTAL.values() else 'ours')
            sign, bound, of = GOALS[goal] if isinstance(goal, str) else of_live
            value = row['ratio'] if of == 'ratio' else row['ours']['median']
            row['goal'] = f'{sign} {bound}{" x" if of == "ratio" else ""}'
            row['met'] = None if value is None else (value <= bound if sign == '<='
                                                     else value >= bound)
        if more is not None and peer:
            row['goal'] = f'<= + {more} {unit}'
            row['met'] = row['ours']['median'] <= row['peer']['median'] + more
        self.figures.append(row)

    def problem(self, part, error):
        self.problems.append(f'{part}: {error}')
        say(f'{part}: FAILED: {error}')


def say(text):
    print(f'bench: {text}', file=sys.stderr, flush=True)
