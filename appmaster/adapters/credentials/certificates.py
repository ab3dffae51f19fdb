"""How long credentials last: a year from when they were made, or from the last rotation.

Afterwards no process of the cluster talks to another one, and each says only that it is not answered.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

from cryptography import x509

from standby.errors import BadConfiguration
from standby.shared.metric import Metric, single

#: From then on it is told, days before the end.
_SOON_DAYS: Final = 45

_REMEDY: Final = "`standfast credentials rotate` makes others while jobs run (docs/security.md)"


def told_of_end(certificate: bytes, directory: Path, now: dt.datetime | None = None) -> str:
    """Return what is to be said of the end of the credentials in ``directory``; empty while it is far.

    ``certificate`` is theirs, in PEM. Raises `BadConfiguration` when they have ended, or are none.
    """
    try:
        ends = end_of(certificate)
    except ValueError as error:
        raise BadConfiguration(f"{directory / 'operator.crt'}: no certificate: {error}") from error
    left = ends - (now or dt.datetime.now(dt.timezone.utc))
    if left <= dt.timedelta():
        raise BadConfiguration(f"the credentials in {directory} have ended on {ends:%Y-%m-%d}; {_REMEDY}")
    if left > dt.timedelta(days=_SOON_DAYS):
        return ""
    return f"the credentials in {directory} end on {ends:%Y-%m-%d}, and the cluster with them; {_REMEDY}"


def end_of(certificate: bytes) -> dt.datetime:
    """Return when a certificate in PEM ends; raises `ValueError` when it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


#: Of the certificate that a process shows, for whoever is to be told in time.
EXPIRY: Final[Metric[str]] = single(
    "standfast_credentials_expiry_timestamp_seconds",
    "Unix time at which the certificate ends that this process shows to others of its cluster.",
    lambda certificate: end_of(certificate.encode()).timestamp(),
)
