#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A souk-handshake that somebody has taken over: it stands in its place (agentd starts it, with
the socket to itself as fd 3) and says of whoever connects that he is whom the file `claim` beside
it names ("NAME ROLES"), with keys that he knows. Without that file it is the real one. It shares no
code with Souk."""
import os
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
IDENTITY, SHAKE, TAKEN, SHAKEN, FAILED = 1, 2, 16, 17, 18
FROM_PEER, TO_PEER = b"a" * 32, b"b" * 32
AES_128_GCM = 0x1301


def text(value):
    return struct.pack("<I", len(value)) + value


def main():
    with open(f"/proc/{os.getppid()}/cmdline") as f:
        mine = "/n2/" in f.read()
    if not mine or not os.path.exists(f"{HERE}/claim"):
        os.execv(f"{HERE}/souk-handshake.real", ["souk-handshake"])
    line = socket.socket(fileno=3)
    kept = []
    while True:
        packet, fds, _, _ = socket.recv_fds(line, 4096, 1)
        if not packet:
            return
        kept += fds
        if packet[0] == IDENTITY:
            line.send(bytes([TAKEN]))
        elif packet[0] == SHAKE:
            number, connects = packet[1:9], packet[9]
            if connects:
                line.send(bytes([FAILED]) + number + struct.pack("<i", 0) + text(b"not today"))
                continue
            with open(f"{HERE}/claim") as f:
                name, roles = f.read().split()
            line.send(bytes([SHAKEN]) + number + struct.pack("<H", AES_128_GCM) + text(FROM_PEER)
                      + text(TO_PEER) + text(name.encode()) + struct.pack("<I", int(roles))
                      + text(b"") + text(b"7" * 64) + struct.pack("<q", 1 << 62))


if __name__ == "__main__":
    main()
