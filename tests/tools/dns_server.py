# SPDX-License-Identifier: GPL-2.0-or-later
"""A DNS server of one zone for tests: `dns_server.py ADDRESS RECORDS.json COMMAND...` answers at
that address, port 53, while the command runs, and ends with its status. RECORDS: {name: [[priority,
weight, port, host], ...]} of SRV records; what is asked besides does not exist. A name whose value
is null is not answered."""
import json
import socket
import struct
import subprocess
import sys
import threading


def name_at(packet, at):
    labels = []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    return ".".join(labels), at + 1


def encoded(name):
    parts = [p.encode() for p in name.split(".") if p]
    return b"".join(bytes([len(p)]) + p for p in parts) + b"\0"


def answer(packet, records):
    name, end = name_at(packet, 12)
    kind = struct.unpack("!H", packet[end:end + 2])[0]
    question = packet[12:end + 4]
    found = records.get(name.lower(), []) if kind == 33 else []
    if found is None:
        return None
    body = b""
    for priority, weight, port, host in found:
        data = struct.pack("!HHH", priority, weight, port) + encoded(host)
        body += b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 60, len(data)) + data
    flags = 0x8180 if name.lower() in records else 0x8183
    return packet[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0) + question + body


def serve(server, records):
    while True:
        packet, who = server.recvfrom(4096)
        told = answer(packet, records)
        if told:
            server.sendto(told, who)


if __name__ == "__main__":
    socket_ = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    socket_.bind((sys.argv[1], 53))
    threading.Thread(target=serve, args=(socket_, json.loads(sys.argv[2])), daemon=True).start()
    sys.exit(subprocess.run(sys.argv[3:]).returncode)
