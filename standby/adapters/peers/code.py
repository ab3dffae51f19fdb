"""Fetches and uploads bundles of code: HTTP over mutual TLS with a candidate, resumable."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from standby.adapters.peers.connection import PeerConnection, pieces
from standby.adapters.tls import Context
from standby.errors import BadConfiguration, CorruptState, Transient, Unavailable
from standby.shared.peers import CODE_ROUTE, BundleSource
from standby.shared.roles import PeerRole

_PIECE_BYTES: Final = 256 << 10

#: A source that sends nothing for this long is abandoned for the next one.
_SILENCE_SECONDS: Final = 10.0


class PeerCode:
    """Talks to candidates with the credentials in ``context``. One transfer at a time; `interrupt` from any thread."""

    def __init__(self, context: Context) -> None:
        self._connection = PeerConnection(context, PeerRole.MASTER, _SILENCE_SECONDS)

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Complete ``part`` with the missing rest of the bundle, from the first source that delivers it.

        The next source continues where the previous one stopped: all have the same bytes, and the caller verifies
        them. Raises `Transient` with the error of each source.
        """
        said: list[str] = []
        for source in sources:
            try:
                self._fetch(bundle, source, part)
                return
            except Transient as error:
                said.append(str(error))
        raise Transient("; ".join(said) or f"no known holder of bundle {bundle}")

    def read(self, bundle: str, source: BundleSource) -> bytes:
        """Return a bundle. Raises `Transient`."""
        return b"".join(self._get(bundle, source, 0))

    def upload(self, bundle: str, data: bytes, to: BundleSource, progress: Callable[[int], None]) -> None:
        """Upload a bundle to a candidate; ``progress`` is called with the number of bytes that it has.

        Bytes of an earlier upload are not sent again. Raises `Transient` when the candidate cannot be reached,
        `CorruptState` when it received other bytes, `BadConfiguration` when it refuses the bundle.
        """
        start = 0
        with self._connected(to) as connection:
            while True:
                piece = data[start : start + _PIECE_BYTES]
                path = f"/{CODE_ROUTE}/{bundle}?start={start}&size={len(data)}"
                connection.request("POST", path, body=piece)
                response = connection.getresponse()
                body = response.read()
                if response.status == HTTPStatus.CONFLICT:
                    raise CorruptState(body.decode(errors="replace").strip())
                if response.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN):
                    raise BadConfiguration(body.decode(errors="replace").strip())
                if response.status != HTTPStatus.OK:
                    raise Transient(f"{_name(to)}: {response.status} {body.decode(errors='replace').strip()}")
                answer: dict[str, Any] = json.loads(body)
                start = int(answer["size"])
                progress(start)
                if answer["complete"]:
                    return

    def interrupt(self) -> None:
        """Make the current and all later calls fail."""
        self._connection.interrupt()

    def _fetch(self, bundle: str, source: BundleSource, part: Path) -> None:
        try:
            with part.open("ab") as file:
                for piece in self._get(bundle, source, file.tell()):
                    file.write(piece)
        except OSError as error:
            raise Unavailable(f"{part}: {error.strerror or error}") from error

    def _get(self, bundle: str, source: BundleSource, start: int) -> Iterator[bytes]:
        with self._connected(source) as connection:
            headers = {"Range": f"bytes={start}-"} if start else {}
            connection.request("GET", f"/{CODE_ROUTE}/{bundle}", headers=headers)
            response = connection.getresponse()
            wanted = HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK
            if response.status != wanted:
                said = response.read(4096).decode(errors="replace").strip()
                raise Transient(f"{_name(source)}: {response.status} {said}")
            yield from pieces(response)

    @contextmanager
    def _connected(self, to: BundleSource) -> Iterator[http.client.HTTPConnection]:
        """Yield a connection for one transfer."""
        with closing(self._connection), self._connection.to(_name(to), to.host, to.port) as connection:
            yield connection


def _name(source: BundleSource) -> str:
    return f"{source.candidate} at {source.host}:{source.port}"
