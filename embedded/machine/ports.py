"""Finds unused ports."""

from __future__ import annotations

import random
import socket
from typing import Final

from standby.errors import Unavailable

#: Below the ports that Linux assigns to outgoing connections, which would occasionally conflict.
_LOWEST: Final = 15_000
_HIGHEST: Final = 32_000
_TRIES: Final = 1_000


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return ``count`` different free TCP ports of ``address``. Raises :class:`Unavailable`."""
    held: list[socket.socket] = []
    try:
        for _ in range(_TRIES):
            if len(held) == count:
                return [each.getsockname()[1] for each in held]
            candidate = socket.socket()
            try:
                candidate.bind((address, random.randint(_LOWEST, _HIGHEST)))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        raise Unavailable(f"no {count} free ports on {address}")
    finally:
        for each in held:
            each.close()
