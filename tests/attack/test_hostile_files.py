# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that come along, where one of the two sides lies. A home that answers nonsense: the calls
of the job end, with an error at worst, the client and its node go on, and so do files of an honest
home. A guest that asks for what the job's user may not have: the server refuses it, as the kernel
of the home would refuse the user's own program."""
import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

import pytest

import files_talk as talk
from cluster import LIMIT, alive, until
from files_talk import Guest, Home, dirent, entry
from files_tree import Tree, needs_fuse

pytestmark = needs_fuse
DIR, FILE, LINK = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777

# The job makes these calls in a directory that the attacker serves. Each call may fail, and none
# may hang.
VICTIM = """
import os, sys
here = sys.argv[1]
def do(what, *args):
    try: return what(*args)
    except (OSError, ValueError) as e: print(what.__name__, e)
for turn in range(2):
    do(os.stat, here + "/f"); do(os.lstat, here + "/l"); do(os.readlink, here + "/l")
    do(os.listdir, here); do(os.listdir, here + "/d")
    do(os.stat, here + "/d" * 40); do(os.stat, here + "/d/../d/f"); do(os.stat, here + "/none")
    fd = do(os.open, here + "/f", os.O_RDWR)
    if fd is not None:
        do(os.pread, fd, 100, 0); do(os.pread, fd, 1 << 16, 1 << 40); do(os.pwrite, fd, b"x", 0)
        do(os.fstat, fd); do(os.close, fd)
    do(os.listxattr, here + "/f"); do(os.statvfs, here); do(os.mkdir, here + "/new")
    for top, directories, files in os.walk(here):
        if top.count("/") > here.count("/") + 8: directories.clear()
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    top = tmp_path_factory.mktemp("hostile")
    home = Home(top / "home.socket")
    tree = Tree(top, via=home.path)
    yield home, tree
    tree.end()
    home.end()


@pytest.fixture
def lying(served):
    home, tree = served
    assert (tree.here / "f").read_bytes() == Home.TEXT
    yield home, tree
    home.lies = {}
    home.first += 1000


def raw(what):
    """An answer that is no answer: `what` gives bytes for (seq, unique)."""
    return lambda node, body, said: lambda sock, seq, unique: sock.sendall(what(seq, unique))


def told(**how):
    return lambda node, body, said: lambda sock, seq, unique: talk.tell(
        sock, seq, how.get("unique", unique), how.get("body", b""), how.get("error", 0),
        how.get("length"))


def always(answer):
    return lambda node, body, said: answer


def head(kind, body=b"", seq=0, size=None):
    return talk.HEAD.pack(len(body) if size is None else size, kind, seq, 0) + body


def listed(*entries):
    """Answers a listing once with these entries. A READDIRPLUS has an entry before each name."""
    def lie(node, body, said):
        return b"" if struct.unpack_from("<Q", body, 8)[0] else b"".join(entries)
    return lie


def plus(raw_entry, node=2, mode=FILE):
    return entry(node, mode) + raw_entry


NAMES = {"a way out": b"../../etc/passwd", "above": b"..", "a zero": b"a\0b", "a slash": b"a/b",
         "none": b"", "long": b"x" * 300, "longer than a page": b"x" * 5000}
LIES = {
    "every name is the top": {talk.LOOKUP: always(entry(1, DIR))},
    "a file has no type": {talk.LOOKUP: always(entry(2, 0))},
    "a file has every type": {talk.LOOKUP: always(entry(2, 0xffffffff))},
    "a file is longer than any": {talk.LOOKUP: always(entry(2, FILE, (1 << 64) - 1)),
                                  # A top that is a file would be the end of this mount.
                                  talk.GETATTR: lambda node, body, said: said if node == 1 else
                                  bytes(16) + talk.attributes(2, FILE, (1 << 63) + 5)},
    "a directory holds itself": {talk.LOOKUP: always(entry(3, DIR))},
    "a directory holds its own above": {talk.LOOKUP: lambda node, body, said: entry(
        {1: 3, 3: 6, 6: 3}.get(node, 3), DIR)},
    "a file is another kind each time": {talk.LOOKUP: lambda node, body, said: entry(
        2, (DIR, FILE, LINK)[body[0] % 3])},
    "an entry is cut short": {talk.LOOKUP: always(entry(2, FILE)[:50])},
    "an entry is too long": {talk.LOOKUP: always(entry(2, FILE) + bytes(5000))},
    "attributes are cut short": {talk.GETATTR: always(bytes(40))},
    "an errno that is none": {talk.LOOKUP: told(error=-100_000)},
    "an errno above 0": {talk.LOOKUP: told(error=5)},
    "an error with a body": {talk.LOOKUP: told(error=-2, body=bytes(128))},
    "more than was asked": {talk.READ: always(b"x" * 900_000)},
    "less than nothing": {talk.READ: told(length=4)},
    "a link of 5000 bytes": {talk.READLINK: always(b"x" * 5000)},
    "a link with a zero": {talk.READLINK: always(b"a\0b")},
    "a link of nothing": {talk.READLINK: always(b"")},
    "a link to itself": {talk.READLINK: always(b"l"), talk.LOOKUP: always(entry(4, LINK))},
    "every flag of an open": {talk.OPEN: always(struct.pack("<QIi", 9, 0xffffffff, 77)),
                              talk.OPENDIR: always(struct.pack("<QIi", 9, 0xffffffff, 77))},
    "what was not asked": {talk.LOOKUP: told(unique=12345, body=entry(2, FILE))},
    "no number: a word to the kernel": {talk.LOOKUP: told(unique=0, error=2, body=bytes(24))},
    "more in the head than in the answer": {talk.LOOKUP: told(length=10_000)},
    "an answer to another": {talk.LOOKUP: raw(lambda seq, unique: head(
        talk.ANSWER, bytes(16), seq + 1000) + head(talk.ANSWER, bytes(5), seq))},
    "a message of no kind": {talk.LOOKUP: raw(lambda seq, unique: head(77, b"x"))},
    "a message of 4 GB": {talk.LOOKUP: raw(lambda seq, unique: head(
        talk.ANSWER, size=0xffffffff, seq=seq))},
    "a second welcome": {talk.LOOKUP: raw(lambda seq, unique: head(talk.WELCOME, bytes(8)))},
    "a request": {talk.LOOKUP: raw(lambda seq, unique: head(talk.REQUEST, bytes(40), seq))},
    "recalls of what nobody has": {talk.LOOKUP: raw(lambda seq, unique: b"".join(
        head(talk.RECALL, struct.pack("<Q", n) + b"../" * (n % 80)) for n in range(500)) + head(
            talk.ANSWER, talk.OUT.pack(16, -errno.ENOENT, unique), seq))},
    "half an answer": {talk.LOOKUP: lambda node, body, said: lambda sock, seq, unique: (
        sock.sendall(head(talk.ANSWER, bytes(10), seq, size=500)), sock.shutdown(2))},
    "the length of a name is beyond": {talk.READDIR: listed(dirent(b"f", 1, namelen=200)),
                                       talk.READDIRPLUS: listed(plus(dirent(b"f", 1,
                                                                            namelen=200)))},
    "the length of a name is 4 GB": {talk.READDIR: listed(dirent(b"f", 1, namelen=0xffffffff)),
                                     talk.READDIRPLUS: listed(plus(dirent(
                                         b"f", 1, namelen=0xffffffff)))},
    "half an entry of a list": {talk.READDIR: listed(dirent(b"f", 1)[:10]),
                                talk.READDIRPLUS: listed(plus(dirent(b"f", 1))[:100])},
    "a list that is the top itself": {talk.READDIR: listed(dirent(b"d", 1)),
                                      talk.READDIRPLUS: listed(plus(dirent(b"d", 1), 1, DIR))},
} | {f"a name in a list: {what}": {talk.READDIR: listed(dirent(name, 1)),
                                   talk.READDIRPLUS: listed(plus(dirent(name, 1)))}
     for what, name in NAMES.items()}


@pytest.mark.parametrize("lie", LIES)
def test_a_home_that_lies_costs_its_own_job_an_error(lying, lie):
    home, tree = lying
    client = tree.clients[-1]
    home.lies = LIES[lie]
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, tree.here], stdout=subprocess.PIPE)
    try:
        # The client asks again for the answer over which the connection was broken. From now on the
        # home says the truth.
        victim.wait(2)
    except subprocess.TimeoutExpired:
        pass
    home.lies = {}
    home.first += 1000  # a kernel does not believe a number again that was of another kind
    said = victim.communicate(timeout=LIMIT)[0]
    assert victim.returncode == 0, said
    assert alive(client), "the client has ended"
    until("the home is believed again",
          lambda: (tree.here / "f").read_bytes() == Home.TEXT and
          set(os.listdir(tree.here)) == {"f", "d", "l"})


def test_a_list_without_an_end_can_be_left(lying):
    home, tree = lying
    home.lies = {op: lambda node, body, said: b"".join(
        dirent(b"%d" % i, i + 1) for i in range(50)) for op in (talk.READDIR,)}
    home.lies[talk.READDIRPLUS] = lambda node, body, said: b"".join(
        plus(dirent(b"%d" % i, i + 1)) for i in range(20))
    reader = subprocess.Popen([sys.executable, "-c", f"import os; os.listdir({str(tree.here)!r})"])
    assert (tree.here / "f").read_bytes() == Home.TEXT  # others are served meanwhile
    reader.kill()
    reader.wait(LIMIT)


# ---- a hostile guest

@pytest.fixture(scope="module")
def exported():
    """Root's, with a place of nobody's; a secret of root's lies in it and beside it."""
    top = tempfile.mkdtemp(dir="/var/tmp")
    os.chmod(top, 0o711)
    root = f"{top}/root"
    for name in ("mine", "closed", "open", "sealed"):
        os.makedirs(f"{root}/{name}")
    os.chown(f"{root}/mine", 65534, 65534)
    os.chmod(f"{root}/closed", 0o700)
    for name in ("secret", f"{root}/closed/secret", f"{root}/secret", f"{root}/sealed/shown"):
        path = os.path.join(top, name)
        with open(path, "w") as f:
            f.write("root's\n")
        os.chmod(path, 0o600 if not name.endswith("shown") else 0o644)
    with open(f"{root}/mine/own", "w") as f:
        f.write("mine\n")
    os.chown(f"{root}/mine/own", 65534, 65534)
    for name, to in (("out", ".."), ("etc", "/etc"), ("file", "../closed/secret"),
                     ("proc", "/proc/self/root/etc")):
        os.symlink(to, f"{root}/mine/{name}")
    os.mkfifo(f"{root}/mine/fifo")
    yield top
    shutil.rmtree(top)


@pytest.fixture
def guest(exported, tmp_path):
    guest = Guest(tmp_path, f"{exported}/root", sealed=[f"{exported}/root/sealed"])
    yield guest
    guest.end()


def test_no_name_leads_out_of_what_is_served(guest):
    for name in (b"..", b".", b"/", b"/etc", b"a/b", b"../secret", b"", b"mine/../.."):
        error = guest.ask(talk.LOOKUP, 1, name + b"\0")[0]
        assert error == errno.EINVAL, name
    assert guest.ask(talk.LOOKUP, 1, b"x" * 256 + b"\0")[0] == errno.ENAMETOOLONG
    assert guest.ask(talk.LOOKUP, 1, b"mine")[0] == errno.EINVAL  # it has no end
    for name in ("out", "etc", "file", "proc"):
        node, error = guest.look("mine", name)
        assert node and not error
        assert guest.open(node)[0] == errno.ELOOP
        assert guest.ask(talk.OPENDIR, node, bytes(8))[0] == errno.ELOOP
        assert guest.look("secret", node=node)[1] in (errno.ENOTDIR, errno.ELOOP)
    assert guest.look("sealed", "shown")[1] == errno.ENOENT


def test_what_is_another_users_stays_so(guest, exported):
    assert guest.look("closed", "secret") == (0, errno.EACCES)
    node = guest.look("secret")[0]
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_DIRECT):
        assert guest.open(node, flags)[0] == errno.EACCES
    # valid: mode, uid, gid, size; each alone
    for valid, field in ((1, 0o777), (2, 65534), (4, 65534), (8, 0)):
        body = struct.pack("<IIQQQQQQIIIIIIII", valid, 0, 0, field if valid == 8 else 0, 0, 0, 0, 0,
                           0, 0, 0, field, 0, field, field, 0)
        assert guest.ask(talk.SETATTR, node, body)[0] in (errno.EPERM, errno.EACCES), valid
    name = b"new\0"
    for opcode, body in ((talk.MKDIR, struct.pack("<II", 0o777, 0) + name),
                         (talk.SYMLINK, name + b"/etc\0"), (talk.UNLINK, b"secret\0"),
                         (talk.RMDIR, b"mine\0"),
                         (talk.RENAME, struct.pack("<Q", 1) + b"secret\0moved\0"),
                         (talk.CREATE, struct.pack("<IIII", os.O_WRONLY, 0o666, 0, 0) + name)):
        assert guest.ask(opcode, 1, body)[0] in (errno.EACCES, errno.EPERM), opcode
    mine = guest.look("mine")[0]
    error = guest.ask(talk.LINK, mine, struct.pack("<Q", node) + b"hard\0")[0]
    if open("/proc/sys/fs/protected_hardlinks").read() == "1\n":
        assert error == errno.EPERM
    with open(f"{exported}/root/secret") as f:
        assert f.read() == "root's\n"


def test_nothing_that_gives_rights_is_made(guest, exported):
    mine = guest.look("mine")[0]
    for mode in (stat.S_IFCHR | 0o666, stat.S_IFBLK | 0o666):
        assert guest.ask(talk.MKNOD, mine, struct.pack("<IIII", mode, 0x103, 0, 0) + b"dev\0")[0]
    own = guest.look("mine", "own")[0]
    capability = bytes.fromhex("0100000202000000000000000000000000000000")
    for name in (b"security.capability", b"trusted.overlay", b"security.selinux"):
        body = struct.pack("<II", len(capability), 0) + name + b"\0" + capability
        assert guest.ask(talk.SETXATTR, own, body)[0], name
    # The server creates files as its own user, so a set-user-id file does not become root's.
    error, _ = guest.ask(talk.CREATE, mine,
                         struct.pack("<IIII", os.O_WRONLY, 0o4755, 0, 0) + b"made\0")
    assert error == 0 and os.stat(f"{exported}/root/mine/made").st_uid == 65534
    os.unlink(f"{exported}/root/mine/made")
    fifo = guest.look("mine", "fifo")[0]
    assert guest.open(fifo)[0] == errno.EACCES  # it would wait at home


def test_numbers_that_it_was_not_given_are_nobodys(guest):
    own = guest.look("mine", "own")[0]
    error, handle = guest.open(own)
    assert not error and guest.read(handle) == (0, b"mine\n")
    for number in (0, 2, own + 1, handle, 1 << 63, (1 << 64) - 1):
        assert guest.open(number)[0] in (errno.ESTALE, errno.ENOENT), number
        assert guest.read(number)[0] == errno.ESTALE or number == handle
    assert guest.read(handle, 0xffffffff)[0] == errno.EINVAL
    for length in (0, 1, 39, 41, 0xffffffff):
        assert guest.ask(talk.GETATTR, 1, bytes(16), length=length)[0] == errno.EINVAL
    # Forgotten more often than it was given: the top stays.
    guest.ask(talk.STATFS, 1)
    guest.sock.sendall(talk.HEAD.pack(48, talk.REQUEST, 10_000, 1) + talk.IN.pack(
        48, talk.FORGET, 0, 1, 0, 0, 0, 0) + struct.pack("<Q", (1 << 64) - 1))
    assert talk.HEAD.unpack(talk.take(guest.sock, talk.HEAD.size))[0] == 0
    guest.seq = 10_000
    assert guest.look("mine", "own")[0]


def test_a_broken_talk_ends_its_connection_and_no_other(guest):
    for broken in (talk.HEAD.pack(0xffffffff, talk.REQUEST, 1, 1), talk.HEAD.pack(0, 99, 1, 1),
                   talk.HEAD.pack(0, talk.ATTACH, 2, 0), head(talk.WELCOME, bytes(8)),
                   talk.HEAD.pack(0, talk.REQUEST, 1, 5)):
        guest.sock.sendall(broken)
        with pytest.raises((EOFError, ConnectionError)):
            talk.take(guest.sock, 10_000)
        guest.connect()
        guest.seq += 1000
        assert guest.look("mine", "own")[0]
