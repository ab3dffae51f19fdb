"""Probes a port: this distinguishes a dead process from a silent one."""

from __future__ import annotations

import errno
import socket
from typing import Final

from appmaster.leadership.suspicion import PortAnswer

#: A port that does not answer within this time is not known to be closed, seconds.
_SECONDS: Final = 0.5

#: Errors of an address of a family that this host does not use, as of IPv6 without a route to anywhere.
_NO_ROUTE: Final = (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def host_of(address: str) -> str:
    """Return the host of ``host:port``."""
    return address.rpartition(":")[0]


def probe(host: str, port: int, timeout_seconds: float = _SECONDS) -> PortAnswer:
    """Return how a port answers an attempt to connect, at the last address of its host to which there is a route."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return PortAnswer.NOT_ASKED
    answer = PortAnswer.NONE
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(timeout_seconds)
                connection.connect(address)
                return PortAnswer.ACCEPTED
        except ConnectionRefusedError:
            answer = PortAnswer.REFUSED
        except OSError as error:
            if error.errno not in _NO_ROUTE:
                answer = PortAnswer.NONE
    return answer


def refuses(address: str) -> bool:
    """Return whether the port of ``host:port`` refuses connections; False while that is not certain."""
    return probe(host_of(address), int(address.rpartition(":")[2])) is PortAnswer.REFUSED
