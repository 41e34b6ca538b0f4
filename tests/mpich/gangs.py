# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests as gangs of one market: a component for each process of MPI, started by MPICH's own
launcher, unmoved or while random components move."""
import collections
import glob
import json
import os
import random
import shutil
import threading
import time

import suite
from conftest import BIN, Late, Market, Standing, until

HYDRA = ("HYDRA_LAUNCHER=rsh", f"HYDRA_LAUNCHER_EXEC={BIN}/souk-exec",
         "HYDRA_LAUNCHER_EXTRA_ARGS=--shell",
         # hwloc's asks for ten displays by TCP otherwise, one after another. What is asked while a
         # job moves is asked again after a second: with a move each second it never ends.
         "HWLOC_COMPONENTS=-gl")
# Runs a test again until so many seconds are over, and says how often.
ROUNDS = """
end=$(($(date +%s) + $1)) rounds=0
shift
while "$@" || exit; do
    rounds=$((rounds + 1))
    [ "$(date +%s)" -lt $end ] || break
done
echo "rounds: $rounds"
"""


class Mover(threading.Thread):
    """Orders a move of a random component that runs, at once and then each `every` seconds, until
    `over`. The same one has `rest` between two: who begins a connection within a component that
    moves just then tries again a second later (docs/network.md), and who is moved each second would
    try for ever."""
    rest = 2

    def __init__(self, market, ids, seed, every):
        super().__init__(daemon=True)
        self.market, self.ids, self.every = market, ids, every
        self.random, self.over, self.refused = random.Random(seed), threading.Event(), []
        self.moved_at = {}

    def run(self):
        while not self.over.is_set():
            rested = [i for i in self.ids if time.monotonic() > self.moved_at.get(i, 0) + self.rest]
            job = self.market.job(self.random.choice(rested)) if rested else {}
            if job.get("status") != "run" or "going_to" in job:
                self.over.wait(0.05)
                continue
            if not (others := [n for n in self.free() if n != job["where"]]):
                continue
            done = self.market.tool("marketctl", "--hold", "move", job["id"],
                                    self.random.choice(others), check=False)
            if done.returncode != 0 and not done.stderr.strip().endswith("is finished"):
                self.refused.append(done.stderr.strip()[-200:])
            self.moved_at[job["id"]] = time.monotonic()
            self.over.wait(self.every)

    def free(self):
        """Nodes with room for one more, as the market knows it: to a full one it would move another
        component as well, and freeze the gang for that."""
        taken = collections.Counter()
        for job in self.market.ctl("marketctl", "list-jobs"):
            taken.update({job.get("where"), job.get("going_to")})
        return [p["node"] for p in self.market.providers() if taken[p["node"]] < p["cpus"]]


class Gangs(Standing):
    """A market that has half as much room again as the largest gang needs. (A node offers no more
    CPUs than this machine has.)"""

    def __init__(self, options, top):
        self.options, self.top = options, top
        processors = min(os.cpu_count() or 1, 4)
        nodes = options.nodes or max(4, -(-options.processes * 3 // (2 * processors)))
        self.market = Market("--nodes", nodes, "--cpus", processors, "--memory", 8 * 1024)

    def run(self, test, mode):
        """Runs a test, and returns how it went: {"result": pass or fail, "why", "seconds", "moves",
        "pauses", ...}"""
        where = f"{self.top}/{mode}"
        shutil.rmtree(where, ignore_errors=True)
        os.makedirs(where)
        shutil.copy2(test.program, where)
        begun = time.monotonic()
        job = self.market.srun("-p", 50, "--name", os.path.basename(test.name),
                               "-N", test.processes, "-m", self.options.memory,
                               *self.command(test, mode), cwd=where)
        row = {"moves": 0, "pauses": [], "refused": []}
        try:
            status = self.watch(test, mode, job, row)
        except (Late, AssertionError) as e:
            status = str(e)[:300]
        finally:
            job.end()
            self.market.jobs_here.remove(job)
        said = bytes(job.out).decode(errors="replace")
        row["why"] = suite.verdict(status, said) or ""
        row["rounds"] = suite.rounds(said)
        row["result"] = "fail" if row["why"] else "pass"
        row["seconds"] = round(time.monotonic() - begun, 1)
        if row["why"]:
            row["said"] = [*said.splitlines()[-6:], *job.told[-6:], *job.words[-3:]]
            self.keep_logs(test, mode)
        return row

    def keep_logs(self, test, mode):
        """Copies the logs that the daemons have written so far."""
        if not self.options.logs:
            return
        where = f"{self.options.logs}/{test.name.replace('/', '-')}-{mode}"
        os.makedirs(where, exist_ok=True)
        for path in glob.glob(f"{self.market.run_dir}/*/log"):
            shutil.copy(path, f"{where}/{os.path.basename(os.path.dirname(path))}.log")

    def command(self, test, mode):
        seconds = self.options.seconds if mode == "moved" else 0
        hosts = ",".join(f"c{n}" for n in range(test.processes))
        set_for_all = [word for name, value in test.variables for word in ("-genv", name, value)]
        return ["--exec", "env", *HYDRA, "sh", "-c", ROUNDS, "sh", seconds,
                "mpiexec.mpich", "-localhost", "c0", "-hosts", hosts,
                "-genvlist", "PATH,HWLOC_COMPONENTS", *set_for_all, "-n", test.processes,
                f"./{os.path.basename(test.name)}", *test.arguments]

    def watch(self, test, mode, job, row):
        """Waits for the end of the job and returns its status. A job that is late is cancelled."""
        limit, ids = max(self.options.limit, test.seconds), []
        first = job.said(r"^srun: job ([^\s:]+)")[1]
        mover = None
        try:
            ids = until("the market knows them", lambda: self.components(first, test.processes))
            if mode == "moved":
                mover = Mover(self.market, ids, f"{self.options.seed} {test.label}",
                              self.options.every)
                mover.start()
            return job.wait(limit)
        finally:
            if mover:
                mover.over.set()
                mover.join(60)
                row["refused"] = mover.refused
            if job.process.poll() is None:
                self.look(first, row)
                self.market.tool("marketctl", "cancel", first, check=False)
            for id in ids:
                self.count(id, row)

    def components(self, first, count):
        found = [j["id"] for j in self.market.list_jobs() if first in (j.get("gang"), j["id"])]
        return sorted(found) if len(found) == count else None

    def count(self, id, row):
        """The moves of a component that has ended, and those pauses in ms that its story has."""
        done = self.market.tool("marketctl", "--json", "job", id, "--story", check=False)
        if done.returncode != 0:
            return
        told = json.loads(done.stdout)
        row["moves"] += self.market.job(id).get("migrations", 0)
        row["pauses"] += [s["pause_ms"] for s in told["steps"] if s["step"] == "moved"]

    def look(self, first, row):
        """Notes the visible state of a gang that is late, before it is cancelled."""
        told = self.market.tool("marketctl", "list-jobs", check=False)
        row["late"] = told.stdout.splitlines()[:12]
        if self.options.stop:
            print(f"{first} stands still under {self.market.run_dir}; a line goes on", flush=True)
            input()
