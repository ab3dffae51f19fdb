"""The packed environment that a cluster ships (`job.python.archive`), which it keeps for as long as it runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from standby.config import JobConfig
from standby.errors import BadConfiguration

_PIECE_BYTES: Final = 1 << 20


def environment_digest(config: JobConfig) -> str:
    """Return the SHA-256 of a job's packed environment, hexadecimal; empty if it has none, or none that is here."""
    if not config.python_archive:
        return ""
    digest = hashlib.sha256()
    try:
        with Path(config.python_archive).open("rb") as archive:
            while piece := archive.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def check_environment(config: JobConfig, shipped: str) -> None:
    """Raise `BadConfiguration` if a job's packed environment is another one than its running cluster has ``shipped``.

    That is the digest of the cluster's; empty if it has none, or it is not known.
    """
    mine = environment_digest(config) if shipped else ""
    if mine and mine != shipped:
        raise BadConfiguration(
            f"job.python.archive: {config.python_archive} has other contents than when cluster {config.cluster} was "
            "started, and a running cluster keeps its environment; to use this one, kill every job of the cluster and "
            "submit it again (`standfast submit --update` does both for a cluster's only job; state and offsets stay); "
            "to go on without it, put the former file back"
        )
