# SPDX-License-Identifier: GPL-2.0-or-later
# Long: one program, run whole in each machine.
"""What a stock machine has and a container or a sandbox may lack: CAP_SYS_RESOURCE, the controllers
of cgroup v2, soft-dirty tracking, systemd as PID 1. Run inside a machine of its own by
scripts/vm/run, where everything is in /souk.

Each line that begins with `vm: ` is shown outside. Every test runs, whatever became of those before
it; exit 1 if one failed. No test measures speed: the machine is emulated.
"""
import json
import os
import re
import subprocess
import sys
import time
import traceback

os.environ.update(SOUK_BIN="/souk/bin", SOUK_TEST_LIMIT="90",
                  PATH="/souk/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root",
                  PYTHONDONTWRITEBYTECODE="1")
sys.path.insert(0, "/souk/tests/cluster")
import programs  # noqa: E402
from conftest import BIN, Market, read_text, until  # noqa: E402

ALICE = 4321  # a user of the root image
V2 = "/sys/fs/cgroup"


def say(text):
    print(f"vm: {text}", flush=True)


def need(truth, what):
    """An assertion that says what was seen."""
    if not truth:
        raise AssertionError(what)


def load(steps, memory=8, seed=1):
    return [f"{BIN}/testload", "--steps", str(steps), "--print-every", "50", "--digest", "--memory",
            str(memory), "--seed", str(seed)]


def move(market, id, there):
    """True when it runs there; False if it has ended."""
    done = market.tool("marketctl", "--hold", "move", id, there, check=False)
    if done.returncode != 0:
        need(market.job(id).get("status") == "finish", f"move {id} {there}: {done.stderr}")
        return False
    return market.until_job(id, f"runs on {there}", lambda j: j["status"] == "finish" or
                            j["status"] == "run" and j["where"] == there and
                            "going_to" not in j)["status"] == "run"


def moved(market, job, times):
    """Back and forth between the first two nodes; how often before it ended."""
    where = market.until_runs(job.id)["where"]
    for done in range(times):
        where = "n2" if where == "n1" else "n1"
        if not move(market, job.id, where):
            return done
    return times


def test_doctor_finds_all_that_a_stock_kernel_has():
    done = subprocess.run([f"{BIN}/souk", "doctor", "--json"], capture_output=True, text=True,
                          timeout=120)
    needs = {n["name"]: n for n in json.loads(done.stdout)}
    need(done.returncode == 0, f"souk doctor: {done.returncode} {done.stdout} {done.stderr}")
    for name, found in (("CAP_SYS_RESOURCE", "effective"), ("cpu controller", "v2"),
                        ("memory controller", "v2"), ("BTF", "programs load"),
                        ("soft-dirty", "tracked"), ("CRIU", "dumps and restores")):
        need(needs[name]["met"] and found in needs[name]["found"], f"{needs[name]}")
    return f"CRIU {needs['CRIU']['found'].split()[0]}, soft-dirty {needs['soft-dirty']['found']}"


def test_jobs_that_move_back_and_forth_end_as_unmoved_ones(market):
    """A small one, and big ones by each of the ways that srun --move allows. The job waits before
    its last step until it was moved as often as it is to be."""
    told, times = [], 3
    for form, memory, steps in (("auto", 2, 700), ("safe", 48, 2000), ("fast", 48, 700)):
        command = load(steps, memory)
        alone = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        done = f"/tmp/moved-{form}"
        job = market.srun("-p", 50, "--move", form, *command, "--until", done)
        need(moved(market, job, times) == times, f"{form}: it ended before it was moved")
        with open(done, "w"):
            pass
        need(job.wait() == 0, f"{form}: ended with {job.process.returncode}: {job.told}")
        last = market.job(job.id)
        need(last["failed_moves"] == 0 and last["migrations"] >= times, f"{form}: {last}")
        need(bytes(job.out) == alone.communicate(timeout=90)[0] and job.out,
             f"{form}: not an unmoved run's: {job.out[-200:]!r}")
        told.append(f"{form} {memory} MB {times} times")
    return ", ".join(told)


def test_a_job_of_a_plain_user_moves_and_is_the_users_all_along(market):
    script = ('import os,sys,time\n'
              'os.close(os.open("/home/alice/made", os.O_CREAT | os.O_WRONLY))\n'
              'for i in range(100000):\n'
              '    print(i, os.getresuid(), os.getresgid(), flush=True)\n'
              '    if os.path.exists("/home/alice/stop"): break\n'
              '    time.sleep(0.05)\n'
              'sys.exit(9)\n')
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", script,
                      env={**market.env, "HOME": "/home/alice"}, user=ALICE, group=ALICE,
                      extra_groups=[], cwd="/home/alice")
    job.printed(5)
    need(moved(market, job, 4) == 4, "it ended")
    pids = set().union(*[p for _, _, p in market.capsules(job.id)])
    job.printed(job.lines() + 5)
    owners = {m[1] for p in pids if "python3" in read_text(f"/proc/{p}/cmdline")
              and (m := re.search(r"^Uid:\s+(\d+)\s", read_text(f"/proc/{p}/status"), re.M))}
    need(owners == {str(ALICE)}, f"its processes belong to {owners}")
    with open("/home/alice/stop", "w"):
        pass
    need(job.wait() == 9, f"ended with {job.process.returncode}: {job.told}")
    lines = bytes(job.out).decode().splitlines()
    ids = f"({ALICE}, {ALICE}, {ALICE})"
    need(lines == [f"{i} {ids} {ids}" for i in range(len(lines))], f"it printed {lines[-3:]}")
    need(os.stat("/home/alice/made").st_uid == ALICE, "its file is another's")
    return f"4 moves, {len(lines)} lines"


HOLDER = """
import os, sys, time
held = os.open("/home/alice/d/passwd", os.O_RDWR)
for n in range(100000):
    print(n, [l.split()[1] for l in open("/proc/self/status") if l[:6] in ("CapBnd", "NoNewP")],
          flush=True)
    if os.path.exists("/home/alice/go"): break
    time.sleep(0.05)
os.pwrite(held, b"ATTACK", 0)
"""


def test_a_plain_user_who_swaps_a_directory_gets_no_file_of_roots(market):
    """While his job is frozen. It gains no privileges before or after."""
    for where, owner in (("/home/alice/d", ALICE), ("/root-only", 0)):
        os.makedirs(where, exist_ok=True)
        os.chown(where, owner, owner)
        with open(f"{where}/passwd", "wb") as f:
            f.write(b"as it was")
        os.chown(f"{where}/passwd", owner, owner)
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", HOLDER, user=ALICE, group=ALICE,
                      extra_groups=[], cwd="/home/alice",
                      env={**market.env, "HOME": "/home/alice"})
    job.printed(3)
    need(moved(market, job, 2) == 2, f"it ended: {job.told}")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    os.rename("/home/alice/d", "/home/alice/away")
    os.symlink("/root-only", "/home/alice/d")
    market.tool("marketctl", "release", job.id)
    refused = "cannot open /home/alice/d/passwd: Permission denied", "is another"
    said = until("the thaw has an end", lambda: next(
        (w for w in job.words if any(why in w for why in refused)), None))
    need(market.job(job.id)["status"] != "run", f"it runs: {said}")
    os.unlink("/home/alice/d")
    os.rename("/home/alice/away", "/home/alice/d")
    market.until_runs(job.id)
    with open("/home/alice/go", "w"):
        pass
    need(job.wait() == 0, f"ended with {job.process.returncode}: {job.told}")
    need(read_text("/root-only/passwd") == "as it was", "root's file was written to")
    need(read_text("/home/alice/d/passwd") == "ATTACKwas", "its own was not")
    lines = bytes(job.out).decode().splitlines()
    kept = "['0000000000000000', '1']"
    need(all(line.endswith(kept) or line.endswith("['1', '0000000000000000']") for line in lines),
         f"it printed {lines[-3:]}")
    return said[:60]


# A deleted file and a socket, which a restore makes anew.
MAKER = """
import os, socket, sys, time
gone = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
os.write(gone, b"0123456789")
os.unlink("gone")
shut = os.open("shut", os.O_RDWR | os.O_CREAT, 0o400)
door = socket.socket(socket.AF_UNIX)
door.bind("door")
door.listen()
for n in range(100000):
    s = os.fstat(gone)
    print(n, os.pread(gone, 4, 2), s.st_uid, s.st_nlink, os.stat("door").st_uid,
          os.write(shut, b"x"), flush=True)
    if os.path.exists("/home/alice/enough"): break
    time.sleep(0.05)
"""


def test_what_a_restore_makes_for_a_plain_user_is_the_users(market):
    os.makedirs("/home/alice/made-anew", exist_ok=True)
    os.chown("/home/alice/made-anew", ALICE, ALICE)
    job = market.srun("-p", 50, "/usr/bin/python3", "-c", MAKER, user=ALICE, group=ALICE,
                      extra_groups=[], cwd="/home/alice/made-anew",
                      env={**market.env, "HOME": "/home/alice"})
    job.printed(3)
    need(moved(market, job, 3) == 3, f"it ended: {job.told}")
    job.printed(job.lines() + 3)
    with open("/home/alice/enough", "w"):
        pass
    need(job.wait() == 0, f"ended with {job.process.returncode}: {job.told}")
    os.unlink("/home/alice/enough")
    lines = bytes(job.out).decode().splitlines()
    need(lines == [f"{n} b'2345' {ALICE} 0 {ALICE} 1" for n in range(len(lines))],
         f"it printed {lines[-3:]}")
    return f"3 moves, {len(lines)} lines"


# A process and three children share 32 MB; each child then has a page of its own.
SHARERS = """
import mmap, os, select, sys
m = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096): m[at:at + 8] = at.to_bytes(8, "little")
right = lambda own: all(m[at] == at & 255 and m[at + 1] == at >> 8 & 255
                        for at in range(0, len(m), 4096) if at != own * 4096)
for me in range(1, 4):
    if os.fork() == 0:
        m[me * 4096:me * 4096 + 8] = b"children"
        while os.getppid() != 1: select.select([], [], [], 0.2) if right(me) else os._exit(1)
        os._exit(0)
n = 0
while not os.path.exists("/home/alice/enough"):
    print(n, right(0), flush=True)
    n += 1
    select.select([], [], [], 0.1)
"""
# 32 MB of pages that are all the same, for the kernel to merge (KSM).
MERGED = """
import mmap, time
m = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096): m[at:at + 4096] = b"7" * 4096
m.madvise(mmap.MADV_MERGEABLE)
for n in range(100000):
    print(n, all(m[at] == 55 for at in range(0, len(m), 4096)), flush=True)
    time.sleep(0.1)
"""


def proportional_kb(market, id):
    pids = set().union(*[p for _, _, p in market.capsules(id)])
    found = [re.search(r"^Pss:\s+(\d+)", read_text(f"/proc/{p}/smaps_rollup"), re.M) for p in pids]
    return sum(int(m[1]) for m in found if m)


def test_memory_that_processes_of_a_plain_user_share_stays_shared(market):
    """In each form, under a limit that leaves no room for a second copy."""
    told = []
    for form in ("auto", "safe", "fast"):
        job = market.srun("-p", 50, "-m", 96, "--move", form, "/usr/bin/python3", "-c",
                          SHARERS, user=ALICE, group=ALICE, extra_groups=[], cwd="/home/alice",
                          env={**market.env, "HOME": "/home/alice"})
        job.printed(3)
        before = proportional_kb(market, job.id)
        need(moved(market, job, 3) == 3, f"{form}: it ended: {job.told}")
        job.printed(job.lines() + 3)
        after = until("all its pages are there",
                      lambda: (kb := proportional_kb(market, job.id)) >= 0.97 * before and kb)
        need(after <= 1.1 * before, f"{form}: {before} kB were {after} kB after three moves")
        with open("/home/alice/enough", "w"):
            pass
        need(job.wait() == 0, f"{form}: ended with {job.process.returncode}: {job.told}")
        os.unlink("/home/alice/enough")
        lines = bytes(job.out).decode().splitlines()
        need(lines == [f"{i} True" for i in range(len(lines))], f"{form}: it printed {lines[-3:]}")
        told.append(f"{form} {before} -> {after} kB")
    return ", ".join(told)


def test_memory_that_the_kernel_has_merged_stays_merged(market):
    ksm = "/sys/kernel/mm/ksm"
    if not os.path.exists(ksm):
        return "this kernel merges nothing"

    def merge(value, **settings):
        for name, number in {**settings, "run": value}.items():
            with open(f"{ksm}/{name}", "w") as f:
                f.write(str(number))
    merge(1, pages_to_scan=20000, sleep_millisecs=20)
    try:
        job = market.srun("-p", 50, "--checkpoint-every", "15s", "/usr/bin/python3", "-c", MERGED)
        job.printed(3)
        merged = until("its pages are merged",
                       lambda: (kb := proportional_kb(market, job.id)) < 20_000 and kb)
        merge(0)  # what comes apart now stays apart
        until("it has a checkpoint", lambda: "checkpoint_node" in market.job(job.id))
        kept = proportional_kb(market, job.id)
        need(kept <= 1.1 * merged, f"{merged} kB were {kept} kB after a checkpoint")
        merge(1)
        need(moved(market, job, 2) == 2, f"it ended: {job.told}")
        until("they are merged there, too", lambda: proportional_kb(market, job.id) <= 1.3 * merged)
        market.tool("marketctl", "cancel", job.id)
        job.wait()
        need(b"False" not in job.out, "its memory has changed")
        return f"{merged} -> {kept} kB"
    finally:
        merge(2)


def test_a_job_of_a_plain_user_is_no_other_users_to_end(market):
    job = market.srun("-p", 50, "sleep", "1000")
    market.until_runs(job.id)
    done = market.tool("marketctl", "cancel", job.id, check=False, user=ALICE, group=ALICE,
                       extra_groups=[])
    need(done.returncode == 1 and market.job(job.id)["status"] == "run", f"{done}")
    market.tool("marketctl", "cancel", job.id)
    need(job.wait() == 255, f"{job.process.returncode}")


def test_a_wall_clock_that_is_set_charges_nothing_and_stops_nothing(market):
    """Back and forth by hours and weeks, under a job that runs, moves, is written down and
    frozen."""
    def set_clock(seconds):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    began, wall = time.monotonic(), time.time()
    job = market.srun("-p", 50, "--checkpoint-every", "2s", *programs.chain_job(),
                      stdin=subprocess.PIPE)
    where = market.until_runs(job.id)["where"]
    try:
        for hours in (1, -24, 24 * 40, -24 * 30):
            set_clock(hours * 3600)
            job.printed(job.lines() + 3)
            where = "n2" if where == "n1" else "n1"
            need(move(market, job.id, where), "it ended")
        market.tool("marketctl", "--hold", "freeze", job.id)
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        set_clock(-24 * 3600)
        market.tool("marketctl", "release", job.id)
        market.until_runs(job.id)
        job.printed(job.lines() + 3)
    finally:
        time.clock_settime(time.CLOCK_REALTIME, wall + time.monotonic() - began)
    job.process.stdin.close()
    need(job.wait() == 7, f"ended with {job.process.returncode}: {job.told}")
    programs.check_chain(job.out)
    last = market.until_job(job.id, "is settled", lambda j: j["status"] == "finish")
    took = time.monotonic() - began
    need(0 < last["runtime_s"] <= took and 0 < last["market_runtime_s"] <= took,
         f"in {took} s: {last}")
    need(market.tool("marketctl", "ledger", "verify").returncode == 0, "the ledger")
    return f"5 times, {last['runtime_s']:.0f} s charged of {took:.0f}"


def test_the_cpu_share_of_a_node_acts(market):
    """n1 and n2 have speeds 300 and 100: jobs of both on one CPU get time in this ratio."""
    jobs = [market.srun("-p", p, "taskset", "-c", "0", *load(1_000_000, memory=1))
            for p in (60, 50)]
    # The first to start may stand on n2 until the other is placed too.
    until("one runs on n1 and one on n2",
          lambda: {market.until_runs(j.id)["where"] for j in jobs} == {"n1", "n2"})

    def used(node):
        return int(
            re.search(r"usage_usec (\d+)", read_text(f"{V2}/{market.tag}/{node}/cpu.stat"))[1])

    need([read_text(f"{V2}/{market.tag}/{n}/cpu.weight").strip() for n in ("n1", "n2")] ==
         ["300", "100"], "weights")
    before = used("n1"), used("n2")
    until("four seconds of CPU", lambda: used("n1") - before[0] + used("n2") - before[1] > 4e6,
          pause=0.2)
    first, second = used("n1") - before[0], used("n2") - before[1]
    need(2 <= first / second <= 4.5, f"300 to 100 gave {first / 1e6:.2f} s to {second / 1e6:.2f} s")
    for j in jobs:
        market.tool("marketctl", "cancel", j.id)
    for j in jobs:
        j.wait()
    return f"300:100 gave {first / second:.1f}:1"


def test_marks_of_written_pages_are_understood():
    """The unit tests that need a kernel which tracks them: rounds of memory of processes that do
    everything to it."""
    done = subprocess.run([f"{BIN}/unit"], env={**os.environ, "CK_RUN_SUITE": "sent_pages_live",
                                                "LD_LIBRARY_PATH": "/souk/lib"},
                          capture_output=True, text=True, timeout=120)
    need(done.returncode == 0 and "skipped" not in done.stdout + done.stderr and
         "100%" in done.stdout, f"{done.returncode} {done.stdout[-1500:]} {done.stderr[-500:]}")


# One kind of job each, until /var/tmp/end-KIND is there, then whether its memory is what it made of
# it.
#   idle      20 MB that nobody touches, and as much again to compare them with
#   busy      the same, of which 1/8 of the first half is written to all the time
#   changing  the idle ones, and small regions that grow, move, shrink, are dropped, forked, and
#             written to
AHEAD = """
import ctypes, hashlib, os, random, sys, time
kind, P, MB = sys.argv[1], 4096, 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int,
                        ctypes.c_void_p]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
wrong, rng = [], random.Random(5)
seed = hashlib.sha256(b"souk").digest()
size, n, regions = 20 * MB, 0, []
at = libc.mmap(None, size, 3, 0x22, -1, 0)
whole = seed * (size // 32)
ctypes.memmove(at, whole, size)
def cell(a): return ctypes.c_uint64.from_address(a)
def check(r):
    for i, want in enumerate(r[1]):
        if cell(r[0] + i * P).value != want: wrong.append((n, i))
def write(r, i):
    r[1][i] = rng.getrandbits(63)
    cell(r[0] + i * P).value = r[1][i]
def change():
    what = rng.randrange(8) if regions else 0
    if what == 0 and len(regions) < 12:
        r = [libc.mmap(None, 512 * P, 3, 0x22, -1, 0), [0] * 512]
        regions.append(r)
        for i in range(0, 512, 2): write(r, i)
    if not regions: return
    r = rng.choice(regions)
    pages = len(r[1])
    if what == 1:
        to = libc.mmap(None, pages * P, 0, 0x22, -1, 0)
        r[0] = libc.mremap(r[0], pages * P, pages * P, 3, to)
    if what == 2 and pages > 64:
        libc.munmap(r[0] + (pages - 32) * P, 32 * P)
        del r[1][pages - 32:]
    if what == 3:
        first = rng.randrange(pages)
        last = min(pages, first + 40)
        libc.madvise(r[0] + first * P, (last - first) * P, 4)
        r[1][first:last] = [0] * (last - first)
    if what == 4:
        r[0] = libc.mremap(r[0], pages * P, (pages + 16) * P, 1, None)
        r[1] += [0] * 16
    if what == 5:
        pid = os.fork()
        if pid == 0:
            for i in range(pages): cell(r[0] + i * P).value = 7
            os._exit(0)
        os.waitpid(pid, 0)
    if what == 6:
        for i in range(0, pages, 3): write(r, i)
    if what == 7: check(r)
os.write(1, b"ready\\n")
while not os.path.exists(f"/var/tmp/end-{kind}"):
    n += 1
    if kind == "busy":
        for i in range(n % 64, size // 8 // P, 64): cell(at + i * P).value = n
    if kind == "changing": change()
    time.sleep(0.004)
for r in regions: check(r)
if kind == "busy":
    last = {}
    for k in range(max(1, n - 70), n + 1):
        for i in range(k % 64, size // 8 // P, 64): last[i] = k
    full = n > 64
    for i in range(size // 8 // P):
        if i in last and cell(at + i * P).value != last[i]: wrong.append(("busy", i))
        if i in last: ctypes.memmove(at + i * P, whole, 8)
if ctypes.string_at(at, size) != whole: wrong.append("block")
os.write(1, f"{'damaged ' + str(wrong[:5]) if wrong else 'whole'}\\n".encode())
"""


def end_ahead(kind):
    with open(f"/var/tmp/end-{kind}", "w"):
        pass


def forget_end(kind):
    if os.path.exists(f"/var/tmp/end-{kind}"):
        os.unlink(f"/var/tmp/end-{kind}")


def ends_whole(job, kind):
    end_ahead(kind)
    need(job.wait() == 0, f"{kind}: ended with {job.process.returncode}: {job.told}")
    need(bytes(job.out) == b"ready\nwhole\n", f"{kind}: {job.out[-300:]!r}")


def ahead_of(market, id):
    """What the sources say of this job's moves with memory sent ahead: a dict of numbers each."""
    text = "\n".join(read_text(f"{market.run_dir}/{n}/log") for n in ("n1", "n2", "n3"))
    lines = [line for line in text.splitlines()
             if "its memory went ahead" in line and f"JOB={id} " in line]
    return [{k: int(v) for k, v in re.findall(r"(\w+)=(\d+)(?= |$)", line)} for line in lines]


def test_jobs_move_with_their_memory_sent_ahead(market):
    """Each kind; the memory that goes while it stands still is counted, not timed. (The market
    compares what was sent ahead with the frozen job's memory each time: --check-ahead.)"""
    told = []
    changing_went = 0
    # A job whose processes come and go leaves so much that the plan of its next move may do
    # without; so may that of the first, if just then two processes share all of it.
    for kind, how, times in (("idle", "safe", 1), ("busy", "safe", 2),
                             *3 * [("changing", "auto", 1)]):
        forget_end(kind)
        job = market.srun("-p", 50, "--move", how, "/usr/bin/python3", "-c", AHEAD, kind)
        job.printed(1)
        need(moved(market, job, times) == times, f"{kind}: it ended")
        last, rounds = market.job(job.id), ahead_of(market, job.id)
        if kind == "changing" and not last["last_move"].startswith("pre-copy"):
            need(last["failed_moves"] == 0 and last["migrations"] == 1, f"{kind}: {last}")
            ends_whole(job, kind)
            continue
        changing_went += kind == "changing"
        need(last["failed_moves"] == 0 and last["last_move"].startswith("pre-copy"),
             f"{kind}: {last}")
        need(len(rounds) == times, f"{kind}: {rounds}")
        need(last["last_ahead_bytes"] > (0 if kind == "changing" else 20 << 20),
             f"{kind}: {last} {rounds}")
        # Prediction and truth, as marketctl job shows them; what the first move measured, the
        # second planned with.
        shown = {k: last[k] for k in ("last_ahead_bytes", "last_ahead_rounds", "last_frozen_bytes")}
        need(tuple(shown.values()) ==
             tuple(rounds[-1][k] for k in ("sent_bytes", "rounds", "left_bytes")),
             f"{kind}: {last} {rounds}")
        need(("forecast_dirty_bytes_per_s" in last) == (times > 1), f"{kind}: {last}")
        if kind == "busy":
            need(0 < last["last_dirty_bytes_per_s"] and
                 0 < last["forecast_frozen_bytes"] < last["last_ahead_bytes"], f"busy: {last}")
        used, left = sum(r["used_bytes"] for r in rounds), sum(r["left_bytes"] for r in rounds)
        if kind == "idle":
            need(left * 8 < used, f"idle: {rounds}")
        if kind == "busy":
            need(left * 3 < used, f"busy: {rounds}")
        told.append(f"{kind} {used / times / 1e6:.1f} MB ahead, {left / times / 1e6:.1f} MB while "
                    f"frozen, {rounds[-1]['rounds']} rounds")
        ends_whole(job, kind)
    need(changing_went > 0, "no memory of a job whose processes come and go went ahead")
    return "; ".join(told)


def test_a_daemon_that_dies_while_memory_goes_ahead_costs_a_move_not_the_job(market):
    forget_end("busy")
    job = market.srun("-p", 50, "--move", "safe", "/usr/bin/python3", "-c", AHEAD, "busy")
    job.printed(1)
    where = market.until_runs(job.id)["where"]
    for which in ("destination", "source"):
        there = "n2" if where == "n1" else "n1"
        log = f"{market.run_dir}/{where}/log"

        def begun():
            return sum("memory goes ahead" in line and f"JOB={job.id} " in line
                       for line in read_text(log).splitlines())
        before = begun()
        order = subprocess.Popen([f"{BIN}/marketctl", "--hold", "--no-wait", "move", job.id, there],
                                 env=market.env, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        until("memory goes ahead", lambda: begun() > before, pause=0.005)
        market.kill_daemon(there if which == "destination" else where)
        order.wait(90)
        market.until_up()
        market.until_job(job.id, "runs again",
                         lambda j: j["status"] == "run" and "going_to" not in j)
        need(move(market, job.id, there), "it ended")
        where = there
    end_ahead("busy")
    need(job.wait() == 0 and bytes(job.out) == b"ready\nwhole\n",
         f"{job.process.returncode} {job.out[-300:]!r} {job.told}")


def test_a_market_under_systemds_units_outlives_kills_and_restarts():
    """marketd and two agentd of contrib/systemd: ready when they say so, started again when killed;
    their job goes on."""
    os.makedirs("/etc/souk")
    agent = ('market = "127.0.0.1:7070"\ncpus = 1\nmemory_mb = 200\nspeed = 100\n'
             'insecure = true\n')
    for name, text in (
            ("marketd", 'listen = "127.0.0.1:7070"\ninsecure = true\n'),
            ("agentd", f'node = "left"\nlisten = "127.0.0.1:7071"\ncgroup = "souk/left"\n{agent}'),
            ("right", f'node = "right"\nlisten = "127.0.0.1:7072"\ncgroup = "souk/right"\n'
             f'socket = "/run/souk/right.sock"\n'
             f'state = "/var/lib/souk/right"\n{agent}')):
        with open(f"/etc/souk/{name}.conf", "w") as f:
            f.write(text)
    units = ["souk-marketd", "souk-agentd", "souk-right"]
    for unit in units:
        text = read_text(f"/souk/systemd/{unit.replace('right', 'agentd')}.service").replace(
            "/usr/local/sbin", BIN)
        with open(f"/etc/systemd/system/{unit}.service", "w") as f:
            f.write(text.replace("agentd.conf", "right.conf") if unit == "souk-right" else text)

    def systemctl(*words):
        done = subprocess.run(["timeout", "60", "systemctl", *words], capture_output=True,
                              text=True)
        if done.returncode != 0:
            said = subprocess.run(["systemctl", "--no-pager", "status", *units],
                                  capture_output=True, text=True)
            raise AssertionError(f"systemctl {words}: {done.returncode} {done.stderr}{said.stdout}")
        return done.stdout

    def shown(unit, key):
        return systemctl("show", "--value", "-p", key, unit).strip()

    for words in (["systemd-sysusers", "/souk/systemd/sysusers.conf"],
                  ["systemd-tmpfiles", "--create", "/souk/systemd/tmpfiles.conf"]):
        subprocess.run(words, check=True, timeout=60)
    # This machine has loopback alone.
    systemctl("mask", "--runtime", "--now", "systemd-networkd-wait-online.service")
    systemctl("daemon-reload")
    systemctl("start", *units)
    market = Market()
    market.env.pop("SOUK_RUN")
    until("both are connected",
          lambda: [p["connected"] for p in market.providers()] == [True, True])
    job = market.srun("-p", 50, *programs.chain_job(), stdin=subprocess.PIPE)
    try:
        where = market.until_runs(job.id)["where"]
        for unit in units:
            old = shown(unit, "MainPID")
            os.kill(int(old), 9)
            until(f"{unit} is started again", lambda: shown(unit, "ActiveState") == "active" and
                  shown(unit, "MainPID") not in ("0", old), pause=0.2)
        until("both are connected again",
              lambda: market.tool("marketctl", "list-providers", check=False).returncode == 0 and
              [p["connected"] for p in market.providers()] == [True, True])
        other = "right" if where == "left" else "left"
        need(move(market, job.id, other), "it ended")
        systemctl("restart", *units)
        until("it runs as before", lambda: market.job(job.id).get("status") == "run")
        job.printed(job.lines() + 5)
        job.process.stdin.close()
        need(job.wait() == 7, f"ended with {job.process.returncode}: {job.told}")
        programs.check_chain(job.out)
        systemctl("stop", *units)
        need([shown(u, "Result") for u in units] == ["success"] * 3,
             "a unit failed when it was stopped")
    finally:
        job.end()
    return f"{job.lines()} lines"


def run(test, *args):
    name, began = test.__name__.removeprefix("test_").replace("_", " "), time.monotonic()
    try:
        told = test(*args)
        say(f"ok      {name}{f' ({told})' if told else ''}, {time.monotonic() - began:.1f} s")
        return True
    except Exception:  # every test runs; said with its trace
        say(f"FAILED  {name}, {time.monotonic() - began:.1f} s")
        for line in traceback.format_exc().splitlines()[-12:]:
            say(f"        {line}")
        return False


def main():
    with open("/proc/1/comm") as f:
        say(f"Linux {os.uname().release}, PID 1 is {f.read().strip()}, up for "
            f"{read_text('/proc/uptime').split()[0]} s")
    ok = [run(test_doctor_finds_all_that_a_stock_kernel_has),
          run(test_marks_of_written_pages_are_understood)]
    market = Market("--nodes", "3", "--speeds", "300,100,50", "--check-ahead")
    try:
        market.up()
        for test in (test_jobs_move_with_their_memory_sent_ahead,
                     test_a_daemon_that_dies_while_memory_goes_ahead_costs_a_move_not_the_job,
                     test_jobs_that_move_back_and_forth_end_as_unmoved_ones,
                     test_a_job_of_a_plain_user_moves_and_is_the_users_all_along,
                     test_a_plain_user_who_swaps_a_directory_gets_no_file_of_roots,
                     test_what_a_restore_makes_for_a_plain_user_is_the_users,
                     test_memory_that_processes_of_a_plain_user_share_stays_shared,
                     test_memory_that_the_kernel_has_merged_stays_merged,
                     test_a_job_of_a_plain_user_is_no_other_users_to_end,
                     test_a_wall_clock_that_is_set_charges_nothing_and_stops_nothing,
                     test_the_cpu_share_of_a_node_acts):
            ok.append(run(test, market))
            if not ok[-1]:
                for path, text in market.logs():
                    print(f"{path}:\n{text}", flush=True)
            market.clear()
    except Exception:
        ok.append(False)
        for line in traceback.format_exc().splitlines()[-12:]:
            say(f"        {line}")
        for path, text in market.logs():
            print(f"{path}:\n{text}", flush=True)
    left = market.down()
    ok.append(not left)
    say(f"FAILED  souk down left {left}" if left else "ok      souk down leaves nothing behind")
    ok.append(run(test_a_market_under_systemds_units_outlives_kills_and_restarts))
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
