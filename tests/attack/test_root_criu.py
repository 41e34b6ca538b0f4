# SPDX-License-Identifier: GPL-2.0-or-later
"""souk-root starts CRIU and other programs that look into capsules for agentd. These tests look at
what an attacker in agentd's place gets from them."""
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile

import pytest

from cluster import own_number, read_text, until
from root_client import (
    DONE, END, FILES, FILES_OF_PROCESS, LOADED, MEMORY, Root, STARTED, criu, fit, inside_of, look,
    mend, module_root, opens, pid_of, pid_one, program, real_capsule, refused)

root = pytest.fixture(scope="module")(module_root)
inside = pytest.fixture(inside_of)


def test_criu_goes_into_capsules_alone(root, inside):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as place, ours, theirs:
        images, host = os.open(place, os.O_RDONLY), os.pidfd_open(os.getpid())
        line = theirs.fileno()
        try:
            refused(root, "its descriptors", criu(), host, line)
            refused(root, "no process of a capsule", criu(), host, line, images, line)
            refused(root, "no PID 1 of a capsule", criu(), inside[1], line, images, line)
            refused(root, "no process of a capsule", criu(), images, line, images, line)
            refused(root, "that many ends", criu(restores=True), host, line, images)
        finally:
            os.close(images)
            os.close(host)


class StagedCriu:
    """Stands for CRIU. One of its children is a process of the stand-in itself, and the other one
    belongs to the job."""
    def __init__(self, place):
        self.prefix, lib = place / "criu", place / "criu/usr/lib/here"
        lib.mkdir(parents=True)
        (self.prefix / "usr/sbin").mkdir()
        shutil.copy("/bin/sh", self.prefix / "sh")
        (lib / "ld-linux-x.so").write_text(
            f"#!{self.prefix}/sh\nunset LD_PRELOAD\n{self.prefix}/sh -c 'echo x >&3; read x <&3' "
            "0<&3 &\nsleep 1000 &\nread x <&3\n")
        for made in (lib / "ld-linux-x.so", self.prefix / "usr/sbin/criu"):
            made.touch()
            made.chmod(0o755)

    def start(self, root, init, restores, images):
        """Starts the program. Returns its pidfd, this end of its line, and pidfds of its two
        children."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = []
        with theirs, open(os.pipe()[0]) as pipe:
            more = pipe.fileno() if restores else theirs.fileno()
            until("the capsule has a /run of its own", lambda: root.ask(
                criu(restores, ends=restores), init, theirs.fileno(), images, more,
                kept=kept) == (STARTED, 1))
        ours.settimeout(20)
        assert ours.recv(64) == b"x\n"
        pid = pid_of(kept[0])
        children = until("both are there", lambda: len(one := sorted(
            map(int, read_text(f"/proc/{pid}/task/{pid}/children").split()),
            key=lambda child: "sleep" in os.readlink(f"/proc/{child}/exe"))) == 2
            and "sleep" in os.readlink(f"/proc/{one[1]}/exe") and one)
        return kept[0], ours, [os.pidfd_open(child) for child in children]


@pytest.mark.parametrize("restores", [False, True])
def test_a_capsule_has_one_criu_which_nobody_looks_into(tmp_path, restores):
    """Processes that CRIU makes are closed to it as well, until they run the job's own program."""
    staged = StagedCriu(tmp_path)
    one = Root(criu=str(staged.prefix))
    with real_capsule(one) as (init, pid), tempfile.TemporaryDirectory() as place:
        images = os.open(place, os.O_RDONLY)
        job = subprocess.Popen(["nsenter", "-t", str(pid), "-p", "--", staged.prefix / "sh", "-c",
                                "echo; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        job.stdout.readline()
        its = [os.pidfd_open(int(read_text(f"/proc/{job.pid}/task/{job.pid}/children")))]
        criu_, line, made = staged.start(one, init, restores, images)
        why = "a process of CRIU's, and none of the job"
        for fd in (criu_, made[0]):
            for file in FILES_OF_PROCESS:
                refused(one, why, opens(file), fd)
                refused(one, why, opens(file), made[1], fd)
            for number in (3, 200):
                refused(one, why, mend(number), fd)
        # While a job is dumped, its own processes may be read: the job can only harm itself by
        # them.
        for fd in made[1:] + (its if not restores else []):
            assert one.ask(opens(MEMORY), fd) == (DONE, 1)
        if restores:
            refused(one, why, opens(MEMORY), its[0])
        kept = []
        numbers = [own_number(pid_of(fd)) for fd in (criu_, *made)]
        assert one.ask(look(*numbers, what=(1,) * 7), init, kept=kept) == (DONE, 1)
        seen = os.pread(kept[0], 1 << 20, 0)
        assert bytes(str(tmp_path), "ascii") not in seen and b"/sleep" in seen
        # Another one, as a dump and as a restore.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = theirs.fileno()
        refused(one, "another CRIU is in that capsule", criu(), init, number, images, number)
        refused(one, "another CRIU is in that capsule", criu(True, ends=1), init, number, images,
                number)
        assert one.ask(bytes([END]), criu_) == (DONE, 0)
        assert select.select([criu_], [], [], 20)[0]
        refused(one, "no process of a capsule", bytes([LOADED]), criu_)
        for fd in (init, its[0]):
            refused(one, "no CRIU that was started here", bytes([LOADED]), fd)
        again, line_too, made_too = staged.start(one, init, restores, images)
        socket.send_fds(one.line, [bytes([LOADED])], [again])
        assert one.line.recv(16) == bytes([DONE, 1])
        for end in (ours, theirs, line, line_too):
            end.close()
        job.stdin.close()
        job.wait()
        for fd in (images, criu_, again, *its, *made, *made_too, *kept):
            os.close(fd)
    one.end()


def test_criu_gets_ends_of_jobs_and_no_file(root, inside, tmp_path):
    """CRIU opens the ends of pipes and terminals once more, as root, so it must get nothing
    else."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.mkfifo(tmp_path / "fifo")
    images = os.open(tmp_path, os.O_RDONLY)
    ends = [os.open("/etc/shadow", os.O_PATH), os.open("/dev/null", os.O_RDWR),
            os.open(tmp_path / "fifo", os.O_RDWR), os.open(tmp_path / "fifo", os.O_PATH)]
    with ours, theirs:
        for end in ends:
            refused(root, "no end of a job", criu(restores=True, ends=1), inside[0],
                    theirs.fileno(), images, end)
    for fd in (images, *ends):
        os.close(fd)


def test_nothing_is_restored_into_a_capsule_that_does_not_say_whose_it_is(root, tmp_path):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    images = os.open(tmp_path, os.O_RDONLY)
    ends = os.pipe()
    with pid_one(tmp_path, script="older") as (init, _), ours, theirs:
        refused(root, "does not say whose it is", criu(restores=True, ends=1), init,
                theirs.fileno(), images, ends[0])
        refused(root, "does not say whose it is", fit(), init)
    for fd in (images, *ends):
        os.close(fd)


def test_files_are_synced_of_one_capsule_alone_and_with_few_rights(root, inside, tmp_path):
    """souk-files sync copies descriptors of processes that agentd names."""
    asked, device = program(FILES, "sync", session=True), os.stat(tmp_path).st_dev
    machine = os.pidfd_open(os.getpid())

    def syncs(init, uid, pids):
        ours, theirs = socket.socketpair()
        kept = []
        with ours:
            with theirs:
                assert root.ask(asked, theirs.fileno(), init, kept=kept) == (STARTED, 1)
            it = f"/proc/{pid_of(kept[0])}/status"
            # the capabilities are CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE
            until("it is the user", lambda: re.search(rf"^Uid:\t{uid}\t{uid}\t.*?^CapEff:\t"
                                                      r"0*80004$", read_text(it), re.M | re.S))
            ours.sendall(f"{device} \n{' '.join(map(str, pids))}\n".encode())
            ours.shutdown(socket.SHUT_WR)
            ours.settimeout(20)
            said = ours.recv(1024)
        assert select.select(kept, [], [], 20)[0]
        os.close(kept[0])
        return said
    with socket.socket(socket.AF_UNIX) as line:
        refused(root, "is not started so", asked, line.fileno())
        for who in (machine, line.fileno()):
            refused(root, "no process of a capsule", asked, line.fileno(), who)
        refused(root, "no PID 1 of a capsule", asked, line.fileno(), inside[1])
    with real_capsule(root, (4321, 4321)) as (init, pid):
        job = subprocess.Popen(["nsenter", "-t", str(pid), "-p", "--", "sh", "-c",
                                f"exec 5> {tmp_path}/written; echo; read x"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        job.stdout.readline()
        its = int(read_text(f"/proc/{job.pid}/task/{job.pid}/children"))
        assert syncs(init, 4321, [pid, its]) == b"+"
        for other in (os.getpid(), root.process.pid, 1, pid_of(inside[1])):
            assert syncs(init, 4321, [its, other]) == b"-no process of that capsule"
        job.stdin.close()
        job.wait()
    os.close(machine)
