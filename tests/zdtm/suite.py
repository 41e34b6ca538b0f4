# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the description of each test in CRIU's test suite: program, arguments, options. It also
reads the verdict that a test writes."""
import ast
import os
import platform
import shutil
import subprocess

# Every test gets these variables. ZDTM_DELTA: seconds that the test `poll` may live; by itself it
# fails after 5 of the wall clock.
ENVIRONMENT = {"TMPDIR": "/tmp", "ZDTM_DELTA": "3600"}


class Test:
    def __init__(self, root, name, speaks_ip, arguments):
        self.name, self.program, self.arguments, self.speaks_ip = (name, f"{root}/static/{name}",
                                                                   arguments, speaks_ip)
        text = open(f"{self.program}.desc").read() if os.path.exists(f"{self.program}.desc") else ""
        try:
            said = ast.literal_eval(text.strip()) if text.strip() else {}
        except (ValueError, SyntaxError):  # computed from the environment of the suite's own runner
            said = {"flags": "noauto"}
        self.said, self.flags = said, said.get("flags", "").split()
        self.dump_options = said.get("opts", "").split() + said.get("dopts", "").split()
        self.restore_options = said.get("opts", "").split() + said.get("ropts", "").split()
        self.features = said.get("feature", "").split()
        self.exclusive = "excl" in self.flags
        # A job has a network of its own if its connections must survive the dump.
        self.own_network = speaks_ip and "--tcp-close" not in self.restore_options

    def why_not(self):
        """Why it is not run here, or nothing: what the suite itself would leave out, or do with a
        script of its own."""
        if "h" not in self.said.get("flavor", "h").split():
            return "only in namespaces that the suite makes"
        if "noauto" in self.flags:
            return "only by hand"
        if self.said.get("arch") and platform.machine() not in self.said["arch"].split():
            return "another architecture"
        if "pre-dump-notify" in self.flags:
            return "talks with the suite's own runner"
        # The scripts of these tests only print something, so they are not needed.
        if os.path.exists(f"{self.program}.hook") and not self.name.startswith("socket-tcp"):
            return "needs a script of the suite around the dump"
        return None

    def prepare(self, where):
        """An empty directory with the program in it; its command."""
        shutil.rmtree(where, ignore_errors=True)
        os.makedirs(where)
        os.chmod(where, 0o777)
        shutil.copy2(self.program, where)
        return [f"./{self.name}", *self.arguments]

    def skips_itself(self):
        """Asks the suite's own script whether the test can run on this machine."""
        script = f"{self.program}.checkskip"
        if not os.access(script, os.X_OK):
            return False
        return subprocess.run([script], cwd=os.path.dirname(script), capture_output=True,
                              timeout=60).returncode != 0


def load(root):
    tests = []
    with open(f"{root}/commands") as f:
        for line in f:
            name, ip, arguments = line.rstrip("\n").split("\t")
            tests.append(Test(root, name, ip == "ip", arguments.split()))
    return tests


def verdict(where, name):
    """Reads the verdict of the test: None if it says PASS, else its words."""
    said = ""
    for path in (f"{where}/{name}.out", f"{where}/{name}.out.inprogress"):
        if os.path.exists(path):
            with open(path, errors="replace") as f:
                said = f.read()
            if (path.endswith(".out") and said.splitlines() and
                "PASS" in said.splitlines()[-1].split()):
                return None
            break
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if "FAIL" in line or "ERR" in line]
    return (told or lines or ["it has written nothing"])[-1][:300]
