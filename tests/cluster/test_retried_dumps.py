# SPDX-License-Identifier: GPL-2.0-or-later
"""A dump that CRIU refuses for a moment is tried again. Meanwhile the job runs, and others begin
connections to it."""
import json
import time

from conftest import gang, until

# The first component accepts connections 20 times a second. Now and then it asks the kernel for its
# interfaces, and reads no answer before it has stood still: so its dump is refused at first. The
# second one connects again and again, and says what is wrong.
PAIR = """
import ctypes, os, select, socket, struct, sys, threading, time
libc, nothing = ctypes.CDLL(None), ctypes.CDLL(None).epoll_create1(0)
PORT, END = 5555, time.time() + float(sys.argv[1])
def ask():
    while True:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
            s.send(struct.pack("=IHHIIB3xHHII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0))
            libc.epoll_wait(nothing, ctypes.create_string_buffer(12), 1, -1)  # a stop ends it
            s.recv(1 << 16)
        time.sleep(0.5)
def connect():
    while time.time() < END:
        try:
            with socket.create_connection(("c0", PORT), 25) as s:
                if s.recv(1) != b"x":
                    print("it is closed", flush=True)
        except ConnectionRefusedError:  # not there yet
            pass
        except OSError as e:
            print(e, flush=True)
        time.sleep(0.25)
if os.environ["SOUK_COMPONENT"] == "0":
    listener = socket.create_server(("", PORT), backlog=200)
    threading.Thread(target=ask, daemon=True).start()
    while time.time() < END + 5:
        time.sleep(0.05)
        while select.select([listener], [], [], 0)[0]:
            listener.accept()[0].sendall(b"x")
else:
    threads = [threading.Thread(target=connect) for _ in range(80)]
    for t in threads: t.start()
    for t in threads: t.join()
    print("end", flush=True)
"""


def test_who_connects_while_a_dump_is_tried_again_is_heard(market, tmp_path):
    (tmp_path / "pair.py").write_text(PAIR)
    job = market.srun("-p", 50, "-N", 2, "/usr/bin/python3", tmp_path / "pair.py", 12)
    ids = until("both are there", lambda: len(found := [
        j["id"] for j in gang(market, job.said(r"^srun: job ([^\s:]+)")[1])]) == 2 and found)
    for _ in range(5):
        time.sleep(0.8)  # it asks again
        here = market.until_runs(ids[0])["where"]
        taken = market.job(ids[1])["where"]
        to = next(n for n in market.nodes() if n not in (here, taken))
        market.tool("marketctl", "--hold", "move", ids[0], to)
        market.until_runs(ids[0], to)
    until("the second one has said what was wrong", lambda: b"end\n" in job.out)
    assert bytes(job.out) == b"end\n"


# The first component takes the connection of the second one some time after it is there.
LATE = """
import os, select, socket, time
if os.environ["SOUK_COMPONENT"] == "0":
    listener = socket.create_server(("", 5556), backlog=5)
    select.select([listener], [], [])
    print("it is there", flush=True)
    time.sleep(2)
    peer, _ = listener.accept()
    peer.sendall(b"taken")
    peer.recv(1)
else:
    while True:
        try:
            with socket.create_connection(("c0", 5556), 25) as s:
                print(s.recv(5).decode(), flush=True)
            break
        except ConnectionRefusedError:  # not there yet
            time.sleep(0.05)
"""


def test_a_connection_that_is_not_accepted_yet_is_there_after_a_freeze_at_one_cut(market, tmp_path):
    """The component that began the connection is frozen as well, and would find the connection
    broken."""
    (tmp_path / "late.py").write_text(LATE)
    job = market.srun("-p", 50, "-N", 2, "--spread", "/usr/bin/python3", tmp_path / "late.py")
    first = job.said(r"^srun: job ([^\s:]+)")[1]
    until("it is there", lambda: b"it is there\n" in job.out)
    market.tool("marketctl", "--hold", "freeze", first)
    # A component that could not be dumped just now goes on. It may accept the connection and end
    # before the next try.
    until("both stand, or have ended", lambda: {j["status"] for j in gang(market, first)} in (
        {"suspend"}, {"finish"}, set()))
    steps = json.loads(market.tool("marketctl", "--json", "job", first, "--story").stdout)["steps"]
    for one in gang(market, first):
        market.tool("marketctl", "release", one["id"], check=False)
    assert job.wait() == 0, steps
    assert bytes(job.out) == b"it is there\ntaken\n"
