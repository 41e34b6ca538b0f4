# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures what certificates cost: the same market with TLS and without, in turn, in one run."""
import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
import time

import market as souk
from moving import Stalls, compiled
from starting import TRUE, run_ms

TURNS = 3  # of each
WARM = 3   # moves that are not counted: until each node has had it once since its daemon's start
LIMITS_MS = {'srun': 0.5, 'pause': 1}  # what TLS may add


def pids(market):
    status = json.loads(market.tool('souk', 'status', '--json'))
    return {'market': status['market']['pid'], **{n['name']: n['pid'] for n in status['nodes']}}


def restart(market, texts):
    """Starts all daemons anew at once, with these configurations: {path: text}."""
    for path, text in texts.items():
        with open(path, 'w') as f:
            f.write(text)
    before = pids(market)
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    market.wait(lambda: all(pid not in (0, before[n]) for n, pid in pids(market).items()), 20,
                'the daemons are not started again')
    market.wait(lambda: subprocess.run(market.srun('-p', '1', TRUE), env=market.env,
                                       stderr=subprocess.DEVNULL).returncode == 0,
                30, 'no job runs')
    market.wait(lambda: len(market.providers()) == len(market.nodes), 30, 'not every node is back')


@contextlib.contextmanager
def configurations(market):
    """{path: text} of all daemons, with TLS and without; in the end all is as it was."""
    with_tls = {}
    for name in pids(market):
        path = f'{souk.RUN_DIR}/{name}/{"marketd" if name == "market" else "agentd"}.conf'
        with open(path) as f:
            with_tls[path] = f.read()
    try:
        yield with_tls, {path: text + 'insecure = true\n' for path, text in with_tls.items()}
    finally:
        restart(market, with_tls)


def pauses(market, program, where, memory, moves):
    """Moves a job and returns two lists in ms: how long each move stopped the job, by the job's own
    clock, and how long it took from the order until the job ran at its destination."""
    stalls = Stalls(program, memory, where, f'job-{memory}')
    with contextlib.suppress(FileNotFoundError):
        os.unlink(stalls.path)
    with contextlib.closing(souk.Watched(market, *stalls.command)) as job:
        time.sleep(0.5 + memory / 200)  # until its memory is filled
        for i in range(WARM):
            job.move(i)
        taken = [stalls.longest_in(lambda: job.move(i)) for i in range(WARM, WARM + moves)]
    return [pause for pause, _ in taken], [total for _, (_, total) in taken]


def prices(book, market, trips, moves):
    sizes = (1, 64, 512)
    got = {key: ([], []) for key in ('srun', *itertools.product(sizes, ('pause', 'whole')))}
    with configurations(market) as both, tempfile.TemporaryDirectory() as where:
        program = compiled('stall', where)
        for _ in range(TURNS):
            for kind, texts in enumerate(both):
                restart(market, texts)
                got['srun'][kind].extend(run_ms(market.srun('-p', '1', TRUE), market.env)
                                         for _ in range(trips))
                for memory in sizes:
                    each = pauses(market, program, where, memory, max(2, moves // TURNS + 1))
                    for what, values in zip(('pause', 'whole'), each):
                        got[memory, what][kind].extend(values)
    book.add('certificates', 'srun -p 1 true, round trip', 'ms', *got['srun'], 'without TLS',
             more=LIMITS_MS['srun'])
    for memory in sizes:
        limit = LIMITS_MS['pause'] if memory <= 64 else None
        book.add('certificates', f'{memory} MB: pause of a move', 'ms', *got[memory, 'pause'],
                 'without TLS', more=limit)
        book.add('certificates', f'{memory} MB: order to running elsewhere', 'ms',
                 *got[memory, 'whole'], 'without TLS')
