#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""files.py [--suites NAME,...] [--ways NAME,...] [--seconds N] [--every SECONDS] [--pjdfstest DIR]
[--ltp DIR] [--limit SECONDS]: the test suites of others, and what people do with files
(file_work.py), in jobs of --files=home, on a market of three nodes that share nothing: unmoved,
moved each second, with the client of its files killed each second, with the link to its home cut
for 1 to 5 s, and with its home's agent killed. `local` is the same without a job, to compare with.
A table on standard output; exit 0 if all passed.

stress-ng, fio, sqlite3, bonnie++, dbench and java are Debian's. Where their directories are given,
pjdfstest (github.com/pjd/pjdfstest, built) and LTP (github.com/linux-test-project/ltp, configured,
testcases/kernel/fs built, and doio, iogen and rwtest in testcases/bin) are used. Run by hand, as
root: `make check-files`."""
import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster"), os.path.join(HERE, "..")]
from conftest import Late, Market, kill, until  # noqa: E402
from ending import is_left  # noqa: E402
from file_work import work  # noqa: E402

NODES = ("n2", "n3")  # the home is n1
PORT = "p0"           # its end of the link
# Those of stress-ng's class of file systems that ask for one, and not for the kernel around it.
STRESS = ("access chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl fiemap "
          "filename flock fpunch fsize fstat getdent hdd io iomix lease link locka lockf lockofd "
          "open readahead rename seek symlink sync-file touch utime xattr").split()
TOOLS = {"stress-ng": "stress-ng", "fio": "fio", "sqlite3": "sqlite3", "bonnie++": "bonnie++",
         "dbench": "dbench", "javac": "default-jdk-headless"}  # and their packages

SQLITE = """
set -e
sqlite3 db 'PRAGMA journal_mode=DELETE; CREATE TABLE t(w, n)' > /dev/null
writer() {
    i=0
    while [ $i -lt ROWS ]; do
        i=$((i + 1))
        sqlite3 -cmd '.timeout 60000' db "INSERT INTO t VALUES($1, $i)"
    done
}
for w in 1 2 3; do writer $w & all="$all $!"; done
for p in $all; do wait $p; done
[ "$(sqlite3 db 'PRAGMA integrity_check')" = ok ]
[ "$(sqlite3 db 'SELECT count(*), count(DISTINCT w * 1000000 + n) FROM t')" = \
  "$((3 * ROWS))|$((3 * ROWS))" ]
"""

STRESSES = """
for name in NAMES; do
    stress-ng --$name 1 --timeout SECONDSs --verify --temp-path . > said 2>&1
    status=$?
    case $status in
    0) ;;
    4) echo "not here: $name" ;;
    *) bad=1; echo "FAIL $name: $status"; tail -5 said ;;
    esac
done
exit ${bad:-0}
"""

# Writes by channel and by mapping, renames, and reads all again; garbage for the collector.
JAVA = r"""
cat > Main.java <<'END'
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;

public class Main {
    static byte[] piece(int n) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(("piece " + n).getBytes());
        byte[] all = new byte[8192];
        for (int i = 0; i < all.length; i++) all[i] = digest[i % 32];
        return all;
    }
    public static void main(String[] words) throws Exception {
        long end = System.nanoTime() + Long.parseLong(words[0]) * 1000000000L;
        RandomAccessFile file = new RandomAccessFile("out", "rw");
        RandomAccessFile other = new RandomAccessFile("mapped", "rw");
        MappedByteBuffer mapped = other.getChannel().map(FileChannel.MapMode.READ_WRITE, 0,
                                                         8 << 13);
        int n = 0;
        for (; System.nanoTime() < end; n++) {
            file.seek(n % 500 * 8192L);
            file.write(piece(n));
            mapped.position(n % 8 << 13);
            mapped.put(piece(n));
            Path fresh = Paths.get("new");
            Files.write(fresh, piece(n));
            Files.move(fresh, Paths.get("kept" + n % 5),
                                     StandardCopyOption.REPLACE_EXISTING);
            int back = Math.max(0, n - 250);
            byte[] seen = new byte[8192];
            file.seek(back % 500 * 8192L);
            file.readFully(seen);
            if (!Arrays.equals(seen, piece(back))) throw new Exception("other bytes at " + back);
        }
        mapped.force();
        for (int i = Math.max(0, n - 5); i < n; i++)
            if (!Arrays.equals(Files.readAllBytes(Paths.get("kept" + i % 5)), piece(i)))
                throw new Exception("other bytes in kept" + i % 5);
        for (int i = Math.max(0, n - 8); i < n; i++) {
            byte[] seen = new byte[8192];
            other.seek(i % 8 << 13);
            other.readFully(seen);
            if (!Arrays.equals(seen, piece(i))) throw new Exception("other bytes mapped " + i);
        }
        System.out.println(n + " rounds");
    }
}
END
javac Main.java && java -Xmx64m -XX:+UseSerialGC -cp . Main SECONDS
"""

# Each in a directory of its own; a line for each that fails (32: not for this machine).
LTP = r"""
export LTPROOT=@DIR@ TMPDIR=$PWD/tmp PATH="@PATHS@:$PATH"
bad=0
one() {
    begin=$(date +%s)
    rm -rf "$TMPDIR"; mkdir "$TMPDIR"; cd "$TMPDIR"
    timeout 60 sh -c "$2" > ../said 2>&1 < /dev/null
    status=$?
    cd ..
    case $status in
    0) echo "pass $1, $(($(date +%s) - begin)) s" ;;
    32) echo "not here: $1" ;;
    *) bad=1; echo "FAIL $1: $status: $2"; tail -5 said ;;
    esac >> results
}
@TESTS@
grep -v ^pass results
grep -c ^pass results
exit $bad
"""


def ltp(directory, seconds):
    """The tests of file systems in runtest/fs, and fsx, for a short time each. inode01 and inode02
    are left out, because they test file systems on loop devices."""
    wanted = re.compile(r"(gf|rwtest|fs_inod|openfile|stream|ftest|lftest|"
                        r"fs_di|iogen|acl_)[a-z_]*\d*$")
    one = max(1, seconds // 10)
    tests = []
    with open(f"{directory}/runtest/fs", encoding="ascii") as f:
        for line in f:
            name, _, command = line.strip().replace("\t", " ").partition(" ")
            if wanted.match(name) and command:
                command = re.sub(r"(-L|-i) (\d\d+)(s?)\b",
                                 lambda m: f"{m[1]} {min(int(m[2]), one)}{m[3]}"
                                 if m[1] == "-L" or m[3] else m[0], command)
                command = command.replace("$TMPDIR 10 10 10", "$TMPDIR 3 5 2")  # fs_inod
                tests.append((name, command.strip()))
    for more in ("", " -r 512 -w 512 -t 512", " -l 200000 -o 20000"):
        tests.append((f"fsx{more}", f"fsx-linux -N {100 * seconds}{more}"))
    tests.append(("fsstress", f"fsstress -d $TMPDIR/s -n {10 * seconds} -p 3 -s 7"))
    paths = sorted({at for top in ("testcases/bin", "testcases/kernel/fs", "testcases/lib")
                    for at, _, files in os.walk(f"{directory}/{top}")
                    if any(os.access(f"{at}/{name}", os.X_OK) for name in files)})
    return (LTP.replace("@DIR@", directory).replace("@PATHS@", ":".join(paths)).replace(
        "@TESTS@", "\n".join(f"one {shlex.quote(n)} {shlex.quote(c)}" for n, c in tests)))


def suites(options):
    s = options.seconds
    yield from work(s, options.suites.split(","), options.top)
    one = max(2, s // 4)
    yield "stress-ng", STRESSES.replace("NAMES", " ".join(STRESS)).replace(
        "SECONDS", str(max(1, s // len(STRESS))))
    yield "fio", (f"fio --name=v --rw=randrw --bs=4k --size=16m --verify=sha256 --do_verify=1 "
                  f"--verify_fatal=1 --ioengine=psync --loops=3 --fsync=64 --output=log && "
                  "fio --name=m --rw=randwrite --bs=16k --size=16m --verify=crc32c "
                  f"--ioengine=mmap --verify_fatal=1 --loops={one} --output=log2")
    yield "sqlite", SQLITE.replace("ROWS", str(10 * s))
    yield "bonnie++", "bonnie++ -d . -u root -r 8 -s 16 -n 1:16384:16:4 -x 1 -q > said"
    yield "dbench", f"dbench -c /usr/share/dbench/client.txt -D . -t {s} 2 > said"
    yield "java", JAVA.replace("SECONDS", str(s))
    if options.ltp:
        yield "ltp", ltp(os.path.realpath(options.ltp), s)
    if options.pjdfstest:
        # The other tests need devices, which the home refuses (docs/files.md).
        tests = f"{options.pjdfstest}/tests"
        names = " ".join(f"{tests}/{t}" for t in (
            "ftruncate", "truncate", "posix_fallocate", "mkdir", "open", "symlink", "rmdir"))
        yield "pjdfstest", (f"prove -Q -r {names} > said; "
                            "sed -n '/Test Summary/,$p' said; tail -2 said")


class Trouble(threading.Thread):
    """Moves the job, or breaks its client, its link or its agentd, again and again until `over` is
    set."""

    def __init__(self, market, job, way, every):
        super().__init__(daemon=True)
        self.every = every
        self.market, self.job, self.way, self.over = market, job, way, threading.Event()
        self.count, self.random = 0, random.Random(1)

    def run(self):
        node = 0
        while not self.over.wait(4 if self.way == "link" else self.every):
            try:
                if self.way == "moves":
                    node += 1
                    self.market.tool("marketctl", "--hold", "move", self.job.id,
                                     NODES[node % len(NODES)])
                elif self.way == "client":
                    self.kill("client")
                elif self.way == "link":
                    self.cut(self.random.uniform(1, 5))
                elif self.way == "agent":
                    self.market.kill_daemon("n1")
                self.count += 1
            except (AssertionError, RuntimeError, subprocess.SubprocessError, OSError) as e:
                if not self.over.is_set():
                    print(f"  {self.way}: {str(e)[:200]}", file=sys.stderr)

    def kill(self, verb):
        self.market.note_family()
        for pid in self.market.family:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"souk-files") and words[1:2] == [verb.encode()]:
                kill([pid])

    def cut(self, seconds):
        def port(state):
            subprocess.run(["ip", "-n", f"{self.market.tag}-fabric", "link", "set", PORT, state],
                           check=True)
        port("down")
        try:
            self.over.wait(seconds)
        finally:
            port("up")


def run_local(command, where, limit):
    """Without a job, and without a market."""
    job = subprocess.Popen(["/bin/sh", "-c", command], cwd=where, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           start_new_session=True)
    try:
        return job.communicate(timeout=limit)[0].decode(errors="replace"), job.returncode
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        return job.communicate()[0].decode(errors="replace"), "late"


def run(market, top, name, command, way, options):
    where = os.path.join(top, f"{name}-{way}")
    os.mkdir(where)
    begin = time.monotonic()
    if way == "local":
        said, status = run_local(command, where, options.limit)
        shutil.rmtree(where, ignore_errors=True)
        return {"suite": name, "way": way, "status": status, "times": 0, "moves": 0,
                "seconds": round(time.monotonic() - begin), "said": said}
    job = market.srun("-p", 50, "--node", "n1", "--files=home", "/bin/sh", "-c", command, cwd=where)
    market.until_job(job.id, "began", lambda j: j.get("places"))
    trouble = Trouble(market, job, way, options.every)
    if way != "unmoved":
        trouble.start()
    try:
        status = job.wait(options.limit)
    except Late as late:
        status = str(late)[:200]
        market.tool("marketctl", "cancel", job.id)
    finally:
        trouble.over.set()
        if way != "unmoved":
            trouble.join(60)
    said = market.job(job.id)
    shutil.rmtree(where, ignore_errors=True)
    return {"suite": name, "way": way, "status": status, "times": trouble.count,
            "moves": said.get("migrations", 0), "seconds": round(time.monotonic() - begin),
            "said": (bytes(job.out).decode(errors="replace") + "\n".join(job.told[-8:]))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[1])
    parser.add_argument("--suites", default="git,untar,build,stress-ng,fio,sqlite,"
                        "bonnie++,dbench,java,pjdfstest,ltp")
    parser.add_argument("--ways", default="unmoved,moves,client,link,agent")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--every", type=float, default=1, metavar="SECONDS",
                        help="between two moves, or two that are killed")
    parser.add_argument("--limit", type=int, default=900)
    parser.add_argument("--pjdfstest", metavar="DIR", default=os.environ.get("PJDFSTEST"))
    parser.add_argument("--ltp", metavar="DIR", default=os.environ.get("LTP"))
    options = parser.parse_args()
    lacking = " ".join(package for tool, package in TOOLS.items() if not shutil.which(tool))
    if os.geteuid() != 0 or lacking:
        sys.exit(f"files.py: {f'install {lacking}' if lacking else 'run it as root'}")
    bad = 0
    market = Market("--nodes", "3", "--speeds", "60,100,80", "--private-files")
    top = options.top = tempfile.mkdtemp(prefix="souk-peers-", dir="/var/tmp")
    try:
        if options.ways != "local":
            market.up()
            until("the nodes", market.providers)
        for name, command in suites(options):
            if name not in options.suites.split(","):
                continue
            for way in options.ways.split(","):
                row = run(market, top, name, command, way, options)
                good = row["status"] == 0
                bad += not good
                print(f"{name:10} {way:8} {'pass' if good else 'FAIL':5} {row['seconds']:4} s, "
                      f"{row['moves']} moves, trouble {row['times']} times", flush=True)
                if not good or name == "pjdfstest" or "not here" in row["said"]:
                    print("    " + row["said"][-3000:].replace("\n", "\n    "), flush=True)
    finally:
        left = is_left(market, top, options.ways != "local")
    sys.exit(1 if bad or left else 0)


if __name__ == "__main__":
    main()
