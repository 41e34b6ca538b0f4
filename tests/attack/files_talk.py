# SPDX-License-Identifier: GPL-2.0-or-later
"""The talk between the client and the server of files (agentd/files/talk.hpp) by the byte, for who
breaks its rules on either side."""
import errno
import os
import socket
import stat
import struct
import subprocess
import threading

from cluster import BIN, LIMIT

HEAD = struct.Struct("<IIQQ")  # bytes, kind, seq, acked
ATTACH, HELLO, WELCOME, REQUEST, LEAVE, ANSWER, RECALL = range(1, 8)
IN = struct.Struct("<IIQQIIII")
OUT = struct.Struct("<IiQ")
(LOOKUP, FORGET, GETATTR, SETATTR, READLINK, SYMLINK, _, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK,
 OPEN, READ, WRITE, STATFS, RELEASE) = range(1, 19)
SETXATTR, GETXATTR, LISTXATTR, FLUSH, INIT, OPENDIR, READDIR = 21, 22, 23, 25, 26, 27, 28
ACCESS, CREATE, BATCH_FORGET, READDIRPLUS = 34, 35, 42, 44


def attributes(ino, mode, size=0, uid=0):
    return struct.pack("<6Q10I", ino, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, uid, uid, 0, 4096, 0)


def entry(node, mode, size=0):
    return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes(node, mode, size)


def dirent(name, off, ino=9, kind=8, namelen=None):
    raw = struct.pack("<QQII", ino, off, len(name) if namelen is None else namelen, kind) + name
    return raw + bytes(-len(raw) % 8)


def take(sock, size):
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        if not part:
            raise EOFError
        got += part
    return got


class Home:
    """A home of one file, one directory and one link, which answers `lies[opcode]` where there is
    one: a function of (node, body of the request, honest answer) that gives an errno (below 0), a
    body, or a function of (socket, seq, unique) that says what it likes."""
    TEXT = b"honest\n"
    NODES = {1: (stat.S_IFDIR | 0o755, 0), 2: (stat.S_IFREG | 0o644, len(TEXT)),
             3: (stat.S_IFDIR | 0o755, 0), 4: (stat.S_IFLNK | 0o777, 1)}
    NAMES = {(1, b"f"): 2, (1, b"d"): 3, (1, b"l"): 4}

    def __init__(self, path):
        self.path, self.lies = str(path), {}
        self.first = 0  # added to the numbers of its files, but the top's
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.streams = []
        threading.Thread(target=self.accept, daemon=True).start()

    def end(self):
        self.listener.close()
        os.unlink(self.path)

    def accept(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with sock:
            try:
                while True:
                    self.answer(sock)
            except (EOFError, OSError):
                pass

    def answer(self, sock):
        size, kind, seq, _ = HEAD.unpack(take(sock, HEAD.size))
        body = take(sock, size)
        if kind == HELLO:
            sock.sendall(HEAD.pack(8, WELCOME, 0, 0) + struct.pack("<II", 1, 0))
        if kind != REQUEST:
            return
        head = IN.unpack_from(body)
        opcode, unique, node = head[1:4]
        if opcode in (FORGET, BATCH_FORGET):
            return sock.sendall(HEAD.pack(0, ANSWER, seq, 0))
        said = self.honest(opcode, node, body[IN.size:])
        lie = self.lies.get(opcode)
        if lie:
            said = lie(node, body[IN.size:], said)
        if callable(said):
            return said(sock, seq, unique)
        error, answer = (said, b"") if isinstance(said, int) else (0, said)
        tell(sock, seq, unique, answer, error)

    def entry_of(self, node):
        return entry(node + self.first, *self.NODES[node])

    def honest(self, opcode, node, body):
        node -= self.first if node != 1 else 0
        if node not in self.NODES:
            return -errno.ESTALE
        mode, size = self.NODES[node]
        if opcode == LOOKUP:
            found = self.NAMES.get((node, body.rstrip(b"\0")))
            return self.entry_of(found) if found else -errno.ENOENT
        if opcode == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + attributes(node, mode, size)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QIi", 5, 0, 0)
        if opcode == READ:
            at, = struct.unpack_from("<Q", body, 8)
            return self.TEXT[at:]
        if opcode == READLINK:
            return b"f"
        if opcode in (READDIR, READDIRPLUS):
            at, = struct.unpack_from("<Q", body, 8)
            if at or opcode == READDIRPLUS and node != 1:
                return b""
            names = sorted(name for parent, name in self.NAMES if parent == node)
            plus = opcode == READDIRPLUS
            return b"".join((self.entry_of(self.NAMES[node, n]) if plus else b"") +
                            dirent(n, i + 1) for i, n in enumerate(names))
        if opcode in (RELEASE, FLUSH, 29, ACCESS):
            return b""
        return -errno.ENOSYS


def tell(sock, seq, unique, body=b"", error=0, length=None):
    whole = OUT.pack(OUT.size + len(body) if length is None else length, error, unique) + body
    sock.sendall(HEAD.pack(len(whole), ANSWER, seq, 0) + whole)


class Guest:
    """A client of a server of its own, which has the rights of `uid` and serves `root`."""

    def __init__(self, top, root, uid=65534, sealed=()):
        self.path = f"{top}/served"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(4)
        name = os.open(self.path, os.O_PATH)

        def arrange():
            # above what is about to be overwritten
            one, two = os.dup2(listener.fileno(), 40), os.dup2(name, 41)
            os.dup2(one, 3), os.dup2(two, 4)
        self.server = subprocess.Popen(
            [f"{BIN}/souk-files", "serve", str(root), str(uid), str(uid), "", *sealed],
            preexec_fn=arrange, close_fds=False)
        listener.close()
        os.close(name)
        self.seq = 0
        self.connect()

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)
        self.sock.sendall(HEAD.pack(0, ATTACH, 1, 0))
        # It says that it is root.
        self.sock.sendall(HEAD.pack(16, HELLO, 0, 0) + struct.pack("<IIII", 1, 0, 0, 0))
        assert HEAD.unpack(take(self.sock, HEAD.size))[1] == WELCOME
        take(self.sock, 8)

    def end(self):
        self.sock.close()
        os.unlink(self.path)
        assert self.server.wait(LIMIT) == 0  # it ends with the name of its socket

    def ask(self, opcode, node, body=b"", length=None):
        """(errno, body)"""
        self.seq += 1
        size = IN.size + len(body)
        head = IN.pack(size if length is None else length, opcode, 7, node, 0, 0, 1, 0)
        self.sock.sendall(HEAD.pack(size, REQUEST, self.seq, self.seq) + head + body)
        size = HEAD.unpack(take(self.sock, HEAD.size))[0]
        answer = take(self.sock, size)
        length, error, unique = OUT.unpack_from(answer)
        assert length == size and unique == 7
        return -error, answer[OUT.size:]

    def look(self, *names, node=1):
        """The number of the file by these names, one below the other, and 0; or 0 and the errno."""
        for name in names:
            error, body = self.ask(LOOKUP, node, os.fsencode(name) + b"\0")
            if error or len(body) < 8:
                return 0, error or errno.EIO
            node, = struct.unpack_from("<Q", body)
            if node == 0:
                return 0, errno.ENOENT
        return node, 0

    def open(self, node, flags=os.O_RDONLY):
        error, body = self.ask(OPEN, node, struct.pack("<II", flags, 0))
        return error, struct.unpack_from("<Q", body)[0] if not error else 0

    def read(self, handle, size=100):
        return self.ask(READ, 1, struct.pack("<QQIIQII", handle, 0, size, 0, 0, 0, 0))
