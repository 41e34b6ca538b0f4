# SPDX-License-Identifier: GPL-2.0-or-later
"""The program and files of this job are at its home alone. It writes until `enough` is there, in
each way in which a program may. `writes.py check N` says whether all that N rounds write is there,
and nothing else. The test reads no other file."""
import hashlib
import mmap
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PIECE, PAGES, NAMES = 16384, 16, 8


def piece(n):
    """The bytes that round n writes."""
    with open(f"{HERE}/seed", "rb") as f:
        return hashlib.sha256(f.read() + b"%d" % n).digest() * (PIECE // 32)


def write():
    gone = open(f"{HERE}/gone", "w+b")
    gone.write(piece(0))
    gone.flush()
    os.unlink(f"{HERE}/gone")
    out = os.open(f"{HERE}/out", os.O_RDWR | os.O_CREAT, 0o600)
    log = open(f"{HERE}/log", "ab", buffering=0)
    with open(f"{HERE}/mapped", "w+b") as f:
        f.truncate(PAGES * mmap.PAGESIZE)
        mapped = mmap.mmap(f.fileno(), 0)
    n = 0
    while not os.path.exists(f"{HERE}/enough"):
        now = piece(n)
        os.pwrite(out, now, n * PIECE)
        at = n % PAGES * mmap.PAGESIZE
        mapped[at:at + 32] = now[:32]
        with open(f"{HERE}/new", "wb") as f:
            f.write(now)
        os.rename(f"{HERE}/new", f"{HERE}/files/{n % NAMES}")
        log.write(b"%d %s\n" % (n, now[:16].hex().encode()))
        assert os.pread(out, PIECE, n // 2 * PIECE) == piece(n // 2), f"round {n}: other bytes"
        gone.seek(0)
        assert gone.read() == piece(0), f"round {n}: the file without a name"
        n += 1
        time.sleep(0.05)
    mapped.flush()
    os.fsync(out)
    print(n, flush=True)


def check(count):
    def content(name):
        with open(f"{HERE}/{name}", "rb") as f:
            return f.read()
    every = [piece(n) for n in range(count)]
    assert content("out") == b"".join(every), "out"
    assert content("log") == b"".join(b"%d %s\n" % (n, p[:16].hex().encode())
                                      for n, p in enumerate(every)), "log"
    pages = {n % PAGES: p[:32] for n, p in enumerate(every)}
    assert content("mapped") == b"".join(pages.get(i, b"").ljust(mmap.PAGESIZE, b"\0")
                                         for i in range(PAGES)), "mapped"
    last = {str(n % NAMES): p for n, p in enumerate(every)}
    assert {name: content(f"files/{name}") for name in os.listdir(f"{HERE}/files")} == last, "files"
    left = set(os.listdir(HERE)) - {"python", "writes.py", "seed", "enough", "said", "complaints"}
    assert left == {"out", "log", "mapped", "files"}, left
    print("all of", sum(len(p) for p in every), "bytes")


if __name__ == "__main__":
    check(int(sys.argv[2])) if len(sys.argv) > 1 else write()
