# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves and freezes of a job that has many files open, which are its home's, and of one whose files
are its node's."""
import os
import tempfile

import market as souk
from book import FAILURES

HOLDS = """
import sys, time
files = [open(f'f{i}', 'r+' if i % 2 else 'r') for i in range(int(sys.argv[1]))]
while True:
    time.sleep(0.01)
"""


def one_job(market, kind, count, rounds, figures):
    job = souk.Watched(market, '/usr/bin/python3', '-c', HOLDS, str(count),
                       options=(f'--files={kind}',))
    try:
        for i in range(rounds + 1):
            # never at the home, where a job of --files=home has the node's tree
            to = market.nodes[1 + i % 2]
            if job.where != to:
                match, _ = job.order(r': moved from \S+ to (\S+), pause ([\d.]+) ms', 'move',
                                     job.id, to)
                job.where = match.group(1)
                if i > 0:
                    figures['move'].append(float(match.group(2)))
            figures['freeze'].append(job.order(r': frozen on', 'freeze', job.id)[1])
            match, ms = job.order(r': goes on at (\S+)', 'thaw', job.id, job.where)
            figures['thaw'].append(ms)
    finally:
        job.close()


def measure(market, count, rounds):
    """{files: {verb: [ms]}} for files in home, local."""
    got = {kind: {'move': [], 'freeze': [], 'thaw': []} for kind in ('home', 'local')}
    # Nodes of one machine: both jobs see the same directory.
    with tempfile.TemporaryDirectory(dir='/var/tmp') as where:
        for i in range(count):
            with open(f'{where}/f{i}', 'w') as f:
                f.write(str(i))
        before = os.getcwd()
        os.chdir(where)
        try:
            for kind, figures in got.items():
                one_job(market, kind, count, rounds, figures)
        finally:
            os.chdir(before)
    return got


def moves_of(book, market, count, rounds):
    try:
        got = measure(market, count, rounds)
    except FAILURES as e:
        return book.problem(f'{count} open files', e)
    for verb, what, more in (('move', 'pause', 3), ('freeze', 'order to frozen on disk', None),
                             ('thaw', 'order to thawed', None)):
        book.add('files', f'{count} open files of its home: {what}', 'ms', got['home'][verb],
                 got['local'][verb], 'files of its node', more=more)
