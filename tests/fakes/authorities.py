"""Certificate authorities and certificates of external servers: Kafka and ZooKeeper."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificate(
    directory: Path, name: str, signed_by: Path | None = None, address: str = "127.0.0.1"
) -> Path:
    """Write a new key with its certificate for an address, by its own or another's key; return the file with both."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signing = subject, key
    if signed_by is not None:
        of_signer = signed_by.read_bytes()
        issuer = x509.load_pem_x509_certificate(of_signer).subject
        signing = serialization.load_pem_private_key(of_signer, None)  # type: ignore[assignment]
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pair = directory / f"{name}.pem"
    pair.touch(0o600)
    pair.write_bytes(private + certificate)
    return pair


def certificate_in(pair: Path) -> Path:
    """Return a file with the certificate alone: what others are to trust."""
    target = pair.with_suffix(".crt")
    content = pair.read_bytes()
    target.write_bytes(content[content.index(b"-----BEGIN CERT") :])
    return target
