"""Fetches copies of state from another container: HTTP over mutual TLS, interruptible at any time."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Final

from standby.adapters.peers.connection import REFUSAL_BYTES, PeerClient, pieces
from standby.adapters.tls import Context, TlsCredentials
from standby.errors import Transient
from standby.kernel.ports import OpenSource
from standby.shared.model import TaskId
from standby.shared.peers import SNAPSHOTS_ROUTE, URGENT, PeerAddress

_MOST_MANIFEST_BYTES: Final = 64 << 20


class HttpSnapshotSource(PeerClient):
    """A `standby.kernel.ports.SnapshotSource`."""

    def __init__(
        self, context: Context, address: PeerAddress, silence_seconds: float, *, is_urgent: bool = False
    ) -> None:
        """The last two: see `standby.kernel.ports.OpenSource`."""
        super().__init__(context, address, silence_seconds)
        self._urgency = {URGENT: "true"} if is_urgent else {}

    def take(self, task: TaskId, run: str, patience_seconds: float = 0.0) -> bytes:
        """Return the manifest of a copy; waits up to ``patience_seconds`` if the peer is busy."""
        query = urllib.parse.urlencode(
            {
                "job": task.job,
                "stage": task.stage,
                "partition": task.partition,
                "run": run,
                "patience_ms": round(patience_seconds * 1000),
                **self._urgency,
            }
        )
        manifest = bytearray()
        for piece in self._ask("POST", f"/{SNAPSHOTS_ROUTE}?{query}", 0):
            manifest += piece
            if len(manifest) > _MOST_MANIFEST_BYTES:
                self.close()
                raise Transient(f"{self}: the manifest has no end")
        if not manifest.endswith(b"\n"):
            # Its length is not announced, so a broken connection looks like its end.
            raise Transient(f"{self}: the manifest was cut off")
        return bytes(manifest)

    def read(self, lease: str, file: str, start: int) -> Iterator[bytes]:
        """Yield a file of the copy from byte ``start`` on."""
        query = "?" + urllib.parse.urlencode(self._urgency) if self._urgency else ""
        path = f"/{SNAPSHOTS_ROUTE}/{lease}/{urllib.parse.quote(file, safe='')}"
        return self._ask("GET", path + query, start)

    def release(self, lease: str) -> None:
        """Return the copy to the provider, if possible."""
        with contextlib.suppress(Transient):
            for _ in self._ask("DELETE", f"/{SNAPSHOTS_ROUTE}/{lease}", 0):
                pass

    def _ask(self, method: str, path: str, start: int) -> Iterator[bytes]:
        """Yield the answer's body in pieces; raises `PeerRefused` and `Transient`."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._connected() as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            status = response.status
            if status < HTTPStatus.BAD_REQUEST:
                if start and status != HTTPStatus.PARTIAL_CONTENT:
                    raise Transient(f"{self}: sends the whole file instead of the rest of it")
                yield from pieces(response)
                return
            said = response.read(REFUSAL_BYTES)
        # The connection is still usable.
        raise self._refused(status, said)


def open_sources(keys: TlsCredentials) -> OpenSource:
    """Return a function that opens sources with ``keys``."""
    return partial(HttpSnapshotSource, keys.client_context)
