#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""programs.py [--times N] [NAME...]: real programs as jobs, each moved and frozen N times (20) in
turn at any moment of its work. What it prints is what it prints unmoved. A table on standard
output; exit 0 if none failed. A program that this machine lacks is skipped, and named. Run as root:
`make check-programs`."""
import argparse
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster"), os.path.join(HERE, "..", "peers"),
                os.path.join(HERE, "..")]
from conftest import Late, Market  # noqa: E402
from ending import is_left  # noqa: E402
from test_movement import shove  # noqa: E402
from test_programs import JAVA, NODE  # noqa: E402

LIMIT = 300  # seconds for the end of a job, which may do a whole round before it
ROUNDS = 'cd "$1"; while ! read -t 0; do {}; done; echo end'
JAVAS = {"java-17": ("/usr/lib/jvm/java-17-openjdk-amd64/bin/java",),
         "java-21-or-later": ("/usr/lib/jvm/java-21-openjdk-amd64/bin/java",
                              "/usr/lib/jvm/java-25-openjdk-amd64/bin/java",
                              "/usr/lib/jvm/temurin-25-jdk-amd64/bin/java")}


class Skipped(Exception):
    """Says what this machine lacks."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f"there is no {program}")
    return programs[0]


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


# ---- programs that print line after line, each from the one before, until their input ends

def java(paths):
    def program(top):
        found = [p for p in paths if os.path.exists(p)]
        if not found:
            raise Skipped(f"there is no {' and no '.join(paths)}")
        return [found[0], "-Xmx96m", write(f"{top}/Job.java", JAVA)]
    return program


def node(top):
    return [need("node"), "-e", NODE]


GO = """package main

import ("bufio"; "crypto/sha256"; "fmt"; "os"; "runtime"; "sync")

func main() {
    ended := make(chan bool)
    go func() { bufio.NewReader(os.Stdin).ReadString(0); close(ended) }()
    state, kept := [32]byte{}, map[int][]byte{}
    for n := 0; ; n++ {
        select {
        case <-ended:
            fmt.Println("end", n)
            return
        default:
        }
        var parts [4][32]byte
        var all sync.WaitGroup
        for i := range parts {
            all.Add(1)
            go func(i int) {
                defer all.Done()
                h := sha256.New()
                for k := 0; k < 3000; k++ { h.Write(state[:]); h.Write([]byte{byte(i)}) }
                copy(parts[i][:], h.Sum(nil))
            }(i)
        }
        all.Wait()
        h := sha256.New()
        for _, p := range parts { h.Write(p[:]) }
        copy(state[:], h.Sum(nil))
        kept[n%200] = make([]byte, 100000)
        if n%500 == 0 { runtime.GC() }
        fmt.Printf("%d %x\\n", n, state)
    }
}
"""


def go(top):
    need("go")
    write(f"{top}/job.go", GO)
    env = {**os.environ, "GOCACHE": f"{top}/cache", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", "-o", f"{top}/job", f"{top}/job.go"], check=True, cwd=top,
                   env=env, timeout=LIMIT)
    return [f"{top}/job"]


# ---- programs that do the same round of work again and again

SPAWN = """
import hashlib, multiprocessing
def work(i, lock, total):
    h = hashlib.sha256()
    for k in range(20000): h.update(b"%d %d" % (i, k))
    with lock: total.value += h.digest()[0]
if __name__ == "__main__":
    m = multiprocessing.get_context("spawn")
    lock, total = m.Lock(), m.Value("i", 0)
    them = [m.Process(target=work, args=(i, lock, total)) for i in range(4)]
    for p in them: p.start()
    for p in them: p.join()
    print(total.value, [p.exitcode for p in them])
"""
R = """
library(parallel)
work <- function(i) { x <- i; for (k in 1:200000) x <- (x * 16807) %% 2147483647; x }
forked <- unlist(mclapply(1:8, work, mc.cores = 2))
cluster <- makePSOCKcluster(2)
sent <- unlist(parLapply(cluster, 1:8, work))
stopCluster(cluster)
cat(sum(forked), identical(forked, sent), "\\n")
"""
RULES = """#!/usr/bin/make -f
clean:
    rm -rf debian/tmp
build:
    for i in $$(seq 30); do echo "int f$$i(void) { return $$i; }" > f$$i.c; \\
      gcc -O1 -g0 -c -o f$$i.o f$$i.c; done
    ar rcsD libf.a f*.o
binary: build
    install -d debian/tmp/DEBIAN debian/tmp/usr/lib/f
    install -m 644 libf.a debian/tmp/usr/lib/f
    for i in $$(seq 20); do echo $$i > debian/tmp/usr/lib/f/$$i; \\
      chown $$((i * 100)):$$i debian/tmp/usr/lib/f/$$i; done
    dpkg-gencontrol -Pdebian/tmp
    dpkg-deb --build debian/tmp ..
""".replace("\n    ", "\n\t")
PAGE = """<p id=x>begun</p><script>
let s = 7;
for (let i = 0; i < 2e6; i++) s = (s * 16807) % 2147483647;
document.getElementById("x").textContent = "done " + s;
</script>"""


def spawn(top):
    return f"/usr/bin/python3 {write(f'{top}/job.py', SPAWN)}"


def r_parallel(top):
    return f"{need('Rscript')} {write(f'{top}/job.R', R)}"


def package(top):
    need("fakeroot", "dpkg-deb", "dpkg-gencontrol", "gcc", "make")
    os.makedirs(f"{top}/f-1/debian")
    write(f"{top}/f-1/debian/control", "Source: f\nMaintainer: F <f@localhost>\n\nPackage: f\n"
          "Architecture: all\nDescription: files of many owners\n")
    write(f"{top}/f-1/debian/changelog", "f (1) unstable; urgency=low\n\n  * First.\n\n"
          " -- F <f@localhost>  Thu, 01 Jan 2026 00:00:00 +0000\n")
    os.chmod(write(f"{top}/f-1/debian/rules", RULES), 0o755)
    return ("cd f-1; fakeroot sh -c 'debian/rules clean && SOURCE_DATE_EPOCH=1767225600 "
            "debian/rules binary' >../log 2>&1 || tail ../log; cd ..; sha256sum f_1_all.deb; "
            "dpkg-deb -c f_1_all.deb | md5sum")


def chromium(top):
    need("chromium")
    write(f"{top}/page.html", PAGE)
    return (f"chromium --headless --no-sandbox --disable-gpu --user-data-dir={top}/profile "
            f"--dump-dom file://{top}/page.html 2>/dev/null | grep -o 'done [0-9]*'")


POSTGRES = """#!/bin/bash
# postgres does not run as root, and a job of another user may not move here: it is told of another.
export PGHOST=$1 PGUSER=postgres PGDATABASE=postgres LD_PRELOAD=$1/user.so
$2/postgres -D $1/data -k $1 -c listen_addresses= -c fsync=off >$1/log 2>&1 &
until $2/pg_isready -q; do sleep 0.1; done
seed=0
while ! read -t 0; do
    seed=$((seed + 1))
    $2/pgbench -n -c 3 -j 2 -t 60 --random-seed=$seed >$1/bench 2>&1 || cat $1/bench
    echo $seed $($2/psql -Atc 'select count(*), sum(delta), (select sum(abalance) from
        pgbench_accounts), (select sum(bbalance) from pgbench_branches), (select sum(tbalance) from
        pgbench_tellers) from pgbench_history')
done
echo end $seed
kill %1; wait
"""


def postgres(top):
    versions = sorted(os.listdir("/usr/lib/postgresql")) if os.path.isdir(
        "/usr/lib/postgresql") else []
    if not versions:
        raise Skipped("there is no PostgreSQL")
    where = f"/usr/lib/postgresql/{versions[-1]}/bin"
    user = pwd.getpwnam("postgres").pw_uid
    write(f"{top}/user.c", f"int geteuid(void) {{ return {user}; }} int getuid(void) {{ return "
          f"{user}; }}")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", f"{top}/user.so", f"{top}/user.c"], check=True)
    script = write(f"{top}/job.sh", POSTGRES)
    for copy in ("moved", "unmoved"):
        os.makedirs(f"{top}/{copy}/data", mode=0o700)
        shutil.copy(f"{top}/user.so", f"{top}/{copy}")
        data, socket = f"{top}/{copy}/data", f"-k {top}/{copy} -c listen_addresses="
        prepare = (f"chown {user} {data}; export LD_PRELOAD={top}/user.so; cd {where};"
                   f"./initdb -N -U postgres -D {data}; chown -R {user} {data};"
                   f"./pg_ctl -w -D {data} -o '{socket}' -l {top}/{copy}/log start && "
                   f"./pgbench -h {top}/{copy} -U postgres -i -s 1 postgres;"
                   f"./pg_ctl -D {data} stop; chown -R {user} {data}")
        done = subprocess.run(["bash", "-c", prepare], capture_output=True, text=True,
                              timeout=LIMIT)
        if "server stopped" not in done.stdout:
            raise Skipped(f"PostgreSQL cannot be set up: {(done.stdout + done.stderr)[-200:]}")
    return lambda copy: ["bash", script, f"{top}/{copy}", where]


LINES = {"node": node, "go": go, **{name: java(paths) for name, paths in JAVAS.items()},
         "postgresql": postgres}
AGAIN = {"python-spawn": spawn, "r-parallel": r_parallel, "fakeroot-package": package,
         "chromium": chromium}
OWN = {"r-parallel", "chromium"}  # over TCP they talk to themselves, or use the node's address


def begin(market, name, command, top):
    options = ["--net=own"] if name in OWN else []
    job = market.srun("-p", 50, "-m", 1500, *options, *command, stdin=subprocess.PIPE, cwd=top)
    job.printed(1, LIMIT)
    return job


def move_about(market, job, times):
    r = random.Random(times)
    return shove(market, job.id, 17, times, between=lambda: time.sleep(r.uniform(0, 0.5)))


def ended(job):
    job.printed(job.lines() + 1, LIMIT)
    job.process.stdin.close()
    status = job.wait(LIMIT)
    return status, bytes(job.out).decode().splitlines()


def line_after_line(market, name, top, times):
    command = LINES[name](top)
    of = command if callable(command) else (lambda copy: command)
    job = begin(market, name, of("moved"), top)
    done = move_about(market, job, times)
    status, lines = ended(job)
    by_hand = subprocess.Popen(of("unmoved"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, cwd=top)
    try:
        wanted = [by_hand.stdout.readline().rstrip() for _ in lines[:-1]]
    finally:
        by_hand.communicate(timeout=LIMIT)
    good = status == 0 and lines[:-1] == wanted and lines[-1].startswith("end")
    return good, done, f"{len(lines)} lines", job


def again_and_again(market, name, top, times):
    round_ = AGAIN[name](top)
    by_hand = subprocess.run(["bash", "-c", f'cd "$1"; {round_}', "bash", top], text=True,
                             capture_output=True, timeout=LIMIT)
    wanted = by_hand.stdout.splitlines()
    if not wanted:
        raise Skipped(f"unmoved it prints nothing: {by_hand.stderr[-200:]}")
    job = begin(market, name, ["bash", "-c", ROUNDS.format(round_), "bash", top], top)
    done = move_about(market, job, times)
    status, (*lines, end) = ended(job)
    rounds = len(lines) // len(wanted)
    good = status == 0 and end == "end" and lines == wanted * rounds
    return good, done, f"{rounds} rounds", job


SQLITE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
db.execute("pragma journal_mode=wal")
n, ended = 0, False
import select
while not ended:
    ended = bool(select.select([0], [], [], 0.01)[0])
    db.execute("begin immediate")
    for i in range(20):
        db.execute("insert into t values (?, ?, ?)", (sys.argv[2], n, bytes(200)))
        n += 1
    db.execute("commit")
    if n % 100 == 0: print(n, flush=True)
print("end", n, flush=True)
"""


def sqlite_by_two(market, name, top, times):
    """Two jobs write to one database. Each row that one has committed is there, once."""
    import sqlite3
    with sqlite3.connect(f"{top}/db") as db:
        db.execute("pragma journal_mode=wal")
        db.execute("create table t (who text, n int, filler blob)")
    program = write(f"{top}/job.py", SQLITE)
    jobs = [begin(market, name, ["/usr/bin/python3", program, f"{top}/db", who], top)
            for who in "ab"]
    done = sum(shove(market, jobs[i % 2].id, i, 1) for i in range(times))
    said = [ended(job) for job in jobs]
    with sqlite3.connect(f"{top}/db") as db:
        whole = db.execute("pragma integrity_check").fetchall() == [("ok",)]
        rows = [db.execute("select count(*), count(distinct n) from t where who = ?",
                           (who,)).fetchone() for who in "ab"]
    ends = [int(lines[-1].split()[1]) for _, lines in said]
    good = whole and all(status == 0 for status, _ in said) and rows == [(n, n) for n in ends]
    return good, done, f"{sum(ends)} rows, integrity {'ok' if whole else 'BAD'}", jobs[0]


PROGRAMS = {**dict.fromkeys(LINES, line_after_line), **dict.fromkeys(AGAIN, again_and_again),
            "sqlite-wal-two-jobs": sqlite_by_two}


def run(market, name, top, times):
    """One line of the table; False: it failed."""
    begun = time.monotonic()
    os.makedirs(f"{top}/{name}")
    try:
        good, done, what, job = PROGRAMS[name](market, name, f"{top}/{name}", times)
        last = market.job(job.id)
        good = good and done == times
        what += f", {done} moves and freezes"
        if last["failed_moves"]:
            why = [w for w in job.words if "cannot" in w or "failed" in w]
            what += f", {last['failed_moves']} more failed {why[-1:]}"
        if not good:
            what += f"; said {job.told[-3:]} {job.words[-2:]} {bytes(job.out)[-300:]}"
        result = "passed" if good else "FAILED"
    except Skipped as e:
        good, result, what = True, "skipped", str(e)
    except (AssertionError, OSError, subprocess.SubprocessError) as e:  # Late is one
        good, result, what = False, "FAILED", f"{type(e).__name__}: {str(e)[:600]}"
    print(f"{name:20} {result:8}{time.monotonic() - begun:6.0f} s  {what}", flush=True)
    for job in market.jobs_here if not good else []:
        story = market.tool("marketctl", "--verbose", "job", job.id, "--story", check=False).stdout
        print("   ", "\n    ".join(story.splitlines()[-12:]), flush=True)
    try:
        market.clear()
    except Late as e:
        print(f"  after it: {str(e)[:300]}")
        return False
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(": ", 1)[1])
    parser.add_argument("--times", type=int, default=20, metavar="N")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    if unknown := set(options.names) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}: there are {', '.join(PROGRAMS)}")
    if os.geteuid() != 0:
        sys.exit("programs.py: run it as root, since a market on this host needs that")
    market = Market("--nodes", "3", "--speeds", "100,80,60", "--cpus", "2")
    top, bad = tempfile.mkdtemp(prefix="souk-programs-", dir="/var/tmp"), 0
    try:
        market.up()
        for name in options.names or PROGRAMS:
            bad += not run(market, name, top, options.times)
    finally:
        left = is_left(market, top)
    sys.exit(1 if bad or left else 0)


if __name__ == "__main__":
    main()
