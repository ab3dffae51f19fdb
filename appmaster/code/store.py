"""The bundles of code on a candidate's disk."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from standby.code.bundles import MOST_BYTES, checksum
from standby.errors import BadConfiguration, CorruptState, Unavailable
from standby.kernel.store.directories import make_private, tighten

_PIECE_BYTES: Final = 256 << 10

#: SHA-256, hexadecimal. Names come over the network and become names of files.
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")

#: Hadoop's shell writes what it fetches to a name with a suffix of its own, and leaves that when it is killed.
_PART: Final = re.compile(r"[0-9a-f]{64}\.(part|fetched)(\._COPYING_)?\Z")

#: A part that nothing was added to for this time was given up.
_PART_MS: Final = 3_600_000


class BundleStore:
    """Keeps bundles in one directory: as ``<digest>`` if complete and checked, as a part until then.

    An upload and a fetch of the same bundle may happen at once. Each has its own part; otherwise one would continue to
    write into the file that the other has completed. Any thread may use it. Raises `Unavailable` if the directory
    cannot be created or read.
    """

    def __init__(self, directory: Path, *, is_on_host: bool = False) -> None:
        """``is_on_host``: the directory is the host's own; one below YARN's has owners that YARN determines."""
        self._directory = directory
        self._lock = threading.Lock()
        #: Size and time of each part when it was last seen to change, and when that was.
        self._parts: dict[Path, tuple[tuple[int, int], int]] = {}
        if is_on_host:
            # Code is run from here: no other user may have put it there.
            make_private(directory, "code.directory")
            tighten(directory)
            return
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"code.directory: {directory} cannot be made: {error.strerror}") from error

    def load(self) -> frozenset[str]:
        """Return the complete bundles; each is read and checked, and a damaged one is removed.

        The removal is safe: damaged is not absent, and what is missing will be fetched.
        """
        found = set()
        try:
            for path in self._directory.iterdir():
                if not _DIGEST.match(path.name):
                    continue
                if checksum(path) == path.name:
                    found.add(path.name)
                else:
                    path.unlink()
        except OSError as error:
            raise Unavailable(f"code.directory: {error.filename}: {error.strerror}") from error
        return frozenset(found)

    def path(self, bundle: str) -> Path:
        """Return the path of a complete bundle; raises `BadConfiguration` for an invalid name."""
        if not _DIGEST.match(bundle):
            raise BadConfiguration(f"{bundle!r} is not the name of a bundle")
        return self._directory / bundle

    def part(self, bundle: str) -> Path:
        """Return the path of the uploaded part of a bundle until it is complete."""
        path = self.path(bundle)
        return path.with_name(f"{path.name}.part")

    def fetched(self, bundle: str) -> Path:
        """Return the path of the fetched part of a bundle until it is complete; one fetch at a time writes to it."""
        path = self.path(bundle)
        return path.with_name(f"{path.name}.fetched")

    def has(self, bundle: str) -> bool:
        """Return whether a bundle is complete."""
        return self.path(bundle).exists()

    def size(self, bundle: str) -> int:
        """Return the number of bytes of a bundle: its size if it is complete, else what was uploaded."""
        for path in (self.path(bundle), self.part(bundle)):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                continue
        return 0

    def append(self, bundle: str, start: int, data: bytes) -> int:
        """Append ``data`` if the part has exactly ``start`` bytes so far; return its resulting size.

        Raises `BadConfiguration` above the largest accepted size, `Unavailable` if the disk refuses.
        """
        with self._lock:
            present = self.size(bundle)
            if start != present or self.has(bundle):
                return present
            if start + len(data) > MOST_BYTES:
                raise BadConfiguration(f"bundle {bundle}: larger than {MOST_BYTES >> 20} MiB")
            try:
                with self.part(bundle).open("ab") as file:
                    file.write(data)
            except OSError as error:
                raise Unavailable(f"{self.part(bundle)}: {error.strerror}") from error
            return start + len(data)

    def complete(self, bundle: str, part: Path) -> None:
        """Make the complete ``part`` the bundle, unless that exists already; no part is left.

        Raises `CorruptState`, and removes this part, if its content is not that bundle.
        """
        with self._lock:
            try:
                if not self.has(bundle):
                    if checksum(part) != bundle:
                        part.unlink()
                        raise CorruptState(f"bundle {bundle}: the received data has another checksum")
                    with part.open("rb") as file:
                        os.fsync(file.fileno())
                    part.rename(self.path(bundle))
                for each in (self.part(bundle), self.fetched(bundle)):
                    each.unlink(missing_ok=True)
            except OSError as error:
                raise Unavailable(f"{part}: {error.strerror}") from error

    def read(self, bundle: str, start: int) -> Iterator[bytes]:
        """Yield a complete bundle from byte ``start`` on, in pieces; raises `Unavailable` if it does not exist."""
        try:
            with self.path(bundle).open("rb") as file:
                file.seek(start)
                while piece := file.read(_PIECE_BYTES):
                    yield piece
        except OSError as error:
            raise Unavailable(f"bundle {bundle}: {error.strerror}") from error

    def remove_abandoned(self, now_ms: int, kept: Collection[str]) -> None:
        """Delete the parts that have not changed for an hour, but those of ``kept`` bundles; called by one thread.

        ``now_ms`` is monotonic. The time begins anew with each start: times of files depend on the host's clock. An
        upload that goes on later is sent from its beginning. Raises `Unavailable` if the disk refuses.
        """
        with self._lock:
            try:
                found = {
                    each: _state_of(each) for each in self._directory.iterdir() if _PART.match(each.name)
                }
                seen, self._parts = self._parts, {}
                for path, state in found.items():
                    before, since_ms = seen.get(path, (None, now_ms))
                    self._parts[path] = state, since_ms if before == state else now_ms
                    if now_ms - self._parts[path][1] >= _PART_MS and path.name.partition(".")[0] not in kept:
                        path.unlink(missing_ok=True)
                        del self._parts[path]
            except OSError as error:
                raise Unavailable(f"code.directory: {error.filename}: {error.strerror}") from error

    def remove(self, bundle: str) -> None:
        """Delete a bundle and its parts; raises `Unavailable` if the disk refuses."""
        with self._lock:
            for path in (self.path(bundle), self.part(bundle), self.fetched(bundle)):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise Unavailable(f"{path}: {error.strerror}") from error


def _state_of(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
