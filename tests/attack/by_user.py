# SPDX-License-Identifier: GPL-2.0-or-later
"""Attacks of a plain user of a node, of a hostile user and of a job."""
import os
import subprocess
import time

import client as c
from client import command, frame, hello, pb
from stage import attempt, LIMIT, root_job, SOMEBODY


# ---- a plain user of a node

@attempt("plain user", "makes a join token", "not_allowed")
def user_makes_token(s):
    return s.user_refused("souk", "token", "create", "x")


@attempt("plain user", "revokes a node", "not_allowed")
def user_revokes(s):
    return s.user_refused("souk", "node", "revoke", "n1")


@attempt("plain user", "changes how the market decides", "not_allowed")
def user_sets(s):
    return s.user_refused("marketctl", "set", "solver", "fcfs")


@attempt("plain user", "gives himself a limit of money", "not_allowed")
def user_limit(s):
    return s.user_refused("marketctl", "user", "limit", "root", "--spend-per-day",
                          "1000000")


@attempt("plain user", "takes a node off the market", "not_allowed")
def user_market_off(s):
    return s.user_refused("pvdctl", "--node", "n2", "market", "off")


@attempt("plain user", "calls a node lost, so that its jobs go on elsewhere",
         "not_allowed")
def user_node_lost(s):
    return s.user_refused("marketctl", "node", "lost", "n2")


@attempt("plain user", "has the market forget a node", "not_allowed")
def user_node_forget(s):
    return s.user_refused("marketctl", "node", "forget", "n2")


@attempt("plain user", "reads a node's private key", "permission denied")
def user_reads_key(s):
    done = subprocess.run(["cat", f"{s.state('n1')}/key.pem", f"{s.state('market')}/issuing.key",
                           f"{s.state('market')}/ticket.keys"], capture_output=True, text=True,
                          user=SOMEBODY, group=SOMEBODY, extra_groups=[])
    assert "PRIVATE" not in done.stdout and "souk ticket" not in done.stdout, done
    return done.stderr.lower()


def on_unix_socket(s, path, first, words):
    """Says the words of a plain user on a socket of this machine, after his hello, and returns the
    answer."""
    script = ("import socket, sys\n"
              "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
              "s.settimeout(20)\n"
              "s.sendall(bytes.fromhex(sys.argv[2]))\n"
              "try:\n"
              "    while p := s.recv(4096): sys.stdout.buffer.write(p)\n"
              "except OSError as e: print(e)\n")
    done = subprocess.run(["/usr/bin/python3", "-c", script, path, (first + words).hex()],
                          capture_output=True, user=SOMEBODY, group=SOMEBODY, extra_groups=[],
                          timeout=60)
    return done.stdout.decode(errors="replace")


@attempt("plain user", "says on agentd's socket that he is a home, and starts a job of root",
         "not attached to a job")
def user_is_a_home(s):
    return on_unix_socket(s, s.market.daemon("n1")["socket"],
                          frame(c.HELLO, hello("n2", c.AGENT)),
                          frame(c.GUEST_COMMAND, command("n2", c.START)))


@attempt("plain user", "says on marketd's socket that he is n1's agent",
         "this socket is for marketctl")
def user_is_an_agent(s):
    return on_unix_socket(s, s.market.daemon("market")["socket"],
                          frame(c.HELLO, hello("n1", c.AGENT)), b"")


@attempt("plain user", "submits a job of uid 0", f"uid={SOMEBODY}")
def user_submits_as_root(s):
    """Tools say nothing of a uid; a program of his own does. The kernel's word replaces it."""
    out = f"{s.place}/who"
    os.makedirs(out, mode=0o777, exist_ok=True)
    os.chmod(out, 0o777)
    body = pb(f1=pb(f1=["sh", "-c", f"id > {out}/id"], f2="/bin/sh", f3=["PATH=/usr/bin:/bin"],
                    f4="/", f5=0o22, f7=0, f8=0), f2=pb(f1=50_000_000, f4=1), f3="who")
    on_unix_socket_once(s, s.market.daemon("n1")["socket"], frame(c.HELLO, hello("", c.TOOL)),
                        frame(c.SUBMIT, body))
    end = time.monotonic() + LIMIT
    while not os.path.exists(f"{out}/id") or not os.path.getsize(f"{out}/id"):
        assert time.monotonic() < end, "his job has not run"
        time.sleep(0.05)
    with open(f"{out}/id") as f:
        return f.read()


def on_unix_socket_once(s, path, first, words):
    script = ("import socket, sys\n"
              "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
              "s.sendall(bytes.fromhex(sys.argv[2])); s.settimeout(20)\n"
              "got = b''\n"
              "while got.count(b'n1') < 2 and (p := s.recv(4096)): got += p\n")
    subprocess.run(["/usr/bin/python3", "-c", script, path, (first + words).hex()], user=SOMEBODY,
                   group=SOMEBODY, extra_groups=[], timeout=60, capture_output=True)


def longest_environment(more):
    """A description of a job with the most bytes that are allowed, counting one more for each word,
    and `more` bytes beyond."""
    argv, path = ["sleep", "600"], "PATH=/usr/bin:/bin"
    left, env = 512 * 1024 + more - sum(len(x) + 1 for x in [*argv, path]), [path]
    while left > 0:
        n = min(left - 1, 100_000)
        env.append("x" * n)
        left -= n + 1
    return frame(c.SUBMIT, pb(f1=pb(f1=argv, f2="/usr/bin/sleep", f3=env, f4="/", f5=0o22, f7=0,
                                    f8=0), f2=pb(f1=50_000_000, f4=1), f3="long"))


@attempt("plain user", "submits a job with a longer environment than can be kept",
         "524289 bytes, at most 524288")
def user_submits_too_much(s):
    return on_unix_socket_file(s, frame(c.HELLO, hello("", c.TOOL)) + longest_environment(1))


@attempt("plain user", "submits the longest job that is taken, and agentd starts anew",
         "it goes on")
def user_submits_the_most(s):
    on_unix_socket_file(s, frame(c.HELLO, hello("", c.TOOL)) + longest_environment(0))
    s.market.kill_daemon("n1")
    (job,) = [j for j in s.market.list_jobs() if j["name"] == "long" and j["status"] != "finish"]
    s.market.tool("marketctl", "cancel", job["id"])
    s.market.until_job(job["id"], "has ended", lambda j: j["status"] == "finish")
    return "it goes on"


def on_unix_socket_file(s, words):
    """Does the same as on_unix_socket with more words than a command line takes, until the user is
    told the job's number or the reason of a refusal."""
    path = f"{s.place}/words"
    with open(path, "wb") as f:
        f.write(words)
    script = ("import socket, sys\n"
              "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(20)\n"
              "s.sendall(open(sys.argv[2], 'rb').read())\n"
              "got = b''\n"
              "while got.count(b'n1') < 2 and b'bytes' not in got and (p := s.recv(4096)):\n"
              "    got += p\n"
              "sys.stdout.buffer.write(got)\n")
    done = subprocess.run(["/usr/bin/python3", "-c", script, s.market.daemon("n1")["socket"], path],
                          user=SOMEBODY, group=SOMEBODY, extra_groups=[], timeout=60,
                          capture_output=True)
    return done.stdout.decode(errors="replace")


UNREAD = """
import socket, struct, sys
hello, question = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]) * 200
lines = []
for _ in range(60):
    s = socket.socket(socket.AF_UNIX)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(sys.argv[1])
    s.sendall(hello)
    s.setblocking(False)
    lines.append(s)
while True:
    for s in lines:
        try:
            s.send(question)
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            print("cut off")
            sys.exit()
"""


@attempt("plain user", "has a node answer him on 60 connections, and reads nothing", "cut off")
def user_reads_nothing(s):
    node = s.market.daemon("n2")
    done = subprocess.run(
        ["/usr/bin/python3", "-c", UNREAD, node["socket"],
         frame(c.HELLO, hello("", c.TOOL)).hex(),
         frame(c.CTL_REQUEST, pb(f1=1, f3="provider-status")).hex()],
        user=SOMEBODY, group=SOMEBODY, extra_groups=[], timeout=60, capture_output=True, text=True)
    with open(f"/proc/{node['pid']}/status") as f:
        held = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    assert held < 400_000, f"agentd holds {held} KB"
    return done.stdout


PARTS = """
import socket, struct, sys
hello, size = bytes.fromhex(sys.argv[2]), 1 << 20
part = hello + struct.pack("<IHH", size, int(sys.argv[3]), 0) + bytes(size - 1)
lines = []
for _ in range(600):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(sys.argv[1])
    try:
        s.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        print("cut off")
        break
    lines.append(s)
# agentd says why, and takes what still comes for a moment, so that it can be read.
for s in lines:
    s.setblocking(False)
    try:
        if b"sent too much in part" in s.recv(1 << 16):
            print("cut off")
            break
    except OSError:
        pass
"""


@attempt("plain user", "sends agentd all but the last byte of 600 submissions", "cut off")
def user_sends_parts(s):
    node = s.market.daemon("n2")
    done = subprocess.run(
        ["/usr/bin/python3", "-c", PARTS, node["socket"], frame(c.HELLO, hello("", c.TOOL)).hex(),
         str(c.SUBMIT)], user=SOMEBODY, group=SOMEBODY, extra_groups=[], timeout=60,
        capture_output=True, text=True)
    with open(f"/proc/{node['pid']}/status") as f:
        held = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    assert held < 400_000, f"agentd holds {held} KB"
    return done.stdout


ASKS = """
import socket, sys, time
hello, question = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]) * 1000
lines = []
for _ in range(8):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(hello)
    s.setblocking(False)
    lines.append(s)
print("asks", flush=True)
while True:
    for s in lines:
        try:
            s.send(question)
        except OSError:
            pass
        try:
            while s.recv(1 << 20):
                pass
        except OSError:
            pass
    time.sleep(0.005)
"""


@attempt("plain user", "asks for the last lines of 10 MB of output, on and on", "others go on")
def user_asks_on_and_on(s):
    done = s.somebody("srun", "--detach", "--node", "n1", "-p", 50, "sh", "-c",
                      "head -c 5000000 /dev/zero | tr '\\0' x; "
                      "head -c 5000000 /dev/zero | tr '\\0' x >&2", check=True)
    job = done.stdout.split()[-1]
    s.market.until_job(job, "has ended", lambda j: j["status"] == "finish")
    question = frame(c.CTL_REQUEST, pb(f1=1, f3="output", f4=[job, "lines=100000000"]))
    asks = subprocess.Popen(
        ["/usr/bin/python3", "-c", ASKS, s.market.daemon("n1")["socket"],
         frame(c.HELLO, hello("", c.TOOL)).hex(), question.hex()],
        user=SOMEBODY, group=SOMEBODY, extra_groups=[], stdout=subprocess.PIPE)
    try:
        asks.stdout.readline()
        time.sleep(1)
        for _ in range(5):
            begun = time.monotonic()
            s.market.tool("pvdctl", "--node", "n1", "--patience", "30", "status")
            took = time.monotonic() - begun
            assert took < 5, f"root waited {took:.1f} s"
        assert asks.poll() is None
    finally:
        asks.kill()
        asks.wait()
        asks.stdout.close()
    return "others go on"


@attempt("plain user", "asks for a list of no jobs, in each way that a list goes on", "goes on")
def user_asks_for_none(s):
    before = s.market.daemon("market")["pid"]
    for n, (words, after) in enumerate([
            (["limit=0"], ""), (["state=live", "limit=0"], ""), (["state=all", "limit=0"], ""),
            (["page=1"], "/0"), (["limit=1"], "live 5 n1.1/0"), (["limit=1"], "done 5/0")]):
        for verb in ("list-jobs", "receipts"):
            on_unix_socket_once(s, s.market.daemon("n1")["socket"],
                                frame(c.HELLO, hello("", c.TOOL)),
                                frame(c.CTL_REQUEST, pb(f1=n, f3=verb, f4=words, f5=after)))
    assert s.market.daemon("market")["pid"] == before, "marketd ended"
    return "goes on"


# ---- a hostile user, against other users

@attempt("hostile user", "cancels somebody else's job", "not_allowed")
def cancels_anothers(s):
    job = root_job(s)
    try:
        said = s.user_refused("marketctl", "cancel", job.id)
        assert s.runs(job)
        return said
    finally:
        job.end()


@attempt("hostile user", "attaches to somebody else's job", "not_allowed")
def attaches_to_anothers(s):
    job = root_job(s)
    try:
        return s.user_refused("srun", "--node", "n1", "--attach", job.id)
    finally:
        job.end()


@attempt("hostile user", "changes what somebody else's job bids", "not_allowed")
def changes_anothers(s):
    job = root_job(s)
    try:
        return s.user_refused("srun", "--node", "n1", "-J", job.id, "-p", "1")
    finally:
        job.end()


@attempt("hostile user", "looks for secrets in somebody else's command line", "hidden")
def reads_anothers(s):
    job = s.market.srun("--node", "n1", "-p", 50, "sleep", "600.31337")
    try:
        s.market.until_runs(job.id)
        listed = s.somebody("marketctl", "--json", "list-jobs", check=True).stdout
        shown = s.somebody("marketctl", "--json", "job", job.id)
        assert job.id in listed and "31337" not in listed + shown.stdout
        return "hidden"
    finally:
        job.end()


@attempt("hostile user", "bids an amount below nothing", "invalid")
def negative_bid(s):
    return s.user_refused("srun", "--node", "n1", "-p", "-5", "true")


@attempt("hostile user", "bids more money than there is", "invalid")
def endless_bid(s):
    return s.user_refused("srun", "--node", "n1", "-p", "99999999999999999999", "true")


# ---- a job

@attempt("job", "connects to agentd's port as a home", "refused by TLS")
def job_is_a_home(s):
    said = s.in_a_job(
        "import socket\n"
        f"h, p = '{s.address('n1')}'.split(':')\n"
        "s = socket.create_connection((h, int(p)), 10)\n"
        f"s.sendall(bytes.fromhex('{frame(c.HELLO, hello('n2')).hex()}'))\n"
        "got = b''\n"
        "try:\n"
        "    while p := s.recv(4096): got += p\n"
        "except OSError: pass\n"
        "print(got.hex())")
    assert not said.startswith(frame(c.WELCOME).hex()[8:12]), said
    return "refused by TLS"


@attempt("job", "reaches agentd's socket through /run", "no such file")
def job_reaches_run(s):
    return s.in_a_job("import os\n"
                      "try: print(os.listdir('/run/souk'))\n"
                      "except OSError as e: print(e)").lower()


@attempt("job", "gains a capability", "none")
def job_gains(s):
    sets = s.in_a_job("print(*[int(l.split()[1], 16) for l in open('/proc/self/status')"
                      " if l.startswith('Cap')])").split()
    assert sets == ["0"] * 5, sets
    return "none"


@attempt("job", "mounts a file system of its own", "operation not permitted")
def job_mounts(s):
    return s.in_a_job("import ctypes, os\n"
                      "l = ctypes.CDLL(None, use_errno=True)\n"
                      "l.mount(b'x', b'/tmp', b'tmpfs', 0, None)\n"
                      "print(os.strerror(ctypes.get_errno()))").lower()


@attempt("job", "kills and traces PID 1 of its capsule", "operation not permitted")
def job_kills_init(s):
    said = s.in_a_job("import os\n"
                      "for do in (lambda: os.kill(1, 9), lambda: open('/proc/1/mem', 'rb')):\n"
                      "    try: do(); print('done')\n"
                      "    except OSError as e: print(e.strerror)").lower()
    assert "done" not in said, said
    return said


@attempt("job", "raises its own limit of memory", "cannot be written")
def job_raises_limit(s):
    said = s.in_a_job(
        "import glob, os\n"
        "own = [l.strip().split(':', 2)[2] for l in open('/proc/self/cgroup')]\n"
        "wrote = 0\n"
        "for g in ['', *own]:\n"
        "    for p in glob.glob(f'/sys/fs/cgroup{g}/memory*max*') + "
        "glob.glob(f'/sys/fs/cgroup/memory{g}/memory*limit*'):\n"
        "        try:\n"
        "            os.close(os.open(p, os.O_WRONLY)); wrote += 1\n"
        "        except OSError: pass\n"
        "print(wrote)")
    assert said == "0", said
    return "cannot be written"
