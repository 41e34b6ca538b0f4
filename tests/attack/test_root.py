# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-root starts every process of a node for agentd. These tests look at the rights that agentd
has given up for it, and at what an attacker in agentd's place gets from it. test_who.py tests as
whom souk-root starts processes, test_root_criu.py CRIU, and test_root_network.py the network."""
import fcntl
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import tempfile

import pytest

from cluster import AGENT_USER, BIN, alive, mount_points, read_text, until
from no_rights import echoes, ends_well, root_of, write
from root_client import (
    CONFIGURATION, CONNECT, CPU_LATENCY, CPU_PRESSURE, DEVICE, DIRECTORY, DONE, END, FILES,
    FILES_FD, FILES_OF_PROCESS, FUSE, GIVE, HANDSHAKE, INPUTS, INSPECT, IO_PRESSURE, LEARN, MAPS,
    MEMORY, MEMORY_PRESSURE, OPEN, OWN_FILE, PAGE_MAP, PROC, PROGRAM, REFUSED, ROOT, RUN, Root,
    STARTED, USERS, WAITS, capsule, criu, fit, inside_of, look, mend, module_root, of_agentd,
    opens, pid_one, port, program, refused, settle, status, take)

# agentd keeps these capabilities, listed by number (docs/security.md says what for).
LEFT = {"net_bind_service": 10, "ipc_lock": 14, "sys_nice": 23}


# ---- what agentd has given up

def test_agentd_can_start_nothing_itself(market):
    pid = market.daemon("n1")["pid"]
    fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", read_text(f"/proc/{pid}/status"), re.M))
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert set(fields["Uid"].split() + fields["Gid"].split()) == {AGENT_USER}
    assert fields["Groups"].strip() == ""
    for mask in ("CapPrm", "CapEff", "CapBnd"):
        left = {bit for bit in range(64) if int(fields[mask], 16) >> bit & 1}
        assert left <= set(LEFT.values()), mask
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        assert f.read().split() == [str(root_of(market, "n1"))]


def test_a_job_and_its_move_inherit_nothing_of_that(market):
    """The job is root's, so nothing is taken from it."""
    has = re.compile(r"^(?:Seccomp_filters|CapBnd):.*$", re.M)
    own = has.findall(read_text("/proc/self/status"))
    job = market.srun("--node", "n1", "-p", 50, "/bin/sh", "-c",
                      "while read x; do grep -E '^(Seccomp_filters|CapBnd):' /proc/self/status; "
                      "echo said; done", stdin=subprocess.PIPE)
    market.until_runs(job.id, "n1")
    write(job, b"x\n")
    job.printed(3)
    market.tool("marketctl", "--hold", "move", job.id, "n2")
    market.until_runs(job.id, "n2")
    write(job, b"x\n")
    job.printed(6)
    job.process.stdin.close()
    assert job.wait() == 0
    here, there, _ = bytes(job.out).decode().split("said\n")
    assert here.splitlines() == there.splitlines() == sorted(own)


def test_agentd_ends_with_souk_root_and_its_jobs_run_on(market):
    job = echoes(market, "--node", "n1")
    agent = market.daemon("n1")["pid"]
    root = root_of(market, "n1")
    os.kill(root, signal.SIGKILL)
    until("agentd has ended with it", lambda: not alive(agent))
    until("another one is there", lambda: market.daemon("n1")["pid"] != agent
          and root_of(market, "n1") not in (0, root))
    write(job, b"still\n")
    job.printed(1)
    ends_well(job, "still")


# ---- who plays agentd

root = pytest.fixture(scope="module")(module_root)
inside = pytest.fixture(inside_of)


def test_a_packet_that_is_no_request_is_refused(root):
    one = program(INSPECT)
    with open("/dev/null") as null:
        for noise in (b"\0", b"\4", b"\5x", take(3)[:-1], settle() + b"x", b"\7\2",
                      status("x")[:-1], b"\x17", b"\x12", bytes([OPEN, ROOT + 1]), look(0),
                      bytes([DEVICE, IO_PRESSURE + 1]), bytes([OWN_FILE, USERS + 1]),
                      bytes([INPUTS, 2]),
                      bytes([DIRECTORY, RUN + 1]), look(1)[:-1], fit(limits=((16, 1),)),
                      b"\xff" * 40, one[:-1], one + b"\0", one[:1], b"\1\7" + one[2:],
                      program(FILES, "a\0b"), capsule() + b"x", criu()[:3], b"\1" * (130 << 10),
                      bytes([PROGRAM, FILES]) + struct.pack("<I", 1 << 30)):
            refused(root, "no request", noise, null.fileno())


def test_it_starts_its_own_programs_alone(root):
    with open("/dev/null") as null:
        fd = null.fileno()
        for said in ((), ("try", "/", "/mnt"), ("serve", "/", "0", "0"), ("client", "-1", "0"),
                     ("client", "4294967295", "0"), ("store", "many"), ("store", "1", "2"),
                     ("serve", "etc", "1", "1", "", "/proc"), ("sh", "-c", "id")):
            refused(root, "is not started so", program(FILES, *said), fd, fd)
        refused(root, "is not started so", program(FILES, "store", "1"), fd)
        refused(root, "takes no words", program(HANDSHAKE, "now"), fd)
        refused(root, "takes no words", program(INSPECT), fd, fd)


def test_a_capsule_is_made_in_roots_own_directory_and_real_groups(root):
    with tempfile.TemporaryDirectory() as place:
        own = os.open(place, os.O_RDONLY)
        swaps, file, null = os.open("/tmp", os.O_RDONLY), os.open("/etc/passwd", os.O_RDONLY), \
            os.open("/dev/null", os.O_RDWR)
        try:
            refused(root, "its descriptors", capsule(files=True), own)
            refused(root, "is not agentd's alone", capsule(), swaps)
            refused(root, "another kind of file", capsule(), file)
            refused(root, "no control group", capsule(cgroup=True), own, own)
            refused(root, "no control group", capsule(), own, file)
            refused(root, "another kind of file", capsule(files=True), own, file, file)
            refused(root, "another device", capsule(files=True), own, null, file)
            refused(root, "does not begin at the root", capsule(over=("../etc",)), own)
            for over in ("/a/../etc", "/..", "/a/.."):
                refused(root, "that goes up", capsule(over=(over,)), own)
            for keep in ("../etc", "a/../../etc", "munge ..", "munge /etc"):
                refused(root, "that goes up", capsule(keep=keep), own)
        finally:
            for fd in (own, swaps, file, null):
                os.close(fd)


def test_it_looks_into_nobodys_container(root, tmp_path):
    """Processes of others have PID namespaces too: of a container, of a browser."""
    with pid_one(tmp_path, name="sh") as fds:
        for packet in (port(), look(1), fit(), bytes([WAITS])):
            refused(root, "no PID 1 of a capsule", packet, fds[0])
        for fd in fds:
            refused(root, "no process of a capsule", opens(MEMORY), fd)
            refused(root, "no process that was started here", bytes([END]), fd)
    # This capsule is in a user namespace of somebody else, where he is root, and it runs the real
    # program.
    theirs = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child",
         f"{BIN}/souk-init", "as", "0", "gid", "0"], user=4321, group=4321, extra_groups=[],
        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    theirs.wait(20)  # it has no descriptors of a capsule
    shell = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sh", "-c",
         "echo; read never"], user=4321, group=4321, extra_groups=[], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE)
    shell.stdout.readline()
    one = os.pidfd_open(int(read_text(f"/proc/{shell.pid}/task/{shell.pid}/children")))
    refused(root, "no PID 1 of a capsule", port(), one)
    os.close(one)
    shell.kill()
    shell.wait()


def test_it_reaches_into_capsules_alone(root, inside):
    init, job = inside
    machine = os.pidfd_open(os.getpid())
    with open("/dev/null") as null:
        files = [opens(file) for file in FILES_OF_PROCESS]
        of_capsule = port(), bytes([DIRECTORY, PROC]), look(1), fit(), bytes([WAITS])
        for packet in (*files, *of_capsule, take(0)):
            refused(root, "no process of a capsule", packet, machine)
            refused(root, "no process of a capsule", packet, null.fileno())
            refused(root, "other descriptors", packet)
            why = "no process of a capsule" if packet in files else "other descriptors"
            refused(root, why, packet, job, machine)
    os.close(machine)
    for packet in files:
        assert root.ask(packet, job, init) == (DONE, 2)
    for packet in of_capsule:
        refused(root, "no PID 1 of a capsule", packet, job)


def test_what_it_opens_of_a_job_is_to_be_read(root, inside):
    init, job = inside
    kept = []
    for packet, fd in ((opens(MEMORY), job), (opens(MAPS), job), (opens(PAGE_MAP), job),
                       (bytes([DIRECTORY, PROC]), init), (look(1, 2), init)):
        assert root.ask(packet, fd, kept=kept) == (DONE, 1)
    memory, maps, pages, proc, seen = kept
    for fd in (memory, maps, pages, proc):
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    place = int(os.read(maps, 64).split(b"-")[0], 16)
    assert len(os.pread(memory, 16, place)) == 16
    with pytest.raises(OSError):
        os.pwrite(memory, b"x", place)
    assert "1" in os.listdir(proc) and str(os.getpid()) not in os.listdir(proc)
    assert b"/file" in os.pread(seen, 1 << 16, 0)
    for fd in kept:
        os.close(fd)


def test_it_lowers_limits_in_that_capsule_alone(root, inside):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = ((resource.RLIMIT_NOFILE, 64),)
    for pid in (os.getpid(), root.process.pid):
        refused(root, "no process of that capsule", fit(pid, limits=lower), inside[0])
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_it_ends_what_it_has_started_and_jobs_alone(root, inside):
    machine, itself = os.pidfd_open(os.getpid()), os.pidfd_open(root.process.pid)
    other = subprocess.Popen(["sleep", "600"])
    another = os.pidfd_open(other.pid)
    for fd in (machine, itself, another):
        refused(root, "no process that was started here", bytes([END]), fd)
    assert other.poll() is None
    other.kill()
    other.wait()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = []
    with ours:
        with theirs:
            assert root.ask(program(INSPECT), theirs.fileno(), kept=kept) == (STARTED, 1)
        ours.settimeout(20)
        assert ours.recv(64)  # it has begun
        for fd in (kept[0], inside[1]):
            assert root.ask(bytes([END]), fd) == (DONE, 0)
            assert select.select([fd], [], [], 20)[0]
    for fd in (machine, itself, another, *kept):
        os.close(fd)


def test_what_is_not_the_users_ends(root, inside):
    """A restore's processes, which are root's here, of a job that is not."""
    refused(root, "restored for user 1000: it would be user 0", fit(), inside[0])
    assert select.select([inside[1]], [], [], 20)[0]


def test_it_takes_nothing_from_a_job(root, inside):
    """souk-root also changes no file. For a socket it ends the repair mode, by which a job is
    silent."""
    init, job = inside
    for number in (0, 1, 2, 3, 4, 999, 0xffffffff):
        refused(root, "a job keeps that to itself", take(number), job)
    for number in (0, 1, 2):
        refused(root, "souk-init keeps that to itself", take(number), init)
    refused(root, "take a descriptor", take(FILES_FD), init)
    for number in (1, 2, 3, 4):
        assert root.ask(mend(number), job) == (DONE, 0)
    refused(root, "take a descriptor", mend(999), job)
    machine = os.pidfd_open(os.getpid())
    refused(root, "no process of a capsule", mend(1), machine)
    os.close(machine)


def test_it_renames_sockets_that_a_restore_has_put_aside_and_nothing_else(root):
    with tempfile.TemporaryDirectory() as place:
        os.mkdir(f"{place}/image", 0o700)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{place}/own")
        aside = f"{place}/.souk-{os.stat(f'{place}/own').st_ino}"
        os.rename(f"{place}/own", aside)
        listener.close()
        with open(f"{place}/secret", "w") as f:
            f.write("kept")
        os.link(f"{place}/secret", f"{place}/.souk-{os.stat(f'{place}/secret').st_ino}")
        image = os.open(f"{place}/image", os.O_RDONLY)
        swaps = os.open("/tmp", os.O_RDONLY)

        def listed(*names):
            with open(f"{place}/image/souk-sockets", "w") as f:
                f.write("".join(name + "\0" for name in names))
            return sorted(os.listdir(place))
        before = listed(f"{place}/.souk-{os.stat(f'{place}/secret').st_ino}", f"{place}/own")
        assert root.ask(settle(), image) == (DONE, 0)
        assert sorted(os.listdir(place)) == before and os.listdir(f"{place}/image") == []
        listed(f"{place}/secret", f"{place}/own", aside, "/etc/own", aside, f"{place}/a/b")
        assert root.ask(settle(False), image) == (DONE, 0)
        assert sorted(os.listdir(place)) == before
        with open(f"{place}/list", "w") as f:
            f.write(f"{aside}\0{place}/own\0")
        os.symlink(f"{place}/list", f"{place}/image/souk-sockets")
        assert root.ask(settle(False), image) == (DONE, 0) and os.path.exists(aside)
        os.unlink(f"{place}/image/souk-sockets")
        os.unlink(f"{place}/list")
        listed(aside, f"{place}/own")
        assert root.ask(settle(False), image) == (DONE, 0)
        assert os.path.exists(f"{place}/own") and not os.path.exists(aside)
        refused(root, "is not agentd's alone", settle(), swaps)
        # A socket of another user is listed to be put back over a file of somebody else, in a
        # directory where everybody may create files. The file must stay.
        os.chmod(place, 0o1777)
        with open(f"{place}/theirs", "w") as f:
            f.write("kept")
        one = socket.socket(socket.AF_UNIX)
        one.bind(f"{place}/mine")
        os.chown(f"{place}/mine", 4321, 4321)
        aside = f"{place}/.souk-{os.stat(f'{place}/mine').st_ino}"
        os.rename(f"{place}/mine", aside)
        one.close()
        listed(aside, f"{place}/theirs")
        assert root.ask(settle(False), image) == (DONE, 0)
        assert read_text(f"{place}/theirs") == "kept"
        os.close(image)
        os.close(swaps)


def test_it_writes_the_status_file_of_the_configuration_alone(root):
    refused(root, "names no status file", status("up=1\n"))
    with tempfile.TemporaryDirectory() as place:
        with open(f"{place}/secret", "w") as f:
            f.write("kept")
        os.symlink(f"{place}/secret", f"{place}/status")
        os.symlink(f"{place}/secret", f"{place}/status.new")
        one = Root(f"{place}/status")
        assert one.ask(status("up=1\n")) == (DONE, 0)
        assert read_text(f"{place}/status") == "up=1\n"
        assert read_text(f"{place}/secret") == "kept"
        refused(one, "no request", status("x" * (65 << 10)))
        assert one.ask(status("")) == (DONE, 0)
        assert os.listdir(place) == ["secret"]
        one.end()


def test_it_connects_to_the_souk_init_of_that_capsule_alone(root, inside):
    """An attacker in agentd's place puts another socket of root's where souk-init's should be."""
    init, job = inside
    machine = os.pidfd_open(os.getpid())
    connect = bytes([CONNECT])
    with tempfile.TemporaryDirectory() as place, \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        own, swaps = os.open(place, os.O_RDONLY), os.open("/tmp", os.O_RDONLY)
        refused(root, "No such file", connect, init, own)
        other.bind(f"{place}/elsewhere")
        other.listen()
        os.symlink(f"{place}/elsewhere", f"{place}/ctl.sock")
        refused(root, "No such process", connect, init, own)
        refused(root, "no process of a capsule", connect, machine, own)
        refused(root, "no PID 1 of a capsule", connect, job, own)
        refused(root, "is not agentd's alone", connect, init, swaps)
        refused(root, "other descriptors", connect, init)
        for fd in (own, swaps, machine):
            os.close(fd)


def test_it_opens_devices_of_a_short_list(root):
    for which, path, mode in ((FUSE, "/dev/fuse", os.O_RDWR),
                              (CPU_LATENCY, "/dev/cpu_dma_latency", os.O_WRONLY),
                              (CPU_PRESSURE, "/proc/pressure/cpu", os.O_RDWR),
                              (MEMORY_PRESSURE, "/proc/pressure/memory", os.O_RDWR),
                              (IO_PRESSURE, "/proc/pressure/io", os.O_RDWR)):
        kept = []
        answer = root.ask(bytes([DEVICE, which]), kept=kept)
        if not os.path.exists(path):
            assert answer[0] == REFUSED and path in answer[1]
            continue
        assert answer == (DONE, 1)
        assert os.readlink(f"/proc/self/fd/{kept[0]}") == path
        assert fcntl.fcntl(kept[0], fcntl.F_GETFL) & os.O_ACCMODE == mode
        os.close(kept[0])
    with open("/dev/null") as null:
        refused(root, "other descriptors", bytes([DEVICE, FUSE]), null.fileno())
        refused(root, "no inotify instance", bytes([INPUTS, 1]), null.fileno())


def test_it_learns_of_the_kernel_in_capsules_alone(root, inside):
    machine = os.pidfd_open(os.getpid())
    refused(root, "no process of a capsule", bytes([LEARN]), machine)
    refused(root, "no PID 1 of a capsule", bytes([LEARN]), inside[1])
    os.close(machine)


def test_it_opens_files_of_the_owner_to_be_read_and_none_that_agentd_names(root, own):
    for which in (CONFIGURATION, USERS):
        refused(root, "no such file", bytes([OWN_FILE, which]))
        kept = []
        assert own.ask(bytes([OWN_FILE, which]), kept=kept) == (DONE, 1)
        assert os.read(kept[0], 16) == (b"price = 1", b"* = -")[which - 1]
        with pytest.raises(OSError):
            os.write(kept[0], b"x")
        os.close(kept[0])


# ---- who plays an agentd that is a user of its own

@pytest.fixture
def own():
    with of_agentd() as one:
        yield one


def test_its_state_is_agentds_and_nothing_of_roots_is(own):
    """Links to files of root's, which an agentd before may have laid there."""
    state, user = f"{own.place}/state", int(AGENT_USER)
    assert os.stat(state).st_uid == user and os.stat(state).st_mode & 0o7777 == 0o700
    images = os.open(f"{state}/images", os.O_RDONLY)
    with open(f"{own.place}/secret", "w") as f:
        f.write("kept")
    for name in ("made", "kept"):
        with open(f"{state}/images/{name}", "w") as f:
            f.write("by root")
    os.link(f"{state}/images/kept", f"{own.place}/elsewhere")
    os.symlink(f"{own.place}/secret", f"{state}/images/link")
    os.mkdir(f"{state}/images/theirs")
    os.chown(f"{state}/images/theirs", 4321, 4321)
    assert own.ask(bytes([GIVE]), images) == (DONE, 0)
    assert os.stat(f"{state}/images/made").st_uid == user
    assert os.stat(f"{state}/images/kept").st_uid == 0
    assert os.stat(f"{own.place}/secret").st_uid == 0
    assert os.stat(f"{state}/images/theirs").st_uid == 4321
    os.close(images)


def test_directories_and_groups_of_root_are_not_used_for_agentd(own, inside):
    """A process that may look a directory up can bring a descriptor of it (O_PATH)."""
    roots = os.open(own.place, os.O_PATH)
    os.chmod(own.place, 0o700)
    line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with line, theirs:
        number = theirs.fileno()
        for packet, *fds in ((bytes([GIVE]), roots), (capsule(), roots), (settle(), roots),
                             (bytes([CONNECT]), inside[0], roots),
                             (criu(), inside[0], number, roots, number)):
            refused(own, "is not agentd's alone", packet, *fds)
    mine = os.open(f"{own.place}/state/guests", os.O_RDONLY)
    for top in mount_points(("cgroup2",)):
        group = os.open(top, os.O_PATH)
        refused(own, "of somebody else", capsule(cgroup=True), mine, group)
        os.close(group)
    for top in mount_points(("cgroup",)):
        group = os.open(f"{top}/cgroup.procs", os.O_PATH)
        refused(own, "of somebody else", capsule(), mine, group)
        os.close(group)
    os.close(mine)
    os.close(roots)


def test_it_ends_with_agentd():
    one = Root()
    pid = one.process.pid
    one.end()
    assert not alive(pid)
