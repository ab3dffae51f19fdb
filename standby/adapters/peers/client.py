"""Fetches copies of state from another container: HTTP over mutual TLS, cut off at once when need be."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Final

from standby.adapters.peers.connection import PeerConnection, pieces
from standby.adapters.tls import Context, Keys
from standby.errors import Transient
from standby.kernel.ports import OpenSource, Refused
from standby.shared.model import TaskId
from standby.shared.peers import SNAPSHOTS_ROUTE, PeerAddress
from standby.shared.roles import PeerRole

_MOST_MANIFEST_BYTES: Final = 64 << 20


class HttpSnapshotSource:
    """A `standby.kernel.ports.SnapshotSource`. One connection, made anew when it was lost."""

    def __init__(self, context: Context, address: PeerAddress, silence_seconds: float) -> None:
        """``silence_seconds``: a peer that says nothing for so long has gone."""
        self._address = address
        self._connection = PeerConnection(context, PeerRole.CONTAINER, silence_seconds)

    def take(self, task: TaskId, run: str, patience_seconds: float = 0.0) -> bytes:
        """Return the manifest of a copy made now, or when the peer's turn has come within the seconds."""
        query = urllib.parse.urlencode(
            {
                "job": task.job,
                "stage": task.stage,
                "partition": task.partition,
                "run": run,
                "patience_ms": round(patience_seconds * 1000),
            }
        )
        manifest = bytearray()
        for piece in self._ask("POST", f"/{SNAPSHOTS_ROUTE}?{query}", 0):
            manifest += piece
            if len(manifest) > _MOST_MANIFEST_BYTES:
                self.close()
                raise Transient(f"{self}: the manifest has no end")
        return bytes(manifest)

    def read(self, lease: str, file: str, start: int) -> Iterator[bytes]:
        """Yield a file of the copy from byte ``start`` on."""
        return self._ask("GET", f"/{SNAPSHOTS_ROUTE}/{lease}/{urllib.parse.quote(file, safe='')}", start)

    def release(self, lease: str) -> None:
        """Give the copy back, if that is possible."""
        with contextlib.suppress(Transient):
            for _ in self._ask("DELETE", f"/{SNAPSHOTS_ROUTE}/{lease}", 0):
                pass

    def interrupt(self) -> None:
        """Have everything fail from now on."""
        self._connection.interrupt()

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

    def __str__(self) -> str:
        return f"{self._address.container} at {self._address.host}:{self._address.port}"

    def _ask(self, method: str, path: str, start: int) -> Iterator[bytes]:
        """Yield the answer's body in pieces; raises `Refused` and `Transient`."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._connection.to(str(self), self._address.host, self._address.port) as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            status = response.status
            if status < HTTPStatus.BAD_REQUEST:
                if start and status != HTTPStatus.PARTIAL_CONTENT:
                    raise Transient(f"{self}: gives the whole file instead of the rest of it")
                yield from pieces(response)
                return
            text = response.read(4096).decode(errors="replace").strip()
        # The connection is none the worse for it.
        raise Refused(f"{self}: {status} {text}", is_soon=status == HTTPStatus.SERVICE_UNAVAILABLE)


def open_sources(keys: Keys) -> OpenSource:
    """Return what opens sources with ``keys``."""
    return partial(HttpSnapshotSource, keys.client_context)
