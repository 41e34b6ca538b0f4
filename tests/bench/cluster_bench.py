#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
# Long: every figure of a cluster, measured on one market.
"""What a market of three machines costs on this host, each figure beside its peer in the same run:
a round trip of srun, many jobs at once, freezes and moves, idle daemons. Prints one JSON object:
  {"figures": [{part, figure, unit, ours, peer, peer_name, ratio, goal, met}], "problems", "notes",
  "load": lists}
`ours` and `peer` are {median, min, p90, n}. Peers that are not installed are named in notes; what
could not run in problems, and then the exit status is 1."""
import argparse
import itertools
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import criu_hand
import market as souk
import slurm as peers
import small_jobs

TRUE = '/bin/true'
GOALS = {  # of the ours column, or of the ratio
    'round trip': ('<=', 20, 'ours'),
    'small jobs/s': ('>=', 700, 'ours'), 'small trip': ('<=', 5, 'ours'),
    'jobs/s': ('>=', 200, 'ours'), 'move': ('<=', 1.15, 'ratio'), 'pause': ('<=', 15, 'ours'),
    'disk': ('<=', 1.3, 'ratio'), 'work': ('<=', 1.5, 'ratio'), 'p99': ('<=', 100, 'ours'),
    'resident': ('<=', 10, 'ours'), 'cpu': ('<=', 0.2, 'ours'),
}
FAILURES = (OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError)


def spread(values):
    s = sorted(values)
    return {'median': s[len(s) // 2], 'min': s[0], 'p90': s[min(len(s) - 1, len(s) * 9 // 10)],
            'n': len(s)}


class Book:
    def __init__(self):
        self.figures, self.problems, self.notes = [], [], []

    def add(self, part, figure, unit, ours, peer=None, peer_name='', goal=None):
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
        self.figures.append(row)

    def problem(self, part, error):
        self.problems.append(f'{part}: {error}')
        say(f'{part}: FAILED: {error}')


def say(text):
    print(f'bench: {text}', file=sys.stderr, flush=True)


# ---- round trip


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

    # Finished jobs are forgotten in the end, so what has not finished is counted.
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


# ---- freezes and moves


def compiled(name, where):
    program = f'{where}/{name}'
    subprocess.run(['gcc', '-O2', '-o', program,
                    os.path.join(os.path.dirname(__file__), f'{name}.c')], check=True)
    return program


class Stalls:
    """For how long a job did not run, by its own clock (stall.c)."""

    def __init__(self, program, memory, where, name):
        self.path = f'{where}/{name}'
        self.command = (program, str(memory), self.path)

    def seen(self):
        try:
            with open(self.path) as f:
                return [float(line) for line in f]
        except FileNotFoundError:
            return []

    def longest_in(self, action):
        """The longest of those that end in what `action` does, or just after it; what it
        returns."""
        before = len(self.seen())
        done = action()
        time.sleep(0.2)
        new = self.seen()[before:]
        if not new:
            raise RuntimeError('a job was moved and does not know')
        return max(new), done


def moves_of(book, market, memory, rounds):
    with tempfile.TemporaryDirectory() as where:
        moves_in(book, market, memory, rounds, where)


def moves_in(book, market, memory, rounds, where):
    got = {k: [] for k in ('freeze', 'thaw', 'move', 'pause', 'told', 'by hand', 'pause by hand',
                           'freeze by hand', 'thaw by hand', 'own')}
    hand, job = None, None
    try:
        program = compiled('stall', where)
        ours, other = (Stalls(program, memory, where, name) for name in ('ours', 'by_hand'))
        try:
            hand = criu_hand.Hand(other.command)
        except FAILURES as e:
            book.problem(f'CRIU by hand, {memory} MB', e)
        job = souk.Watched(market, *ours.command)
        time.sleep(0.5 + memory / 200)  # until its memory is filled
        if hand:
            hand.ask('stop')
        for i in range(rounds):
            stalled, (told, total) = ours.longest_in(lambda: job.move(i))
            got['pause'].append(stalled)
            got['told'].append(told)
            got['move'].append(total)
            got['freeze'].append(job.order(r': frozen on', 'freeze', job.id)[1])
            # The market's job takes no CPU now, and the other none while the market is measured.
            if hand:
                hand.ask('go')
                time.sleep(0.2)
                stalled, move = other.longest_in(lambda: hand.ask('move'))
                freeze = hand.ask('freeze')
                hand.ask('stop')
                got['by hand'].append(move['all_ms'])
                got['pause by hand'].append(stalled)
                got['own'].append(move['own_ms'])
                got['freeze by hand'].append(freeze['freeze_ms'])
                got['thaw by hand'].append(freeze['restore_ms'])
            match, ms = job.order(r': goes on at (\S+)', 'thaw', job.id, job.where)
            got['thaw'].append(ms)
            job.where = match.group(1)
            time.sleep(0.2)
    except FAILURES as e:
        book.problem(f'moves of {memory} MB', e)
    finally:
        for it in (job, hand):
            if it:
                it.close()
    by = 'criu dump + cp + restore'
    book.add('move', f'{memory} MB: order to running elsewhere', 'ms', got['move'], got['by hand'],
             by, 'move')
    goal = 'pause' if memory == 1 else ''
    book.add('move', f'{memory} MB: pause, by the clock of the job itself', 'ms', got['pause'],
             got['pause by hand'], by, goal)
    book.add('move', f'{memory} MB: the same', 'ms', got['pause'], got['own'],
             "CRIU's own count: dump frozen + restore")
    book.add('move', f'{memory} MB: pause as the market tells it', 'ms', got['told'], got['pause'],
             "the job's own clock", goal)
    book.add('freeze', f'{memory} MB: order to frozen on disk', 'ms', got['freeze'],
             got['freeze by hand'], 'criu dump + sync')
    book.add('freeze', f'{memory} MB: order to thawed', 'ms', got['thaw'], got['thaw by hand'],
             'criu restore')


# ---- moves of memory that does not go with the image

LIVE_PAUSE_MS = {'pages first': {}, 'post-copy': {64: 25, 512: 50, 2048: 150, 4096: 250}}
LIVE_TOTAL = {'pages first': 2.2, 'post-copy': 1.4}  # x raw copy, of 512 MB
PIECE = bytes(1 << 20)


def raw_copy(memory):
    """ms to send so many MB over loopback into memory that was never touched."""
    listener = socket.create_server(('127.0.0.1', 0))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with socket.create_connection(listener.getsockname()) as s:
                for _ in range(memory):
                    s.sendall(PIECE)
                s.shutdown(socket.SHUT_WR)
                s.recv(1)
            status = 0
        finally:
            os._exit(status)
    with listener, listener.accept()[0] as s, mmap.mmap(-1, memory << 20) as to:
        start, at, view = time.monotonic(), 0, memoryview(to)
        while n := s.recv_into(view[at:at + (1 << 20)]):
            at += n
        took = time.monotonic() - start
        view.release()
    os.waitpid(child, 0)
    if at != memory << 20:
        raise RuntimeError('a raw copy came short')
    return took * 1e3


def live_of(book, market, memory, rounds):
    raw, hand = [raw_copy(memory) for _ in range(rounds)], None
    command = (f'{market.bin}/testload', '-m', str(memory), '-t', '100000')
    by_hand = []
    if memory <= 512:
        try:
            hand = criu_hand.Hand(command)
            time.sleep(0.5 + memory / 200)
            for _ in range(max(3, rounds // 3)):
                by_hand.append(hand.ask('move')['all_ms'])
                time.sleep(0.2)
        except FAILURES as e:
            book.problem(f'CRIU by hand, {memory} MB', e)
        finally:
            if hand:
                hand.close()
    for form, policy in (('pages first', 'safe'), ('post-copy', 'fast')):
        job, pause, total = None, [], []
        try:
            job = souk.Watched(market, *command, options=('--move', policy))
            time.sleep(1 + memory / 100)
            for i in range(rounds):
                for figures, ms in zip((pause, total), job.move(i)):
                    figures.append(ms)
                time.sleep(0.3)
        except FAILURES as e:
            book.problem(f'{form} of {memory} MB', e)
        finally:
            if job:
                job.close()
        book.add('live', f'{memory} MB, {form}: pause', 'ms', pause, by_hand,
                 'criu dump + cp + restore', LIVE_PAUSE_MS[form].get(memory))
        book.add('live', f'{memory} MB, {form}: order until all is there', 'ms', total, raw,
                 'raw loopback copy', LIVE_TOTAL[form] if memory == 512 else None)


def ahead_of(book, market, sizes, rounds):
    """Memory sent ahead of the stop, where the kernel marks what is written to; else a note says
    what it lacks."""
    said = subprocess.run([f'{market.bin}/souk', 'doctor', '--json'], capture_output=True,
                          text=True, timeout=60).stdout
    marks = next(n for n in json.loads(said) if n['name'] == 'soft-dirty')
    if not marks['met']:
        book.notes.append(f'pre-copy was not measured: soft-dirty pages: {marks["found"]} (to '
                          f'mend: {marks["mend"]})')
        return say(book.notes[-1])
    for memory, policy in itertools.product(sizes, ('safe', 'auto')):
        raw, job, pause, total, form = [raw_copy(memory) for _ in range(rounds)], None, [], [], '?'
        try:
            job = souk.Watched(market, f'{market.bin}/testload', '-m', str(memory), '-t', '100000',
                               options=('--move', policy))
            time.sleep(1 + memory / 100)
            for i in range(rounds):
                for figures, ms in zip((pause, total), job.move(i)):
                    figures.append(ms)
                time.sleep(0.3)
            form = market.ctl('job', job.id)['last_move']
        except FAILURES as e:
            book.problem(f'pre-copy of {memory} MB', e)
        finally:
            if job:
                job.close()
        book.add('ahead', f'{memory} MB, --move={policy}, {form}: pause', 'ms', pause)
        book.add('ahead', f'{memory} MB, --move={policy}, {form}: order until all is there', 'ms',
                 total, raw, 'raw loopback copy')


# ---- moves of many jobs, work while pages arrive, CPU time


def mixed_of(book, market, moves):
    jobs, pause = [], []
    try:
        for memory in (1, 4, 16, 64, 128, 256):
            job = souk.Watched(market, f'{market.bin}/testload', '-m', str(memory), '-t', '100000')
            jobs.append(job)
            time.sleep(1 + memory / 100)
            for i in range(-(-moves // 6)):
                pause.append(job.move(i)[0])
                time.sleep(0.1)
            jobs.pop().close()
    except FAILURES as e:
        book.problem('mixed moves', e)
    finally:
        for job in jobs:
            job.close()
    book.add('live', f'{len(pause)} moves of jobs of 1 to 256 MB: pause', 'ms', pause)
    if pause:
        book.add('live', f'{len(pause)} moves of jobs of 1 to 256 MB: pause, p99', 'ms',
                 [sorted(pause)[len(pause) * 99 // 100]], goal='p99')


def work_of(book, market, memory, rounds):
    """Random accesses over all of its memory, begun when the move is: the time of the work, with
    and without it."""
    still, moved, raw, job = [], [], [raw_copy(memory) for _ in range(rounds)], None
    with tempfile.TemporaryDirectory() as where:
        try:
            program = compiled('random_access', where)
            job = souk.Watched(market, program, str(memory), '20000000', options=('--move', 'fast'),
                               talks=True)

            def work(meanwhile=lambda: None):
                if job.srun.stdout.readline() != 'ready\n':
                    raise RuntimeError('random_access does not get ready')
                job.srun.stdin.write('\n')
                job.srun.stdin.flush()
                meanwhile()
                return float(job.srun.stdout.readline().split()[0])

            for i in range(rounds):
                still.append(work())
                moved.append(work(lambda: job.move(i)))
        except FAILURES as e:
            book.problem(f'work over {memory} MB', e)
        finally:
            if job:
                job.close()
    both = [a + b for a, b in zip(sorted(still), sorted(raw))]
    book.add('live', f'{memory} MB: random work while post-copy pages arrive', 'ms', moved, both,
             'the same unmoved + raw copy', 'work')


def cpu_of(book, market, memory, rounds):
    """CPU time of both agents for a GB that moves, and of CRIU by hand (dump and restore; its cp
    not counted)."""
    command, ours, theirs = (f'{market.bin}/testload', '-m', str(memory), '-t', '100000'), [], []
    used = lambda: sum(usage_of(p)[0] for p in market.daemons['agentd']) / 1e6
    for form in ('safe', 'fast'):
        job = None
        try:
            job = souk.Watched(market, *command, options=('--move', form))
            time.sleep(1 + memory / 100)
            for i in range(rounds):
                before = used()
                job.move(i)
                time.sleep(0.3)
                ours.append((used() - before) * 1024 / memory)
        except FAILURES as e:
            book.problem(f'CPU time of moves, {form}', e)
        finally:
            if job:
                job.close()
    try:
        hand = criu_hand.Hand(command)
        try:
            time.sleep(1 + memory / 100)
            theirs = [hand.ask('move')['cpu_ms'] * 1024 / memory
                      for _ in range(max(3, rounds // 3))]
        finally:
            hand.close()
    except FAILURES as e:
        book.problem('CPU time of CRIU by hand', e)
    book.add('live', f'CPU time of the agents for a GB moved ({memory} MB jobs)', 'ms', ours,
             theirs, 'criu dump + restore')


# ---- frozen to disk, and thawed


def raw_disk(directory, memory):
    """ms to write so many MB with fdatasync, and to read them into memory that was never
    touched."""
    path = f'{directory}/raw'
    start = time.monotonic()
    try:
        with open(path, 'wb', buffering=0) as f:
            for _ in range(memory):
                f.write(PIECE)
            os.fdatasync(f.fileno())
        written = time.monotonic()
        with open(path, 'rb', buffering=0) as f, mmap.mmap(-1, memory << 20) as to:
            begun, at, view = time.monotonic(), 0, memoryview(to)
            while n := f.readinto(view[at:at + (1 << 20)]):
                at += n
            read = time.monotonic()
            view.release()
        return (written - start) * 1e3, (read - begun) * 1e3
    finally:
        os.unlink(path)


def disk_of(book, market, memory, rounds):
    job, freeze, thaw, written, read = None, [], [], [], []
    try:
        job = souk.Watched(market, f'{market.bin}/testload', '-m', str(memory), '-t', '100000')
        time.sleep(1 + memory / 100)
        for _ in range(rounds):
            freeze.append(job.order(r': frozen on', 'freeze', job.id, seconds=60)[1])
            for sums, ms in zip((written, read), raw_disk(market.state, memory)):
                sums.append(ms)
            match, ms = job.order(r': goes on at (\S+)', 'thaw', job.id, job.where, seconds=60)
            thaw.append(ms)
            job.where = match.group(1)
            time.sleep(0.3)
    except FAILURES as e:
        book.problem(f'freezes of {memory} MB', e)
    finally:
        if job:
            job.close()
    ours, raw = ([a + b for a, b in zip(*pair)] for pair in ((freeze, thaw), (written, read)))
    book.add('disk', f'{memory} MB: order to frozen on disk', 'ms', freeze, written,
             'write + fdatasync')
    book.add('disk', f'{memory} MB: order to thawed', 'ms', thaw, read, 'read into fresh memory')
    book.add('disk', f'{memory} MB: both', 'ms', ours, raw, 'write + fdatasync + read', 'disk'
             if memory == 512 else None)


# ---- idle


def usage_of(pid):
    """(CPU ns, voluntary switches) of all its threads."""
    ns = switches = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat') as f:
            ns += int(f.read().split()[0])
        with open(f'/proc/{pid}/task/{task}/status') as f:
            switches += int(f.read().split('\nvoluntary_ctxt_switches:')[1].split()[0])
    return ns, switches


def resident_mib(pid):
    with open(f'/proc/{pid}/status') as f:
        return int(f.read().split('\nVmRSS:')[1].split()[0]) / 1024


def idle(book, market, slurm, seconds, when):
    daemons = dict(market.daemons, **(slurm.pids() if slurm else {}))
    start = time.monotonic()
    before = {pid: usage_of(pid) for pids in daemons.values() for pid in pids}
    time.sleep(seconds)
    took = time.monotonic() - start
    cpu, wakes, memory = {}, {}, {}
    for name, pids in daemons.items():
        after = {pid: usage_of(pid) for pid in pids}
        cpu[name] = [(after[p][0] - before[p][0]) / took / 1e7 for p in pids]
        wakes[name] = [(after[p][1] - before[p][1]) / took for p in pids]
        memory[name] = [resident_mib(p) for p in pids]
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
                        default='idle,srun,small,throughput,move,live,ahead,mixed,work,disk')
    parser.add_argument('--trips', type=int, default=40)
    parser.add_argument('--jobs', type=int, default=500)
    parser.add_argument('--small-jobs', type=int, default=300, help='at once, of the smallest')
    parser.add_argument('--bursts', type=int, default=3)
    parser.add_argument('--sizes', default='1,16,64,256', help='MB of each moved job')
    parser.add_argument('--moves', type=int, default=10)
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
            'srun': lambda: round_trip(book, market, slurm, o.trips),
            'small': lambda: small(book, market, o.small_jobs, o.bursts, o.trips),
            'throughput': lambda: throughput(book, market, slurm, o.jobs, o.bursts),
            'move': lambda: [moves_of(book, market, int(mb), o.moves)
                             for mb in o.sizes.split(',')],
            'live': lambda: [live_of(book, market, int(mb), o.moves)
                             for mb in o.live_sizes.split(',')],
            'ahead': lambda: ahead_of(book, market,
                                      [int(mb) for mb in o.live_sizes.split(',')], o.moves),
            'mixed': lambda: mixed_of(book, market, o.mixed_moves),
            'work': lambda: [work_of(book, market, 512, o.moves),
                             cpu_of(book, market, 512, o.moves)],
            'disk': lambda: [disk_of(book, market, int(mb), o.moves)
                             for mb in o.live_sizes.split(',')],
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
