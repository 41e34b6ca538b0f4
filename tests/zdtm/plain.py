# SPDX-License-Identifier: GPL-2.0-or-later
"""A test under plain CRIU, as the suite runs it: dump, restore, so often, and once a dump that
leaves it running. PID 1 of namespaces of its own (run.py makes them); prints what came of it as
JSON."""
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time


class Bad(Exception):
    pass


def errors(path):
    """CRIU's first error in this log; not that it may not raise its limits, which it says and goes
    on."""
    try:
        with open(path, errors="replace") as f:
            found = [line for line in f
                     if "Error (" in line and "RLIMIT_NOFILE for self" not in line]
    except OSError:
        return ""
    return re.sub(r"^\(\d+\.\d+\)\s*", "", found[0].strip())[:300] if found else ""


def tree(root):
    """The processes from that one on."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    parents.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]),
                                       []).append(int(name))
            except OSError:
                pass
    pids = [root]
    for pid in pids:
        pids += parents.get(pid, [])
    return pids


def reap(pids, limit):
    """Waits until these are dead and their ids are free: what CRIU has dumped dies as a child of
    PID 1, us."""
    end = time.monotonic() + limit
    while any(os.path.exists(f"/proc/{p}") for p in pids):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        if time.monotonic() > end:
            raise Bad("what was dumped does not die")
        time.sleep(0.002)


class Plain:
    def __init__(self, plan):
        self.plan, self.images, self.number = plan, "/run/images", 0
        self.pidfile = f"{plan['where']}/{plan['name']}.pid"

    def criu(self, verb, *options):
        directory = f"{self.images}/{self.number}"
        os.makedirs(directory, exist_ok=True)
        log = f"{directory}/{verb}.log"
        argv = [self.plan["criu"], verb, "-D", directory, "-o", log, "-v2", "--network-lock",
                "nftables", *options]
        try:
            done = subprocess.run(argv, cwd=self.plan["where"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=self.plan["limit"])
        except subprocess.TimeoutExpired:
            raise Bad(f"{verb}: no end within {self.plan['limit']} s") from None
        return (None if done.returncode == 0
                else errors(log) or f"criu {verb} exited {done.returncode}")

    def pid(self):
        with open(self.pidfile) as f:
            return int(f.read())

    def start(self):
        env = {"PATH": os.environ["PATH"], "HOME": "/root", **self.plan["environment"]}
        try:
            done = subprocess.run(self.plan["command"], cwd=self.plan["where"], env=env,
                                  stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=self.plan["limit"])
        except subprocess.TimeoutExpired:
            raise Bad("does not start") from None
        if done.returncode != 0 or not os.path.exists(self.pidfile):
            raise Bad("does not start")

    def hop(self):
        """Why the dump was refused, or nothing when it runs again."""
        self.number += 1
        pids = tree(self.pid())
        if why := self.criu("dump", "-t", str(pids[0]), *self.plan["dump"]):
            return why
        reap(pids, self.plan["limit"])
        os.unlink(self.pidfile)
        if why := self.criu("restore", "-d", "--pidfile", self.pidfile, *self.plan["restore"]):
            raise Bad(f"restore: {why}")
        return None

    def stop(self):
        pid = self.pid()
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + self.plan["limit"]
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                raise Bad("does not end after SIGTERM")
            time.sleep(0.005)

    def run(self):
        refused = None
        self.start()
        for i in range(self.plan["moves"]):
            refused = refused or self.hop()
            if i == 0 and not refused:
                self.number += 1
                refused = self.criu("dump", "-t", str(self.pid()), "--leave-running",
                                    *self.plan["dump"])
        self.stop()
        return refused


def main():
    plan = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/run", b"tmpfs", 0, None) != 0:
        sys.exit("cannot mount a tmpfs")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        result = {"refused": Plain(plan).run()}
    except (Bad, OSError) as e:
        result = {"failed": str(e)}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
