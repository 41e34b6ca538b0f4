# SPDX-License-Identifier: GPL-2.0-or-later
"""A provider that lies: its root changes the image of a plain user's frozen job on its disk
(stored_image.py), so that another node's agentd gets it in order, with the tag of the home. What
the job would then have, and not be allowed to, does not come into being: no file of root's is read
or written, no packet socket is there, and that node's settings are as they were."""
import ctypes
import json
import os
import threading

from inside import ALICE, need, read_text, until
from stored_image import StoredImage, entries, fields, file_of, message

TOP = "/home/alice/doctored"
DECOY, SECRET = f"{TOP}/decoy", "/root-alone"
KEPT = "what root alone reads"
PORTS = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
ADDED = 77  # the number of the descriptor that a changed image has more
REG, PACKET = 1, 10  # kinds of CRIU's files.img

# It holds a file of its own open. At a word it does with what it has whatever it can, and says so.
JOB = f"""
import os, socket, sys, time
held = os.open("{DECOY}", os.O_RDWR)
n = 0
while not os.path.exists("{TOP}/go"):
    n += 1
    print(n, flush=True)
    time.sleep(0.05)
def tries(what, call):
    try: print(what, call(), flush=True)
    except OSError as e: print(what, "fails:", e.strerror, flush=True)
def port():
    s = socket.socket()
    s.bind(("127.0.0.1", 22))
    return s.getsockname()[1]
tries("holds", lambda: os.pread(held, 100, 0))
tries("writes", lambda: os.pwrite(held, b"ATTACK", 0))
tries("has more", lambda: os.readlink("/proc/self/fd/{ADDED}"))
tries("binds", port)
tries("keys", lambda: __import__("ctypes").CDLL(None).syscall(250, 1, 0))
"""
HONEST = (f"holds b'{'it is his ' * 3}'", "writes 6", "has more fails: No such file or directory",
          "binds fails: Permission denied", "keys -1")


class Seen:
    """All packet sockets that a network had since this began, as the kernel lists them. They are
    looked for all the time, because a job that is ended at once has its sockets until then."""

    def __init__(self, market, node):
        self.lines, self.looks, self.over = set(), 0, threading.Event()
        with open(f"/run/netns/{market.tag}-{node}") as f:
            self.thread = threading.Thread(target=self.look, args=(os.dup(f.fileno()),),
                                           daemon=True)
        self.thread.start()
        until("it is looked for", lambda: self.looks > 0)

    def look(self, network):
        if ctypes.CDLL(None, use_errno=True).setns(network, 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(network)
        while not self.over.is_set():
            with open("/proc/thread-self/net/packet") as f:
                self.lines |= set(f.read().splitlines()[1:])
            self.looks += 1
            self.over.wait(0.002)

    def end(self):
        self.over.set()
        self.thread.join(10)
        return self.lines


def begins(market):
    os.makedirs(TOP, exist_ok=True)
    os.chown(TOP, ALICE, ALICE)
    for path, text, mode in ((DECOY, "it is his " * 3, 0o600), (SECRET, KEPT, 0o600)):
        write(path, text)
        os.chmod(path, mode)
    os.chown(DECOY, ALICE, ALICE)
    if os.path.exists(f"{TOP}/go"):
        os.unlink(f"{TOP}/go")
    job = market.srun("-p", 50, "--node", "n1", "/usr/bin/python3", "-c", JOB, user=ALICE,
                      group=ALICE, extra_groups=[], cwd=TOP,
                      env={**market.env, "HOME": "/home/alice"})
    job.printed(3)
    if market.until_runs(job.id)["where"] != "n2":
        market.tool("marketctl", "--hold", "move", job.id, "n2")
        market.until_runs(job.id, "n2")
    market.tool("marketctl", "--hold", "freeze", job.id)
    market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
    return job


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def ports(market, node):
    return market.in_netns(node, lambda: read_text(PORTS))


def thawed(market, job):
    """On n3, where the image of n2 goes. What became of it: "runs", or why not."""
    failed = market.job(job.id)["failed_moves"]
    market.tool("marketctl", "--hold", "thaw", job.id, "n3")
    last = market.until_job(
        job.id, "runs there or is refused", lambda j: j["status"] == "finish" or
        j["status"] == "run" and j["where"] == "n3" and "going_to" not in j or
        j["failed_moves"] > failed and j["status"] == "suspend" and "going_to" not in j)
    return "runs" if last["status"] != "suspend" else last["last_failed"]


def goes_on(market, job):
    """The lines that it says of what it has."""
    write(f"{TOP}/go", "")
    need(job.wait() == 0, f"ended with {job.process.returncode}: {job.told}")
    return tuple(line for line in bytes(job.out).decode().splitlines() if not line.isdigit())


def goes_on_as_it_was(market, job, image):
    """With the image that the refused one was made of nothing of the job is lost."""
    market.tool("marketctl", "--hold", "freeze", job.id)  # the market tries again by itself
    market.until_job(job.id, "stays there",
                     lambda j: j["status"] == "suspend" and "going_to" not in j)
    image.put_back()
    said = thawed(market, job)
    has = goes_on(market, job) if said == "runs" else ()
    need(has == HONEST, f"with its own image: {said} {has}")
    need(read_text(DECOY).startswith("ATTACK"), "its own file is not written to")


def doctored(market, change):
    """A job whose image is changed so on n2, and what becomes of it on n3: the words of a refusal,
    and what it says that it has; none if it does not run. Root's file, the network and its settings
    stay as they were, whatever becomes of it."""
    before = ports(market, "n3")
    job = begins(market)
    image = StoredImage(f"{market.run_dir}/state/n2", job.id)
    change(image)
    image.sign()
    seen = Seen(market, "n3")
    said = thawed(market, job)
    has = goes_on(market, job) if said == "runs" else ()
    sockets, after = seen.end(), ports(market, "n3")
    if after != before:
        market.in_netns("n3", lambda: write(PORTS, before))
    need(read_text(SECRET) == KEPT, f"root's file is {read_text(SECRET)!r}: {said} {has}")
    need(not any(KEPT in line for line in has), f"root's file was read: {has}")
    need(not sockets, f"{sockets} came into being: {said} {has}")
    need(after == before, f"{PORTS} was {before} and is {after}: {said} {has}")
    if said != "runs":
        goes_on_as_it_was(market, job, image)
    return said, has


def refused(market, words, change):
    said, has = doctored(market, change)
    need(words in said and not has, f"not '{words}': {said} {has}")


def test_an_image_that_a_provider_only_writes_anew_goes_on_elsewhere(market):
    """So the tests below refuse what was changed, and not that it was written anew."""
    def anew(image):
        for name in ("files.img", fdinfo(image), core(image)):
            image.write(name, image.read(name))
    said, has = doctored(market, anew)
    need(said == "runs" and has == HONEST, f"{said} {has}")


def fdinfo(image):
    return next(n for n in image.names if n.startswith("fdinfo-"))


def core(image):
    return next(n for n in image.names if n.startswith("core-"))


def renamed(to):
    """The job's own file has another name."""
    def change(image):
        data, found = image.read("files.img"), []

        def of(entry):
            out = []
            for k, v in fields(entry):
                if k == 3 and not isinstance(v, int):
                    regular = fields(v)
                    if (6, DECOY.encode()) in regular:
                        found.append(v)
                        # The checks of its size and its digest are left out.
                        v = message([(n, to.encode() if n == 6 else x) for n, x in regular
                                     if n < 8])
                out.append((k, v))
            return message(out)
        image.write("files.img", file_of(data, [of(e) for e in entries(data)]))
        need(found, "the image has no such file")
    return change


def test_no_file_of_roots_is_opened_for_a_job_by_an_image_of_another_node(market):
    names = [before + SECRET for before in ("", "/", "//proc/self/root")]
    for name in names:
        refused(market, f"cannot open {name}: Permission denied", renamed(name))
    return f"by {len(names)} names"


OWNER = message([(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)])
OPTIONS = message([(1, 212992), (2, 212992), (3, 0), (4, 0), (5, 0), (6, 0)])
# packet-sock.proto: a raw one of all protocols, of the first interface.
SOCKET = [(2, 3), (3, 0x300), (4, 2), (5, 1), (6, OWNER), (7, OPTIONS), (8, 0), (9, 0), (10, 0),
          (11, 0), (12, 0), (13, 0), (14, 0), (15, 0)]


def packet_socket(image):
    data = image.read("files.img")
    id = max(dict(fields(e))[2] for e in entries(data)) + 1
    image.write("files.img", file_of(data, entries(data) + [message(
        [(1, PACKET), (2, id), (6, message([(1, id), *SOCKET]))])]))
    held = image.read(fdinfo(image))
    image.write(fdinfo(image), file_of(held, entries(held) + [message(
        [(1, id), (2, 0), (3, PACKET), (4, ADDED)])]))


def test_no_packet_socket_comes_out_of_an_image_of_another_node(market):
    refused(market, "it would have a packet socket", packet_socket)


def test_an_image_of_another_node_sets_nothing_of_a_nodes_network(market):
    """The file that is added is one of jobs with a network of their own. This job has none."""
    def settings(image):
        image.write("souk-network", b"".join(v.ljust(64, b"\0") for v in (b"0 2147483647", b"7")))
    said, has = doctored(market, settings)
    need(said == "runs" and has == HONEST, f"{said} {has}")


def unlimited(image):
    """No thread of it has a filter for its calls."""
    def of(entry):
        return message([(k, message([(n, 0 if n == 11 else x) for n, x in fields(v) if n != 12])
                         if k == 5 else
                         message([(n, x) for n, x in fields(v) if n not in (11, 12)])
                         if k == 3 else v) for k, v in fields(entry)])
    for name in image.names:
        if name.startswith("core-"):
            data = image.read(name)
            need(of(data[12:]) != data[12:], "it has no filter")
            image.write(name, file_of(data, [of(e) for e in entries(data)]))


def test_no_image_of_another_node_frees_a_job_of_the_limit_of_its_calls(market):
    refused(market, "has no filter that keeps it from", unlimited)


def test_no_image_of_another_node_asks_for_a_trial(market):
    """A node restores its own images for trial before it ends their jobs."""
    refused(market, "souk-trial: no file of a job's image",
            lambda image: image.write("souk-trial", b""))


def test_images_of_one_user_take_their_share_of_a_disk(market):
    """The first one has more than that, and is kept; then no more of that user's are made there,
    and of another user's they are."""
    conf = f"{market.run_dir}/n2/agentd.conf"
    before = read_text(conf)
    write(conf, "user_images_mb = 1\n" + before)
    market.kill_daemon("n2")
    jobs = []
    try:
        for user in (ALICE, ALICE, ALICE + 1):
            jobs.append(market.srun("-p", 50, "--node", "n1", "/usr/bin/python3", "-c",
                                    "import time; kept = bytes(range(256)) * 20000\n"
                                    "print(1, flush=True)\ntime.sleep(1000)", user=user,
                                    group=user, extra_groups=[], cwd="/"))
            jobs[-1].printed(1)
            frozen(market, jobs[-1], user, len(jobs) == 2)
    finally:
        write(conf, before)
        market.kill_daemon("n2")


def frozen(market, job, user, is_refused):
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    market.tool("marketctl", "--hold", "freeze", job.id)
    if not is_refused:
        market.until_job(job.id, "is frozen", lambda j: j["status"] == "suspend")
        return
    market.until_job(job.id, "stands in memory, and says why", lambda j: j["where"] == "n2" and
                     j.get("stopped_in_place") and "user_images_mb" in json.dumps(j))
