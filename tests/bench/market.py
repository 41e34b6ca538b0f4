# SPDX-License-Identifier: GPL-2.0-or-later
"""A market of the benchmark's own: `souk up` in a directory of its own, always taken down."""
import json
import os
import re
import subprocess
import threading
import time

RUN_DIR = '/run/souk-bench'


def read(path):
    with open(path) as f:
        return f.read()


class Market:
    """Up when constructed. RuntimeError with souk's own words when it does not come up."""

    def __init__(self, bin_dir, nodes=3):
        self.bin = os.path.abspath(bin_dir)
        self.env = dict(os.environ, SOUK_RUN=RUN_DIR, SOUK_STATE=RUN_DIR + '/state')
        self.env.pop('SOUK_NODE', None)
        self.tool('souk', 'down', '--force', check=False)  # of a run that was killed
        self.tool('souk', 'up', '--nodes', str(nodes), seconds=60)
        try:
            status = json.loads(self.tool('souk', 'status', '--json'))
            self.nodes = [n['name'] for n in status['nodes']]
            self.state = status['nodes'][0]['state_dir']
            self.wait(lambda: len(self.providers()) == nodes, 20, 'not every node is on the market')
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
            self.close()
            raise

    def daemons(self):
        """{name: pids} of now: a part of the benchmark may have started all of them again."""
        status = json.loads(self.tool('souk', 'status', '--json'))
        agents = [n['pid'] for n in status['nodes']]
        # souk-root starts, and reaps, what each agentd asks for.
        return {'marketd': [status['market']['pid']], 'agentd': agents,
                'souk-root': [int(pid) for agent in agents for pid in
                              read(f'/proc/{agent}/task/{agent}/children').split()]}

    def close(self):
        self.tool('souk', 'down', '--force', check=False, seconds=60)

    def argv(self, tool, *arguments):
        return [f'{self.bin}/{tool}', *arguments]

    def srun(self, *arguments):
        return self.argv('srun', '--node', self.nodes[0], *arguments)

    def tool(self, name, *arguments, check=True, seconds=30):
        done = subprocess.run(self.argv(name, *arguments), env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=seconds)
        if check and done.returncode:
            raise RuntimeError(f'{name} {" ".join(arguments)}: exit {done.returncode}: '
                               f'{done.stderr.strip()[-300:]}')
        return done.stdout

    def ctl(self, *arguments):
        return json.loads(self.tool('marketctl', '--json', *arguments))

    def providers(self):
        return [p for p in self.ctl('list-providers') if p['on_market']]

    def wait(self, there, seconds, what):
        end = time.monotonic() + seconds
        while not there():
            if time.monotonic() > end:
                raise RuntimeError(f'{what} (waited {seconds} s)')
            time.sleep(0.1)


class Watched:
    """A job whose srun -v notices are stamped with the time at which they arrive."""

    def __init__(self, market, *command, options=(), talks=False):
        self.market = market
        self.lines = []
        self.changed = threading.Condition()
        self.srun = subprocess.Popen(
            market.srun('-v', '-p', '100', '-m', '5000', *options, '--', *command), env=market.env,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL, stdout=subprocess.PIPE if talks
            else subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.id = self.expect(r'job (\S+)$', 0, 10)[0].group(1)
            started, _ = self.expect(r': started on (\S+)', 0, 20)
        except RuntimeError:
            self.close()
            raise
        self.where = started.group(1)

    def _read(self):
        for line in self.srun.stderr:
            now = time.monotonic()
            with self.changed:
                self.lines.append((now, line.rstrip()))
                self.changed.notify()

    def expect(self, pattern, since, seconds):
        """The first line from number `since` on that matches: (match, time)."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                for when, line in self.lines[since:]:
                    match = re.search(pattern, line)
                    if match:
                        return match, when
                if not self.changed.wait(end - time.monotonic()) and time.monotonic() > end:
                    seen = '; '.join(line for _, line in self.lines[since:])
                    raise RuntimeError(
                        f'no notice "{pattern}" within {seconds} s (seen: {seen[-300:]})')

    def order(self, pattern, *words, seconds=30):
        """An order by marketctl: (match, ms from its start until the notice came)."""
        since = len(self.lines)
        start = time.monotonic()
        self.market.tool('marketctl', '--hold', '--no-wait', *words)
        match, when = self.expect(pattern, since, seconds)
        return match, (when - start) * 1e3

    def move(self, i, seconds=60):
        """To the next of the other nodes: its pause, and from the order until it runs there, in
        ms."""
        others = [n for n in self.market.nodes if n != self.where]
        match, ms = self.order(r': moved from \S+ to (\S+), pause ([\d.]+) ms', 'move', self.id,
                               others[i % len(others)], seconds=seconds)
        self.where = match.group(1)
        return float(match.group(2)), ms

    def close(self):
        if hasattr(self, 'id') and self.srun.poll() is None:
            self.market.tool('marketctl', 'cancel', self.id, check=False)
        try:
            self.srun.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.srun.kill()
            self.srun.wait()
        self.reader.join(timeout=10)
        for pipe in (self.srun.stdin, self.srun.stdout, self.srun.stderr):
            if pipe:
                pipe.close()


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
