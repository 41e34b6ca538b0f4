#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""files_bench.py [--quick] [--only FIGURE,...]: a home's files over a link, by souk-files and by
sshfs, and the directory itself beside them; of sequential reads and writes also a bare stream that
carries a file over that link (bare_stream.py). JSON on standard output. Part of `make bench`.

Both ends run on this machine, with a link between them that delays each byte by half of the round
trip (delay_link.c). sshfs speaks to sftp-server without ssh, so it pays for no encryption, as
souk-files without its agentd does not. What the kernel holds of a tree is dropped by mounting it
anew ("cold")."""
import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import bare_stream
from bare_stream import Link

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ.get('SOUK_BIN') or os.path.join(HERE, '..', '..', 'build', 'bin')
LIMIT = 300
SFTP = '/usr/lib/openssh/sftp-server'
# Both ends and the link share the CPUs of this machine, so a fast link shows how fast these are.
# The last link is so slow that the CPUs carry it easily.
LINKS = {'0.1 ms': Link(50), '20 ms': Link(10_000), '20 ms, 1 Gbit/s': Link(10_000, 119)}


def cpu_s(pids):
    """The CPU time that these processes, and those that they have started, have used by now."""
    ticks, parents = {}, {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat') as f:
                words = f.read().rpartition(')')[2].split()
        except OSError:
            continue
        parents[int(pid)], ticks[int(pid)] = int(words[1]), int(words[11]) + int(words[12])
    total = 0
    for pid in ticks:
        top = pid
        while top in parents and top not in pids:
            top = parents[top]
        total += ticks[pid] if top in pids else 0
    return total / os.sysconf('SC_CLK_TCK')


def unmount(path, process):
    subprocess.run(['umount', path], check=False, stderr=subprocess.DEVNULL)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        subprocess.run(['umount', '-l', path], check=False)
        process.kill()
        process.wait()


class Souk:
    """souk-files: its server, the link and its client. try's own connection is not used: the
    client connects by the link."""
    name = 'souk-files'

    def __init__(self, where, home, link):
        self.where, self.home, self.link, self.pids = where, home, link, set()

    @contextlib.contextmanager
    def mounted(self):
        here = tempfile.mkdtemp(dir=self.where)
        path = os.path.join(self.where, 'link')
        if os.path.exists(path):
            os.unlink(path)
        programs = [f'+{self.home}/{d}' for d in ('bin', 'lib')]
        for d in programs:
            os.makedirs(d[1:], exist_ok=True)
        process = subprocess.Popen([f'{BIN}/souk-files', 'try', self.home, here, path, *programs],
                                   stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, 'TMPDIR': self.where})
        self.pids = {process.pid}
        server = process.stdout.readline().split()[3]
        with self.link.to(self.where, server):
            try:
                os.listdir(here)
                yield here
            finally:
                unmount(here, process)
        os.rmdir(here)


class Sshfs:
    name = 'sshfs'

    def __init__(self, where, home, link):
        self.where, self.home, self.link, self.pids = where, home, link, set()

    def serve(self, door):
        while True:
            try:
                s = door.accept()[0]
            except OSError:
                return
            self.pids.add(subprocess.Popen([SFTP], stdin=s.fileno(), stdout=s.fileno()).pid)
            s.close()

    @contextlib.contextmanager
    def mounted(self):
        here = tempfile.mkdtemp(dir=self.where)
        door = socket.create_server(('127.0.0.1', 0))
        threading.Thread(target=self.serve, args=(door,), daemon=True).start()
        with socket.create_server(('127.0.0.1', 0)) as some:
            port = some.getsockname()[1]
        with self.link.to(self.where, door.getsockname()[1], port):
            process = subprocess.Popen(
                ['sshfs', '-f', '-o', f'directport={port},allow_other',
                 f'127.0.0.1:{self.home}', here])
            self.pids.add(process.pid)
            end = time.monotonic() + 20
            while not os.path.ismount(here) and time.monotonic() < end:
                time.sleep(0.01)
            try:
                os.listdir(here)
                yield here
            finally:
                unmount(here, process)
                door.close()
        os.rmdir(here)


class Disk:
    """Uses the directory itself, without any server."""
    name = 'the directory'

    def __init__(self, where, home, link):
        self.home, self.pids = home, set()

    @contextlib.contextmanager
    def mounted(self):
        yield self.home


# ---- figures: each gets a way to mount, and gives (figure, unit, value)

def timed(what):
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


def run(*words, cwd=None):
    # A make that runs this has words for its own kind, such as to do without rules for a .c.
    plain = {key: value for key, value in os.environ.items() if key not in ('MAKEFLAGS', 'MFLAGS')}
    subprocess.run([str(w) for w in words], cwd=cwd, check=True, timeout=LIMIT, env=plain,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def sequential(way, size):
    for megabytes in size['megabytes'] if way.name != 'sshfs' else size['megabytes'][:1]:
        yield from sequential_of(way, megabytes)


def sequential_of(way, megabytes):
    """Measures reads and writes of an open file; opening it is a figure of its own. `again`:
    another file by the same mount, which knows by then how much the link carries."""
    piece = b'x' * (1 << 20)

    def write(f):
        for _ in range(megabytes):
            f.write(piece)
        os.fsync(f.fileno())

    def read(f):
        while f.read(1 << 20):
            pass
    with way.mounted() as top:
        for again in ('', ', again'):
            before, begins = cpu_s(way.pids), time.perf_counter()
            with open(f'{top}/big{again}', 'wb', buffering=0) as f:
                opened = time.perf_counter() - begins
                took = timed(lambda: write(f))
            yield f'sequential write, {megabytes} MB{again}', 'MB/s', megabytes / took
            used = cpu_s(way.pids) - before
            if not again:
                yield f'write, {megabytes} MB: CPU time', 's/GB', used / megabytes * 1024
                yield 'an open that makes a file', 'ms', opened * 1e3
            else:
                os.unlink(f'{way.home}/big{again}')
    with way.mounted() as top, open(f'{top}/big', 'rb', buffering=0) as f:
        before = cpu_s(way.pids)
        yield f'sequential read, {megabytes} MB', 'MB/s', megabytes / timed(lambda: read(f))
        used = cpu_s(way.pids) - before
        yield f'read, {megabytes} MB: CPU time', 's/GB', used / megabytes * 1024
    os.unlink(f'{way.home}/big')


def bare(where, home, link, size):
    """Measures a bare stream of bytes over the same link: files cannot be faster."""
    said = {}
    for megabytes in size['megabytes']:
        wrote = bare_stream.written(where, link, home, megabytes)
        said[f'sequential write, {megabytes} MB'] = wrote
        said[f'sequential write, {megabytes} MB, again'] = wrote
        said[f'sequential read, {megabytes} MB'] = bare_stream.read(where, link, home, megabytes)
    return said


def small_writes(way, size):
    count = size['small_writes']

    def write(top):
        with open(f'{top}/log', 'wb', buffering=0) as f:
            for _ in range(count):
                f.write(b'x' * 4096)
    with way.mounted() as top:
        yield 'write of 4 KB at a time', 'us', timed(lambda: write(top)) / count * 1e6
        os.unlink(f'{top}/log')


def stats(way, size):
    count = size['stats']

    def look(top):
        for i in range(count):
            os.stat(f'{top}/many/f{i}')
    os.makedirs(f'{way.home}/many', exist_ok=True)
    for i in range(count):
        open(f'{way.home}/many/f{i}', 'w').close()
    with way.mounted() as top:
        yield 'stat, first', 'us', timed(lambda: look(top)) / count * 1e6
        again = []
        for _ in range(3):
            os.stat(f'{top}/many/f0')
            begin = time.perf_counter()
            for _ in range(20_000):
                os.stat(f'{top}/many/f0')
            again.append((time.perf_counter() - begin) / 20_000 * 1e6)
        yield 'stat, again at once', 'us', min(again)
        time.sleep(1.5)
        yield 'stat, again after 1.5 s', 'us', timed(lambda: look(top)) / count * 1e6
    with way.mounted() as top:
        yield 'ls -l', 'us', timed(lambda: run('ls', '-l', f'{top}/many')) / count * 1e6
    shutil.rmtree(f'{way.home}/many')


def untar(way, size):
    path = os.path.join(os.path.dirname(way.home), 'all.tar')
    count = size['untar']
    if not os.path.exists(path):
        with tarfile.open(path, 'w') as tar:
            for i in range(count):
                one = tarfile.TarInfo(f'd{i // 100}/f{i}')
                one.size = 1000
                one.mtime = 1_000_000_000
                import io
                tar.addfile(one, io.BytesIO(b'y' * 1000))
    with way.mounted() as top:
        os.mkdir(f'{top}/tree')
        took = timed(lambda: run('tar', 'xf', path, cwd=f'{top}/tree'))
        yield 'untar of small files', 'us a file', took / count * 1e6
    shutil.rmtree(f'{way.home}/tree')


def python(way, size):
    for part in ('bin/python3', 'lib/python3'):
        os.makedirs(os.path.dirname(f'{way.home}/{part}'), exist_ok=True)
    if not os.path.exists(f'{way.home}/bin/python3'):
        shutil.copy2(os.path.realpath('/usr/bin/python3'), f'{way.home}/bin/python3')
        version = f'python{sys.version_info[0]}.{sys.version_info[1]}'
        shutil.copytree(f'/usr/lib/{version}', f'{way.home}/lib/{version}', symlinks=True,
                        ignore=shutil.ignore_patterns('test', 'config-*', 'dist-packages'))
    with way.mounted() as top:
        def start():
            subprocess.run([f'{top}/bin/python3', '-c', 'import json, subprocess, asyncio'],
                           check=True, env={'PYTHONHOME': top}, timeout=LIMIT)
        yield 'python3 starts, first', 'ms', timed(start) * 1e3
        yield 'python3 starts, again', 'ms', min(timed(start) for _ in range(3)) * 1e3


def build(way, size):
    top = f'{way.home}/src'
    os.makedirs(top, exist_ok=True)
    for i in range(size['sources']):
        with open(f'{top}/s{i}.c', 'w') as f:
            f.write('#include <stdio.h>\n#include "all.h"\n')
            f.write(''.join(f'int f{i}_{n}(int a) {{ return a * {n} + {i}; }}\n'
                            for n in range(200)))
    with open(f'{top}/all.h', 'w') as f:
        f.write('#define ALL 1\n')
    with open(f'{top}/main.c', 'w') as f:
        f.write('int main(void) { return 0; }\n')
    with open(f'{top}/Makefile', 'w') as f:
        f.write('all: $(patsubst %.c,%.o,$(wildcard *.c))\n\tgcc -o all $^\n')
    with way.mounted() as where:
        yield 'make -j2', 's', timed(lambda: run('make', '-j2', cwd=f'{where}/src'))
    shutil.rmtree(top)


FIGURES = {'sequential': sequential, 'small_writes': small_writes, 'stats': stats, 'untar': untar,
           'python': python, 'build': build}
SIZES = [128, 512, 1024]
FULL = {'megabytes': SIZES, 'small_writes': 2000, 'stats': 500, 'untar': 2000, 'sources': 20}
QUICK = {'megabytes': [32], 'small_writes': 100, 'stats': 50, 'untar': 60, 'sources': 4}
# A measurement that waits for each answer runs fewer times on a link of 20 ms, because each answer
# takes that long.
SLOW = {'megabytes': SIZES, 'small_writes': 100, 'stats': 100, 'untar': 100, 'sources': 6}


def measure(way, figure, size, times):
    seen = {}
    for _ in range(times):
        for name, unit, value in FIGURES[figure](way, size):
            seen.setdefault((name, unit), []).append(value)
    return {key: statistics.median(values) for key, values in seen.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--only', default=','.join(FIGURES))
    parser.add_argument('--links', default=';'.join(LINKS))
    parser.add_argument('--times', type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rows, notes = [], []
    peers = [Souk, Sshfs] if shutil.which('sshfs') and os.path.exists(SFTP) else [Souk]
    if len(peers) == 1:
        notes.append('no sshfs or sftp-server here')
    with tempfile.TemporaryDirectory(prefix='souk-files-') as where:
        bare_stream.compiled(where)
        home = os.path.join(where, 'home')
        os.mkdir(home)
        for name in given.links.split(';'):
            raw = {}
            size = QUICK if given.quick else SLOW if LINKS[name].one_way_us > 1000 else FULL
            for figure in given.only.split(','):
                if figure == 'sequential':
                    raw = bare(where, home, LINKS[name], size)
                said = [measure(kind(where, home, LINKS[name]), figure, size, given.times)
                        for kind in [*peers, Disk]]
                for n, (key, ours) in enumerate(said[0].items()):
                    rows.append({'link': name, 'figure': key[0], 'unit': key[1], 'ours': ours,
                                 'sshfs': said[1].get(key) if len(peers) > 1 else None,
                                 'directory': said[-1].get(key),
                                 'raw': raw.get(key[0])})
                    print(f'{name:7} {key[0]:36} {ours:10.1f} {key[1]:10}'
                          f' sshfs {rows[-1]["sshfs"] or 0:10.1f}'
                          f' directory {rows[-1]["directory"] or 0:10.1f}'
                          f' raw {rows[-1]["raw"] or 0:10.1f}', file=sys.stderr)
    print(json.dumps({'rows': rows, 'notes': notes}))


if __name__ == '__main__':
    main()
