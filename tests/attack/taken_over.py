#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A souk-handshake that somebody has taken over: it stands in its place (agentd starts it, with
the socket to itself as fd 3) and says of whoever connects that he is whom the file `claim` beside
it names ("NAME ROLES"), with keys that he knows. Without that file it is the real one. With a file
`market` beside it, whom agentd connects to is the market, and the certificates that this one brings
are good, and of whom that file names ("NAME ROLES KEY"). It shares no code with Souk."""
import os
import re
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
IDENTITY, SHAKE, EXAMINE, TAKEN, SHAKEN, FAILED, EXAMINED = 1, 2, 4, 16, 17, 18, 19
MARKET = 4
FROM_PEER, TO_PEER = b"a" * 32, b"b" * 32
AES_128_GCM = 0x1301


def text(value):
    return struct.pack("<I", len(value)) + value


def peer(name, roles, key=b"7" * 64):
    return (text(name.encode()) + struct.pack("<I", int(roles)) + text(b"") + text(key)
            + struct.pack("<q", 1 << 62) + text(b""))  # of no other site


def read(name):
    if not os.path.exists(f"{HERE}/{name}"):
        return None
    with open(f"{HERE}/{name}") as f:
        return f.read().split()


def main():
    # souk-root starts it, which agentd has started.
    with open(f"/proc/{os.getppid()}/status") as f:
        agent = re.search(r"^PPid:\t(\d+)$", f.read(), re.M)[1]
    with open(f"/proc/{agent}/cmdline") as f:
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
            if connects and not read("market"):
                line.send(bytes([FAILED]) + number + struct.pack("<i", 0) + text(b"not today"))
                continue
            who = ("market", MARKET) if connects else read("claim")
            line.send(bytes([SHAKEN]) + number + struct.pack("<H", AES_128_GCM) + text(FROM_PEER)
                      + text(TO_PEER) + peer(*who))
        elif packet[0] == EXAMINE:
            name, roles, key = read("market")
            line.send(bytes([EXAMINED]) + packet[1:9] + peer(name, roles, key.encode()))


if __name__ == "__main__":
    main()
