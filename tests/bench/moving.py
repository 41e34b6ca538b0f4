# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures moves, freezes and thaws: pause, whole time, CPU time, and work done meanwhile."""
import itertools
import json
import mmap
import os
import socket
import subprocess
import tempfile
import time

import criu_hand
import market as souk
from book import FAILURES, LIVE_PAUSE_MS, LIVE_TOTAL, say


def compiled(name, where):
    program = f'{where}/{name}'
    subprocess.run(['gcc', '-O2', '-pthread', '-o', program,
                    os.path.join(os.path.dirname(__file__), f'{name}.c')], check=True)
    return program


class Stalls:
    """Measures by the job's own clock for how long it did not run (stall.c)."""

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


# ---- moves of jobs that have many of one thing


def many_of(book, market, what, rounds):
    """The pause of a job that has so many of one kind ('threads:1000', many.c)."""
    pause, by_hand, own, jobs = [], [], [], []
    with tempfile.TemporaryDirectory() as where:
        try:
            program = compiled('many', where)
            ours, other = (Stalls(program, what, where, name) for name in ('ours', 'by_hand'))
            hand = criu_hand.Hand(other.command)
            jobs.append(hand)
            job = souk.Watched(market, *ours.command)
            jobs.append(job)
            time.sleep(2)  # until it has them all
            for i in range(rounds):
                hand.ask('stop')
                pause.append(ours.longest_in(lambda: job.move(i))[0])
                hand.ask('go')
                time.sleep(0.2)
                stalled, move = other.longest_in(lambda: hand.ask('move'))
                by_hand.append(stalled)
                own.append(move['own_ms'])
        except FAILURES as e:
            book.problem(f'moves of {what}', e)
        finally:
            for it in jobs:
                it.close()
    figure = ' '.join(reversed(what.split(':')))
    book.add('many', f'{figure}: pause, by the clock of the job itself', 'ms', pause, by_hand,
             'criu dump + cp + restore')
    book.add('many', f'{figure}: the same', 'ms', pause, own,
             "CRIU's own count: dump frozen + restore")


# ---- moves of memory that does not go with the image

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
    """Measures memory that is sent ahead of the stop, if the kernel marks written pages. Otherwise
    a note says what the kernel lacks."""
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
    agents = market.daemons()['agentd']
    used = lambda: sum(souk.usage_of(p)[0] for p in agents) / 1e6
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
