#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Two machines that share nothing, on one network: each with a kernel and a root of its own
(tests/vm/emulated.py). The market and the home of a job of --files=home are on one. Its program and
its files exist there alone; it runs on the other, moves between both, is frozen and thawed, and
each byte that it writes is at home.

Usage: two_machines.py CACHE PAYLOAD LOGS KERNEL...: as of scripts/vm/run; both machines have the
first kernel, then the next. Exit 0 only if all passed; no QEMU is left, whichever way this ends."""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback

import emulated
from machines import until

ADDRESS = {"home": "10.99.0.1", "away": "10.99.0.2"}
TOP = "/home/alice/only-here"
START = 30  # seconds of a machine that is not emulated
ORDER = "marketctl --hold --wait 300s"
# This script does the work of the packages and of their administrator.
PREPARE = """
systemctl mask --runtime systemd-networkd-wait-online.service
systemd-sysusers /souk/systemd/sysusers.conf
systemd-tmpfiles --create /souk/systemd/tmpfiles.conf
for unit in souk-marketd souk-agentd; do
    sed s,/usr/local/sbin,/souk/bin, /souk/systemd/$unit.service > /etc/systemd/system/$unit.service
done
systemctl daemon-reload
systemctl enable -q souk-marketd souk-agentd
ln -s /souk/bin/* /usr/bin/
mkdir -p /etc/souk
"""
NODE = """node = "{name}"
listen = "{address}:7071"
market = "{market}:7070"
cgroup = "souk/{name}"
cpus = 1
memory_mb = 300
speed = {speed}
"""


class Two:
    def __init__(self, place, network, root, payload):
        self.home, self.away = (emulated.Fleeting(network, place, name, address, root, payload)
                                for name, address in ADDRESS.items())
        self.machines, self.began = [self.home, self.away], time.monotonic()
        # A machine ends with the thread that has started it (scripts/vm/emulator.py).
        self.threads = concurrent.futures.ThreadPoolExecutor(len(self.machines))

    def say(self, text):
        print(f"    [{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def boot(self):
        list(self.threads.map(lambda m: m.boot(), self.machines))
        self.say("both machines are up")

    def remove(self):
        for machine in self.machines:
            machine.remove()
        self.threads.shutdown()

    def until(self, what, predicate):
        return until(what, predicate, 30 * self.home.patience)

    def alice(self, command):
        return self.home.does(f"runuser -u alice -- sh -c 'cd {TOP}; {command}'")

    def job(self, id):
        return json.loads(self.home.does(f"marketctl job {id} --json"))

    def runs(self, id, where):
        def probe():
            job = self.job(id)
            assert job["status"] != "finish", (job, self.home.runs(f"cat {TOP}/complaints"))
            return job["status"] == "run" and job.get("where") == where and "going_to" not in job
        self.until(f"it runs on {where}", probe)
        rounds = self.rounds()
        self.until("it works there", lambda: self.rounds() > rounds + 3)

    def rounds(self):
        return int(self.home.does(f"cat {TOP}/log 2> /dev/null | wc -l"))


def make_market(t):
    for machine, speed in ((t.home, 50), (t.away, 100)):
        machine.does(f"set -e\n{PREPARE}", START)
        text = NODE.format(name=machine.name, address=machine.address, market=ADDRESS["home"],
                           speed=speed)
        machine.does(f"cat > /etc/souk/agentd.conf <<'END'\n{text}END")
    t.home.does(f"echo 'listen = \"{ADDRESS['home']}:7070\"' > /etc/souk/marketd.conf")
    said = t.home.does("souk setup market --nodes home,away", START)
    for machine in t.machines:
        line = re.search(rf"^on {machine.name}, within an hour: (souk setup node .*)$", said,
                         re.M)[1]
        machine.does(line, START)
        t.say(f"{machine.name} is a node")
    t.until("both are on the market", lambda: t.home.runs(
        "marketctl list-providers --json").count('"on_market":true') == 2)
    t.say("a market with certificates, of both machines")


def job_that_writes_at_home(t):
    t.home.does(f"mkdir {TOP} {TOP}/files && cp /souk/tests/vm/writes.py {TOP} && "
                f"cp $(realpath /usr/bin/python3) {TOP}/python && head -c 32 /dev/urandom > "
                f"{TOP}/seed && chown -R alice: {TOP}")
    before = t.away.does("find / -xdev -user alice | sort")
    assert "only-here" not in before
    id = t.alice("srun -p 40 --detach --files=home -o said -e complaints ./python "
                 "writes.py").strip()
    t.runs(id, "away")
    t.say("it runs away, where its files are not")
    for there in ("home", "away"):
        t.home.does(f"{ORDER} move {id} {there}")
        t.runs(id, there)
        t.say(f"moved to {there}, after {t.rounds()} rounds")
    for there in ("home", "away"):
        t.home.does(f"{ORDER} freeze {id}")
        t.until("it is frozen", lambda: t.job(id)["status"] == "suspend")
        t.home.does(f"{ORDER} thaw {id} {there}")
        t.runs(id, there)
        t.say(f"frozen, and thawed {there}, after {t.rounds()} rounds")
    t.home.does(f"touch {TOP}/enough")
    job = t.until("it has ended", lambda: (j := t.job(id))["status"] == "finish" and j)
    complaints = t.home.does(f"cat {TOP}/complaints")
    assert job.get("exit", 0) == 0 and not complaints, (job, complaints)
    assert job["failed_moves"] == 0 and job["migrations"] >= 2 and not job.get("resumes"), job
    assert job["files"] == "home" and job["files_received_bytes"] > 0, job
    said = t.home.does(f"cat {TOP}/said")
    all_of = t.alice(f"./python writes.py check {int(said)}").strip()
    after = t.away.does(f"find / -xdev -user alice | sort; ls -d {TOP} 2>&1 || true")
    assert after.startswith(before) and "No such file" in after[len(before):], after
    t.say(f"{all_of} of {int(said)} rounds are at home, and none away")


def test_on(cache, payload, logs, kernel):
    place = tempfile.mkdtemp(prefix="souk-two.", dir="/var/tmp")
    network, t = emulated.Switch(place), None
    emulated.Fleeting.kernel = f"{cache}/{kernel}"
    try:
        network.up()
        t = Two(place, network, f"{cache}/root.sqfs", payload)
        t.boot()
        make_market(t)
        job_that_writes_at_home(t)
        return True, False
    except (AssertionError, OSError, KeyError, TypeError):
        said = "".join(m.last_words() for m in t.machines) if t else ""
        print("    | " + (traceback.format_exc() + said).replace("\n", "\n    | "), flush=True)
        return False, bool(re.search(r"Kernel panic|Oops:|BUG: ", said))
    finally:
        if t:
            t.remove()
        for log in glob.glob(f"{place}/*.log"):
            shutil.copy(log, f"{logs}/{kernel}-{os.path.basename(log)}")
        network.down()
        shutil.rmtree(place, ignore_errors=True)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    cache, payload, logs, *kernels = sys.argv[1:]
    bad = 0
    for kernel in kernels:
        with open(f"{cache}/{kernel}/version", encoding="ascii") as version:
            print(f"== two machines that share nothing, kernel {version.read().strip()}",
                  flush=True)
        began = time.monotonic()
        passed, panicked = test_on(cache, payload, logs, kernel)
        if panicked:
            print("    a machine failed, not the test: tried once more", flush=True)
            passed, _ = test_on(cache, payload, logs, kernel)
        bad += not passed
        print(f"== {'passed' if passed else 'FAILED'}, {time.monotonic() - began:.0f} s",
              flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    sys.exit(main())
