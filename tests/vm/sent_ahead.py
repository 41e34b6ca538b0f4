# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves send memory ahead. Whatever the job does meanwhile, the memory that arrives is the memory
that it wrote."""
import os
import re
import subprocess

from inside import BIN, move, moved, need, read_text, until


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
    """Reads in the logs of the sources how this job's moves sent memory ahead: a dict of numbers
    each."""
    text = "\n".join(read_text(f"{market.run_dir}/{n}/log") for n in ("n1", "n2", "n3"))
    lines = [line for line in text.splitlines()
             if "its memory went ahead" in line and f"JOB={id} " in line]
    return [{k: int(v) for k, v in re.findall(r"(\w+)=(\d+)(?= |$)", line)} for line in lines]


def test_jobs_move_with_their_memory_sent_ahead(market):
    """Moves a job of each kind. The memory that goes while the job stands still is counted, not
    timed. (The market compares what was sent ahead with the frozen job's memory each time:
    --check-ahead.)"""
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
