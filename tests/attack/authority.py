# SPDX-License-Identifier: GPL-2.0-or-later
"""An issuing authority of an attacker's own, and what it signs as a market's would."""
import datetime
import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, \
    load_pem_private_key


def own_certificate(identity):
    with open(f"{identity}/certificate.pem", "rb") as f:
        return x509.load_pem_x509_certificate(f.read())


def key_of(identity):
    """The digest by which a node's key is known."""
    return hashlib.sha256(own_certificate(identity).public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


class Authority:
    """With a key of its own, or with the market's, as it lies in that directory of identity."""
    def __init__(self, identity=None):
        self.key = ec.generate_private_key(ec.SECP256R1())
        if identity:
            with open(f"{identity}/issuing.key", "rb") as f:
                self.key = load_pem_private_key(f.read(), None)

    def ticket_list(self, keys, number=(1 << 64) - 1):
        text = f"souk ticket list 1\nnumber {number}\n{keys}".encode()
        signature = self.key.sign(text, ec.ECDSA(hashes.SHA256()))
        return text + b"signature " + signature.hex().encode() + b"\n"

    def chain(self, identity):
        """As of the certificate that lies there, with its key: by this authority."""
        like = own_certificate(identity)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuing")])

        def made(subject, key, extensions):
            now = datetime.datetime.utcnow()
            builder = x509.CertificateBuilder(
                issuer_name=name, subject_name=subject, public_key=key,
                serial_number=x509.random_serial_number(),
                not_valid_before=now - datetime.timedelta(1),
                not_valid_after=now + datetime.timedelta(9))
            for value, critical in extensions:
                builder = builder.add_extension(value, critical)
            return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)
        ca = [(x509.BasicConstraints(True, 0), True),
              (x509.KeyUsage(False, False, False, False, False, True, True, False, False), True)]
        return (made(like.subject, like.public_key(),
                     [(e.value, e.critical) for e in like.extensions
                      if not isinstance(e.value, (x509.AuthorityKeyIdentifier,
                                                  x509.SubjectKeyIdentifier))])
                + made(name, self.key.public_key(), ca))
