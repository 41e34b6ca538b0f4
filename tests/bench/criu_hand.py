# SPDX-License-Identifier: GPL-2.0-or-later
"""A move by hand: what an operator without a market would do with CRIU, as the peer of the market's
own moves.

Hand is the outside. This file run as a program is PID 1 of a pid and mount namespace of its own: it
starts the job there as a session leader with files opened inside, and obeys one command per line on
stdin with one JSON line on stdout:
  start PROGRAM ARGS...   the job, in a fresh session
  move                    criu dump, cp -r of the images to another directory, criu restore; all in
                          memory
  freeze                  criu dump to disk, sync of that file system, criu restore
  stop, go                SIGSTOP and SIGCONT, so that it takes no CPU while others are measured
The namespaces die with this process, and it dies with its parent: nothing is left behind.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CRIU = '/opt/souk/criu/criu' if os.path.exists('/opt/souk/criu/criu') else 'criu'


class Hand:
    """One job under CRIU by hand. Raises RuntimeError with CRIU's own words when a step fails."""

    def __init__(self, argv):
        self.disk = tempfile.mkdtemp(prefix='souk-bench-hand.', dir='/var/tmp')
        self.inside = subprocess.Popen(
            ['unshare', '--pid', '--fork', '--kill-child', '--mount', '--mount-proc', '--ipc',
             '--uts', '--', sys.executable, os.path.abspath(__file__), self.disk],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.ask('start ' + ' '.join(argv))
        except RuntimeError:
            self.close()
            raise

    def ask(self, command):
        try:
            self.inside.stdin.write(command + '\n')
            self.inside.stdin.flush()
            line = self.inside.stdout.readline()
        except OSError as e:
            raise RuntimeError(f'criu by hand: {e}') from e
        answer = json.loads(line) if line else {'error': 'the namespace ended'}
        if 'error' in answer:
            raise RuntimeError('criu by hand: ' + answer['error'])
        return answer

    def close(self):
        self.inside.kill()
        self.inside.wait()
        self.inside.stdin.close()
        self.inside.stdout.close()
        shutil.rmtree(self.disk, ignore_errors=True)


class Inside:
    def __init__(self, disk):
        self.disk = disk
        self.pid = 0
        self.hops = 0
        # CRIU caches what it finds out about the kernel under /run, so that only its first start
        # pays for that.
        for place in ('/run', '/mnt'):
            subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', place], check=True)
        subprocess.run([CRIU, 'check'], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    @staticmethod
    def next_pid_after(pid):
        with open('/proc/sys/kernel/ns_last_pid', 'w') as f:
            f.write(str(pid))

    def start(self, argv):
        self.next_pid_after(99)
        null = os.open('/dev/null', os.O_RDWR)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                for fd in range(3):
                    os.dup2(null, fd)
                os.closerange(3, 256)
                os.execv(argv[0], argv)
            finally:
                os._exit(127)
        os.close(null)

    def criu(self, verb, directory, *arguments):
        done = subprocess.run([CRIU, verb, '-D', directory, '-o', verb + '.log',
                               '--manage-cgroups=ignore', *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        if done.returncode:
            words = done.stderr.strip()
            try:
                with open(f'{directory}/{verb}.log') as f:
                    words = ' '.join(line.strip() for line in f if 'Error' in line)[-300:] or words
            except OSError:
                pass
            raise RuntimeError(f'criu {verb}: {words}')

    @staticmethod
    def own_count(directory):
        """Returns the time that CRIU counts itself, in ms: how long a dump held the job, or how
        long a restore took. CRIU's file has two magic words, a length, and a protobuf message
        whose first (dump) or second (restore) field is one of times in microseconds."""
        def varint(data, at):
            value = shift = 0
            while True:
                byte, at = data[at], at + 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value, at

        def fields(data):
            at, found = 0, {}
            while at < len(data):
                key, at = varint(data, at)
                value, at = varint(data, at)
                if key & 7 == 2:
                    value, at = data[at:at + value], at + value
                found[key >> 3] = value
            return found
        sum_ms = 0
        for name, part, time_field in (('stats-dump', 1, 2), ('stats-restore', 2, 4)):
            with open(f'{directory}/{name}', 'rb') as f:
                data = f.read()
            length = int.from_bytes(data[8:12], 'little')
            sum_ms += fields(fields(data[12:12 + length])[part])[time_field] / 1e3
        return sum_ms

    def hop(self, parent, to_disk):
        self.hops += 1
        first = f'{parent}/{self.hops}'
        second = first + '.there'
        os.mkdir(first)
        # CRIU's own processes take high pids, so that the job's are free when it restores them.
        self.next_pid_after(4000000)
        start, cpu = time.monotonic(), self.children_cpu()
        self.criu('dump', first, '-t', str(self.pid))
        cpu_dump = self.children_cpu() - cpu  # before the job's own time is added
        with contextlib.suppress(ChildProcessError):  # all of them, or their pids are taken
            while True:
                os.waitpid(-1, 0)
        if to_disk:
            subprocess.run(['sync', '-f', first], check=True)
        dumped = time.monotonic()
        if to_disk:
            second = first
        else:
            subprocess.run(['cp', '-r', first, second], check=True)
        copied, cpu = time.monotonic(), self.children_cpu()
        self.criu('restore', second, '-d')
        restored, cpu_restore = time.monotonic(), self.children_cpu() - cpu
        own_ms = self.own_count(second)
        size = sum(os.stat(os.path.join(first, name)).st_size for name in os.listdir(first))
        shutil.rmtree(first)
        shutil.rmtree(second, ignore_errors=True)
        return {'freeze_ms': (dumped - start) * 1e3, 'copy_ms': (copied - dumped) * 1e3,
                'restore_ms': (restored - copied) * 1e3, 'all_ms': (restored - start) * 1e3,
                'bytes': size, 'own_ms': own_ms, 'cpu_ms': (cpu_dump + cpu_restore) * 1e3}

    @staticmethod
    def children_cpu():
        times = os.times()
        return times.children_user + times.children_system

    def obey(self, words):
        if words[0] == 'start':
            self.start(words[1:])
        elif words[0] == 'move':
            return self.hop('/mnt', False)
        elif words[0] == 'freeze':
            return self.hop(self.disk, True)
        elif words[0] == 'stop':
            os.kill(self.pid, signal.SIGSTOP)
        elif words[0] == 'go':
            os.kill(self.pid, signal.SIGCONT)
        return {}


def main():
    inside = Inside(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = inside.obey(line.split())
        except (OSError, RuntimeError, subprocess.SubprocessError) as e:
            answer = {'error': str(e)}
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    main()
