# SPDX-License-Identifier: GPL-2.0-or-later
"""A market of its own for each module of tests: real daemons in network namespaces, brought up by
`souk up`, always taken down, and looked for afterwards. Every wait has a limit; a test waits for
what it needs to see, never for time to pass. SOUK_BIN names the directory of the programs (default:
build/bin of this checkout)."""
import contextlib
import ctypes
import glob
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.register_assert_rewrite("files_tree", "moving", "programs")

# Faults by the dozen take minutes and are no part of every check: make chaos.
collect_ignore = [] if os.environ.get("SOUK_FAULTS") else ["test_faults.py"]

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ.get("SOUK_BIN") or os.path.normpath(os.path.join(HERE, "..", "..", "build", "bin"))
# The user that agentd runs as: a number that no machine gives to anybody. The variable may name
# "root" or an account; empty, agentd chooses by itself.
AGENT_USER = os.environ.get("SOUK_TEST_AGENT_USER", "64990")
# Seconds for anything that should take a fraction of one: the machine may be busy, or emulated.
LIMIT = float(os.environ.get("SOUK_TEST_LIMIT", 40))
# A program that a test builds has make's own rules, not those of the make that runs the tests.
for word in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
    os.environ.pop(word, None)
_serial = itertools.count(1)
# Takes a market down if the test that brought it up is killed: then the pipe ends without a word.
GUARD = """import subprocess, sys
sys.stdin.read() or subprocess.run([sys.argv[1], "down", "--force"])"""


class Late(AssertionError):
    pass


def until(what, probe, limit=LIMIT, pause=0.03):
    """Asks again and again until the answer is true, and gives it back."""
    end = time.monotonic() + limit
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Late(f"{what}: not within {limit:g} s; last answer {answer!r}")
        time.sleep(pause)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pids):
    """SIGKILL to each of them that is still there: the end of one may take others along."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def own_number(pid):
    """The number of a process in its own PID namespace: 1 is its capsule's souk-init. (Numbers of
    the host say nothing about which process came first, because they soon begin anew.)"""
    found = re.search(r"^NSpid:.*?(\d+)$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
    return int(found[1]) if found else 0


def started(pid):
    """The time at which a process was started. It tells whether a number still means the same
    process."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19:20]


def read_text(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except (OSError, ProcessLookupError):
        return ""


def mount_points(kind=None):
    points = []
    for line in read_text("/proc/self/mountinfo").splitlines():
        left, right = line.split(" - ", 1)
        if kind is None or right.split()[0] in kind:
            points.append(re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), left.split()[4]))
    return points


class Srun:
    """An srun in the background: its bytes are collected as they come; its words (-v) can be waited
    for."""

    def __init__(self, argv, env, **how):
        how.setdefault("stdin", subprocess.DEVNULL)
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, **how)
        self.argv, self.out, self.words = argv, bytearray(), []
        self.told = []  # the job's own lines of stderr
        self._change = threading.Condition()
        self._threads = [threading.Thread(target=f, daemon=True)
                         for f in (self._read_out, self._read_err)]
        for t in self._threads:
            t.start()

    def _read_out(self):
        while data := self.process.stdout.read1(65536):
            with self._change:
                self.out += data
                self._change.notify_all()

    def _read_err(self):
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            with self._change:
                (self.words if text.startswith(("srun: ", '{"error":')) else self.told).append(text)
                self._change.notify_all()

    def _wait(self, what, probe, limit):
        with self._change:
            ended = (lambda: self.process.poll() is not None and
                     not any(t.is_alive() for t in self._threads))
            end = time.monotonic() + limit
            while not (found := probe()):
                if ended():
                    raise AssertionError(
                        f"{self.argv[-3:]} ended ({self.process.returncode}) before {what}; "
                        f"said {self.words} {self.told[-5:]}")
                if time.monotonic() > end:
                    raise Late(f"{what}: not within {limit:g} s; said {self.words[-12:]}")
                self._change.wait(0.2)
            return found

    def said(self, pattern, limit=LIMIT, after=0):
        """The first word from number `after` on that matches, waited for."""
        return self._wait(f"the word {pattern!r}", lambda: next(
            (m for w in self.words[after:] if (m := re.search(pattern, w))), None), limit)

    @property
    def id(self):
        return self.said(r"^srun: job (\S+)$")[1]

    def printed(self, count, limit=LIMIT):
        """Waits until the job has printed that many lines."""
        self._wait(f"{count} lines", lambda: self.out.count(b"\n") >= count, limit)

    def lines(self):
        with self._change:
            return self.out.count(b"\n")

    def wait(self, limit=LIMIT):
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Late(f"{self.argv[-4:]} has not ended within {limit:g} s; said "
                       f"{self.words[-12:]}") from None
        for t in self._threads:
            t.join(limit)
        return status

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        for t in self._threads:
            t.join(5)


class Market:
    def __init__(self, *options):
        self.run_dir = f"/run/souk-t{os.getpid()}-{next(_serial)}"
        # The state lies on the same file system. The cost of a market is measured elsewhere.
        self.env = {**os.environ, "SOUK_RUN": self.run_dir, "SOUK_STATE": self.run_dir + "/state",
                    "PATH": BIN + ":" + os.environ["PATH"]}
        self.env.pop("SOUK_NODE", None)
        self.env["SOUK_ERRORS"] = "json"  # as codes.refused() reads them
        self.env["SHELL"] = "/bin/sh"  # what a program starts by it is the same for whoever tests
        if AGENT_USER and "--agent-user" not in options:
            options += ("--agent-user", AGENT_USER)
        self.options, self.tag, self.jobs_here, self.family = options, None, [], set()
        self.guard, self.began = None, {}

    # Life

    def up(self):
        self.end_guard()
        self.guard = subprocess.Popen(
            [sys.executable, "-c", GUARD, f"{BIN}/souk"], env=self.env, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.tool("souk", "up", *self.options)
        self.tag = self.daemons()["market"]["netns"].removesuffix("-fabric")
        until("all agents connected", lambda: all(p["connected"] for p in self.providers()) and
              len(self.providers()) == len(self.nodes()))
        return self

    def end_guard(self):
        if self.guard:
            self.guard.communicate(b"down", timeout=LIMIT)
            self.guard = None

    def down(self):
        """Takes the market down and says what is left of it."""
        self.end_guard()
        for job in self.jobs_here:
            job.end()
        self.note_family()
        said = subprocess.run([f"{BIN}/souk", "down", "--force"], env=self.env, capture_output=True,
                              text=True, timeout=100)
        left = ([] if said.returncode == 0
                else [f"souk down: {said.returncode} {said.stdout}{said.stderr}"])
        with contextlib.suppress(Late):  # what is left is said
            until("the helpers of its daemons have ended, too", lambda: not self.running())
        return left + self.leftovers()

    def note_family(self):
        """Notes every process of this market that runs now."""
        children = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := read_text(f"/proc/{name}/stat")):
                children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(name))
        supervisor = json.loads(read_text(self.run_dir + "/instance.json") or
                                "{}").get("supervisor", {}).get("pid")
        reached = [supervisor] if supervisor else []
        for pid in reached:
            reached += children.get(pid, [])
        found = set(reached)
        for path in self.cgroup_files():
            found |= {int(p) for p in read_text(path).split()}
        self.family |= found
        self.began |= {p: started(p) for p in found}

    def cgroup_files(self):
        for root in mount_points(("cgroup", "cgroup2")):
            for where, _, files in os.walk(f"{root}/{self.tag}"):
                if "cgroup.procs" in files:
                    yield where + "/cgroup.procs"

    def running(self):
        """Lists the noted processes that still run. A process that now has the number of a noted
        one is another one, and is left out."""
        return [p for p in self.family if alive(p) and started(p) == self.began[p]]

    def leftovers(self):
        left = [f"process {p} {read_text(f'/proc/{p}/cmdline')[:80]!r}" for p in self.running()]
        if self.tag:
            groups = [f"{root}/{self.tag}" for root in mount_points(("cgroup", "cgroup2"))]
            left += [f"cgroup {group}" for group in groups if os.path.exists(group)]
            names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
            left += [f"namespace {n}" for n in names if n.startswith(self.tag + "-")]
        left += [f"mount {p}" for p in mount_points() if p.startswith(self.run_dir + "/")]
        if os.path.exists(self.run_dir):
            left.append(f"directory {self.run_dir}: {os.listdir(self.run_dir)}")
        return left

    def clear(self):
        """Cleans up between tests: ends all jobs, and brings every node back to its first state."""
        for job in self.jobs_here:
            job.end()
        self.jobs_here.clear()
        self.until_up()
        for job in self.live():
            self.tool("marketctl", "cancel", job["id"], check=False)
        until("every job has ended", lambda: not self.live())
        try:
            until("every capsule is gone", lambda: not self.capsules(empty=True))
        except Late:
            left = [p for p in self.cgroup_files() if "/jobs/" in p]
            raise Late(f"capsules are left: {self.capsules(empty=True)}; {left}") from None
        until("no more control groups are kept than may be",
              lambda: all(self.kept_groups(n) <= 2 * os.cpu_count() + 8 for n in self.nodes()))
        for node in self.nodes():
            status = self.ctl("pvdctl", "--node", node, "status")
            if not status["on_market"]:
                self.tool("pvdctl", "--node", node, "market", "on")
            if status["reserve"] != 1:
                self.tool("pvdctl", "--node", node, "set", "price", "1")
        until("every node is free",
              lambda: all(p["status"] == "free" and p["reserve"] == 1 for p in self.providers()))

    # Tools

    def tool(self, name, *args, check=True, limit=LIMIT, **how):
        if (name == "marketctl" and {"move", "freeze", "thaw"} & set(map(str, args)) and
            "--wait" not in args):
            args = ["--no-wait", *args]  # a test waits for what it needs to see
        how.setdefault("stdin", subprocess.DEVNULL)
        if "input" in how:
            how.pop("stdin")
        how.setdefault("text", True)
        done = subprocess.run([f"{BIN}/{name}", *map(str, args)], env=how.pop("env", self.env),
                              capture_output=True, timeout=limit, **how)
        if check:
            assert done.returncode == 0, f"{name} {args}: {done.returncode} {done.stderr}"
        return done

    def ctl(self, name, *args):
        return json.loads(self.tool(name, "--json", *args).stdout)

    def srun(self, *args, env=None, **how):
        job = Srun([f"{BIN}/srun", "-v", *map(str, args)], env or self.env, **how)
        self.jobs_here.append(job)
        return job

    def daemons(self):
        return json.loads(self.tool("souk", "status", "--json").stdout)

    def nodes(self):
        return [n["name"] for n in json.loads(read_text(self.run_dir + "/instance.json"))["nodes"]]

    def daemon(self, name):
        all_of_them = self.daemons()
        return next(d for d in [all_of_them["market"], *all_of_them["nodes"]] if d["name"] == name)

    def providers(self):
        return self.ctl("marketctl", "list-providers")

    def list_jobs(self):
        return self.ctl("marketctl", "list-jobs", "--state", "all")

    def live(self):
        return [j for j in self.list_jobs() if j["status"] != "finish"]

    def job(self, id):
        """Returns the market's record of the job; {} if the market does not know the job, or is
        away."""
        done = self.tool("marketctl", "--json", "job", id, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def until_job(self, id, what, probe, limit=LIMIT):
        return until(f"{id} {what}", lambda: (j := self.job(id)) and probe(j) and j, limit)

    def until_reason(self, id, code, limit=LIMIT):
        """The market says why it is where it is, or waits, by that code."""
        return self.until_job(id, f"says {code}", lambda j: j.get("reason", {}).get("code") == code,
                              limit)

    def story(self, id):
        """The steps of its life, as its home tells them: with or without a market."""
        done = self.tool("marketctl", "--node", id.split(".")[0], "--json", "job", id, "--story",
                         check=False)
        return json.loads(done.stdout)["steps"] if done.returncode == 0 else []

    def until_step(self, id, after=0, limit=LIMIT, **wanted):
        """The first step after that many with these values, waited for."""
        return until(f"{id} has a step {wanted}", lambda: next(
            (s for s in self.story(id)[after:] if wanted.items() <= s.items()), None), limit)

    def until_runs(self, id, where=None, limit=LIMIT):
        return self.until_job(id, f"runs on {where}", lambda j: j["status"] == "run" and
                              "going_to" not in j and where in (None, j["where"]), limit)

    def until_up(self):
        """Waits until every daemon runs and is connected."""
        def probe():
            d = self.daemons()
            if not all(x["pid"] for x in [d["market"], *d["nodes"]]):
                return False
            done = self.tool("marketctl", "--json", "list-providers", check=False)
            return (done.returncode == 0 and
                    sum(p["connected"] for p in json.loads(done.stdout)) == len(d["nodes"]))
        until("every daemon is back", probe, 60)

    # The kernel's view

    def capsule_groups(self):
        """{node/jobs/GROUP: JOB.EPOCH}, as the nodes have written down."""
        found = {}
        for path in glob.glob(f"{self.run_dir}/state/*/guests/*/capsule"):
            if len(words := read_text(path).split()) >= 4:
                found[words[2]] = os.path.basename(os.path.dirname(path))
        return found

    def capsules(self, job="", node="*", empty=False):
        """Capsules that have a process, empty: or a directory: (node, JOB.EPOCH, pids)."""
        found = {}
        names = self.capsule_groups()
        for path in self.cgroup_files():
            m = re.search(rf"/{self.tag}/(([^/]+)/jobs/([^/]+))/", path)
            name = m and names.get(m[1], m[3])
            if m and (not job or name.startswith(job + ".")) and node in ("*", m[2]):
                found.setdefault((m[2], name), set()).update(map(int, read_text(path).split()))
        return [(n, c, pids) for (n, c), pids in found.items()
                if pids or empty and c in names.values()]

    def groups(self, job, node):
        """The directories of the control groups of its newest capsule there, one in each
        hierarchy."""
        name = max((int(capsule[len(job) + 1:]), g)
                   for g, capsule in self.capsule_groups().items()
                   if capsule.startswith(job + ".") and g.startswith(node + "/"))[1]
        return [path for root in mount_points(("cgroup", "cgroup2"))
                if os.path.exists(path := f"{root}/{self.tag}/{name}")]

    def kept_groups(self, node):
        """The number of control groups that are kept there for the next capsules."""
        return len({m[1] for path in self.cgroup_files()
                    if (m := re.search(rf"/{self.tag}/{node}/jobs/([^/]+)/", path))})

    def processes(self, job, program):
        """The number of processes of that name that the job has, on all nodes."""
        pids = set().union(*[p for _, _, p in self.capsules(job)])
        return sum(read_text(f"/proc/{p}/comm").strip() == program for p in pids)

    def has(self, pid):
        """Says whether that process is in one of the market's network namespaces."""
        try:
            here = os.stat(f"/proc/{pid}/ns/net")
        except OSError:
            return False  # it has ended
        return any(os.path.samestat(here, os.stat(f"/run/netns/{name}"))
                   for name in os.listdir("/run/netns") if name.startswith(f"{self.tag}-"))

    def kill_daemon(self, name):
        """kill -9; returns when it is a new process and is connected."""
        old = self.daemon(name)["pid"]
        assert old > 0, f"{name} does not run"
        os.kill(old, signal.SIGKILL)
        until(f"{name} is a new process", lambda: self.daemon(name)["pid"] not in (0, old))
        self.until_up()

    def doctor(self, node, *args):
        """Returns the output of souk doctor on that node. The doctor asks the market for the
        time."""
        return subprocess.run(["nsenter", f"--net=/run/netns/{self.tag}-{node}", f"{BIN}/souk",
                               "doctor", *map(str, args)], env=self.env, text=True,
                              capture_output=True, timeout=LIMIT).stdout

    def in_netns(self, name, what):
        """Calls what() on a thread inside one of the market's network namespaces, which ends with
        it."""
        box = []

        def enter():
            try:
                with open(f"/run/netns/{self.tag}-{name}") as ns:
                    if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), 0x40000000) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                box.append((what(), None))
            except BaseException as e:  # handed to the caller
                box.append((None, e))
        t = threading.Thread(target=enter, daemon=True)
        t.start()
        t.join(LIMIT)
        assert box, "the thread in the namespace has not ended"
        if box[0][1]:
            raise box[0][1]
        return box[0][0]

    def work(self):
        """Describes for each process of a job the system call that it is in now."""
        for node, capsule, pids in self.capsules():
            for pid in sorted(pids):
                said = [read_text(f"/proc/{pid}/{x}").strip() for x in ("comm", "wchan", "syscall")]
                yield f"{node} {capsule} {pid} {' '.join(said)}"

    def logs(self):
        paths = [f"{self.run_dir}/supervisor.log"] + [f"{self.run_dir}/{n}/log"
                                                      for n in ("market", "n1", "n2", "n3")]
        return [(p, "\n".join(read_text(p).splitlines()[-60:])) for p in paths if os.path.exists(p)]


@pytest.fixture(scope="session", autouse=True)
def fit():
    if os.geteuid() != 0:
        pytest.skip("a market on this host needs root (network namespaces, control groups, CRIU)",
                    allow_module_level=True)
    assert os.path.exists(f"{BIN}/souk"), f"no programs in {BIN}: run make, or set SOUK_BIN"


def bring_up(m):
    try:
        m.up()
        yield m
    except BaseException:
        for path, text in m.logs():
            print(path, text, sep="\n")
        raise
    finally:
        left = m.down()
    assert not left, f"left behind: {left}"


class Standing:
    """A base of tests that need a market of their own: bring_up brings it up at entry, in the
    attribute `market`, and takes it down at exit."""
    def __enter__(self):
        self._up = contextlib.contextmanager(bring_up)(self.market)
        self._up.__enter__()
        return self

    def __exit__(self, *what):
        return self._up.__exit__(*what)


@pytest.fixture(scope="module")
def standing(fit):
    """The module's market: n1, n2, n3 of speeds 100, 80, 60, one CPU and price 1 each."""
    yield from bring_up(Market("--nodes", "3", "--speeds", "100,80,60"))


@pytest.fixture
def market(standing):
    yield standing
    standing.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    m = item.funcargs.get("market") if hasattr(item, "funcargs") else None
    if report.failed and m:
        report.sections.append(("processes of jobs", "\n".join(m.work())))
        report.sections += m.logs()
        for job in m.jobs_here:
            end = bytes(job.out)[-400:].decode(errors="replace")
            said = "\n".join([*job.words[-40:], "its output ends:", end])
            report.sections.append((" ".join(job.argv[1:])[-100:], said))


@pytest.fixture(scope="module")
def two_cpus(standing):
    """Nodes of two CPUs each, so that four components have room, and somewhere to go."""
    for node in standing.nodes():
        standing.tool("pvdctl", "--node", node, "set", "cpus", "2")
    until("all nodes offer two CPUs",
          lambda: all(p["cpus"] == 2 for p in standing.providers()))


@pytest.fixture
def wide(two_cpus, market):
    return market


def gang(market, first):
    """The jobs of a gang, in the order of their components."""
    return sorted((j for j in market.list_jobs() if j.get("gang") == first),
                  key=lambda j: j["component"])
