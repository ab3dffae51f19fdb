"""A cluster's own certificate authority, and the certificates that it issues for each role.

Keys are on elliptic curves, which takes a millisecond each; only the pair for Skein's AM is RSA, as Skein makes it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from standby.shared.roles import PeerRole

#: Validity of an authority and its certificates, days; `standfast credentials rotate` makes a new authority.
DAYS: Final = 365

#: Validity of the pair for Skein's AM, days. It gives access only to the AMs of the cluster's applications, and cannot
#: be changed while they run.
SKEIN_DAYS: Final = 3650

#: The name that Skein's clients expect of its servers.
_SKEIN_NAME: Final = "skein-internal"

#: Largest difference between the clocks of hosts.
_SKEW: Final = dt.timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PemKeyPair:
    """A certificate and its private key, in PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "PemKeyPair(…)"


def new_authority(cluster: str, days: int = DAYS) -> PemKeyPair:
    """Return a new authority for a cluster; two authorities of the same cluster differ in their keys."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"standfast {cluster} {x509.random_serial_number():x}"[:64])
    made = (
        _begun(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def issue(authority: PemKeyPair, role: PeerRole, name: str, days: int = DAYS) -> PemKeyPair:
    """Return a certificate for a holder of ``role`` named ``name``; it ends with its authority at the latest.

    Raises `ValueError` if ``authority`` is not an authority.
    """
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signing = serialization.load_pem_private_key(authority.key.encode(), None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is of another kind")  # noqa: TRY004 (of its value, not of an argument)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _begun(
            _name(name[:64] or role.value), signer.subject, key.public_key(), days, signer.not_valid_after_utc
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(role.server_name)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
        .sign(signing, hashes.SHA256())
    )
    return _pair(made, key)


def skein_pair(days: int = SKEIN_DAYS) -> PemKeyPair:
    """Return a self-signed pair as Skein makes it, by which Skein's driver, AM and clients authenticate each other."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = _name(_SKEIN_NAME)
    return _pair(_begun(name, name, key.public_key(), days).sign(key, hashes.SHA256()), key)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    days: int,
    at_last: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    ends = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(min(ends, at_last) if at_last is not None else ends)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> PemKeyPair:
    return PemKeyPair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
