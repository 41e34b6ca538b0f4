# SPDX-License-Identifier: GPL-2.0-or-later
"""The image of a frozen job on a node's disk, in the hands of that node's root. The key of the
image lies in the node's memory (agentd/cell/disk_secrets.hpp), so root reads each file, changes
what it likes, and encrypts and signs all of it again: whoever gets the image finds it in order.
This shares no code with Souk; checkpoint/encrypted_file.hpp and checkpoint/disk_key.hpp say the
form."""
import ctypes
import glob
import hashlib
import hmac
import os
import struct

CHUNK, TAG = 256 * 1024, 16
crypto, xxhash = (ctypes.CDLL(name) for name in ("libcrypto.so.3", "libxxhash.so.0"))
for name in ("EVP_CIPHER_CTX_new", "EVP_aes_256_gcm"):
    getattr(crypto, name).restype = ctypes.c_void_p


class Halves(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash.XXH3_128bits.restype = Halves
xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def digest(data):
    h = xxhash.XXH3_128bits(data, len(data))
    return f"{h.high:016x}{h.low:016x}"


def derived(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def crypted(key, number, whole, data, tag=None):
    """One chunk of a file of that whole length: decrypted if it has its tag, else encrypted. Says
    the chunk and its tag."""
    context = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new())
    cipher = ctypes.c_void_p(crypto.EVP_aes_256_gcm())
    n, out = ctypes.c_int(), ctypes.create_string_buffer(len(data) + TAG)
    proof = ctypes.create_string_buffer(tag or bytes(TAG), TAG)
    length = struct.pack("<Q", whole)
    good = [crypto.EVP_CipherInit_ex(context, cipher, None, key, struct.pack("<Qi", number, 0),
                                     int(tag is None)),
            crypto.EVP_CipherUpdate(context, None, ctypes.byref(n), length, len(length)),
            crypto.EVP_CipherUpdate(context, out, ctypes.byref(n), data, len(data)),
            tag is None or crypto.EVP_CIPHER_CTX_ctrl(context, 0x11, TAG, proof),
            crypto.EVP_CipherFinal_ex(context, ctypes.create_string_buffer(TAG), ctypes.byref(n)),
            tag is not None or crypto.EVP_CIPHER_CTX_ctrl(context, 0x10, TAG, proof)]
    crypto.EVP_CIPHER_CTX_free(context)
    if not all(g == 1 for g in good):
        raise ValueError(f"chunk {number} is damaged: {good}")
    return out.raw[:len(data)], proof.raw


class StoredImage:
    """The whole image of that job on the disk of the node that has this state."""

    def __init__(self, state, job):
        self.at, = (d for d in glob.glob(f"{state}/images/{job}.*") if os.path.isdir(d) and
                    not d.endswith(".part"))
        with open(f"{self.at}/MANIFEST", encoding="ascii") as f:
            lines = [line.split(" ", 1) for line in f.read().splitlines()]
        self.head = [(k, v) for k, v in lines if k not in ("files", "file", "tag", "end")]
        said = dict(self.head)
        with open(f"{state}/ram/keys/{os.path.basename(self.at)}", "rb") as f:
            secret = f.read()
        self.root = derived(secret, b"souk image at rest 1 %s %s " % (
            said["job"].encode(), said["epoch"].encode()) + bytes.fromhex(said["salt"]))
        self.names = [v.split(" ")[2] for k, v in lines if k == "file"]
        self.before = {n: self.stored(n) for n in ("MANIFEST", *self.names)}

    def key(self, name):
        return derived(self.root, b"file " + name.encode())

    def read(self, name):
        data = self.stored(name)
        whole = len(data) - TAG * -(-len(data) // (CHUNK + TAG))
        tags = data[whole:]
        return b"".join(
            crypted(self.key(name), i, whole, data[at:min(at + CHUNK, whole)],
                    tags[TAG * i:TAG * i + TAG])[0]
            for i, at in enumerate(range(0, whole, CHUNK)))

    def write(self, name, data):
        chunks = [crypted(self.key(name), i, len(data), data[at:at + CHUNK])
                  for i, at in enumerate(range(0, len(data), CHUNK))]
        self.store(name, b"".join(c for c, _ in chunks) + b"".join(t for _, t in chunks))
        self.names = sorted({*self.names, name})

    def stored(self, name):
        with open(f"{self.at}/{name}", "rb") as f:
            return f.read()

    def store(self, name, data):
        """In a new file, because the old one may be linked elsewhere."""
        with open(f"{self.at}/{name}.new", "wb") as f:
            f.write(data)
        owner = os.stat(self.at)
        os.chown(f"{self.at}/{name}.new", owner.st_uid, owner.st_gid)
        os.chmod(f"{self.at}/{name}.new", 0o600)
        os.rename(f"{self.at}/{name}.new", f"{self.at}/{name}")

    def put_back(self):
        """All of it is as it was found."""
        for name in self.names:
            if name not in self.before:
                os.unlink(f"{self.at}/{name}")
        for name, data in self.before.items():
            self.store(name, data)

    def sign(self):
        """Writes the manifest of the files that are there."""
        lines = [f"{k} {v}" for k, v in self.head] + [f"files {len(self.names)}"]
        for name in self.names:
            data = self.stored(name)
            whole = len(data) - TAG * -(-len(data) // (CHUNK + TAG))
            lines.append(f"file {len(data)} {digest(data[whole:])} {name}")

        def ended(more=""):
            text = "".join(line + "\n" for line in lines) + more
            return f"{text}end {digest(text.encode())}\n"
        tag = derived(self.root, b"manifest " + ended().encode()).hex()
        self.store("MANIFEST", ended(f"tag {tag}\n").encode())


# Messages of CRIU's files: a list of (number of the field, its value). A value is a number, or the
# bytes of a field that has a length; no file that is changed here has another form.

def number(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def take(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return n, at


def fields(data):
    at, out = 0, []
    while at < len(data):
        key, at = take(data, at)
        value, at = take(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        elif key & 7:
            raise ValueError(f"a field of form {key & 7}")
        out.append((key >> 3, value))
    return out


def message(all_of_it):
    return b"".join(number(k << 3) + number(v) if isinstance(v, int) else
                    number(k << 3 | 2) + number(len(v)) + v for k, v in all_of_it)


def entries(data):
    """Those of a file of many, behind its magic numbers."""
    at, out = 8, []
    while at < len(data):
        size, = struct.unpack_from("<I", data, at)
        out.append(data[at + 4:at + 4 + size])
        at += 4 + size
    return out


def file_of(data, all_of_them):
    return data[:8] + b"".join(struct.pack("<I", len(e)) + e for e in all_of_them)
