#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures a market of three machines on this host, each figure beside its peer in the same run.
The figures are a round trip of srun, many jobs at once, freezes and moves, and idle daemons. It
prints one JSON object:
  {"figures": [{part, figure, unit, ours, peer, peer_name, ratio, goal, met}], "problems", "notes",
  "load": lists}
`ours` and `peer` are {median, min, p90, n}. Notes name the peers that are not
installed, problems name the parts that could not run; with a problem the exit status is 1."""
import argparse
import json
import os
import signal
import sys
import time

import certificates
import market as souk
import moving
import open_files
import slurm as peers
import standing
import starting
from book import FAILURES, Book, say


# ---- idle


def idle(book, market, slurm, seconds, when):
    daemons = dict(market.daemons(), **(slurm.pids() if slurm else {}))
    start = time.monotonic()
    before = {pid: souk.usage_of(pid) for pids in daemons.values() for pid in pids}
    time.sleep(seconds)
    took = time.monotonic() - start
    cpu, wakes, memory = {}, {}, {}
    for name, pids in daemons.items():
        after = {pid: souk.usage_of(pid) for pid in pids}
        cpu[name] = [(after[p][0] - before[p][0]) / took / 1e7 for p in pids]
        wakes[name] = [(after[p][1] - before[p][1]) / took for p in pids]
        memory[name] = [souk.resident_mib(p) for p in pids]
    for ours, theirs in (('agentd', 'slurmd'), ('marketd', 'slurmctld')):
        title = f'{ours}, {when}: '
        book.add('idle', title + 'resident', 'MiB', memory[ours], memory.get(theirs), theirs,
                 'resident')
        book.add('idle', title + 'CPU', '% core', cpu[ours], cpu.get(theirs), theirs, 'cpu')
        book.add('idle', title + 'wakeups', '1/s', wakes[ours], wakes.get(theirs), theirs)


def options():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument('--bin', default=os.environ.get('SOUK_BIN', checkout + '/build/bin'))
    parser.add_argument('--parts',
                        default='idle,srun,small,throughput,move,many,live,ahead,mixed,work,disk,'
                        'stand,certificates,files')
    parser.add_argument('--trips', type=int, default=40)
    parser.add_argument('--jobs', type=int, default=500)
    parser.add_argument('--small-jobs', type=int, default=300, help='at once, of the smallest')
    parser.add_argument('--bursts', type=int, default=3)
    parser.add_argument('--sizes', default='1,16,64,256', help='MB of each moved job')
    parser.add_argument('--moves', type=int, default=10)
    parser.add_argument('--many', default='processes:250,chain:120,threads:1000,mappings:1500,'
                        'sockets:900,descriptors:1000')
    parser.add_argument('--live-sizes', default='64,512,2048',
                        help='MB of each job that moves past its image')
    parser.add_argument('--mixed-moves', type=int, default=200)
    parser.add_argument('--idle', type=float, default=20, help='seconds')
    parser.add_argument('--no-slurm', action='store_true')
    return parser.parse_args()


def main():
    o = options()
    parts = o.parts.split(',')
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all is taken down then, too
    book, load = Book(), [os.getloadavg()[0]]
    slurm = market = None
    try:
        why = 'not wanted' if o.no_slurm else peers.why_not()
        if why is None:
            try:
                slurm = peers.Slurm()
            except FAILURES as e:
                why = str(e)
        if why:
            book.notes.append(f'without Slurm beside: {why}')
            say(book.notes[-1])
        market = souk.Market(o.bin)
        plan = {
            'idle': lambda: idle(book, market, slurm, o.idle, 'fresh'),
            'srun': lambda: starting.round_trip(book, market, slurm, o.trips),
            'small': lambda: starting.small(book, market, o.small_jobs, o.bursts, o.trips),
            'throughput': lambda: starting.throughput(book, market, slurm, o.jobs, o.bursts),
            'move': lambda: [moving.moves_of(book, market, int(mb), o.moves)
                             for mb in o.sizes.split(',')],
            'many': lambda: [moving.many_of(book, market, what, o.moves)
                             for what in o.many.split(',')],
            'live': lambda: [moving.live_of(book, market, int(mb), o.moves)
                             for mb in o.live_sizes.split(',')],
            'ahead': lambda: moving.ahead_of(book, market,
                                             [int(mb) for mb in o.live_sizes.split(',')], o.moves),
            'mixed': lambda: moving.mixed_of(book, market, o.mixed_moves),
            'work': lambda: [moving.work_of(book, market, 512, o.moves),
                             moving.cpu_of(book, market, 512, o.moves)],
            'disk': lambda: [moving.disk_of(book, market, int(mb), o.moves)
                             for mb in o.live_sizes.split(',')],
            'stand': lambda: [standing.of(book, market, int(mb), o.moves)
                              for mb in o.live_sizes.split(',')],
            'certificates': lambda: certificates.prices(book, market, o.trips, o.moves),
            'files': lambda: open_files.moves_of(book, market, 200, o.moves),
            'idle after': lambda: idle(book, market, slurm, o.idle, 'after that work'),
        }
        for part, run in plan.items():
            if part.split()[0] not in parts or (part == 'idle after' and len(parts) == 1):
                continue
            say(part)
            try:
                run()
            except FAILURES as e:
                book.problem(part, e)
            load.append(os.getloadavg()[0])
    except FAILURES as e:
        book.problem('market', e)
    except KeyboardInterrupt:
        book.problem('the rest', 'interrupted')
    finally:
        if market:
            market.close()
        if slurm:
            slurm.close()
    print(json.dumps({'figures': book.figures, 'problems': book.problems, 'notes': book.notes,
                      'load': load}, indent=1))
    return 1 if book.problems else 0


if __name__ == '__main__':
    sys.exit(main())
