# SPDX-License-Identifier: GPL-2.0-or-later
"""Slurm on this one host, as a peer: munged, slurmctld and slurmd of Debian's slurm-wlm with a
directory of their own, started here, ended by their pids; CPUs for every job, so that none waits
for another. Nothing of the system's own Slurm is read or touched."""
import os
import shutil
import socket
import subprocess
import tempfile
import time

NEEDED = ('/usr/sbin/munged', '/usr/sbin/slurmctld', '/usr/sbin/slurmd', '/usr/bin/srun',
          '/usr/bin/sbatch')

CONF = '''ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={port2}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=2000,default_queue_depth=1000
MaxJobCount=20000
SlurmdParameters=config_overrides
NodeName=bench NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=bench Nodes=bench Default=YES MaxTime=INFINITE State=UP
'''


def why_not():
    """Says why Slurm cannot be measured here; None if it can."""
    missing = [path for path in NEEDED if not os.path.exists(path)]
    if missing:
        return f'Slurm is not installed ({missing[0]}): apt-get install slurm-wlm munge'
    return None if os.geteuid() == 0 else 'Slurm is measured as root only'


def free_port_pair():
    for port in range(26817, 27817, 2):
        try:
            for p in (port, port + 1):
                with socket.socket() as s:
                    s.bind(('127.0.0.1', p))
            return port
        except OSError:
            continue
    raise RuntimeError('Slurm: no free ports')


class Slurm:
    """Up when constructed; RuntimeError with the last log line when it does not come up."""

    def __init__(self, cpus=1024):
        self.dir = tempfile.mkdtemp(prefix='souk-bench-slurm.', dir='/var/tmp')
        self.daemons = {}
        os.chmod(self.dir, 0o755)
        try:
            self._up(cpus)
        except (OSError, RuntimeError, subprocess.SubprocessError):
            self.close()
            raise

    def _up(self, cpus):
        for name in ('state', 'spool'):
            os.mkdir(f'{self.dir}/{name}')
        with open(os.open(f'{self.dir}/munge.key', os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as f:
            f.write(os.urandom(1024))
        port = free_port_pair()
        conf = f'{self.dir}/slurm.conf'
        with open(conf, 'w') as f:
            f.write(CONF.format(host=socket.gethostname(), port=port, port2=port + 1, dir=self.dir,
                                cpus=cpus))
        self.env = dict(os.environ, SLURM_CONF=conf)
        self._daemon('munged', ['/usr/sbin/munged', '--foreground', '--force', '--key-file',
                                f'{self.dir}/munge.key', '--socket', f'{self.dir}/munge.sock',
                                '--pid-file', f'{self.dir}/munged.pid', '--log-file',
                                f'{self.dir}/munged.log', '--seed-file', f'{self.dir}/munge.seed'])
        self._wait(lambda: os.path.exists(f'{self.dir}/munge.sock'), 'munged')
        self._daemon('slurmctld', ['/usr/sbin/slurmctld', '-D', '-f', conf])
        self._daemon('slurmd', ['/usr/sbin/slurmd', '-D', '-N', 'bench', '-f', conf])
        self._wait(lambda: b'idle' in self.run('/usr/bin/sinfo', '-h', '-o', '%T'), 'slurmctld')

    def _daemon(self, name, argv):
        with open(f'{self.dir}/{name}.out', 'wb') as out:
            self.daemons[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                                                  stderr=out, env=self.env, cwd=self.dir)

    def _wait(self, there, who, seconds=30):
        end = time.monotonic() + seconds
        while not there():
            if time.monotonic() > end or self.daemons[who].poll() is not None:
                with open(f'{self.dir}/{who}.out', errors='replace') as f:
                    words = f.read().strip().splitlines()[-1:]
                raise RuntimeError(f'Slurm: {who} did not come up: {" ".join(words)}')
            time.sleep(0.1)

    def run(self, *argv, seconds=60):
        return subprocess.run(argv, env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=seconds).stdout

    def pids(self):
        return {name: [d.pid] for name, d in self.daemons.items() if name != 'munged'}

    def close(self):
        for name in ('slurmd', 'slurmctld', 'munged'):
            daemon = self.daemons.pop(name, None)
            if daemon is None:
                continue
            daemon.terminate()
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
