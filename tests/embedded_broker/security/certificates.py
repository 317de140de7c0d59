"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

YEAR = datetime.timedelta(days=365)
CLIENT_NAME = (
    (NameOID.COUNTRY_NAME, "CH"),
    (NameOID.ORGANIZATION_NAME, "A, B & C"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "Ops"),
    (NameOID.COMMON_NAME, "client"),
)
CLIENT_PRINCIPAL = "User:CN=client,OU=Ops,O=A\\, B & C,C=CH"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for brokers on 127.0.0.1 and for clients."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta = YEAR
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - YEAR).not_valid_after(now + life)

    def sign(
        self,
        file: str,
        name: Sequence[tuple[x509.ObjectIdentifier, str]] = CLIENT_NAME,
        life: datetime.timedelta = YEAR,
    ) -> Pair:
        """Make `file`.pem and `file`.key for 127.0.0.1 and that name, which expire after `life`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in name])
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(subject, key.public_key(), life)
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        pair = Pair(self._directory / f"{file}.pem", self._directory / f"{file}.key")
        pair.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
