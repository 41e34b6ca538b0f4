# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures the start of jobs: a round trip of srun, the smallest jobs, many at once."""
import subprocess
import time

import small_jobs
from book import FAILURES

TRUE = '/bin/true'


def run_ms(argv, env, seconds=30):
    start = time.monotonic()
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=seconds)
    ms = (time.monotonic() - start) * 1e3
    if done.returncode:
        raise RuntimeError(f'{argv[0]}: exit {done.returncode}: '
                           f'{done.stderr.decode(errors="replace").strip()[-300:]}')
    return ms


def round_trip(book, market, slurm, rounds):
    ours, plain, theirs = [], [], []
    for i in range(rounds + 2):
        taken = (run_ms(market.srun('-p', '1', TRUE), market.env), run_ms([TRUE], None),
                 run_ms(['/usr/bin/srun', TRUE], slurm.env) if slurm else None)
        if i >= 2:  # the first of each fill the caches
            for values, ms in zip((ours, plain, theirs), taken):
                values.append(ms)
    book.add('srun', 'srun -p 1 true, round trip', 'ms', ours, plain, 'fork+exec of true',
             'round trip')
    if slurm:
        book.add('srun', 'srun -p 1 true, round trip', 'ms', ours, theirs, 'Slurm srun',
                 'round trip')


# ---- the smallest jobs


def small(book, market, count, rounds, trips):
    found = small_jobs.measure(market, TRUE, count, rounds, trips)
    for figure, unit, goal in (('jobs/s', 'jobs/s', 'small jobs/s'), ('CPU ms a job', 'ms', None),
                               ('srun true, ms', 'ms', 'small trip')):
        title = (figure if figure.startswith('srun')
                 else f'{count} x srun -p 1 true at once, {figure}')
        book.add('small', title, unit, *found[figure], 'fork+exec of true', goal)


# ---- many at once


def all_at_once(argv, env, count, seconds=60):
    """Starts them as fast as processes can be started: (jobs per second until the last has ended,
    how many failed). What has not ended within `seconds` is killed and counts as failed, and the
    rate is that of the others."""
    start = time.monotonic()
    running, ended_well, last = [], 0, start
    try:
        for _ in range(count):
            running.append(
                subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, close_fds=False))
        while running and time.monotonic() < start + seconds:
            try:
                ended_well += (
                    running[0].wait(timeout=max(0.01, start + seconds - time.monotonic())) == 0)
                running.pop(0)
            except subprocess.TimeoutExpired:
                break
        last = time.monotonic()
    finally:
        for process in running:
            process.kill()
        for process in running:
            ended_well += process.wait() == 0
    return ended_well / (last - start), count - ended_well


def ours_detached(market, count):
    start = time.monotonic()
    _, failed = all_at_once(market.srun('--detach', '-p', '1', TRUE), market.env, count)

    # The market forgets finished jobs after a while, so this counts the unfinished ones.
    def none_left():
        jobs = market.ctl('status')['jobs']
        return jobs['wait'] + jobs['run'] + jobs['suspend'] == 0

    market.wait(none_left, 120, 'jobs do not finish')
    return (count - failed) / (time.monotonic() - start), failed


def slurm_detached(slurm, count):
    start = time.monotonic()
    _, failed = all_at_once(['/usr/bin/sbatch', '-Q', '-o', '/dev/null', '--wrap', TRUE], slurm.env,
                            count)
    end = start + 120
    while slurm.run('/usr/bin/squeue', '-h').strip():
        if time.monotonic() > end:
            raise RuntimeError('Slurm: jobs do not finish')
        time.sleep(0.1)
    return (count - failed) / (time.monotonic() - start), failed


def throughput(book, market, slurm, count, rounds):
    forms = {
        'attached': (
            'srun -p 1 true', lambda: all_at_once(market.srun('-p', '1', TRUE), market.env, count),
            lambda: all_at_once(['/usr/bin/srun', '-Q', TRUE], slurm.env, count), 'Slurm srun'),
        'detached': ('srun --detach true', lambda: ours_detached(market, count),
                     lambda: slurm_detached(slurm, count), 'Slurm sbatch'),
    }
    for figure, ours_run, slurm_run, slurm_name in forms.values():
        ours, plain, theirs = [], [], []
        for _ in range(rounds):
            for values, name, run in (
                    (ours, figure, ours_run),
                    (plain, 'fork+exec', lambda: all_at_once([TRUE], None, count)),
                    (theirs, slurm_name, slurm_run if slurm else None)):
                if run is None:
                    continue
                try:
                    rate, failed = run()
                    values.append(rate)
                except FAILURES as e:
                    book.problem(f'{count} x {name}', e)
                    continue
                if failed and values is theirs:
                    book.notes.append(f'{count} x {name}: {failed} failed')
                elif failed:
                    book.problem(f'{count} x {name}', f'{failed} failed')
        title = f'{count} x {figure} at once'
        book.add('throughput', title, 'jobs/s', ours, plain, 'fork+exec of true', 'jobs/s')
        if slurm:
            book.add('throughput', title, 'jobs/s', ours, theirs, slurm_name, 'jobs/s')
