# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines as fresh as Debian installs them: each a root of its own with systemd as PID 1, in
namespaces of its own, on one network. A machine has no network but that, and takes its packages
from the folder of an apt repository."""
import os
import shutil
import signal
import subprocess
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
START_LIMIT = 60
ENVIRONMENT = ["HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
               "DEBIAN_FRONTEND=noninteractive"]


class Late(AssertionError):
    pass


def until(what, predicate, limit):
    end = time.monotonic() + limit
    while not (seen := predicate()):
        if time.monotonic() > end:
            raise Late(f"{what}: not within {limit} s")
        time.sleep(0.1)
    return seen


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def make_root(root, name, base, repo, newer):
    """The files of a machine of this name: `base` is a tar of a root of Debian, `repo` and `newer`
    are folders of packages."""
    os.mkdir(root)
    run("tar", "-C", root, "-xf", base)
    shutil.copytree(repo, f"{root}/srv/souk")
    shutil.copytree(newer, f"{root}/srv/newer")
    shutil.rmtree(f"{root}/etc/apt/sources.list.d", ignore_errors=True)
    for file, text in (("apt/sources.list", "deb [trusted=yes] file:/srv/souk ./\n"),
                       ("hostname", f"{name}\n"), ("hosts", "127.0.0.1 localhost\n"),
                       # otherwise its first start would ask questions
                       ("machine-id", f"{uuid.uuid4().hex}\n")):
        with open(f"{root}/etc/{file}", "w", encoding="ascii") as f:
            f.write(text)
    if os.path.exists(f"{root}/usr/sbin/policy-rc.d"):
        os.unlink(f"{root}/usr/sbin/policy-rc.d")


class Network:
    """A bridge in a network namespace, to which the machines are plugged."""

    def __init__(self, tag):
        self.tag, self.fabric = tag, f"{tag}-fabric"

    def up(self):
        run("ip", "netns", "add", self.fabric)
        run("ip", "-n", self.fabric, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.fabric, "link", "set", "br0", "up")

    def plug(self, name, address):
        ns = f"{self.tag}-{name}"
        run("ip", "netns", "add", ns)
        run("ip", "-n", self.fabric, "link", "add", f"v-{name}", "type", "veth", "peer", "name",
            "eth0", "netns", ns)
        run("ip", "-n", self.fabric, "link", "set", f"v-{name}", "master", "br0", "up")
        run("ip", "-n", ns, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("eth0", "lo"):
            run("ip", "-n", ns, "link", "set", link, "up")
        return f"/run/netns/{ns}"

    def unplug(self, name):
        subprocess.run(["ip", "netns", "del", f"{self.tag}-{name}"], check=False)

    def down(self):
        for name in os.listdir("/run/netns"):
            if name.startswith(self.tag + "-"):
                subprocess.run(["ip", "netns", "del", name], check=False)


class Machine:
    """A machine that is off until boot(). Root runs the commands that it is given."""
    # The user who submits jobs there. Here that is root: a container may lack CAP_SYS_RESOURCE, and
    # without it only jobs of root can move.
    user, home = "root", "/root"
    patience = 1  # how much longer all may take than on a machine that is not emulated
    checkpoint_s = 2

    def __init__(self, network, place, name, address, base, repo, newer):
        self.name, self.network, self.pid = name, network, 0
        self.tag = f"{network.tag}-{name}"
        self.root, self.netns = f"{place}/{name}", network.plug(name, address)
        self.log = f"{place}/{name}.log"
        make_root(self.root, name, base, repo, newer)

    def boot(self):
        with open(f"{self.root}/srv/boot_id", "w", encoding="ascii") as f:
            f.write(str(uuid.uuid4()) + "\n")
        with open(self.log, "ab") as log:
            outer = subprocess.Popen(["nsenter", f"--net={self.netns}", f"{HERE}/boot", self.root,
                                      self.name, self.tag], stdin=subprocess.DEVNULL, stdout=log,
                                     stderr=log, start_new_session=True)
        self.outer = outer

        def init():
            if outer.poll() is not None:
                raise AssertionError(f"{self.name} does not boot: {read(self.log)[-500:]}")
            for child in read(f"/proc/{outer.pid}/task/{outer.pid}/children").split():
                if read(f"/proc/{child}/comm") == "systemd\n":
                    return int(child)
            return 0
        self.pid = until(f"{self.name} boots", init, START_LIMIT)
        self.wait_up()

    def ran(self, command, limit):
        """Runs a command, and returns its exit status, its output and its errors."""
        words = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w",
                 "env", "-i", *ENVIRONMENT, "bash", "-c", command]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=limit)
        return done.returncode, done.stdout, done.stderr

    def runs(self, command, limit=300):
        """Runs the command and returns its output, however it ends."""
        return self.ran(command, limit * self.patience)[1]

    def does(self, command, limit=300):
        """Runs the command and returns its output. A command that fails is an error."""
        code, out, errors = self.ran(command, limit * self.patience)
        if code != 0:
            raise AssertionError(f"{self.name}# {command}: {code}\n{out[-2000:]}{errors[-2000:]}")
        return out

    def wait_up(self):
        try:
            until(f"{self.name} is up", lambda: self.runs("systemctl is-system-running").strip() in
                  ("running", "degraded"), START_LIMIT * self.patience)
        except Late as late:
            raise Late(f"{late}: {self.runs('systemctl list-jobs')}") from None

    def last_words(self):
        """Prints the state of the machine for people who look for the cause of a failure."""
        try:
            said = self.pid and self.runs(
                "systemctl --failed --no-legend; journalctl -n 25 --no-pager -o cat "
                "-u souk-marketd -u souk-agentd -u souk-leave; pvdctl guests")
        except (OSError, AssertionError) as error:
            said = error
        return f"{said or 'it is off'}\n{read(self.log)[-1000:]}"

    def power_off(self):
        """Ends everything that runs in the machine at once, as if the plug were pulled."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.outer.wait(START_LIMIT)
        self.pid = 0

    def shut_down(self):
        """Reboots the machine in order, as its administrator does."""
        self.ran("systemctl --no-block reboot", START_LIMIT)
        self.outer.wait(START_LIMIT)
        self.pid = 0

    def remove(self):
        self.power_off()
        self.network.unplug(self.name)
        for mounted in sorted((line.split()[1] for line in read("/proc/self/mounts").splitlines()
                               if line.split()[1].startswith(self.root)), reverse=True):
            subprocess.run(["umount", "-l", mounted], check=False)
        for line in read("/proc/self/mounts").splitlines():
            at, kind = line.split()[1:3]
            if kind in ("cgroup", "cgroup2") and os.path.isdir(f"{at}/{self.tag}"):
                run("find", f"{at}/{self.tag}", "-depth", "-type", "d", "-exec", "rmdir", "{}",
                    ";")
        run("rm", "-rf", "--one-file-system", self.root)
