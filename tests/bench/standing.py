# SPDX-License-Identifier: GPL-2.0-or-later
"""Suspended jobs that stand in memory: how soon they stop and go on there, beside the way over the
disk."""
import json
import time

import market as souk
from book import FAILURES

# The bids, highest first: KEEPS holds the other nodes, TAKES takes the place of the job, and JOB is
# the job's own bid.
KEEPS, TAKES, JOB = '500', '400', '100'


def sleeper(market, bid):
    return souk.Watched(market, 'sleep', '100000', options=('-p', bid, '-m', '64'))


def of(book, market, memory, rounds):
    jobs, stops, resumed, freeze, thaw = [], [], [], [], []
    try:
        market.tool('marketctl', 'set', 'stand-max', '1h')
        jobs = [sleeper(market, KEEPS) for _ in market.nodes[1:]]
        job = souk.Watched(market, f'{market.bin}/testload', '-m', str(memory), '-t', '100000',
                           options=('-p', JOB, '-m', str(memory + 100)))
        jobs.append(job)
        time.sleep(1 + memory / 100)  # until its memory is filled
        for _ in range(rounds):
            since, start = len(job.lines), time.monotonic()
            better = sleeper(market, TAKES)
            try:
                _, when = job.expect(r': stopped on', since, 30)
                stops.append((when - start) * 1e3)
                since = len(job.lines)
            finally:
                better.close()
            job.expect(r': goes on at', since, 30)
            story = json.loads(market.tool('marketctl', '--json', 'job', job.id, '--story'))
            resumed.append([s['total_ms'] for s in story['steps'] if s['step'] == 'resumed'][-1])
            freeze.append(job.order(r': frozen on', 'freeze', job.id, seconds=60)[1])
            match, ms = job.order(r': goes on at (\S+)', 'thaw', job.id, job.where, seconds=60)
            thaw.append(ms)
            job.where = match.group(1)
            market.tool('marketctl', 'release', job.id)
            time.sleep(0.3)
    except FAILURES as e:
        book.problem(f'stops of {memory} MB', e)
    finally:
        for one in jobs:
            one.close()
        market.tool('marketctl', 'set', 'stand-max', 'default', check=False)
    book.add('stand', f'{memory} MB: a better bid to stopped in memory', 'ms', stops, freeze,
             'order to frozen on disk')
    book.add('stand', f'{memory} MB: told to go on to running in place', 'ms', resumed, thaw,
             'order to thawed from disk', 'resumed')
