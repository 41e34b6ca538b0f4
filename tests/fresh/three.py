# SPDX-License-Identifier: GPL-2.0-or-later
"""Three fresh machines become a market: what is typed, and how long it takes until the first job
has ended and is paid for, and until the first move. Then each machine is rebooted, and each gets
newer packages, under 20 jobs, of which nothing may be lost.

Usage: three.py BASE REPO NEWER: a tar of a root of Debian, the folder of an apt repository, and one
with the same packages of a newer version. Each step is a line with the seconds since the first word
was typed."""
import json
import os
import re
import shutil
import sys
import tempfile
import time

from machines import Machine, Network, read, until

JOBS = 20
LIMIT = 120
STEPS = 2000  # of a job: each of them is printed
WORK = f"testload --steps {STEPS} --print-every 20 --digest --memory 4"


class Three:
    def __init__(self, place, base, repo, newer):
        self.newer, self.typed, self.began = newer, [], 0
        self.network = Network(f"sf{os.getpid()}")
        self.network.up()
        self.machines = []
        for i, name in enumerate(("m", "n1", "n2")):
            self.machines.append(Machine(self.network, place, name, f"10.99.0.{i + 1}", base, repo))
        self.market, self.n1, self.n2 = self.machines
        self.nodes = self.machines[1:]

    def say(self, text):
        print(f"check-fresh: [{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def type(self, machine, command):
        """As a person does: it counts."""
        self.typed.append(f"{machine.name}# {command}")
        return machine.does(command)

    def jobs(self, *states):
        every = json.loads(self.market.does("marketctl list-jobs --state all --json"))
        return [j for j in every if not states or j["status"] in states]

    def job(self, id):
        return json.loads(self.market.does(f"marketctl job {id} --json"))

    def remove(self):
        for machine in self.machines:
            machine.remove()
        self.network.down()


def from_packages_to_a_market(t):
    """Three lines, one on each machine; then the first job, and its first move."""
    t.began = time.monotonic()
    said = t.type(t.market, "apt-get -q update && apt-get -q install -y souk-market souk-tools && "
                  "souk setup market --nodes n1,n2")
    t.say("the market runs, from packages")
    for node in t.nodes:
        line = re.search(rf"^on {node.name}, within an hour: (souk setup node .*)$", said, re.M)[1]
        t.type(node, "apt-get -q update && apt-get -q install -y souk-agent souk-tools souk-criu "
               f"&& {line}")
        t.say(f"{node.name} is a node of it")
        # Here jobs are root's: without CAP_SYS_RESOURCE those of nobody else can move.
        node.does("echo 'guest_uid_min = 0' >> /etc/souk/agentd.conf; systemctl restart "
                  "souk-agentd")
    until("both nodes are on the market", lambda: t.market.runs(
        "marketctl list-providers").count("on market") == 2 or t.market.runs(
        "marketctl list-providers --json").count('"on_market":true') == 2, LIMIT)
    print(t.market.does("marketctl list-providers"), end="")
    lines = len(t.typed)
    for node in t.nodes:
        t.type(node, "pvdctl set price 15")
    out = t.type(t.n1, "srun -p 40 sh -c 'sleep 1; echo hello from a job'")
    assert out == "hello from a job\n", out
    first, = until("it is charged for",
                   lambda: json.loads(t.market.does("marketctl receipts --json")), LIMIT)
    assert first["paid"] == first["earned"] > 0, first
    done = time.monotonic() - t.began
    t.say(f"the first job has ended, and cost {first['paid']}")
    id = t.type(t.n1, f"srun -p 40 --detach {WORK} --until /root/go").strip()
    where = until("it runs", lambda: t.job(id).get("where"), LIMIT)
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


def submit_jobs(t):
    """On both nodes, with places for some of them: others wait, or are frozen for them."""
    for node in t.nodes:
        node.does("rm -rf /root/out /root/go; mkdir /root/out; pvdctl set memory 512M")
    ids = []
    for i in range(JOBS):
        node = t.nodes[i % 2]
        ids.append(node.does(
            f"srun -p {40 + i} -m 64 --detach --checkpoint-every 2s -o /root/out/{i} --name job{i} "
            f"{WORK} --seed {i} --until /root/go").strip())
    until("some run", lambda: len(t.jobs("run")) >= 2, LIMIT)
    return ids


def end_whole(t, ids, what):
    """All end with what they print alone on a quiet machine."""
    for node in t.nodes:
        node.does("touch /root/go")
    until("all have ended", lambda: not t.jobs("run", "wait", "suspend"), 600)
    for i, id in enumerate(ids):
        job = t.job(id)
        assert job["status"] == "finish" and job.get("exit", 0) == 0, job
        out = read(f"{t.nodes[i % 2].root}/root/out/{i}")
        alone = t.market.does(f"{WORK} --seed {i}")
        # From a checkpoint it goes on, and a line says so: what was printed since stands there
        # twice.
        lines = [line for line in out.splitlines()
                 if line and not line.startswith(f"souk: job {id} goes")]
        wanted = alone.splitlines()
        assert sorted(set(lines)) == sorted(set(wanted)), (id, lines[-3:], wanted[-3:])
        assert lines[-1] == wanted[-1], (id, lines[-1], wanted[-1])
    t.market.does("marketctl ledger verify")
    t.say(f"{what}: all {JOBS} jobs have ended with the output of unmoved ones; the ledger is "
          "whole")


def rebooted(t):
    ids = submit_jobs(t)
    t.say(f"{JOBS} jobs: {len(t.jobs('run'))} run, {len(t.jobs('wait', 'suspend'))} wait or are "
          "frozen")
    until("each that runs has a checkpoint",
          lambda: all(t.job(j["id"]).get("checkpoint_node")
                      for j in t.jobs("run")), LIMIT)
    for machine in t.machines:
        machine.reboot()
        until(f"{machine.name} is back", lambda: t.market.runs(
            "marketctl list-providers --json").count('"connected":true') == 2, LIMIT)
        until("jobs run again", lambda: len(t.jobs("run")) >= 2, LIMIT)
        lost = [j for j in t.jobs("finish") if j["id"] in ids]
        assert not lost, lost
        t.say(f"{machine.name} was rebooted: {len(t.jobs('run'))} run, "
              f"{len(t.jobs('wait', 'suspend'))} wait or are frozen")
    end_whole(t, ids, "reboots")


def upgraded(t):
    ids = submit_jobs(t)
    for machine in t.machines:
        shutil.rmtree(f"{machine.root}/srv/souk")
        shutil.copytree(t.newer, f"{machine.root}/srv/souk")
        machine.does("apt-get -q update && apt-get -q upgrade -y")
        assert "+upgrade" in machine.does("dpkg-query -W souk-tools"), "not upgraded"
        until("it is back", lambda: t.market.runs(
            "marketctl list-providers --json").count('"connected":true') == 2, LIMIT)
        until("jobs run", lambda: len(t.jobs("run")) >= 2, LIMIT)
        t.say(f"{machine.name} was upgraded: {len(t.jobs('run'))} run, "
              f"{len(t.jobs('wait', 'suspend'))} wait or are frozen")
    again = [id for id in ids if t.job(id).get("resumes", 0)]
    assert not again, again
    end_whole(t, ids, "upgrades")


def main():
    base, repo, newer = (os.path.abspath(word) for word in sys.argv[1:])
    place = tempfile.mkdtemp(prefix="souk-fresh.", dir="/var/tmp")
    t = Three(place, base, repo, newer)
    try:
        for machine in t.machines:
            machine.boot()
        from_packages_to_a_market(t)
        rebooted(t)
        upgraded(t)
    except BaseException:
        for machine in t.machines:
            if machine.pid:
                print(f"---- {machine.name}\n" + machine.runs(
                    "systemctl --failed --no-legend; journalctl -n 25 --no-pager -o cat "
                    "-u souk-marketd -u souk-agentd; pvdctl guests"), file=sys.stderr)
        raise
    finally:
        t.remove()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
