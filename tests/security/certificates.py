"""An authority and certificates that live as long as a test run."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = _named(name)
        self._key = generate_private_key(SECP256R1())
        self._certificate = _sign(self._name, self._name, self._key, self._key, is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *hosts: str, password: str | None = None) -> Pair:
        """A certificate for these hosts, names or addresses."""
        key = generate_private_key(SECP256R1())
        certificate = _sign(_named(name), self._name, key, self._key, hosts=hosts)
        pair = Pair(self._folder / f"{name}-cert.pem", self._folder / f"{name}-key.pem")
        chain = certificate.public_bytes(Encoding.PEM) + self._certificate.public_bytes(Encoding.PEM)
        pair.certificate.write_bytes(chain)
        lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
        return pair

    def keystore(self, name: str, *hosts: str) -> Path:
        """Key, certificate and authority in one file, as a broker wants it."""
        pair = self.issue(name, *hosts)
        file = self._folder / f"{name}-keystore.pem"
        file.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    *,
    hosts: tuple[str, ...] = (),
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        names = [_host(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
