#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""owner_delay.py [--rounds N] [--seconds S] [--mb MB] [--json]: what an owner feels of guests that
stay and are lowered.

His program computes for 2 ms every 10 ms, and measures how late each of its turns ends: how late it
was woken, and what it had to wait while it computed. In each round it runs so many seconds

  alone   the guests sleep;
  guests  a guest has a process on each CPU that writes to MB of memory; Souk has lowered it;
  kernel  without Souk: as many loops in a control group with cpu.idle = 1, the least that the
          kernel's fair scheduling gives anybody;

in an order that turns from round to round, so that what else this machine does falls on each alike.
Prints for each the median of the rounds' p50, p99 and p99.9, with the least and the most; the goal
is a p99 with guests of 1.05 of that alone at most. With --json all figures instead."""
import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import market as souk

BIN = os.environ.get('SOUK_BIN') or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '..', '..', 'build', 'bin')
GOAL = 1.05
QUANTILES = {'p50': 0.5, 'p99': 0.99, 'p99.9': 0.999}
NAME = 'souk-owner'
OWNER = '''
import signal, sys, time
late = []
end = []
signal.signal(signal.SIGTERM, lambda *_: end.append(1))
while not end and len(late) < 100_000:
    due = time.perf_counter() + 0.008
    time.sleep(0.008)
    woken = time.perf_counter()
    while time.perf_counter() - woken < 0.002:
        pass
    late.append((time.perf_counter() - due - 0.002) * 1e3)
print(*late)
'''
GUEST = '''
import os, sys, time
for _ in range(int(sys.argv[3]) - 1):
    if os.fork() == 0:
        break
held = bytearray(int(sys.argv[1]) << 20)
while True:
    for at in range(0, len(held), 4096):
        held[at] = (held[at] + 1) & 255
    open(sys.argv[2] + '-full', 'w').close()
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
'''
LOOP = 'while True: pass'
CONFIGURATION = f'''
owner_return = "lower"
owner_cpu_percent = 100
owner_wait_ms = 10000
owner_away_s = 1
owner_programs = "{NAME}"
'''


def quantile(values, part):
    s = sorted(values)
    return s[min(len(s) - 1, int(len(s) * part))] if s else None


class Owner:
    """The interactive program; its delays in ms when it has ended."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        program = os.path.join(self.directory.name, NAME)
        os.symlink(os.path.realpath(sys.executable), program)
        self.began = time.monotonic()
        self.process = subprocess.Popen([program, '-c', OWNER], stdout=subprocess.PIPE, text=True)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[0]
        self.directory.cleanup()
        return [float(word) for word in said.split()]


class IdleGroup:
    """A control group with cpu.idle, in the cpu controller of version 2 or 1, whichever this
    machine has."""

    def __init__(self):
        for root in ('/sys/fs/cgroup/cpu', '/sys/fs/cgroup'):
            self.path = os.path.join(root, f'souk-delay-{os.getpid()}')
            try:
                os.mkdir(self.path)
                with open(os.path.join(self.path, 'cpu.idle'), 'w') as f:
                    f.write('1')
                return
            except OSError as e:
                why = e
                if os.path.isdir(self.path):
                    os.rmdir(self.path)
        raise RuntimeError(f'no idle control group: {why}')

    def hold(self, pid):
        with open(os.path.join(self.path, 'cgroup.procs'), 'w') as f:
            f.write(str(pid))

    def close(self):
        os.rmdir(self.path)


class Work:
    """The guest computes while the file is there. It makes the other one when it has written to all
    its memory."""

    def __init__(self, directory):
        self.path = os.path.join(directory, 'work')
        self.full = self.path + '-full'

    def begins(self):
        with open(self.path, 'w'):
            pass

    def rests(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def pvdctl(market, node, *words):
    return json.loads(market.tool('pvdctl', '--json', '--node', node, *words))


def presence(market, node):
    return pvdctl(market, node, 'status').get('presence', {})


def configure(market, node, text):
    """Adds these keys, of which owner_return is the first, to the node's own; '' removes them
    again."""
    path = os.path.join(souk.RUN_DIR, node, 'agentd.conf')
    with open(path) as f:
        before = f.read().split('\nowner_return')[0]
    with open(path, 'w') as f:
        f.write(before + text)
    nodes = json.loads(market.tool('souk', 'status', '--json'))['nodes']
    os.kill(next(n['pid'] for n in nodes if n['name'] == node), signal.SIGHUP)
    market.wait(lambda: bool(presence(market, node)) is bool(text), 10, 'the keys are not taken')


class Bench:
    def __init__(self, market, directory, mb, seconds):
        self.market, self.seconds, self.work = market, seconds, Work(directory)
        self.cpus, self.node = os.cpu_count(), market.nodes[0]
        configure(market, self.node, CONFIGURATION)
        self.job = json.loads(market.tool(
            'srun', '--node', self.node, '--detach', '--json', '-p', '100', '-m',
            str((mb + 32) * self.cpus), '/usr/bin/python3', '-c', GUEST, str(mb), self.work.path,
            str(self.cpus)))['id']
        market.wait(lambda: market.ctl('job', self.job)['status'] == 'run', 60,
                    f'{self.job} does not run')

    def late(self):
        owner = Owner()
        try:
            self.market.wait(lambda: presence(self.market, self.node)['guests'] == 'lowered',
                             20, 'not lowered')
            time.sleep(self.seconds)
        finally:
            late = owner.end()
        return late

    def alone(self):
        return self.late()

    def guests(self):
        self.work.begins()
        try:
            return self.late()
        finally:
            self.work.rests()

    def kernel(self):
        group, loops = IdleGroup(), []
        try:
            for _ in range(self.cpus):
                loops.append(subprocess.Popen([sys.executable, '-c', LOOP]))
                group.hold(loops[-1].pid)
            return self.late()
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
            group.close()


def spread(rounds):
    return {'median': statistics.median(rounds), 'min': min(rounds), 'max': max(rounds)}


def measure(bench, rounds):
    kinds = {'alone': bench.alone, 'guests': bench.guests, 'kernel': bench.kernel}
    seen = {kind: {q: [] for q in QUANTILES} for kind in kinds}
    order = list(kinds)
    for _ in range(rounds):
        for kind in order:
            late = kinds[kind]()
            for q, part in QUANTILES.items():
                seen[kind][q].append(quantile(late, part))
        order = order[1:] + order[:1]
    return {kind: {q: spread(values) for q, values in of.items()} for kind, of in seen.items()}


def show(result):
    print(f'{"":8}', *(f'{q:>24}' for q in QUANTILES))
    for kind, of in result['late_ms'].items():
        cells = (f'{s["median"]:.2f} ({s["min"]:.2f} to {s["max"]:.2f})' for s in of.values())
        print(f'{kind:8}', *(f'{cell:>24}' for cell in cells))
    print(f'ms; medians of {result["rounds"]} rounds (least to most); p99 with guests '
          f'{result["ratio"]:.2f} of alone (goal: {GOAL} at most), '
          f'{result["kernel_ratio"]:.2f} without Souk; guests gave way '
          f'{result["gave_way"]} times')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=6)
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--mb', type=int, default=64, help='MB of each process of the guest')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    market = souk.Market(BIN, nodes=1)
    try:
        with tempfile.TemporaryDirectory(dir='/var/tmp') as directory:
            bench = Bench(market, directory, args.mb, args.seconds)
            late = measure(bench, args.rounds)
            gave_way = presence(market, bench.node)['gave_way']
            market.tool('marketctl', 'cancel', bench.job, check=False)
    finally:
        market.close()
    alone = late['alone']['p99']['median']
    result = {'rounds': args.rounds, 'seconds': args.seconds, 'mb': args.mb, 'late_ms': late,
              'ratio': late['guests']['p99']['median'] / alone,
              'kernel_ratio': late['kernel']['p99']['median'] / alone, 'gave_way': gave_way}
    if args.json:
        json.dump(result, sys.stdout, indent=1)
    else:
        show(result)


if __name__ == '__main__':
    main()
