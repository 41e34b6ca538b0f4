# SPDX-License-Identifier: GPL-2.0-or-later
"""A link with a delay (delay_link.c), and bare streams over it: what files over that link are
compared with. A stream that carries a file pays for the same as who reads or writes it there: the
one end has the file, and answers when it is on its disk."""
import contextlib
import os
import socket
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PIECE = 1 << 20


def compiled(where):
    program = os.path.join(where, 'delay_link')
    subprocess.run(['gcc', '-O2', '-pthread', '-o', program, os.path.join(HERE, 'delay_link.c')],
                   check=True)
    return program


class Link:
    """Microseconds one way, and how many MB it carries in a second (None: as it comes)."""

    def __init__(self, one_way_us, megabytes=None):
        self.one_way_us, self.megabytes = one_way_us, megabytes

    @contextlib.contextmanager
    def to(self, where, target, path=None):
        path = path or os.path.join(where, 'link')
        process = subprocess.Popen(
            [os.path.join(where, 'delay_link'), str(path), str(target), str(self.one_way_us),
             *([str(self.megabytes)] if self.megabytes else [])], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == 'ready\n'
            yield path
        finally:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def ends(self, where):
        """(near, far): a stream that is there."""
        path = os.path.join(where, 'raw')
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with socket.create_server(('127.0.0.1', 0)) as door, self.to(
                where, door.getsockname()[1], path), socket.socket(socket.AF_UNIX) as near:
            near.connect(path)
            far = door.accept()[0]
            with far:
                yield near, far


def taken(stream, size):
    """Each piece as it comes."""
    while size > 0:
        piece = stream.recv(min(PIECE, size))
        assert piece, 'the stream has ended'
        size -= len(piece)
        yield piece


def timed_with(there, here):
    """Seconds that `here` takes, while `there` does its part."""
    other = threading.Thread(target=there, daemon=True)
    begin = time.perf_counter()
    other.start()
    here()
    took = time.perf_counter() - begin
    other.join(10)
    return took


def carried(where, link, megabytes):
    """MB/s of bytes that are sent, and come."""
    piece = bytes(PIECE)
    with link.ends(where) as (near, far):
        return megabytes / timed_with(lambda: [near.sendall(piece) for _ in range(megabytes)],
                                      lambda: list(map(len, taken(far, megabytes << 20))))


def written(where, link, home, megabytes):
    """MB/s of a file that is sent, written there, synced, and answered."""
    piece, path = b'x' * PIECE, f'{home}/bare'

    def there(far):
        with open(path, 'wb', buffering=0) as f:
            for part in taken(far, megabytes << 20):
                f.write(part)
            os.fsync(f.fileno())
        far.sendall(b'd')

    def here(near):
        for _ in range(megabytes):
            near.sendall(piece)
        assert near.recv(1) == b'd'
    with link.ends(where) as (near, far):
        took = timed_with(lambda: there(far), lambda: here(near))
    os.unlink(path)
    return megabytes / took


def read(where, link, home, megabytes):
    """MB/s of a file that is asked for, read there, and sent."""
    path = f'{home}/bare'
    with open(path, 'wb') as f:
        for _ in range(megabytes):
            f.write(b'x' * PIECE)

    def there(far):
        far.recv(1)
        with open(path, 'rb', buffering=0) as f:
            while piece := f.read(PIECE):
                far.sendall(piece)

    def here(near):
        near.sendall(b'r')
        for _ in taken(near, megabytes << 20):
            pass
    with link.ends(where) as (near, far):
        took = timed_with(lambda: there(far), lambda: here(near))
    os.unlink(path)
    return megabytes / took
