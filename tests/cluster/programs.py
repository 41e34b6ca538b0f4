# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs whose whole output can be told beforehand."""
import hashlib

# Prints numbered hashes, each of the one before, until its stdin ends; then how many. A lost,
# doubled or damaged line, or memory that changed, breaks the chain. With THREADS, as many threads
# work at it in turns. They rest between two lines, as tests run beside each other.
CHAIN = """
import hashlib, sys, threading, time
threads, ended, turn, at = int(sys.argv[1]), threading.Event(), threading.Condition(), [0, b"souk"]
def listen():
    sys.stdin.buffer.read()
    ended.set()
def work(me):
    while True:
        h = hashlib.sha256(str(me).encode())
        for _ in range(3000): h.update(b"%064d" % me)
        with turn:
            turn.wait_for(lambda: at[0] % threads == me or at[0] < 0)
            if at[0] < 0: return
            if ended.is_set():
                print("end", at[0], flush=True)
                at[0] = -1
                turn.notify_all()
                return
            at[1] = hashlib.sha256(at[1] + h.digest()).digest()
            print(at[0], at[1].hex(), flush=True)
            at[0] += 1
            turn.notify_all()
        time.sleep(0.003)
threading.Thread(target=listen, daemon=True).start()
workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
for w in workers: w.start()
for w in workers: w.join()
sys.exit(7)
"""


def chain_job(threads=1):
    return ["/usr/bin/python3", "-c", CHAIN, str(threads)]


def chain_text(count, threads=1):
    parts = []
    for me in range(threads):
        h = hashlib.sha256(str(me).encode())
        for _ in range(3000):
            h.update(b"%064d" % me)
        parts.append(h.digest())
    state, lines = b"souk", []
    for i in range(count):
        state = hashlib.sha256(state + parts[i % threads]).digest()
        lines.append(f"{i} {state.hex()}\n")
    return "".join(lines) + f"end {count}\n"


def check_chain(out, threads=1):
    """The whole output of a chain job that was ended: complete, in order, once."""
    text = bytes(out).decode()
    last = text.splitlines()[-1] if text else ""
    assert last.startswith("end "), f"the output stops with {last!r}"
    wanted = chain_text(int(last.split()[1]), threads)
    if text != wanted:
        for i, (a, b) in enumerate(zip(text.splitlines(), wanted.splitlines())):
            assert a == b, f"line {i} is {a!r}, not {b!r}"
    assert len(text) == len(wanted)
