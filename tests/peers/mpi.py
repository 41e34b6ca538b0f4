#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""mpi.py [--suites NAME,...] [--ways NAME,...] [--every SECONDS] [--freezes N] [--seconds N]
[--mpich DIR]: programs of MPI as gangs of four components with two ranks each, on four nodes:
unmoved, and with a move of a random component each second and the whole gang frozen to disk and
thawed a few times. A table on standard output; exit 0 if all passed.

- scalapack: four of ScaLAPACK's own tests (Debian's, by Open MPI): factorizations and linear
  systems. Each compares what it has computed with what that must be.
- loop: sums of all ranks, again and again (mpi4py, Open MPI). The sums must be the same in every
  bit; how long each took says how long the gang stood, beside the pauses that the market told.
- mpich: MPICH's own tests of pt2pt, comm and coll from DIR (scripts/check-mpi builds them), by its
  own launcher.

Run by hand, as root: `make check-mpi`."""
import argparse
import glob
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster"), os.path.join(HERE, "..")]
from conftest import BIN, Late, Market, gang, until  # noqa: E402
from ending import is_left  # noqa: E402

COMPONENTS, RANKS = 4, 2  # of each
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1"}  # 8 ranks may share a CPU
MPIRUN = ("--exec", "mpirun.openmpi", "--mca", "plm_rsh_agent", f"{BIN}/souk-exec --shell",
          "--mca", "orte_tmpdir_base", "/dev/shm", "--host")  # as srun --mpi, with more ranks
HYDRA = ("HYDRA_LAUNCHER=rsh", f"HYDRA_LAUNCHER_EXEC={BIN}/souk-exec",
         "HYDRA_LAUNCHER_EXTRA_ARGS=--shell")
HOSTS = ",".join(f"c{n}:{RANKS}" for n in range(COMPONENTS))
MPI = (*MPIRUN, HOSTS, "-np", str(COMPONENTS * RANKS))

SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests"
DRIVERS = ("xdlu", "xdqr", "xdllt", "xzlu")
COUNTS = re.compile(r"^ *(?:Finished +\d+ tests|\d+ tests completed).*$", re.M)

# Each sum depends on all sums before it. Rounds that took longer than 20 ms are noted: when they
# ended, and how long they took.
LOOP = """
import hashlib, sys, time
import numpy
from mpi4py import MPI
world, digest, late, n = MPI.COMM_WORLD, hashlib.sha256(), [], 0
own = numpy.arange(1000, dtype=float) * (world.rank + 1) / 7
while n < int(sys.argv[1]):
    begun = time.time()
    total = numpy.empty_like(own)
    world.Allreduce(own, total)
    own = numpy.sin(total + world.rank)
    digest.update(total.tobytes())
    end = time.time()
    if end - begun > 0.02:
        late.append((end, end - begun))
    n += 1
    time.sleep(0.005)
everybody = world.gather((digest.hexdigest(), late))
if world.rank == 0:
    print("sums", len({d for d, _ in everybody}), everybody[0][0], flush=True)
    for _, late in everybody:
        for end, took in late:
            print(f"late {end:.6f} {took:.6f}")
"""

MPICH = """
cd @DIR@
for list in pt2pt/testlist comm/testlist coll/testlist; do
    dir=${list%/*}
    while read -r name ranks more; do
        case "$name$more" in ''|\\#*|*xfail=*) continue ;; esac
        [ -x $dir/$name ] || { echo "not built: $dir/$name"; continue; }
        [ "$ranks" -le @RANKS@ ] || continue
        words= set= limit=
        for word in $more; do
            case $word in
            arg=*) words="$words ${word#arg=}" ;;
            env=*) set="$set ${word#env=}" ;;
            timeLimit=*) limit=${word#timeLimit=} ;;
            esac
        done
        case $words in *test/mpi/*) continue ;; esac
        # Its own threads for progress, on CPUs by number: there are no spare ones here.
        case $set in *ASYNC_PROGRESS*) continue ;; esac
        (cd $dir && env $set timeout ${limit:-180} mpiexec.mpich -localhost c0 -hosts @HOSTS@ \\
            -genvlist PATH -n $ranks ./$name $words) < /dev/null > @TMP@/said 2>&1
        if grep -q '^ *No Errors' @TMP@/said; then
            echo "pass $dir/$name $ranks"
        else
            echo "FAIL $dir/$name $ranks$words"; tail -5 @TMP@/said
        fi
    done < $list
done | tee @TMP@/results
echo "passed $(grep -c ^pass @TMP@/results)"
! grep -q ^FAIL @TMP@/results
"""


def scalapack_result(said):
    return COUNTS.findall(said)


def loop_result(said):
    return [line for line in said.splitlines() if line.startswith("sums")]


def suites(options, top):
    """Name, arguments of srun, what it must have computed."""
    for driver in DRIVERS:
        yield driver, [*MPI, f"{SCALAPACK}/{driver}"], scalapack_result
    with open(f"{top}/loop.py", "w", encoding="utf-8") as f:
        f.write(LOOP)
    rounds = str(options.seconds * 50)
    yield "loop", [*MPI, "/usr/bin/python3", f"{top}/loop.py", rounds], loop_result
    if options.mpich:
        script = MPICH
        for key, value in (("DIR", os.path.realpath(options.mpich)), ("TMP", "$PWD_"),
                           ("HOSTS", HOSTS), ("RANKS", str(COMPONENTS * RANKS))):
            script = script.replace(f"@{key}@", value)
        script = "PWD_=$PWD\n" + script
        yield "mpich", ["--exec", "env", *HYDRA, "sh", "-c", script], lambda _: None


class Trouble(threading.Thread):
    """Moves of random components, and freezes of the gang, until `over`."""

    def __init__(self, market, first, options):
        super().__init__(daemon=True)
        self.market, self.first, self.options = market, first, options
        self.over, self.random = threading.Event(), random.Random(1)
        self.moves, self.frozen = 0, []  # of a freeze: when it began and when all ran again

    def run(self):
        next_freeze = time.monotonic() + self.options.seconds / (self.options.freezes + 1)
        while not self.over.wait(self.options.every):
            try:
                if len(self.frozen) < self.options.freezes and time.monotonic() > next_freeze:
                    self.freeze()
                    next_freeze = (time.monotonic() +
                                   self.options.seconds / (self.options.freezes + 1))
                    continue
                job = self.random.choice(gang(self.market, self.first))
                others = [n for n in self.market.nodes() if n != job["where"]]
                self.market.tool("marketctl", "--hold", "move", job["id"],
                                 self.random.choice(others))
                self.moves += 1
            except (AssertionError, RuntimeError, subprocess.SubprocessError, OSError) as e:
                if not self.over.is_set():
                    print(f"  {str(e)[-200:]}", file=sys.stderr)

    def freeze(self):
        begun = time.time()
        jobs = [j["id"] for j in gang(self.market, self.first)]
        for job in jobs:
            self.market.tool("marketctl", "release", job, check=False)
        self.market.tool("marketctl", "--hold", "freeze", jobs[0])
        self.until_all("suspend")
        for job in jobs:
            self.market.tool("marketctl", "release", job, check=False)
        self.until_all("run")
        self.frozen.append((begun, time.time()))

    def until_all(self, status):
        until(f"all {status}", lambda: all(
            j["status"] in (status, "finish") for j in gang(self.market, self.first)), 60)


def pauses_of(market, first):
    """The pauses of all moves that the stories of the gang still have, in ms, shortest first."""
    every = []
    for job in gang(market, first):
        told = json.loads(market.tool("marketctl", "--json", "job", job["id"], "--story").stdout)
        every += [s["pause_ms"] for s in told["steps"] if s["step"] == "moved"]
    return sorted(every)


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def stalls_of(said, frozen):
    """How long rounds took that were late and have no part in a freeze, in ms; of rounds that
    several ranks saw late at once the longest."""
    late = sorted((float(end), float(took)) for end, took in
                  re.findall(r"^late (\S+) (\S+)$", said, re.M))
    rounds = []
    for end, took in late:
        if any(begun < end and end - took < over for begun, over in frozen):
            continue
        if rounds and end - rounds[-1][0] < 0.02:
            rounds[-1] = (end, max(took, rounds[-1][1]))
        else:
            rounds.append((end, took))
    return [took * 1e3 for _, took in rounds]


def waits_of(said, frozen):
    """After a thaw: when the round that met the freeze was over, counted from the moment at which
    all ran, as the market told it, in ms; of each freeze the last rank's."""
    late = [(float(end), float(took)) for end, took in
            re.findall(r"^late (\S+) (\S+)$", said, re.M)]
    ends = [[end - over for end, took in late if end - took < over and end > begun]
            for begun, over in frozen]
    return [max(0, max(of_one)) * 1e3 for of_one in ends if of_one]


def run(market, top, suite, way, options):
    name, words, result = suite
    where = os.path.join(top, f"{name}-{way}")
    os.mkdir(where)
    for data in glob.glob(f"{SCALAPACK}/*.dat"):
        shutil.copy(data, where)
    begin = time.monotonic()
    job = market.srun("-p", 50, "--node", "n1", "-N", COMPONENTS, "-m", "400M", *words, cwd=where)
    first = job.said(r"^srun: job (\S+): \d+ components$")[1]
    until("all run", lambda: [j["status"] for j in gang(market, first)] == ["run"] * COMPONENTS)
    trouble = Trouble(market, first, options)
    if way == "moves":
        trouble.start()
    try:
        status = job.wait(options.limit)
    except Late as late:
        status = str(late)[:200]
        market.tool("marketctl", "cancel", first)
    finally:
        trouble.over.set()
        if trouble.ident:
            trouble.join(120)
    said = bytes(job.out).decode(errors="replace")
    return {"status": status, "seconds": round(time.monotonic() - begin),
            "moves": sum(j["migrations"] for j in gang(market, first)),
            "freezes": len(trouble.frozen), "pauses": pauses_of(market, first),
            "stalls": stalls_of(said, trouble.frozen) if name == "loop" else None,
            "waits": waits_of(said, trouble.frozen) if name == "loop" else None,
            "result": result(said) if status == 0 else None,
            "said": said + "\n".join(job.told[-8:])}


def show(name, way, row, same):
    good = row["status"] == 0 and same
    print(f"{name:6} {way:8} {'pass' if good else 'FAIL':5} {row['seconds']:4} s, "
          f"{row['moves']} moves, {row['freezes']} freezes of the gang", flush=True)
    for what, values in (("pauses told", row["pauses"]), ("rounds above 20 ms", row["stalls"]),
                         ("rounds that met a freeze ended after the thaw", row["waits"])):
        if values:
            print(f"       {what}: {len(values)}, median {quantile(values, 0.5):.0f} ms, "
                  f"p99 {quantile(values, 0.99):.0f} ms, longest {max(values):.0f} ms")
    if row["result"]:
        print("       " + "; ".join(row["result"])[:300])
    if not good or name == "mpich":
        said = re.sub(r"(?m)^late .*\n", "", row["said"])
        print("    " + said[-3000:].replace("\n", "\n    "), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[1])
    parser.add_argument("--suites", default="scalapack,loop,mpich")
    parser.add_argument("--ways", default="unmoved,moves")
    parser.add_argument("--every", type=float, default=1, metavar="SECONDS",
                        help="from the end of a move to the next")
    parser.add_argument("--freezes", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=40,
                        help="about how long the loop runs; freezes are spread over it")
    parser.add_argument("--limit", type=int, default=1800)
    parser.add_argument("--mpich", metavar="DIR")
    options = parser.parse_args()
    lacking = [tool for tool in (f"{SCALAPACK}/xdlu", "mpirun.openmpi", "mpiexec.mpich")
               if not shutil.which(tool)]
    if os.geteuid() != 0 or lacking:
        sys.exit(f"mpi.py: {f'there is no {shlex.join(lacking)}' if lacking else 'run it as root'}")
    bad = 0
    market = Market("--nodes", "4", "--cpus", "2")  # room for two components, so that they move
    market.env.update(OPEN_MPI)
    top = tempfile.mkdtemp(prefix="souk-mpi-", dir="/var/tmp")
    try:
        market.up()
        for suite in suites(options, top):
            expected = None
            kind = "scalapack" if suite[0] in DRIVERS else suite[0]
            for way in options.ways.split(",") if kind in options.suites.split(",") else []:
                row = run(market, top, suite, way, options)
                expected = row["result"] if expected is None else expected
                bad += not show(suite[0], way, row, row["result"] == expected)
    finally:
        left = is_left(market, top)
    sys.exit(1 if bad or left else 0)


if __name__ == "__main__":
    main()
