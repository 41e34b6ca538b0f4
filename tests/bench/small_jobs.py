# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures the smallest job: many of `true` at once, and one after the other, each beside fork and
exec of the same program in the same run. CPU time is the sum over every process with a part in
it: srun, the daemons, PID 1 of each capsule and the job. Wall clock alone says little on a
machine where other programs work too."""
import os
import time

TICK_MS = 1e3 / os.sysconf('SC_CLK_TCK')


def spawn(argv, env):
    quiet = [(os.POSIX_SPAWN_OPEN, 0, '/dev/null', os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, 0, 1),
             (os.POSIX_SPAWN_DUP2, 0, 2)]
    return os.posix_spawn(argv[0], argv, os.environ if env is None else env, file_actions=quiet)


def cpu_ms(pids):
    """The CPU time of these daemons and of the children that they have reaped, in ms."""
    total = 0
    for pid in pids:
        with open(f'/proc/{pid}/stat') as f:
            total += sum(map(int, f.read().rsplit(')', 1)[1].split()[11:15])) * TICK_MS
    return total


def burst(argv, env, count):
    """Starts them as fast as processes can be started: (a second, CPU ms of each of these
    processes, how many failed)."""
    start = time.monotonic()
    pids = [spawn(argv, env) for _ in range(count)]
    cpu = failed = 0
    for pid in pids:
        _, status, usage = os.wait4(pid, 0)
        cpu += usage.ru_utime + usage.ru_stime
        failed += status != 0
    return count / (time.monotonic() - start), cpu * 1e3 / count, failed


def trip_ms(argv, env):
    start = time.monotonic()
    status = os.wait4(spawn(argv, env), 0)[1]
    if status:
        raise RuntimeError(f'{argv}: status {status}')
    return (time.monotonic() - start) * 1e3


def measure(market, true, count, rounds, trips):
    """{figure: (ours, plain)}, lists of one value a round."""
    daemons = [pid for pids in market.daemons().values() for pid in pids]
    srun = market.srun('-p', '1', true)
    found = {'jobs/s': ([], []), 'CPU ms a job': ([], []), 'srun true, ms': ([], [])}
    for i in range(rounds + 1):
        before = cpu_ms(daemons)
        rate, own, failed = burst(srun, market.env, count)
        if failed:
            raise RuntimeError(f'{failed} of {count} jobs failed')
        # Capsules end after their sruns: their CPU time is counted when the daemons have reaped
        # them.
        market.wait(lambda: not market.ctl('list-jobs', '--state', 'live'), 60,
                    'jobs do not finish')
        cpu = own + (cpu_ms(daemons) - before) / count
        plain_rate, plain_cpu, _ = burst([true], None, count)
        if i > 0:  # the first fills the caches
            for figure, ours, plain in (('jobs/s', rate, plain_rate),
                                        ('CPU ms a job', cpu, plain_cpu)):
                found[figure][0].append(ours)
                found[figure][1].append(plain)
    for i in range(trips + 2):
        ours, plain = trip_ms(srun, market.env), trip_ms([true], None)
        if i >= 2:
            found['srun true, ms'][0].append(ours)
            found['srun true, ms'][1].append(plain)
    return found
