# SPDX-License-Identifier: GPL-2.0-or-later
"""Three fresh machines become a market: what is typed, and how long it takes until the first job
has ended and is paid for, and until the first move. Then each machine is rebooted in order, and
loses its power, and each gets newer packages, under 20 jobs, of which nothing may be lost. At last
the market's machine is no more, and a fresh one goes on from a backup.

Usage: three.py BASE REPO NEWER TESTLOAD [KERNEL]: a tar of a root of Debian, the folder of an apt
repository, one with the same packages of a newer version, and the program that the jobs are, to run
unmoved. With KERNEL, a directory of what scripts/vm/fetch made, the machines are emulated
(tests/vm/emulated.py). Each step is a line with the seconds since the first word was typed."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from machines import Machine, Network, until

JOBS = 20
LIMIT = 120
STEPS = 2000  # of a job: each of them is printed
WORK = f"--steps {STEPS} --print-every 20 --digest --memory 4"
IDENTITY = "/var/lib/souk/marketd/identity"  # the market's keys


class Three:
    def __init__(self, place, network, kind, packages, testload):
        self.network, self.kind, self.typed, self.began = network, kind, [], time.monotonic()
        self.place, self.packages, self.testload = place, packages, testload
        self.limit, self.machines = LIMIT * kind.patience, []
        network.up()
        self.market, self.n1, self.n2 = (self.machine(name, i + 1) for i, name in
                                         enumerate(("m", "n1", "n2")))
        self.nodes = [self.n1, self.n2]

    def machine(self, name, number):
        """A fresh one, which is off."""
        made = self.kind(self.network, self.place, name, f"10.99.0.{number}", *self.packages)
        self.machines.append(made)
        return made

    def say(self, text):
        print(f"check-fresh: [{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def type(self, machine, command):
        """Types a command as a person does, and counts it."""
        job = command.startswith("srun ")
        self.typed.append(f"{machine.name}{'$' if job else '#'} {command}")
        return self.as_user(machine, command) if job else machine.does(command)

    def until(self, what, predicate):
        return until(what, predicate, self.limit)

    def connected(self):
        """Says whether both nodes are connected."""
        return self.market.runs(
            "marketctl list-providers --json").count('"connected":true') == 2

    def as_user(self, machine, command):
        return machine.does(f"runuser -u {machine.user} -- sh -c 'cd; {command}'")

    def jobs(self, *states):
        every = json.loads(self.market.does("marketctl list-jobs --state all --json"))
        return [j for j in every if not states or j["status"] in states]

    def job(self, id):
        return json.loads(self.market.does(f"marketctl job {id} --json"))


def from_packages_to_a_market(t):
    """Three lines, one on each machine; then the first job, and its first move."""
    said = t.type(t.market, "apt-get -q update && apt-get -q install -y souk-market souk-tools && "
                  "souk setup market --nodes n1,n2")
    t.say("the market runs, from packages")
    for node in t.nodes:
        line = re.search(rf"^on {node.name}, within an hour: (souk setup node .*)$", said, re.M)[1]
        t.type(node, "apt-get -q update && apt-get -q install -y souk-agent souk-tools souk-criu "
               f"&& {line}")
        t.say(f"{node.name} is a node of it")
        if node.user == "root":
            node.does("echo 'guest_uid_min = 0' >> /etc/souk/agentd.conf; systemctl restart "
                      "souk-agentd")
        # A program of theirs: an upgrade brings another testload.
        t.as_user(node, "cp /usr/bin/testload work")
    t.until("both nodes are on the market", lambda: t.market.runs(
        "marketctl list-providers --json").count('"on_market":true') == 2)
    print(t.market.does("marketctl list-providers"), end="")
    lines = len(t.typed)
    for node in t.nodes:
        t.type(node, "pvdctl set price 15")
    out = t.type(t.n1, "srun -p 40 sh -c \"sleep 1; echo hello from a job\"")
    assert out == "hello from a job\n", out
    first, = t.until("it is charged for",
                     lambda: json.loads(t.market.does("marketctl receipts --json")))
    assert first["paid"] == first["earned"] > 0, first
    done = time.monotonic() - t.began
    t.say(f"the first job has ended, and cost {first['paid']}")
    id = t.type(t.n1, f"srun -p 40 --detach testload {WORK} --until {t.n1.home}/go").strip()
    where = t.until("it runs", lambda: t.job(id).get("where"))
    there = "n2" if where == "n1" else "n1"
    t.type(t.market, f"marketctl move {id} {there} --hold")
    job = t.job(id)
    assert job["migrations"] >= 1, job
    moved = time.monotonic() - t.began
    t.say(f"the first move between machines, of {job['last_pause_ms']} ms")
    t.market.does(f"marketctl cancel {id}")
    assert not any(m.runs("command -v cc g++ make").strip() for m in t.machines), "compilers"
    t.say(f"{lines} lines typed to the market, {len(t.typed)} to the first move; "
          f"{done:.0f} s to the first paid job, {moved:.0f} s to the first move")
    for line in t.typed:
        print(f"    {line}")
    return done, moved


def submit_jobs(t, *options):
    """Submits jobs on both nodes, with places for some of them: others wait, or are frozen for
    them."""
    for node in t.nodes:
        t.as_user(node, "rm -rf out go; mkdir out")
        node.does("pvdctl set memory 512M")
    ids = []
    for i in range(JOBS):
        ids.append(t.as_user(
            t.nodes[i % 2], f"srun -p {40 + i} -m 64 --detach {' '.join(options)} -o out/{i} "
            f"--name job{i} ./work {WORK} --seed {i} --until {t.kind.home}/go").strip())
    t.until("some run", lambda: len(t.jobs("run")) >= 2)
    t.say(f"{JOBS} jobs: {len(t.jobs('run'))} run, {len(t.jobs('wait', 'suspend'))} wait or are "
          "frozen")
    return ids


def ids_in(jobs):
    return {job["id"] for job in jobs}


def end_whole(t, ids, what):
    """Lets all jobs end, and compares their output with that of a quiet machine."""
    for node in t.nodes:
        t.as_user(node, "touch go")
    until("all have ended", lambda: ids_in(t.jobs("finish")) >= set(ids), 600 * t.kind.patience)
    for i, id in enumerate(ids):
        job = t.job(id)
        assert job["status"] == "finish" and job.get("exit", 0) == 0, job
        out = t.nodes[i % 2].does(f"cat {t.kind.home}/out/{i}")
        wanted = subprocess.run([t.testload, *WORK.split(), "--seed", str(i)], check=True,
                                capture_output=True, text=True).stdout.splitlines()
        # A job that goes on from a checkpoint says so in a line, and then prints again what it has
        # printed since.
        lines = [line for line in out.splitlines()
                 if line and not line.startswith(f"souk: job {id} goes")]
        assert sorted(set(lines)) == sorted(set(wanted)), (id, lines[-3:], wanted[-3:])
        assert lines[-1] == wanted[-1], (id, lines[-1], wanted[-1])
    t.market.does("marketctl ledger verify")
    t.say(f"{what}: all {JOBS} jobs have ended with the output of unmoved ones; the ledger is "
          "whole")


def goes_on(t, ids, what):
    """Checks that the jobs go on as before, without help."""
    t.until(f"both nodes are there: {what}", t.connected)
    t.until(f"jobs run: {what}", lambda: len(t.jobs("run")) >= 2)
    lost = ids_in(t.jobs("finish")) & set(ids)
    assert not lost, lost
    t.say(f"{what}: {len(t.jobs('run'))} run, {len(t.jobs('wait', 'suspend'))} wait or are frozen")


def rebooted(t):
    """Reboots each machine in order. Jobs without a checkpoint lose nothing either, because they
    leave first."""
    ids = submit_jobs(t)
    for machine in t.machines:
        began = time.monotonic()
        machine.shut_down()
        down = time.monotonic() - began
        machine.boot()
        goes_on(t, ids, f"{machine.name} was rebooted (down in {down:.0f} s)")
    again = [id for id in ids if t.job(id).get("resumes", 0)]
    assert not again, again
    end_whole(t, ids, "reboots")


def without_power(t):
    ids = submit_jobs(t, "--checkpoint-every", f"{t.kind.checkpoint_s}s")
    for machine in t.machines:
        t.until("each that runs has a checkpoint",
                lambda: all(t.job(j["id"]).get("checkpoint_node") for j in t.jobs("run")))
        machine.power_off()
        machine.boot()
        goes_on(t, ids, f"{machine.name} was without power")
    end_whole(t, ids, "losses of power")


def upgraded(t):
    ids = submit_jobs(t)
    for machine in t.machines:
        machine.does("rm -rf /srv/souk && mv /srv/newer /srv/souk")
        old = machine.does("dpkg-query -W souk-tools")
        machine.does("apt-get -q update && apt-get -q upgrade -y")
        new = machine.does("dpkg-query -W souk-tools")
        assert new != old, "not upgraded"
        goes_on(t, ids, f"{machine.name} was upgraded from {old.split()[1]} to {new.split()[1]}")
    again = [id for id in ids if t.job(id).get("resumes", 0)]
    assert not again, again
    end_whole(t, ids, "upgrades")


def proof(machine):
    return json.loads(machine.does("marketctl ledger verify --json"))


def restored(t):
    """The market's machine is no more: a fresh one with its keys, and the books of a backup."""
    running = t.as_user(t.n1, f"srun -p 40 -m 64 --detach ./work {WORK} --until "
                        f"{t.kind.home}/never").strip()
    t.until("it runs", lambda: t.jobs("run"))
    t.market.does("marketctl backup /var/backups/souk/m.db")
    before = proof(t.market)
    # The keeper of the market has this backup on a disk elsewhere.
    kept = {"/var/backups/souk/m.db": t.market.does("base64 -w 0 /var/backups/souk/m.db"),
            "/keys": t.market.does(f"tar -C {IDENTITY} -c . | base64 -w 0")}
    t.market.remove()
    t.machines.remove(t.market)
    fresh = t.machine("m-new", 1)
    fresh.boot()
    fresh.does("apt-get -q update && apt-get -q install -y souk-market souk-tools && "
               f"systemctl stop souk-marketd && mkdir -p {IDENTITY}")
    for file, content in kept.items():
        for part in range(0, len(content), 60_000):
            fresh.does(f"echo {content[part:part + 60_000]} | tr -d '\\n' >> {file}.64")
        fresh.does(f"base64 -d {file}.64 > {file}; rm {file}.64")
    fresh.does(f"tar -C {IDENTITY} -xp < /keys && marketctl restore /var/backups/souk/m.db && "
               "systemctl start souk-marketd")
    t.market = fresh
    t.until("both nodes are on the fresh machine's market", t.connected)
    t.until("the job is known there", lambda: t.job(running)["status"] == "run")
    after = proof(fresh)
    assert after["receipts"] >= before["receipts"] > 0, (before, after)
    fresh.does("marketctl ledger verify --db /var/backups/souk/m.db")
    fresh.does(f"marketctl cancel {running}")
    t.say(f"a fresh machine goes on with the books of a backup: {after['receipts']} receipts")


PARTS = {part.__name__: part for part in (rebooted, without_power, upgraded, restored)}


def main():
    base, repo, newer, testload, *kernel = (os.path.abspath(word) for word in sys.argv[1:])
    place = tempfile.mkdtemp(prefix="souk-fresh.", dir="/var/tmp")
    network, kind = Network(f"sf{os.getpid()}"), Machine
    if kernel:
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../vm"))
        import emulated
        network, kind = emulated.Switch(place), emulated.Emulated
        kind.kernel = kernel[0]
    t = None
    try:
        t = Three(place, network, kind, (base, repo, newer), testload)
        for machine in t.machines:
            machine.boot()
        t.began = time.monotonic()
        from_packages_to_a_market(t)
        for name in os.environ.get("FRESH_PARTS", " ".join(PARTS)).split():
            PARTS[name](t)
    except BaseException:
        for machine in t.machines if t else []:
            print(f"---- {machine.name}\n{machine.last_words()}", file=sys.stderr)
        raise
    finally:
        for machine in t.machines if t else []:
            machine.remove()
        network.down()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    main()
