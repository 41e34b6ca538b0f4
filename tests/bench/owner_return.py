#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""owner_return.py [--returns N] [--sizes 64,1024,4096] [--rate MB] [--busy] [--json]: what an owner
waits for when he comes back to a machine with a guest of so many MB on it, who leaves at so many
MB/s at most (leave_mb_per_s; 0: as fast as it goes).

A market of two nodes on this host; the guest writes to all its memory all along. Each return is a
program of the owner that computes for 2 ms every 10 ms, and measures how late it is woken and how
long the 2 ms take. Times are from its start: `detected` and `frozen` (the first answers of pvdctl
status that say that he is here, and that no guest runs: a look each few ms), then as agentd
measures them itself (pvdctl history): `lowered`, `gone` (no guest holds memory), `empty` (no image
is there either). --busy: he is known by his program's name, for a machine where others compute,
too.

Both nodes are this one machine, so a guest that has left still runs beside the owner, and is use of
his to the other node: it sleeps between returns, as long as a file is not there. What he feels of
guests where they stay and are lowered: owner_delay.py. Prints a table; with --json all figures
instead."""
import argparse
import json
import os
import sys
import tempfile
import time

import market as souk
from owner_delay import BIN, GUEST, NAME, Owner, Work, configure, presence, pvdctl, quantile

CONFIGURATION = '''
owner_return = "leave"
{sign}
owner_stop_s = 0
owner_leave_s = 0
owner_away_s = 2
leave_mb_per_s = {rate}
'''
STEPS = ('detected', 'lowered', 'frozen', 'gone', 'empty')
KEYS = {'lowered': 'free_cpu_ms', 'gone': 'free_memory_ms', 'empty': 'empty_ms'}
SIGNS = {False: 'owner_cpu_percent = 10\nowner_wait_ms = 5',
         True: f'owner_cpu_percent = 100\nowner_wait_ms = 10000\nowner_programs = "{NAME}"'}
BUSY = False  # --busy


def goes_to(market, job, node):
    if market.ctl('job', job).get('where') != node:
        market.tool('marketctl', '--hold', '--wait', '120s', 'move', job, node, seconds=150)
        market.tool('marketctl', 'release', job)


def one_return(market, job, work, node, limit, rate):
    """Waits from the owner's return until the machine is empty. Returns {step: ms}, and his
    delays."""
    configure(market, node, '')  # a guest may come at any time
    goes_to(market, job, node)
    work.begins()
    configure(market, node, CONFIGURATION.format(rate=rate, sign=SIGNS[BUSY]))
    market.wait(lambda: not presence(market, node)['here'], 300, f'{node} is in use')
    before = [r['number'] for r in pvdctl(market, node, 'history', '1')['returns']]
    owner = Owner()
    try:
        market.wait(lambda: presence(market, node)['here'], 20, 'the owner is not noticed')
        times = {'detected': (time.monotonic() - owner.began) * 1e3}
        market.wait(lambda: all(guest['state'] != 'running'
                                for guest in pvdctl(market, node, 'status')['here']), limit,
                    'a guest runs on')
        times['frozen'] = (time.monotonic() - owner.began) * 1e3

        def newest():
            returns = pvdctl(market, node, 'history', '1')['returns']
            return returns[0] if returns and [returns[0]['number']] != before else {}
        market.wait(lambda: 'empty_ms' in newest(), limit, f'{node} does not get empty')
        times.update({step: newest().get(key) for step, key in KEYS.items()})
    finally:
        work.rests()
        late = owner.end()
    return times, late


def measure(market, size, work, returns, limit, rate):
    node = market.nodes[1]
    submitted = json.loads(market.tool(
        'srun', '--node', market.nodes[0], '--detach', '--json', '-p', '100', '-m',
        str(size + 64), '/usr/bin/python3', '-c', GUEST, str(size), work.path, '1'))
    job = submitted['id']
    steps, late = {step: [] for step in STEPS}, []
    try:
        market.wait(lambda: market.ctl('job', job)['status'] == 'run', 60, f'{job} does not run')
        # A job that has not written its memory yet has nothing that would have to leave the node.
        market.wait(lambda: os.path.exists(work.full), limit, f'{job} holds less')
        os.unlink(work.full)
        for _ in range(returns):
            times, delays = one_return(market, job, work, node, limit, rate)
            for step, ms in times.items():
                if ms is not None:
                    steps[step].append(ms)
            late += delays
    finally:
        market.tool('marketctl', 'cancel', job, check=False)
    return {'mb': size, 'leave_mb_per_s': rate, 'p99_ms': quantile(late, 0.99),
            'steps': {step: {'median_ms': quantile(ms, 0.5), 'worst_ms': max(ms, default=None),
                             'n': len(ms)} for step, ms in steps.items()}}


def show(rows):
    def shown(value):
        return '-' if value is None else f'{value:.0f}'
    print(f'{"guest":>8}', *(f'{step:>16}' for step in STEPS), f'{"owner p99":>12}')
    for row in rows:
        print(f'{row["mb"]:>5} MB', *(
            f'{shown(s["median_ms"]) + " / " + shown(s["worst_ms"]):>16}'
            for s in row['steps'].values()), f'{row["p99_ms"]:>9.2f} ms')
    print('median / worst, in ms')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--returns', type=int, default=20)
    parser.add_argument('--sizes', default='64,1024,4096', help='MB of the guest')
    parser.add_argument('--rate', type=int, default=0, help='leave_mb_per_s')
    parser.add_argument('--limit', type=float, default=300, help='seconds for one return')
    parser.add_argument('--busy', action='store_true', help='others compute here, too')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    global BUSY
    BUSY = args.busy
    market = souk.Market(BIN, nodes=2)
    try:
        # The directory is on a path that every node has, so the guest sees it wherever it runs.
        with tempfile.TemporaryDirectory(dir='/var/tmp') as directory:
            rows = [measure(market, int(size), Work(directory), args.returns, args.limit,
                            args.rate)
                    for size in args.sizes.split(',')]
    finally:
        market.close()
    if args.json:
        json.dump({'rows': rows}, sys.stdout, indent=1)
    else:
        show(rows)


if __name__ == '__main__':
    main()
