# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of every kind, moved and frozen at any moment of their work: each result is that of an unmoved run.
SOUK_MOVES=20: so many moves and freezes of each program, in each form of a move (default: 4, in one form each).
What cannot move is refused with the reason, and goes on."""
import fcntl
import hashlib
import os
import random
import re
import shutil
import subprocess
import time

import pytest

from conftest import read_text, until
from test_movement import check_moved, shove
from test_srun import Terminal

MOVES = int(os.environ.get("SOUK_MOVES", 0))
FORMS = ("auto", "safe", "fast")
# A round of work again and again until the job's input ends; each prints the same.
ROUNDS = 'cd "$1"; while ! read -t 0; do {}; done; echo end'


def forms(which):
    return pytest.mark.parametrize("form", FORMS if MOVES else [FORMS[which]])


def need(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


def compiled(path, source, *options):
    (path / "job.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-o", path / "job", path / "job.c", *options], check=True, timeout=60)
    return path / "job"


def move_about(market, job, form):
    r = random.Random(form)
    times = MOVES or 4
    assert shove(market, job.id, form, times, between=lambda: time.sleep(r.uniform(0, 0.3))) == times  # any moment


def check_ended(market, job):
    """Its input ends, and so it ends well, moved as often as it should be."""
    job.process.stdin.close()
    assert job.wait(90) == 0, job.told
    assert not job.told
    check_moved(market, job.id, MOVES or 4)
    return bytes(job.out).decode().splitlines()


def check_rounds(market, form, where, round_):
    """Each round of a bash job, whichever way it was moved, prints what it prints by hand."""
    by_hand = subprocess.run(["bash", "-c", f'cd "$1"; {round_}', "bash", where], capture_output=True, text=True, timeout=90)
    assert by_hand.returncode == 0 and by_hand.stdout and not by_hand.stderr, by_hand
    job = market.srun("--move", form, "-p", 50, "bash", "-c", ROUNDS.format(round_), "bash", where, stdin=subprocess.PIPE)
    job.printed(1)
    move_about(market, job, form)
    job.printed(job.lines() + 1)
    *lines, end = check_ended(market, job)
    wanted = by_hand.stdout.splitlines()
    assert end == "end" and lines == wanted * (len(lines) // len(wanted))


def check_lines(market, form, program, more=3, also=None):
    """A job that prints until its input ends is moved about; by hand its lines are the same."""
    job = market.srun("--move", form, "-p", 50, program, stdin=subprocess.PIPE)
    job.printed(3)
    assert also is None or also(job)
    move_about(market, job, form)
    job.printed(job.lines() + more)
    lines = check_ended(market, job)
    by_hand = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert [by_hand.stdout.readline().rstrip() for _ in lines] == lines
    finally:
        by_hand.communicate(timeout=20)


@forms(0)
def test_a_pipeline_of_bash(market, tmp_path, form):
    check_rounds(market, form, tmp_path,
                 "seq 150000 | awk '{s=(s*31+$1)%1000003; print s}' | sort -n | uniq -c | tee file | gzip | sha256sum; wc file")


POOL = """
import hashlib, multiprocessing
def work(i):
    h = hashlib.sha256()
    for k in range(2000): h.update(b"%d %d" % (i, k))
    return h.hexdigest()
if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        lock, total = multiprocessing.Lock(), multiprocessing.Value("i", 0)
        for n, digest in enumerate(pool.imap(work, range(300))): pass
        print(n, hashlib.sha256(digest.encode()).hexdigest())
"""


@forms(1)
def test_multiprocessing_of_python(market, tmp_path, form):
    (tmp_path / "pool.py").write_text(POOL)
    check_rounds(market, form, tmp_path, "/usr/bin/python3 pool.py")


NODE = """
const crypto = require('crypto'), zlib = require('zlib');
let ended = false, state = Buffer.alloc(32), count = 0;
const kept = new Map();
process.stdin.on('end', () => { ended = true; }).resume();
function round() {
    if (ended) return console.log('end', count, kept.size);
    crypto.pbkdf2(state, 'souk', 2000, 32, 'sha256', (_, key) => zlib.gzip(key, (_, z) => zlib.gunzip(z, (_, back) => {
        state = back;
        kept.set(count % 50000, state.toString('hex').repeat(8));
        console.log(count++, state.toString('hex'));
        setTimeout(round, 2);
    })));
}
round();
"""


def check_numbered(lines, next_of):
    """Numbered lines, each reckoned from the one before."""
    state = None
    for i, line in enumerate(lines):
        state = next_of(state)
        assert line == f"{i} {state.hex()}"


@forms(2)
def test_node(market, form):
    need("node")
    job = market.srun("--move", form, "-p", 50, "node", "-e", NODE, stdin=subprocess.PIPE)
    job.printed(5)
    move_about(market, job, form)
    job.printed(job.lines() + 5)
    *lines, end = check_ended(market, job)
    check_numbered(lines, lambda s: hashlib.pbkdf2_hmac("sha256", s or bytes(32), b"souk", 2000, 32))
    assert end == f"end {len(lines)} {len(lines)}"


JAVA = """
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
public class Job {
    static String hex(byte[] b) { StringBuilder s = new StringBuilder(); for (byte x : b) s.append(String.format("%02x", x)); return s.toString(); }
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(3);
        byte[] state = new byte[32];
        ArrayDeque<byte[]> garbage = new ArrayDeque<>();
        Thread reader = new Thread(() -> { try { while (System.in.read() >= 0); } catch (Exception e) { } });
        reader.start();
        long n = 0;
        for (; reader.isAlive(); n++) {
            final byte[] from = state;
            List<Future<byte[]>> parts = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                final byte me = (byte) i;
                parts.add(pool.submit(() -> {
                    MessageDigest d = MessageDigest.getInstance("SHA-256");
                    for (int k = 0; k < 2000; k++) { d.update(from); d.update(me); }
                    return d.digest();
                }));
            }
            MessageDigest all = MessageDigest.getInstance("SHA-256");
            for (Future<byte[]> p : parts) all.update(p.get());
            state = all.digest();
            garbage.add(new byte[200000]);
            if (garbage.size() > 50) garbage.remove();
            System.out.println(n + " " + hex(state));
        }
        System.out.println("end " + n);
        pool.shutdown();
    }
}
"""


@forms(0)
def test_java(market, tmp_path, form):
    need("java")
    (tmp_path / "Job.java").write_text(JAVA)
    job = market.srun("--move", form, "-p", 50, "java", "-Xmx96m", tmp_path / "Job.java", stdin=subprocess.PIPE)
    job.printed(3)
    move_about(market, job, form)
    job.printed(job.lines() + 3)
    *lines, end = check_ended(market, job)

    def next_of(state):
        state = state or bytes(32)
        return hashlib.sha256(b"".join(hashlib.sha256((state + bytes([i])) * 2000).digest() for i in range(3))).digest()
    check_numbered(lines, next_of)
    assert end == f"end {len(lines)}"


@forms(1)
def test_gcc_that_compiles(market, tmp_path, form):
    need("gcc")
    r = random.Random(5)
    text = "".join(f"unsigned f{i}(unsigned x) {{ unsigned s = {r.randrange(1 << 30)};\n" +
                   "".join(f"  for (unsigned k = 0; k < x; ++k) s = s * {r.randrange(1, 99)}u ^ (k >> {r.randrange(8)}) + x;\n"
                           for _ in range(12)) + "  return s; }\n" for i in range(60))
    (tmp_path / "big.c").write_text(text)
    check_rounds(market, form, tmp_path, "gcc -O2 -S -o big.s big.c; sha256sum big.s")


@forms(2)
def test_xz_on_two_threads(market, tmp_path, form):
    need("xz")
    r = random.Random(6)
    (tmp_path / "data").write_text("".join(f"{r.randrange(5000)} {i}\n" for i in range(300_000)))
    check_rounds(market, form, tmp_path, "xz -3 -T2 --block-size=512KiB -c data | tee data.xz | sha256sum; xz -dc data.xz | sha256sum")


SQL = """
pragma journal_mode=%s;
create table t(id integer primary key, k text, v integer);
create index i on t(k);
%s
select count(*), sum(v), max(length(k)) from t;
pragma integrity_check;
"""


@pytest.mark.parametrize("journal", ["delete", "wal"])
@forms(0)
def test_sqlite3_that_writes(market, tmp_path, form, journal):
    need("sqlite3")
    step = ("begin; insert into t(k, v) with recursive c(x) as (select %d union all select x + 1 from c where x < %d)"
            " select hex(x * 7919), x * x from c; update t set v = v + 1 where id %% 7 = %d; commit;")
    (tmp_path / "work.sql").write_text(SQL % (journal, "\n".join(step % (i * 1000, i * 1000 + 999, i % 7) for i in range(40))))
    check_rounds(market, form, tmp_path, "rm -f db*; sqlite3 db < work.sql; sha256sum < db")


CLIENT = """
import hashlib, os, select, socket, subprocess, sys, time
server = subprocess.Popen(["redis-server", "--port", "16379", "--bind", "127.0.0.1", "--unixsocket", "redis.sock", "--save", "",
                           "--appendonly", "yes", "--appendfsync", "no", "--logfile", "redis.log", "--daemonize", "no"])
def connect():
    for _ in range(500):
        try:
            s = socket.socket(socket.AF_UNIX)
            s.connect("redis.sock")
            return s.makefile("rwb")
        except OSError: time.sleep(0.02)
def ask(f, *words):
    f.write(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(w), w) for w in words))
    f.flush()
    line = f.readline()
    assert line[:1] in b":$+", line
    return f.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" else line[1:-2]
one = connect()
n = 0
while not select.select([0], [], [], 0)[0]:
    for n in range(n, n + 200):
        key, value = b"k%d" % (n % 5000), hashlib.sha512(b"%d" % n).hexdigest().encode() * 8
        assert ask(one, b"SET", key, value) == b"OK"
        if n >= 5000:
            back = n - 4000
            assert ask(one, b"GET", b"k%d" % (back % 5000)) == hashlib.sha512(b"%d" % back).hexdigest().encode() * 8
        assert ask(one, b"INCR", b"count") == b"%d" % (n + 1)
    n += 1
    print(n, ask(one, b"DBSIZE").decode(), flush=True)
server.terminate()
assert server.wait(20) == 0
print("end", n)
"""


@forms(2)
def test_redis_with_a_client_inside_the_capsule(market, tmp_path, form):
    need("redis-server")
    (tmp_path / "client.py").write_text(CLIENT)
    job = market.srun("--move", form, "-p", 50, "bash", "-c", 'cd "$1"; exec /usr/bin/python3 client.py', "bash", tmp_path,
                      stdin=subprocess.PIPE)
    job.printed(5)
    move_about(market, job, form)
    job.printed(job.lines() + 5)
    *lines, end = check_ended(market, job)
    assert lines == [f"{n} {min(n, 5000) + 1}" for n in range(200, 200 * len(lines) + 1, 200)]
    assert end == f"end {200 * len(lines)}"


KERNEL = """
#include <stdio.h>
#include <stdlib.h>
#include <poll.h>
enum { N = 1 << 22 };
int main(void) {
    unsigned *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    for (unsigned i = 0; i < N; ++i) a[i] = i * 2654435761u;
    struct pollfd in = {0, POLLIN, 0};
    for (int round = 0; poll(&in, 1, 0) <= 0; ++round) {
        unsigned sum = 0;
        #pragma omp parallel for num_threads(4) schedule(static, 8192)
        for (unsigned i = 0; i < N; ++i) b[i] = a[i] ^ (a[(i * 7919u + 1) % N] >> 3) + a[(i + N - 1) % N];
        #pragma omp parallel for num_threads(4) reduction(+ : sum)
        for (unsigned i = 0; i < N; ++i) { a[i] = b[i]; sum += b[i] * (i | 1); }
        printf("%d %u\\n", round, sum);
        fflush(stdout);
    }
    return 0;
}
"""


@forms(1)
def test_an_openmp_kernel(market, tmp_path, form):
    check_lines(market, form, compiled(tmp_path, KERNEL, "-fopenmp"))


SHM_TIMER = """
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
enum { WORDS = 1 << 20 };
struct shared { sem_t go, done; unsigned words[WORDS]; };
static struct shared *map(void) {  /* each opens it by its name */
    int fd = shm_open("/souk-test", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return 0;
    void *p = mmap(0, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? 0 : p;
}
int main(void) {
    struct shared *s = map();
    if (!s) return 3;
    sem_init(&s->go, 1, 0);
    sem_init(&s->done, 1, 0);
    pid_t child = fork();
    if (child == 0)
        for (struct shared *c = map();;) {
            sem_wait(&c->go);
            for (unsigned i = 0; i < WORDS; ++i) c->words[i] = c->words[i] * 1664525u + i;
            sem_post(&c->done);
        }
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec each = {{0, 10000000}, {0, 10000000}};
    timerfd_settime(timer, 0, &each, 0);
    struct pollfd fds[2] = {{timer, POLLIN, 0}, {0, POLLIN, 0}};
    for (int n = 0;;) {
        /* A system call with a time limit that a move interrupts says EINTR, as after SIGCONT. */
        if (poll(fds, 2, 20000) < 0 && errno == EINTR) continue;
        if (!fds[0].revents && !fds[1].revents) return 5;
        if (fds[1].revents) break;
        uint64_t ticks = 0;
        if (read(timer, &ticks, 8) != 8 || ticks == 0) return 4;
        sem_post(&s->go);
        sem_wait(&s->done);
        unsigned sum = 0;
        for (unsigned i = 0; i < WORDS; ++i) sum += s->words[i] * (i | 1);
        printf("%d %u\\n", n++, sum);
        fflush(stdout);
    }
    kill(child, 9);
    waitpid(child, 0, 0);
    return shm_unlink("/souk-test") == 0 ? 0 : 6;
}
"""


@forms(0)
def test_posix_shared_memory_and_a_periodic_timer(market, tmp_path, form):
    check_lines(market, form, compiled(tmp_path, SHM_TIMER, "-pthread"), 20)  # the timer still fires


RESERVER = """
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
enum { TOUCHED = 1 << 23, FAR = 100 };
int main(void) {
    const size_t tb = (size_t)1 << 40, step = tb / FAR & ~(size_t)4095;
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *none = mmap(0, tb, PROT_NONE, how, -1, 0);
    unsigned char *far = mmap(0, tb, PROT_READ | PROT_WRITE, how, -1, 0), *near = calloc(TOUCHED, 1);
    if (none == MAP_FAILED || (void *)far == MAP_FAILED) return 3;
    struct pollfd in = {0, POLLIN, 0};
    for (unsigned n = 0; poll(&in, 1, 1) <= 0; ++n) {
        unsigned sum = 0;
        for (unsigned i = 0; i < TOUCHED; i += 512) sum = sum * 31 + (near[i] += i / 512 + n);
        for (unsigned i = 0; i < FAR; ++i) sum = sum * 31 + ++far[i * step];
        printf("%u %u\\n", n, sum);
        fflush(stdout);
    }
    return 0;
}
"""


@pytest.mark.parametrize("form", FORMS)
def test_two_terabytes_that_are_reserved_and_hardly_touched(market, tmp_path, form):
    def moved_as_a_small_one(job):
        market.tool("marketctl", "--hold", "move", job.id, next(n for n in ("n1", "n2") if n != market.until_runs(job.id)["where"]))
        return market.until_job(job.id, "has moved", lambda j: j["status"] == "run" and j["migrations"] > 0)["last_move"] == "stop-and-copy"
    check_lines(market, form, compiled(tmp_path, RESERVER), also=moved_as_a_small_one)


LOCKER = """
import fcntl, select, sys
held = bytearray(int(sys.argv[2]) << 20)
f = open("lock", "w")
getattr(fcntl, sys.argv[1])(f, fcntl.LOCK_EX)
n = 0
while not select.select([0], [], [], 0.01)[0]:
    print(n, flush=True)
    n += 1
"""


@pytest.mark.parametrize("kind, size, form", [("lockf", 1, "auto"), ("flock", 32, "safe"), ("lockf", 32, "fast")])
def test_locks_of_files_go_along(market, tmp_path, kind, size, form):
    (tmp_path / "job.py").write_text(LOCKER)
    job = market.srun("--move", form, "-p", 50, "bash", "-c", 'cd "$1"; exec /usr/bin/python3 job.py "$2" "$3"', "bash", tmp_path,
                      kind, str(size), stdin=subprocess.PIPE)
    job.printed(3)
    move_about(market, job, form)
    job.printed(job.lines() + 3)
    with open(tmp_path / "lock", "w") as f, pytest.raises(BlockingIOError):
        getattr(fcntl, kind)(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lines = check_ended(market, job)
    assert lines == [str(i) for i in range(len(lines))]


BLINKER = """
import fcntl, sys, threading, time
over, n = [], 0
threading.Thread(target=lambda: (sys.stdin.read(), over.append(1)), daemon=True).start()
held = bytearray(32 << 20)
with open("lock", "w") as f:
    while not over:
        for kind in fcntl.LOCK_EX, fcntl.LOCK_UN:
            fcntl.flock(f, kind)
            until = time.monotonic() + 0.002
            while time.monotonic() < until: pass
        n += 1
        if n % 20 == 0: print(n, flush=True)
"""


@forms(0)
def test_locks_that_come_and_go_refuse_no_move(market, tmp_path, form):
    # Between the look that plans the move and the stop: about one move in four.
    (tmp_path / "job.py").write_text(BLINKER)
    job = market.srun("--move", form, "-p", 50, "bash", "-c", 'cd "$1"; exec /usr/bin/python3 job.py', "bash", tmp_path,
                      stdin=subprocess.PIPE)
    job.printed(1)
    for _ in range(4):
        move_about(market, job, form)
    lines = check_ended(market, job)
    assert lines == [str(20 * i) for i in range(1, len(lines) + 1)]


LEAVERS = """
#include <pthread.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *p) { return memset(p, 1, 96 << 20); }
static void *wait_for_ever(void *p) { for (;;) pause(); return p; }
int main(void) {
    pthread_t t[3];
    pthread_create(&t[0], 0, work, malloc(96 << 20));
    pthread_join(t[0], 0);
    for (int i = 0; i < 3; ++i) pthread_create(&t[i], 0, wait_for_ever, 0);
    return 0;
}
"""


@forms(2)
def test_threads_that_end_just_then_refuse_no_move(market, tmp_path, form):
    # For some milliseconds of each of them the first thread has ended, and another gives their memory back.
    compiled(tmp_path, LEAVERS, "-pthread")
    job = market.srun("--move", form, "-p", 50, "bash", "-c", ROUNDS.format("./job; echo $?"), "bash", tmp_path, stdin=subprocess.PIPE)
    job.printed(1)
    for _ in range(4):
        move_about(market, job, form)
    *lines, end = check_ended(market, job)
    assert end == "end" and set(lines) == {"0"}


DAEMON = """
import os, select, sys, time
def daemonize(work):
    if os.fork(): return os.wait()
    os.setsid()
    if os.fork(): os._exit(0)
    work()
def above(pid): return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1:4]  # parent, group, session
def write():
    daemonize(lambda: (print(*above(os.getpid())[1:], file=open("second", "w")), time.sleep(10**6)))  # one of its own
    reader, writer = os.pipe()
    if os.fork():
        me = above(os.getpid())
        with os.fdopen(writer, "w", buffering=1) as f:
            for i in range(10**9):
                assert above(os.getpid()) == me, (me, above(os.getpid()))
                print(i, file=f)
                time.sleep(0.005)
    with os.fdopen(reader) as f, open("daemon", "w", buffering=1) as out:
        for line in f: out.write(line)
daemonize(write)
i = 0
while not select.select([0], [], [], 0.02)[0]:
    print(i, flush=True)
    i += 1
"""


@forms(1)
def test_daemons_that_forked_twice_go_along(market, tmp_path, form):
    """One that was left by its parent is the first process's, on every node; so is one that such a one left."""
    (tmp_path / "daemon.py").write_text(DAEMON)
    job = market.srun("--move", form, "-p", 50, "bash", "-c", 'cd "$1"; exec /usr/bin/python3 daemon.py', "bash", tmp_path,
                      stdin=subprocess.PIPE)
    job.printed(3)
    until("both daemons have begun", lambda: read_text(tmp_path / "daemon") and read_text(tmp_path / "second"))
    move_about(market, job, form)
    assert not market.job(job.id).get("cannot_move")
    lines = read_text(tmp_path / "daemon").count("\n")
    until("the daemon goes on", lambda: read_text(tmp_path / "daemon").count("\n") > lines + 3)
    assert check_ended(market, job) == [str(i) for i in range(job.lines())]
    written = read_text(tmp_path / "daemon").splitlines()
    assert written[:-1] == [str(i) for i in range(len(written) - 1)]


def on_terminal(market, form, between, *command):
    """Moves a job that stands on a terminal, and between the moves types into it."""
    t = Terminal(market, "-v", "--move", form, "-p", 50, *command)
    t.shows(rb"srun: job (\S+)")
    id = re.search(rb"srun: job (\S+?)\s", t.seen)[1].decode()
    market.until_runs(id)
    r = random.Random(form)
    for i in range(MOVES or 4):
        between(t, i)
        where = market.until_runs(id)["where"]
        there = r.choice([n for n in ("n1", "n2", "n3") if n != where])
        if i % 3 == 2:
            market.tool("marketctl", "--hold", "freeze", id)
            market.until_job(id, "is frozen", lambda j: j["status"] == "suspend")
            market.tool("marketctl", "--hold", "thaw", id, there)
        else:
            market.tool("marketctl", "--hold", "move", id, there)
        market.until_runs(id, there)
    assert market.job(id)["failed_moves"] == 0
    return t


@forms(1)
def test_vim_on_a_terminal(market, tmp_path, form):
    need("vim")
    file = tmp_path / "text"

    def between(t, i):
        t.type(b"oline %d\x1bYp:w\r" % i)
        until("vim has written", lambda: read_text(file).count(f"line {i}\n") == 2)
    with on_terminal(market, form, between, "vim", "-u", "NONE", "-N", file) as t:
        t.type(b"ggdd:%s/line/LINE/\r:wq\r")
        assert t.ends() == 0
    assert file.read_text() == "".join(f"LINE {i}\n" * 2 for i in range(MOVES or 4))


@forms(2)
def test_less_on_a_terminal(market, tmp_path, form):
    need("less")
    (tmp_path / "text").write_text("".join(f"<line {i}>\n" for i in range(1, 20001)))

    def between(t, i):
        t.type(b"%dg" % (500 * i + 100))
        t.shows(b"<line %d>" % (500 * i + 101))
    with on_terminal(market, form, between, "less", tmp_path / "text") as t:
        t.type(b"/19876>\r")
        t.shows(rb"<line 19877>")
        t.type(b"q")
        assert t.ends() == 0


# What cannot move

def check_refused(market, job, reason):
    """A move is refused with that reason, a freeze too, and the job goes on where it is."""
    here = market.until_runs(job.id)["where"]
    failed = market.job(job.id)["failed_moves"]
    for verb in ("move", "freeze"):
        said = len(job.words)
        args = [job.id] + ([next(n for n in ("n1", "n2", "n3") if n != here)] if verb == "move" else [])
        market.tool("marketctl", "--hold", verb, *args)
        job.said(reason, after=said)
        market.tool("marketctl", "release", job.id)
        assert market.until_runs(job.id)["where"] == here
        job.printed(job.lines() + 3)
    assert market.job(job.id)["failed_moves"] > failed


URING = """
#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct io_uring_params p = {0};
    if (syscall(SYS_io_uring_setup, 8, &p) < 0) return 3;
    for (int i = 0;; ++i) { printf("%d\\n", i); fflush(stdout); usleep(20000); }
}
"""


def test_a_program_with_io_uring_is_refused_and_goes_on(market, tmp_path):
    program = compiled(tmp_path, URING)
    job = market.srun("-p", 50, program)
    job.printed(3)
    check_refused(market, job, "io_uring")
