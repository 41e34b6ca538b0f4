# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a home, without a market: a directory served by souk-files and mounted beside it.
What programs do there they do in the directory. What dies meanwhile: test_files_faults.py."""
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading

import pytest

from conftest import BIN, LIMIT
from files_tree import Tree, directory_of, module_tree, needs_fuse

pytestmark = needs_fuse
tree = pytest.fixture(scope="module")(module_tree)
here = pytest.fixture(directory_of)


def run(*words, cwd=None, limit=LIMIT * 2):
    done = subprocess.run([str(w) for w in words], cwd=cwd, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=limit)
    assert done.returncode == 0, (f"{words}: {done.returncode}\n{done.stdout[-3000:]}"
                                  f"\nthere: {sorted(os.listdir(cwd or '.'))}")
    return done.stdout


def test_what_is_written_here_is_there_and_the_other_way_round(tree, here):
    there = tree.home / here.name
    (here / "a").write_text("from here")
    assert (there / "a").read_text() == "from here"
    (there / "b").write_text("from there")
    assert (here / "b").read_text() == "from there"
    (there / "b").write_text("changed!!")
    assert (here / "b").read_text() == "changed!!"  # opened again
    os.mkdir(here / "d")
    os.rename(here / "a", here / "d" / "c")
    os.symlink("d/c", here / "l")
    os.link(here / "d" / "c", here / "e")
    assert (here / "l").read_text() == "from here" and (there / "e").stat().st_nlink == 2
    assert (here / "e").stat().st_ino == (there / "e").stat().st_ino
    os.chmod(here / "e", 0o604)
    os.utime(here / "e", ns=(1_000_000_001, 2_000_000_002))
    assert (there / "e").stat().st_mode & 0o7777 == 0o604
    assert (there / "e").stat().st_mtime_ns == 2_000_000_002
    os.setxattr(here / "e", "user.souk", b"value")
    assert os.getxattr(there / "e", "user.souk") == b"value"
    assert os.listxattr(here / "e") == ["user.souk"]
    names = {f"n{i}" for i in range(3000)}
    for name in names:
        (there / name).touch()
    assert {n for n in os.listdir(here) if n.startswith("n")} == names


def test_a_file_that_was_cut_at_home_is_read_as_it_is(tree, here):
    """Each notice of a change meets reads of another program that are on their way. What that one
    reads while the file is changed may end in zeros still, once in thousands (docs/files.md); it
    did once in fifty."""
    there, zeros, reads, done = tree.home / here.name / "cut", [], [], threading.Event()

    def read():
        while not done.is_set():
            data = (here / "cut").read_bytes()
            reads.append(len(data))
            if b"\0" in data:
                zeros.append(data)

    there.write_bytes(b"")
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for i in range(3000):
            text = b"x" * (20 - i % 2 * 13)
            there.write_bytes(text)
            assert (here / "cut").read_bytes() == text
    finally:
        done.set()
        reader.join(LIMIT)
    assert len(zeros) * 200 < len(reads), (len(zeros), len(reads), zeros[0])


def test_odd_files_are_as_on_a_disk(here):
    f = open(here / "f", "wb+")
    f.write(b"x" * 100_000)
    f.flush()
    with mmap.mmap(f.fileno(), 0) as shared:
        shared[50_000:50_004] = b"mmap"
        shared.flush()
    os.unlink(here / "f")
    f.seek(50_000)
    assert f.read(4) == b"mmap" and os.fstat(f.fileno()).st_nlink == 0
    sparse = os.open(here / "sparse", os.O_RDWR | os.O_CREAT)
    os.pwrite(sparse, b"end", 10 << 20)
    assert os.lseek(sparse, 0, os.SEEK_DATA) > 0 and os.fstat(sparse).st_blocks < 1000
    blocks = os.fstat(sparse).st_blocks
    os.posix_fallocate(sparse, 0, 65536)
    assert os.fstat(sparse).st_blocks > blocks
    nameless = os.open(here, os.O_TMPFILE | os.O_RDWR)
    os.write(nameless, b"named late")
    fds = os.open("/proc/self/fd", os.O_RDONLY)  # so that it is linkat(2) that is called
    os.link(str(nameless), here / "named", src_dir_fd=fds, follow_symlinks=True)
    assert (here / "named").read_text() == "named late"
    os.mkfifo(here / "fifo")
    reader = os.open(here / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(here / "fifo", os.O_WRONLY)
    os.write(writer, b"through")
    assert os.read(reader, 10) == b"through"
    with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as caller:
        os.chdir(here)
        try:
            door.bind("socket")
            door.listen()
            caller.connect("socket")
        finally:
            os.chdir("/")
    for fd in (sparse, nameless, fds, reader, writer):
        os.close(fd)


def test_inotify_tells_what_a_program_does_here(here):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK)
    made, moved, gone = 0x100, 0x80, 0x200  # IN_CREATE, IN_MOVED_TO, IN_DELETE
    assert libc.inotify_add_watch(fd, str(here).encode(), made | moved | gone) == 1
    run("sh", "-c", "touch a; mv a b; rm b", cwd=here)
    seen, told = [], os.read(fd, 65536)
    while told:
        _, mask, _, size = struct.unpack_from("iIII", told)
        seen.append((mask, told[16:16 + size].rstrip(b"\0").decode()))
        told = told[16 + size:]
    os.close(fd)
    assert seen == [(made, "a"), (moved, "b"), (gone, "b")]


def test_locks_hold_between_processes(here):
    path = here / "locked"
    with open(path, "w") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        probe = ("import fcntl, sys; f = open(sys.argv[1], 'r+')\n"
                 "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                 "except OSError: print('held')")
        assert run("python3", "-c", probe, path) == "held\n"
    assert run("python3", "-c", probe, path) == ""


def test_appends_of_both_sides_lose_nothing(tree, here):
    lines = 400

    def append(path, who):
        with open(path, "a", buffering=1) as f:
            for i in range(lines):
                f.write(f"{who} {i}\n")
    threads = [threading.Thread(target=append, args=(where / here.name / "log", who))
               for where, who in ((tree.here, "here"), (tree.home, "there"))]
    (here / "log").touch()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    said = (tree.home / here.name / "log").read_text().splitlines()
    assert sorted(said) == sorted(f"{w} {i}" for w in ("here", "there") for i in range(lines))


def test_what_is_mapped_of_a_file_that_is_open_for_appending_goes_where_it_was(tree, here):
    (here / "f").write_bytes(b"a" * 10000)
    program = ("import mmap, os, sys\n"
               "f = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND)\n"
               "m = mmap.mmap(f, 4096); m[:5] = b'first'; m.flush(); os.write(f, b'last')")
    run("python3", "-c", program, here / "f")
    wanted = b"first" + b"a" * 9995 + b"last"
    assert (tree.home / here.name / "f").read_bytes() == wanted


def test_a_full_disk_is_told_at_once(tmp_path):
    small = tmp_path / "home"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1m", "none", small)
    try:
        tree = Tree(tmp_path)
        try:
            fd = os.open(tree.here / "f", os.O_WRONLY | os.O_CREAT)
            with pytest.raises(OSError) as full:
                for _ in range(400):  # more than may be under way
                    os.write(fd, b"x" * 100_000)
            assert full.value.errno == errno.ENOSPC
            try:
                os.close(fd)
            except OSError as again:  # of the writes behind that one
                assert again.errno == errno.ENOSPC
        finally:
            tree.end()
    finally:
        run("umount", small)


def test_a_mapped_file_that_is_cut_short_costs_its_reader_alone(tree, here):
    (here / "f").write_bytes(b"x" * 65536)
    program = ("import mmap, os, sys, signal\n"
               "f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
               "os.truncate(sys.argv[2], 0); os.stat(sys.argv[1]); m[60000]")
    done = subprocess.run(["python3", "-c", program, here / "f", here / "f"], timeout=LIMIT)
    assert done.returncode == -signal.SIGBUS
    (here / "g").write_text("goes on")
    assert (tree.home / here.name / "g").read_text() == "goes on"


def test_sqlite_under_contention(here):
    script = "pragma busy_timeout=60000; pragma synchronous=off; {}"
    run("sqlite3", here / "db", "create table t (who, n);")
    writers = [subprocess.Popen(
        ["sqlite3", here / "db", script.format("".join(
            f"insert into t values ({who}, {n});" for n in range(60)))],
        stdout=subprocess.DEVNULL) for who in range(4)]
    assert [w.wait(LIMIT * 2) for w in writers] == [0] * 4
    assert run("sqlite3", here / "db", "select count(*) from t; pragma integrity_check;"
               ).split() == ["240", "ok"]


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_git_clones_and_checks(here):
    source = here / "source"
    run("git", "init", "-q", source)
    for i in range(200):
        (source / f"f{i}").write_text(f"{i}\n" * i)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"]
    run(*git, "add", ".", cwd=source)
    run(*git, "commit", "-qm", "all", cwd=source)
    run(*git, "clone", "-q", "--no-local", source, here / "clone")
    run(*git, "fsck", "--strict", cwd=here / "clone")
    assert run(*git, "status", "--porcelain", cwd=here / "clone") == ""


def test_a_program_is_built_and_runs_from_here(here):
    (here / "main.c").write_text('#include <stdio.h>\nint half(int);\n'
                                 'int main(void) { printf("%d\\n", half(84)); }\n')
    (here / "half.c").write_text("int half(int n) { return n / 2; }\n")
    (here / "Makefile").write_text("main: main.o half.o\n\t$(CC) -o $@ $^\n")
    run("make", "-j2", cwd=here)
    assert run(here / "main") == "42\n"


@pytest.mark.skipif(not shutil.which("fio"), reason="no fio here")
def test_fio_reads_what_it_wrote(here):
    run("fio", f"--directory={here}", "--size=4m", "--bs=4k-128k", "--rw=randrw",
        "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--ioengine=psync", "--name=a",
        "--name=b", "--ioengine=mmap", cwd=here)


# All of them, and longer: SOUK_STRESS_S=20.
SECONDS = int(os.environ.get("SOUK_STRESS_S", 2))
STRESS = ["dir", "rename", "link", "fallocate", "hdd", "seek", "xattr"] if SECONDS < 10 else [
    "dir", "dentry", "rename", "link", "symlink", "chmod", "fallocate", "fstat", "getdent", "hdd",
    "open", "seek", "utime", "xattr"]


@pytest.mark.skipif(not shutil.which("stress-ng"), reason="no stress-ng here")
@pytest.mark.parametrize("stressor", STRESS)
def test_stress_ng_finds_nothing_wrong(here, stressor):
    run("stress-ng", f"--{stressor}", "1", f"--{stressor}-ops", "200", "--verify",
        "--temp-path", here, "--timeout", SECONDS, "--hdd-bytes", "8m", "--fallocate-bytes", "8m",
        cwd=here)


def test_few_descriptors_are_enough_for_many_files_that_lose_a_name(tmp_path):
    tree = Tree(tmp_path, descriptors=256)
    try:
        there = f"/proc/{tree.server}/fd"
        for i in range(400):  # as git makes its objects
            (tree.here / f"tmp{i}").write_text(str(i))
            os.link(tree.here / f"tmp{i}", tree.here / f"o{i}")
            os.unlink(tree.here / f"tmp{i}")
        for i in range(400):
            (tree.here / f"new{i}").write_text(str(i))
            os.rename(tree.here / f"new{i}", tree.here / f"o{i}")
        assert len(os.listdir(there)) < 128
        assert all((tree.here / f"o{i}").read_text() == str(i) for i in range(400))
    finally:
        tree.end()
    assert tree.process.returncode == 0 and not list(tmp_path.glob("souk-files-*"))


@pytest.mark.parametrize("words", [("4294967295", "0", ""), ("0", "4294967295", ""),
                                   ("0", "0", "4294967295")])
def test_a_server_does_not_stay_root_by_a_number_that_means_as_before(tmp_path, words):
    done = subprocess.run([f"{BIN}/souk-files", "serve", tmp_path, *words], text=True,
                          capture_output=True, timeout=LIMIT)
    assert (done.returncode, done.stderr) == (
        1, "souk-files: bad user or group 4294967295: a number below 4294967295 is needed\n")


def test_a_digest_over_many_blocks_is_the_same(tree, here):
    data = os.urandom(9 << 20)
    (tree.home / here.name / "big").write_bytes(data)
    with open(here / "big", "rb") as f:
        got = hashlib.sha256()
        while part := f.read(777_777):
            got.update(part)
    assert got.digest() == hashlib.sha256(data).digest()


def test_modes_are_those_that_a_program_asks_for(here):
    """The server's own mask takes nothing off (pjdfstest, open/02)."""
    before = os.umask(0)
    try:
        os.close(os.open(here / "file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(here / "directory", 0o777)
        os.mkfifo(here / "fifo", 0o622)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((here / name).stat().st_mode) for name in os.listdir(here)}
    assert modes == {"file": 0o666, "directory": 0o777, "fifo": 0o622}


def default_acl(user, group, other, mask=None, also=()):
    """The bytes of a default access control list (acl(5)); `also`: (uid, rights)."""
    undefined = 0xFFFFFFFF
    lines = [(1, user, undefined), *((2, rights, uid) for uid, rights in also),
             (4, group, undefined), *([(16, mask, undefined)] if mask is not None else []),
             (32, other, undefined)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *line) for line in lines)


@pytest.mark.parametrize("acl", [None, default_acl(7, 7, 5),
                                 default_acl(7, 5, 0, mask=7, also=[(65534, 6)])],
                         ids=["none", "plain", "named"])
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_a_umask_counts_where_no_default_acl_stands_in_its_place(tree, here, umask, acl):
    """As in a plain directory of the home's (xfstests found that it was not)."""
    tops = (here / "top", tree.home / here.name / "plain")
    for top in tops:
        top.mkdir()
        if acl:
            os.setxattr(top, "system.posix_acl_default", acl)
    before = os.umask(umask)
    try:
        for top in tops:
            for mode in (0o666, 0o600, 0o777):
                os.close(os.open(top / f"file{mode:o}", os.O_CREAT | os.O_WRONLY, mode))
                os.mkdir(top / f"directory{mode:o}", mode)
                os.mkfifo(top / f"fifo{mode:o}", mode)
                os.mknod(top / f"node{mode:o}", stat.S_IFREG | mode)
                directory = os.open(top, os.O_PATH)
                with socket.socket(socket.AF_UNIX) as s:  # its path may have 107 bytes
                    s.bind(f"/proc/self/fd/{directory}/socket{mode:o}")
                os.close(directory)
                nameless = os.open(top, os.O_TMPFILE | os.O_RDWR, mode)
                os.link(f"/proc/self/fd/{nameless}", top / f"nameless{mode:o}",
                        src_dir_fd=nameless)  # else python calls link(2), which follows nothing
                os.close(nameless)
    finally:
        os.umask(before)

    def seen(top):
        rights = {}
        for name in sorted(os.listdir(top)):
            try:
                list_of = os.getxattr(top / name, "system.posix_acl_access")
            except OSError as e:
                list_of = errno.errorcode[e.errno]
            rights[name] = oct((top / name).lstat().st_mode), list_of
        return rights
    assert seen(tops[0]) == seen(tops[1]) and len(seen(tops[0])) == 18


def test_a_name_that_is_too_long_is_said_to_be_that(here):
    for what in (os.mkdir, os.unlink, os.stat, lambda p: open(p, "w")):
        with pytest.raises(OSError) as refused:
            what(here / ("n" * 256))
        assert refused.value.errno == errno.ENAMETOOLONG
    (here / ("n" * 255)).write_text("")


def test_another_user_in_a_job_of_roots_has_its_own_rights(here):
    """A daemon that has given up root, say (pjdfstest, with -u)."""
    here.chmod(0o777)
    (here / "secret").write_text("root's")
    (here / "secret").chmod(0o600)
    (here / "closed").mkdir(mode=0o700)
    (here / "closed" / "open").write_text("below")
    (here / "program").write_text("x")
    (here / "program").chmod(0o6777)
    assert (here / "closed" / "open").exists()  # the kernel knows the names
    code = """if True:
        import os, sys
        os.chdir(sys.argv[1])
        os.setgroups([]), os.setgid(65533), os.setuid(65534)
        for name in ("secret", "closed/open"):
            try:
                open(name).close()
                sys.exit("it may read " + name)
            except PermissionError:
                pass
        open("own", "w").close(), os.mkdir("directory"), os.symlink("x", "link"), os.mkfifo("fifo")
        with open("program", "r+") as f:
            f.write("y")
        try:
            os.chmod("secret", 0o666)
            sys.exit("it may change secret")
        except PermissionError:
            pass
    """
    # from above what only root may enter
    done = subprocess.run(["/usr/bin/python3", "-c", code, here], capture_output=True, text=True,
                          timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    for name in ("own", "directory", "link", "fifo"):
        seen = (here / name).lstat()
        assert (seen.st_uid, seen.st_gid) == (65534, 65533), name
    assert stat.S_IMODE((here / "program").stat().st_mode) == 0o777
    assert (here / "secret").read_text() == "root's"
