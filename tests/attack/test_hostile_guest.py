# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that wants more than it was given: it stays inside of its limits, pays for all that it
runs, harms nobody beside it, and is gone when the owner says so."""
import glob
import json
import os
import subprocess

import pytest

from attack_place import SOMEBODY, place, run_as_somebody  # noqa: F401 (place is a fixture)
from cluster import alive, mount_points, read_text, until
from test_checkpoints import configured
from test_leases import stands as frozen
from test_owner import stands
from test_presence import HOG, LEAVE, status
from test_three_questions import HOLDS_IO_URING
from test_wake import reloaded

PYTHON = ("/usr/bin/python3", "-c")
# The program forks twice, leaves its session and ignores every signal that it can. One process
# burns CPU time, one looks idle, and one starts short processes one after the other. All of them
# run until that file is there.
SPREADS = """
import os, signal, sys, time
def over(): return os.path.exists(sys.argv[1])
def burn(part):
    while not over():
        until = time.monotonic() + 0.01 * part
        while time.monotonic() < until: pass
        time.sleep(0.01 * (1 - part))
def storm():
    while not over():
        child = os.fork()
        if child == 0:
            for _ in range(10_000): pass
            os._exit(0)
        os.waitpid(child, 0)
def stray(what):
    if os.fork(): return
    os.setsid()
    for s in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(s, signal.SIG_IGN)
    if os.fork(): os._exit(0)
    what()
    while True: time.sleep(3600)
stray(lambda: burn(1))
stray(lambda: burn(0.05))
stray(storm)
print("spread", flush=True)
burn(0.5)
print("done", flush=True)
while True: time.sleep(3600)
"""
COUNTS = """
import time
for i in range(10**9):
    print(i, flush=True)
    time.sleep(0.02)
"""


def guest(market, text, *args, options=()):
    """Submits a Python program as a job of a plain user."""
    return market.srun("-p", 50, *options, *PYTHON, text, *args, user=SOMEBODY, group=SOMEBODY,
                       extra_groups=[], cwd="/")


def own_cpu_s(market, job, node):
    """The CPU time that the kernel counts for the job in its control groups, less what these groups
    had used for earlier jobs."""
    for group in market.groups(job.id, node):
        words = read_text(group + "/cpu.stat").split()
        if "usage_usec" in words:
            (used,) = (read_text(p).split()[3] for p in
                       glob.glob(f"{market.run_dir}/state/{node}/guests/{job.id}.*/capsule"))
            return int(words[words.index("usage_usec") + 1]) / 1e6 - int(used) / 1e9
    return pytest.skip("no cgroup v2")


def pids_of(market, job):
    return set().union(*(pids for _, _, pids in market.capsules(job.id)))


def load_of(market, job):
    return market.ctl("marketctl", "job", job.id, "--load")


def all_that_it_runs_is_charged(market, place, source):  # noqa: F811
    """Checks while the job stands that the CPU time of its control groups is charged in full."""
    job = guest(market, SPREADS, f"{place}/over")
    at = market.until_runs(job.id)["where"]
    job.printed(1)
    until("there is enough to compare", lambda: own_cpu_s(market, job, at) > 2 and
          (source != "bpf" or load_of(market, job)["births"] > 100))
    open(f"{place}/over", "w").close()
    job.printed(2)
    market.tool("pvdctl", "--node", at, "pause")
    try:
        until("it stands", lambda: next(g for g in status(market, at)["here"]
                                        if g["job"] == job.id)["state"] == "paused")
        # The job was told to stop. A process that begins or ends at that moment does so before the
        # job stands.
        until("all of it stands", lambda: frozen(market, job.id, at))
        kernel_s = own_cpu_s(market, job, at)
        load = load_of(market, job)
        assert load["source"] == source, load
        assert abs(load["run_s"] - kernel_s) <= 0.005 * kernel_s, (load, kernel_s)
        pids = pids_of(market, job)
        if source == "bpf":  # no process has come or gone that was not counted
            assert load["births"] - load["deaths"] == len(pids) and load["births"] > 100, load
        market.tool("marketctl", "cancel", job.id)
        job.wait()
        until("it is paid", lambda: market.ctl("marketctl", "receipts", "--job", job.id) and
              market.job(job.id)["status"] == "finish")
        paid_s = sum(float(r["cpu_s"])
                     for r in market.ctl("marketctl", "receipts", "--job", job.id))
        assert kernel_s > 2 and abs(paid_s - kernel_s) <= 0.005 * kernel_s, (paid_s, kernel_s)
        until("all of it is gone", lambda: not any(map(alive, pids)))
    finally:
        market.tool("pvdctl", "--node", at, "resume")


def test_all_that_a_guest_runs_is_charged_also_in_processes_that_hide(
        market, place):  # noqa: F811
    all_that_it_runs_is_charged(market, place, "bpf")


def test_without_bpf_it_is_charged_the_same_and_the_status_says_so(market, place):  # noqa: F811
    nodes = market.nodes()
    kept = {n: read_text(f"{market.run_dir}/{n}/agentd.conf") for n in nodes}

    def write(text):
        for n in nodes:
            with open(f"{market.run_dir}/{n}/agentd.conf", "w") as f:
                f.write(text(kept[n]))
            market.kill_daemon(n)
    write(lambda old: "bpf = false\n" + old)
    try:
        told = status(market, "n1")
        assert told["load_source"] == "proc" and told["load_trouble"], told
        assert "/proc" in market.tool("pvdctl", "--node", "n1", "status").stdout
        assert "load is read from /proc" in read_text(f"{market.run_dir}/n1/log")
        all_that_it_runs_is_charged(market, place, "proc")
    finally:
        write(lambda old: old)
    assert status(market, "n1")["load_source"] == "bpf"


# Fills each limit, and says what it got.
TAKES_ALL = """
import os, signal, sys, time
n = 0
try:
    while True:
        if os.fork() == 0:
            while True: signal.pause()
        n += 1
except OSError as e: print("processes", n, e.strerror, flush=True)
os.kill(-1, signal.SIGKILL)
while n:
    os.wait()
    n -= 1
for pid in map(int, sys.argv[1:]):
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        try: os.kill(pid, number); print("signal", pid)
        except OSError as e: print("signal", e.strerror, flush=True)
child = os.fork()
if child == 0:
    held = []
    while True: held.append(bytearray(b"x" * (8 << 20)))
print("memory", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print("sees", *sorted(int(p) for p in os.listdir("/proc") if p.isdigit()), "as", os.getpid(),
      flush=True)
"""


def test_a_guest_stays_inside_of_its_limits_and_harms_nobody(market):
    for node in market.nodes():
        assert reloaded(market, node, "pids_max", "64") == "in_force"
    try:
        beside = guest(market, COUNTS)
        beside.printed(1)
        daemons = [market.daemon(n)["pid"] for n in ("market", *market.nodes())]
        targets = sorted({*daemons, *pids_of(market, beside), 1 << 21})
        job = guest(market, TAKES_ALL, *targets, options=("-m", "64"))
        assert job.wait() == 0, (job.words, job.told)
        said = [line.split(" ", 1) for line in bytes(job.out).decode().splitlines()]
        told = {kind: rest for kind, rest in said if kind != "signal"}
        count, why = told["processes"].split(" ", 1)
        assert 40 <= int(count) < 64 and why == "Resource temporarily unavailable", told
        assert told["memory"] == "-9", told
        assert {rest for kind, rest in said if kind == "signal"} == {"No such process"}, said
        seen, own = told["sees"].split(" as ")
        assert set(seen.split()) <= {"1", own}, told
        beside.printed(beside.lines() + 3)
        assert daemons == [market.daemon(n)["pid"] for n in ("market", *market.nodes())]
    finally:
        for node in market.nodes():
            assert reloaded(market, node, "pids_max", "4096") == "in_force"


LOOKS = """
import json, os, resource, stat
def opens(path):
    try: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError: return False
    return True
devices = []
for top, _, names in os.walk("/dev"):
    for name in names:
        path = os.path.join(top, name)
        try: kind = os.stat(path).st_mode
        except OSError: continue
        if (stat.S_ISCHR(kind) or stat.S_ISBLK(kind)) and opens(path): devices.append(path)
with open("/proc/self/oom_score_adj") as f: oom = int(f.read())
try:
    with open("/proc/self/oom_score_adj", "w") as f: f.write("-1")
    lowered = True
except OSError: lowered = False
print(json.dumps({"devices": devices, "oom": oom, "lowered": lowered,
                  "core": resource.getrlimit(resource.RLIMIT_CORE)}))
"""
# Everybody may open these devices, and none of them leads to anything of the owner's. autofs asks
# for CAP_SYS_ADMIN itself.
HARMLESS = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "fuse", "net/tun", "autofs"}


def test_a_guest_has_no_device_leaves_no_core_and_is_the_first_to_end_without_memory(
        market, place):  # noqa: F811
    told = json.loads(run_as_somebody(market, place, *PYTHON, LOOKS))
    names = {path.removeprefix("/dev/") for path in told["devices"]}
    assert {n for n in names if not n.startswith("pts/")} <= HARMLESS, told
    assert told["oom"] == 1000 and not told["lowered"], told
    assert max(told["core"]) <= 1, told  # 1: also none for a program that collects them
    assert int(read_text(f"/proc/{market.daemon('n1')['pid']}/oom_score_adj")) < 1000


def test_a_guest_that_has_moved_is_still_the_first_to_end_without_memory(market):
    job = market.srun("-p", 50, *PYTHON, COUNTS)
    at = market.until_runs(job.id)["where"]
    there = next(n for n in market.nodes() if n != at)
    market.tool("marketctl", "--hold", "move", job.id, there)
    market.until_runs(job.id, there)
    job.printed(job.lines() + 3)
    # There: the copy that it has left may still be on its way out.
    (first,) = [p for _, _, pids in market.capsules(job.id, there) for p in pids
                if read_text(f"/proc/{p}/comm").startswith("python")]
    assert read_text(f"/proc/{first}/oom_score_adj") == "1000\n"


def test_directories_that_an_owner_hides_are_empty_for_jobs_of_other_homes(
        market, place):  # noqa: F811
    private = f"{place}/private"
    os.mkdir(private)
    os.chmod(private, 0o755)
    with open(f"{private}/letter", "w") as f:
        f.write("dear\n")
    look = ("ls", private)
    with configured(market, "n2", lambda text: f'hidden = "{private} /not/here"\n' + text):
        market.until_up()
        for node in ("n1", "n3"):
            market.tool("pvdctl", "--node", node, "market", "off")
        until("the market has heard it", lambda: [p["node"] for p in market.providers()
                                                  if p["status"] == "free"] == ["n2"])
        assert run_as_somebody(market, place, "--node", "n1", *look) == ""
        assert run_as_somebody(market, place, "--node", "n2", *look) == "letter\n"
        for node in ("n1", "n3"):
            market.tool("pvdctl", "--node", node, "market", "on")


def mounts_of(pids):
    """The mount namespaces of those that are there, each with its lines of mounts. (The number of
    one that is gone is given again, but not with its mounts.)"""
    found = set()
    for pid in pids:
        try:
            name = os.readlink(f"/proc/{pid}/ns/mnt")
        except OSError:
            continue
        found.update((name, line) for line in read_text(f"/proc/{pid}/mountinfo").splitlines())
    return found


def test_an_evicted_guest_leaves_no_process_control_group_or_mount(market):
    bounds = 'leave_s = 1\nimmovable_s = 1\n'
    job = guest(market, SPREADS, "/not/here")
    job.printed(1)
    at = market.until_runs(job.id)["where"]
    with configured(market, at, lambda text: bounds + text):
        market.until_up()
        pids, groups = pids_of(market, job), market.groups(job.id, at)
        spaces = mounts_of(pids)
        assert len(pids) >= 5 and groups
        market.tool("pvdctl", "--node", at, "evict", job.id)
        until("no process of it is there", lambda: not any(map(alive, pids)))
        until("no capsule of it is there", lambda: not market.capsules(job.id, at, empty=True))
        for group in groups:  # it is gone, or serves the next one
            assert not read_text(group + "/cgroup.procs").split()
        until("nor its directory",
              lambda: not glob.glob(f"{market.run_dir}/state/{at}/guests/{job.id}.*"))
        assert not [m for m in mount_points() if f"/{job.id}." in m]
        assert spaces and not spaces & mounts_of(filter(str.isdigit, os.listdir("/proc")))
        market.tool("pvdctl", "--node", at, "allow", "job", job.id)


def test_what_a_guest_prints_fills_no_disk(market):
    """Nobody reads it: it waits when the home keeps as much as it may."""
    with configured(market, "n1", lambda text: "output_mb = 1\n" + text):
        market.until_up()
        id = market.tool("srun", "--node", "n1", "-p", 50, "--detach", "yes").stdout.strip()
        market.until_runs(id)

        def waits():
            return [p for _, _, pids in market.capsules(id) for p in pids
                    if read_text(f"/proc/{p}/comm") == "yes\n" and
                    "pipe_write" in read_text(f"/proc/{p}/wchan")]
        until("it waits", waits)
        held = sum(os.path.getsize(p) for p in glob.glob(f"{market.run_dir}/state/n1/**/*{id}*",
                                                         recursive=True) if os.path.isfile(p))
        assert 0 < held <= 2 << 20, held
        market.tool("marketctl", "cancel", id)


def test_a_job_that_cannot_leave_stands_for_its_owner_and_ends_after_the_owners_own_limit(market):
    job = market.srun("-p", 50, *HOLDS_IO_URING)
    at = market.until_runs(job.id)["where"]
    # The user is told at the start of the job, and also what follows from it.
    assert job.said(r"io_uring.* is stopped in memory, and ended if he says so")
    hog = subprocess.Popen(HOG)
    try:
        with configured(market, at, lambda text: LEAVE + 'immovable = "kill"\nimmovable_s = 3\n'
                        'leave_s = 1\n' + text):
            market.until_up()
            market.until_job(job.id, "stands, and ends", lambda j: j.get("stopped_in_place") or
                             j["status"] == "finish")
            assert job.wait() != 0
            told = market.until_job(job.id, "has ended", lambda j: j["status"] == "finish")
            assert "could not leave" in json.dumps(told), told
            until("it is gone", lambda: not market.capsules(job.id))
    finally:
        hog.kill()
        hog.wait()


def test_a_guest_that_sleeps_to_look_idle_stands_as_all_others_do(market):
    job = guest(market, COUNTS)
    at = market.until_runs(job.id)["where"]
    job.printed(2)
    market.tool("pvdctl", "--node", at, "pause")
    try:
        until("nothing more comes", lambda: stands(market, job, at))
    finally:
        market.tool("pvdctl", "--node", at, "resume")
    job.printed(job.lines() + 2)
