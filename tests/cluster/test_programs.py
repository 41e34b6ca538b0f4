# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of every kind, moved and frozen at any moment of their work (moving.py): each result is
that of an unmoved run."""
import hashlib
import random
import re
import subprocess

import pytest

from conftest import read_text, until
from moving import MOVES, check_ended, check_lines, check_rounds, compiled, forms, move_about, need
from test_srun import Terminal


@forms(0)
def test_a_pipeline_of_bash(market, tmp_path, form):
    check_rounds(market, form, tmp_path, "seq 150000 | awk '{s=(s*31+$1)%1000003; print s}' | sort "
                 "-n | uniq -c | tee file | gzip | sha256sum; wc file")


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
    crypto.pbkdf2(state, 'souk', 2000, 32, 'sha256',
                  (_, key) => zlib.gzip(key, (_, z) => zlib.gunzip(z, (_, back) => {
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
    check_numbered(lines,
                   lambda s: hashlib.pbkdf2_hmac("sha256", s or bytes(32), b"souk", 2000, 32))
    assert end == f"end {len(lines)} {len(lines)}"


JAVA = """
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
public class Job {
    static String hex(byte[] b) {
        StringBuilder s = new StringBuilder();
        for (byte x : b) s.append(String.format("%02x", x));
        return s.toString();
    }
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(3);
        byte[] state = new byte[32];
        ArrayDeque<byte[]> garbage = new ArrayDeque<>();
        Thread reader = new Thread(() -> {
            try { while (System.in.read() >= 0); } catch (Exception e) { }
        });
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
    job = market.srun("--move", form, "-p", 50, "java", "-Xmx96m", tmp_path / "Job.java",
                      stdin=subprocess.PIPE)
    job.printed(3)
    move_about(market, job, form)
    job.printed(job.lines() + 3)
    *lines, end = check_ended(market, job)

    def next_of(state):
        state = state or bytes(32)
        return hashlib.sha256(b"".join(hashlib.sha256((state + bytes([i])) * 2000).digest()
                                       for i in range(3))).digest()
    check_numbered(lines, next_of)
    assert end == f"end {len(lines)}"


@forms(1)
def test_gcc_that_compiles(market, tmp_path, form):
    need("gcc")
    r = random.Random(5)
    text = "".join(f"unsigned f{i}(unsigned x) {{ unsigned s = {r.randrange(1 << 30)};\n" +
                   "".join(f"  for (unsigned k = 0; k < x; ++k) s = s * {r.randrange(1, 99)}u ^ (k "
                           f">> {r.randrange(8)}) + x;\n" for _ in range(12)) + "  return s; }\n"
                   for i in range(60))
    (tmp_path / "big.c").write_text(text)
    check_rounds(market, form, tmp_path, "gcc -O2 -S -o big.s big.c; sha256sum big.s")


@forms(2)
def test_xz_on_two_threads(market, tmp_path, form):
    need("xz")
    r = random.Random(6)
    (tmp_path / "data").write_text("".join(f"{r.randrange(5000)} {i}\n" for i in range(300_000)))
    check_rounds(market, form, tmp_path, "xz -3 -T2 --block-size=512KiB -c data | tee data.xz | "
                 "sha256sum; xz -dc data.xz | sha256sum")


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
    step = (
        "begin; insert into t(k, v) with recursive c(x) as "
        "(select %d union all select x + 1 from c where x < %d)"
        " select hex(x * 7919), x * x from c; update t set v = v + 1 where id %% 7 = %d; commit;")
    (tmp_path / "work.sql").write_text(
        SQL % (journal, "\n".join(step % (i * 1000, i * 1000 + 999, i % 7) for i in range(40))))
    check_rounds(market, form, tmp_path, "rm -f db*; sqlite3 db < work.sql; sha256sum < db")


CLIENT = """
import hashlib, os, select, socket, subprocess, sys, time
server = subprocess.Popen(["redis-server", "--port", "16379", "--bind", "127.0.0.1",
                           "--unixsocket", "redis.sock", "--save", "", "--appendonly", "yes",
                           "--appendfsync", "no", "--logfile", "redis.log", "--daemonize", "no"])
def connect():
    for _ in range(2000):
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
            value = hashlib.sha512(b"%d" % back).hexdigest().encode() * 8
            assert ask(one, b"GET", b"k%d" % (back % 5000)) == value
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
    job = market.srun("--move", form, "-p", 50, "bash", "-c",
                      'cd "$1"; exec /usr/bin/python3 client.py', "bash", tmp_path,
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
        for (unsigned i = 0; i < N; ++i)
            b[i] = a[i] ^ (a[(i * 7919u + 1) % N] >> 3) + a[(i + N - 1) % N];
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
    # The timer still fires.
    check_lines(market, form, compiled(tmp_path, SHM_TIMER, "-pthread"), 20)


def on_terminal(market, form, between, *command):
    """Moves a job that stands on a terminal, and between the moves types into it."""
    t = Terminal(market, "-v", "--move", form, "-p", 50, *command)
    t.shows(rb"srun: job (\S+?)\s")
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
