# SPDX-License-Identifier: GPL-2.0-or-later
"""TLS 1.3 records with secrets that one has: for who has taken souk-handshake over."""
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def expand(secret, label, count):
    label = b"tls13 " + label
    info = struct.pack(">HB", count, len(label)) + label + b"\0\x01"
    return hmac.new(secret, info, hashlib.sha256).digest()[:count]


class Way:
    def __init__(self, secret):
        self.cipher, self.iv = AESGCM(expand(secret, b"key", 16)), expand(secret, b"iv", 12)
        self.number = 0

    def nonce(self):
        n = int.from_bytes(self.iv, "big") ^ self.number
        self.number += 1
        return n.to_bytes(12, "big")

    def seal(self, clear):
        head = struct.pack(">BHH", 23, 0x0303, len(clear) + 17)
        return head + self.cipher.encrypt(self.nonce(), clear + b"\x17", head)

    def open(self, head, body):
        return self.cipher.decrypt(self.nonce(), body, head).rstrip(b"\0")


class Records:
    """A socket as client.Connection uses one, whose other end has these secrets crossed over."""

    def __init__(self, raw, sends, receives):
        self.raw, self.out, self.into, self.clear = raw, Way(sends), Way(receives), b""

    def sendall(self, data):
        for at in range(0, len(data), 16384):
            self.raw.sendall(self.out.seal(data[at:at + 16384]))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.raw.recv(count - len(data))
            if not part:
                return b""
            data += part
        return data

    def recv(self, count):
        while not self.clear:
            head = self.exactly(5)
            if not head:
                return b""
            inner = self.into.open(head, self.exactly(struct.unpack(">H", head[3:])[0]))
            if inner[-1] != 23:
                return b""  # an alert
            self.clear = inner[:-1]
        part, self.clear = self.clear[:count], self.clear[count:]
        return part

    def close(self):
        self.raw.close()
