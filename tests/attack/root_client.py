# SPDX-License-Identifier: GPL-2.0-or-later
"""A client that plays an agentd that was taken over against the real souk-root. It shares no code
with Souk (agentd/root/requests.hpp has the packets)."""
import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from cluster import AGENT_USER, BIN, mount_points, read_text

(PROGRAM, CAPSULE, CRIU, OPEN, PORT, TAKE, SETTLE, STATUS, DIRECTORY, LOOK, FIT, WAITS, END,
 CONNECT, DEVICE) = range(1, 16)
STARTED, REFUSED, DONE = 16, 17, 18
GIVE, LEARN, INPUTS, OWN_FILE, CPU_EVENT, ADOPT, ARM, LOADED = range(19, 27)
ACT, HOLD, FEED, HELD, RELEASE, SAY, MEND, KEEP, SEE = range(27, 36)
TO_JOB, FROM_JOB, WITHIN = range(3)
DISARM, ABANDON, ANNOUNCE = range(1, 4)
HANDSHAKE, INSPECT, FILES = 1, 2, 3
WRITTEN_MARKS, OOM_SCORE, PAGE_MAP, MEMORY, MAPS, ROOT = FILES_OF_PROCESS = range(1, 7)
PROC, RUN = 1, 2
FUSE, CPU_LATENCY, CPU_PRESSURE, MEMORY_PRESSURE, IO_PRESSURE = range(1, 6)
CONFIGURATION, USERS = 1, 2
FILES_FD = 5  # of souk-init: its mount's


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def words(*all_):
    return struct.pack("<I", len(all_)) + b"".join(map(text, all_))


def program(which, *said, session=False):
    return bytes([PROGRAM, which]) + words(*said) + bytes([session])


def user(uid, gid, *groups):
    return struct.pack(f"<III{len(groups)}I", uid, gid, len(groups), *groups)


def capsule(files=False, cgroup=False, over=(), as_=(1000, 1000), own=True, ticket=b"", keep="",
            net=False):
    shown = struct.pack("<I", len(ticket)) + ticket
    return bytes([CAPSULE, net, 0, 0, 0, 0, files, cgroup, own]) + user(*as_) + shown + \
        words(*over) + words() + text(keep)


def criu(restores=False, cgroup=False, ends=0):
    return bytes([CRIU, restores, cgroup, False, ends])


def adopt(*users, more=False):
    return bytes([ADOPT]) + struct.pack("<I", len(users)) + \
        b"".join(user(*one) for one in users) + bytes([more])


def opens(file):
    return bytes([OPEN, file])


def take(number):
    return bytes([TAKE]) + struct.pack("<I", number)


def port(name="sj0123456789ab", address="10.79.64.70", found=False, shut=False):
    number = int.from_bytes(socket.inet_aton(address), "big")
    return bytes([PORT, found, shut]) + struct.pack("<I", number) + text(name)


def mend(number):
    return bytes([MEND]) + struct.pack("<I", number)


def feed(since=0, frames=False):
    return bytes([FEED]) + struct.pack("<q", since) + bytes([frames])


def release(gives=True, heard=0, spoke=0):
    return bytes([RELEASE, gives]) + struct.pack("<qq", heard, spoke)


def settle(runs=True):
    return bytes([SETTLE, runs])


def status(said):
    return bytes([STATUS]) + text(said)


def look(*pids, what=(0,) * 7):
    return bytes([LOOK, *what]) + struct.pack(f"<II{len(pids)}I", 100, len(pids), *pids)


def fit(*pids, limits=()):
    packet = struct.pack(f"<I{len(pids)}I I", len(pids), *pids, len(limits))
    return bytes([FIT]) + packet + b"".join(struct.pack("<BQ", *limit) for limit in limits)


ANYBODY = ("n1", "any", "0", "1000", "*")
NO_NETWORK = ("", "", "")


class Root:
    """A souk-root, and this end of its socket. own: the files of its configuration and its users,
    the number of the user that agentd is, and the directory of his state. rules: for whom it starts
    processes (agentd/who/rules.hpp): without certificates for anybody. criu: where that is
    installed. network: of its jobs, then it is in a network namespace of its own."""
    def __init__(self, status_file="", own=None, rules=ANYBODY, criu="/", network=NO_NETWORK):
        words = [] if own is None else [own[0], own[1], own[2], own[2], own[3],
                                        f"{own[3]}/identity", "souk-attack/n1", "16", *rules,
                                        *network]
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door, inward = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [theirs.fileno()]
        with socket.socket(socket.AF_UNIX) as tools:
            if own is not None:
                self.tools = os.path.join(os.path.dirname(own[3]), "tools")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.tools)
                tools.bind(self.tools)
                os.chmod(self.tools, 0o666)
                tools.listen()
                given += [tools.fileno(), inward.fileno()]
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 40) for fd in given]

            def arrange():
                for i, fd in enumerate(high):
                    os.dup2(fd, 3 + i)
            apart = ["unshare", "--net"] if network[0] else []
            self.process = subprocess.Popen(
                [*apart, f"{BIN}/souk-root", criu, status_file, *words],
                pass_fds=range(3, 3 + len(high)), preexec_fn=arrange)
            for fd in high:
                os.close(fd)
        theirs.close()
        inward.close()
        self.line.settimeout(20)
        self.door.settimeout(20)
        self.began = self.answer()

    def comes(self, uid, gid, *groups):
        """Somebody connects to the socket of the tools; the connection comes in here."""
        caller = subprocess.Popen(
            ["/usr/bin/python3", "-c", "import socket, sys\ns = socket.socket(socket.AF_UNIX)\n"
             "s.connect(sys.argv[1])\nprint(s.recv(1))", self.tools], user=uid, group=gid,
            extra_groups=groups, stdout=subprocess.PIPE)
        packet, fds, _, _ = socket.recv_fds(self.door, 8, 4)
        with socket.socket(fileno=fds[0]) as connection:
            who = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET,
                                                             socket.SO_PEERCRED, 12))
            connection.send(b"x")
        assert packet == b"t" and len(fds) == 1 and who == (caller.pid, uid, gid)
        assert caller.communicate(timeout=20)[0] == b"b'x'\n"

    def answer(self, kept=None):
        packet, fds, _, _ = socket.recv_fds(self.line, 1 << 17, 24)
        if kept is not None:
            kept += fds
        else:
            for fd in fds:
                os.close(fd)
        if packet and packet[0] == REFUSED:
            return REFUSED, packet[9:].decode()
        return packet[0] if packet else None, len(fds)

    def ask(self, packet, *fds, kept=None):
        socket.send_fds(self.line, [packet], fds)
        return self.answer(kept)

    def end(self):
        self.line.close()
        assert self.process.wait(20) == 0


def refused(root, why, packet, *fds):
    kind, said = root.ask(packet, *fds)
    assert kind == REFUSED and why in said, said
    # The refusal had no effect, and souk-root serves on.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            assert root.ask(program(INSPECT), theirs.fileno()) == (STARTED, 1)
        ours.settimeout(20)
        assert ours.recv(64)  # it has begun


@contextlib.contextmanager
def real_capsule(root, as_=(1000, 1000)):
    """A pidfd of its souk-init, and the number."""
    with tempfile.TemporaryDirectory() as room:
        directory, kept = os.open(room, os.O_RDONLY), []
        try:
            assert root.ask(capsule(as_=as_), directory, kept=kept) == (STARTED, 2)
            yield kept[0], pid_of(kept[0])
        finally:
            signal.pidfd_send_signal(kept[0], signal.SIGKILL)
            assert select.select([kept[0]], [], [], 20)[0]
            for fd in (directory, *kept):
                os.close(fd)


def pid_of(pidfd):
    fields = read_text(f"/proc/self/fdinfo/{pidfd}").split()
    return int(fields[fields.index("Pid:") + 1])


@contextlib.contextmanager
def pid_one(place, *words, name="souk-init", script="as"):
    """PID 1 of a namespace, and its child, which writes to a file as 2, reads it as 3, and has a
    socket as 4. By its name, which is root's to give, and its words it is a capsule's."""
    ends = socket.socketpair()
    shutil.copy("/bin/sh", place / name)
    # The program says itself when it has these files, and stays the program that it is.
    (place / script).write_text(
        'exec 4<&0; sh -c "echo; read never <&4" 2> file 3< file & wait')
    first = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                              place / name, script, *words],
                             cwd=place, stdin=ends[0], stdout=subprocess.PIPE)
    first.stdout.readline()
    init = int(read_text(f"/proc/{first.pid}/task/{first.pid}/children"))
    job = int(read_text(f"/proc/{init}/task/{init}/children"))
    fds = os.pidfd_open(init), os.pidfd_open(job)
    yield fds
    for fd in fds:
        os.close(fd)
    first.kill()
    first.wait()
    for end in ends:
        end.close()


def start_of(place, rules=ANYBODY, network=NO_NETWORK):
    return Root(own=(f"{place}/conf", f"{place}/map", AGENT_USER, f"{place}/state"), rules=rules,
                network=network)


@contextlib.contextmanager
def place_of_agentd(identity=None):
    """Makes a directory in which such an agentd has its files. With `identity`, it gets the
    certificate that lies in that directory."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o711)
        for name, said in (("conf", "price = 1"), ("map", "* = -")):
            with open(f"{place}/{name}", "w", opener=lambda *a: os.open(*a, 0o600)) as f:
                f.write(said)
        if identity:
            os.makedirs(f"{place}/state/identity", 0o700)
            for name in ("root.pem", "certificate.pem", "ticket-list"):
                shutil.copy(f"{identity}/{name}", f"{place}/state/identity/{name}")
        try:
            yield place
        finally:
            for room in ("ram", "guests"):
                subprocess.run(["umount", "-q", f"{place}/state/{room}"], check=False)
            for top in mount_points(("cgroup", "cgroup2")):
                for group in ("/n1/jobs", "/n1", ""):
                    with contextlib.suppress(FileNotFoundError):
                        os.rmdir(f"{top}/souk-attack{group}")


@contextlib.contextmanager
def of_agentd(network=NO_NETWORK):
    """A souk-root for an agentd that is a user of its own, in a place of its own."""
    with place_of_agentd() as place:
        one = start_of(place, network=network)
        assert one.began[0] == STARTED
        one.place = place
        yield one
        one.end()


# ---- fixtures

def module_root():
    one = Root()
    assert one.began[0] == STARTED
    yield one
    one.end()


def inside_of(root, tmp_path):
    with pid_one(tmp_path, "1000", "gid", "1000") as fds:
        refused(root, "no process of a capsule", opens(MAPS), fds[1])  # which nobody has made
        assert root.ask(bytes([WAITS]), fds[0]) == (DONE, 0)
        yield fds
