#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""files.py [--suites NAME,...] [--ways NAME,...] [--seconds N] [--pjdfstest DIR]: the test suites
of others in jobs of --files=home, on a market of three nodes that share nothing: unmoved, moved
each second, with the client of its files killed each second, with the link to its home cut for 1 to
5 s, and with its home's agent killed. A table on standard output; exit 0 if all passed.

stress-ng, fio and sqlite3 are Debian's; pjdfstest (github.com/pjd/pjdfstest, built) is used if its
directory is given. Run by hand, as root: `make check-files`."""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cluster"), os.path.join(HERE, "..")]
from conftest import Late, Market, until  # noqa: E402

NODES = ("n2", "n3")  # the home is n1
PORT = "p0"           # its end of the link
# As in tests/cluster/test_files.py, what a file system can be asked for.
STRESS = ("dir dentry rename link symlink chmod fallocate fstat getdent hdd seek utime xattr "
          "filename flock lease readahead sync-file io touch").split()

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


def suites(options):
    s = options.seconds
    one = max(2, s // 4)
    yield "stress-ng", " && ".join(
        f"stress-ng --{name} 1 --timeout {max(1, s // len(STRESS))}s --verify --temp-path . -q"
        for name in STRESS)
    yield "fio", (f"fio --name=v --rw=randrw --bs=4k --size=16m --verify=sha256 --do_verify=1 "
                  f"--verify_fatal=1 --ioengine=psync --loops=3 --fsync=64 --output=log && "
                  "fio --name=m --rw=randwrite --bs=16k --size=16m --verify=crc32c "
                  f"--ioengine=mmap --verify_fatal=1 --loops={one} --output=log2")
    yield "sqlite", SQLITE.replace("ROWS", str(10 * s))
    if options.pjdfstest:
        # What the home refuses: devices (docs/files.md).
        tests = f"{options.pjdfstest}/tests"
        names = " ".join(f"{tests}/{t}" for t in (
            "ftruncate", "truncate", "posix_fallocate", "mkdir", "open", "symlink", "rmdir"))
        yield "pjdfstest", (f"prove -Q -r {names} > said; "
                            "sed -n '/Test Summary/,$p' said; tail -2 said")


class Trouble(threading.Thread):
    """What happens to the job meanwhile, until `over`."""

    def __init__(self, market, job, way):
        super().__init__(daemon=True)
        self.market, self.job, self.way, self.over = market, job, way, threading.Event()
        self.count, self.random = 0, random.Random(1)

    def run(self):
        node = 0
        while not self.over.wait(4 if self.way == "link" else 1):
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
                os.kill(pid, 9)

    def cut(self, seconds):
        def port(state):
            subprocess.run(["ip", "-n", f"{self.market.tag}-fabric", "link", "set", PORT, state],
                           check=True)
        port("down")
        try:
            self.over.wait(seconds)
        finally:
            port("up")


def run(market, top, name, command, way, limit):
    where = os.path.join(top, f"{name}-{way}")
    os.mkdir(where)
    begin = time.monotonic()
    job = market.srun("-p", 50, "--node", "n1", "--files=home", "/bin/sh", "-c", command, cwd=where)
    market.until_job(job.id, "began", lambda j: j.get("places"))
    trouble = Trouble(market, job, way)
    if way != "unmoved":
        trouble.start()
    try:
        status = job.wait(limit)
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
    parser.add_argument("--suites", default="stress-ng,fio,sqlite,pjdfstest")
    parser.add_argument("--ways", default="unmoved,moves,client,link,agent")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--limit", type=int, default=900)
    parser.add_argument("--pjdfstest", metavar="DIR", default=os.environ.get("PJDFSTEST"))
    options = parser.parse_args()
    lacking = [p for p in ("stress-ng", "fio", "sqlite3") if not shutil.which(p)]
    if os.geteuid() != 0 or lacking:
        sys.exit("files.py: " + (f"install {' '.join(lacking)}" if lacking else "run it as root"))
    bad = 0
    market = Market("--nodes", "3", "--speeds", "60,100,80", "--private-files")
    top = tempfile.mkdtemp(prefix="souk-peers-", dir="/var/tmp")
    try:
        market.up()
        until("the nodes", market.providers)
        for name, command in suites(options):
            if name not in options.suites.split(","):
                continue
            for way in options.ways.split(","):
                row = run(market, top, name, command, way, options.limit)
                good = row["status"] == 0
                bad += not good
                print(f"{name:10} {way:8} {'pass' if good else 'FAIL':5} {row['seconds']:4} s, "
                      f"{row['moves']} moves, trouble {row['times']} times", flush=True)
                if not good or name == "pjdfstest":
                    print("    " + row["said"][-3000:].replace("\n", "\n    "), flush=True)
    finally:
        left = market.down()
        shutil.rmtree(top, ignore_errors=True)
    if left:
        print("\n".join(left))
    sys.exit(1 if bad or left else 0)


if __name__ == "__main__":
    main()
