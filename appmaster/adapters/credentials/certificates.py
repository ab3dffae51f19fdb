"""The expiry of credentials: a year after they were made or last rotated.

After that the cluster's processes no longer accept each other, and each reports only that it gets no answer.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

from cryptography import x509

from standby.errors import BadConfiguration
from standby.shared.metric import Metric, single

#: The expiry is reported from this number of days before it.
_SOON_DAYS: Final = 45

_REMEDY: Final = "`standfast credentials rotate` makes new ones while jobs run (docs/security.md)"


def expiry_warning(certificate: bytes, directory: Path, now: dt.datetime | None = None) -> str:
    """Return the message about the expiry of the credentials in ``directory``; empty while it is far away.

    ``certificate`` is theirs, in PEM. Raises `BadConfiguration` if they have expired or are invalid.
    """
    try:
        ends = end_of(certificate)
    except ValueError as error:
        raise BadConfiguration(f"{directory / 'operator.crt'}: no certificate: {error}") from error
    left = ends - (now or dt.datetime.now(dt.timezone.utc))
    if left <= dt.timedelta():
        raise BadConfiguration(f"the credentials in {directory} expired on {ends:%Y-%m-%d}; {_REMEDY}")
    if left > dt.timedelta(days=_SOON_DAYS):
        return ""
    return f"the credentials in {directory} expire on {ends:%Y-%m-%d}, and the cluster stops working then; {_REMEDY}"


def end_of(certificate: bytes) -> dt.datetime:
    """Return the expiry of a certificate in PEM; raises `ValueError` if it is not a certificate."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


#: The expiry of the certificate that a process shows, as a metric to alert on.
EXPIRY: Final[Metric[str]] = single(
    "standfast_credentials_expiry_timestamp_seconds",
    "Unix time at which the certificate expires that this process shows to others of its cluster.",
    lambda certificate: end_of(certificate.encode()).timestamp(),
)
