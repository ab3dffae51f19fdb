"""Probes a port: this distinguishes a dead process from a silent one."""

from __future__ import annotations

import socket
from typing import Final

from appmaster.leadership.suspicion import PortAnswer

#: A port that does not answer within this time is not known to be closed, seconds.
_SECONDS: Final = 0.5


def host_of(address: str) -> str:
    """Return the host of ``host:port``."""
    return address.rpartition(":")[0]


def probe(host: str, port: int, timeout_seconds: float = _SECONDS) -> PortAnswer:
    """Return how a port answers an attempt to connect."""
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds):
            return PortAnswer.ACCEPTED
    except ConnectionRefusedError:
        return PortAnswer.REFUSED
    except socket.gaierror:
        return PortAnswer.NOT_ASKED
    except OSError:
        return PortAnswer.NONE


def refuses(address: str) -> bool:
    """Return whether the port of ``host:port`` refuses connections; False while that is not certain."""
    return probe(host_of(address), int(address.rpartition(":")[2])) is PortAnswer.REFUSED
