"""The bundles of code on a candidate's disk."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from standby.code.bundles import MOST_BYTES
from standby.errors import BadConfiguration, CorruptState, Unavailable
from standby.kernel.store.directories import make_private, tighten

_PIECE_BYTES: Final = 256 << 10

#: SHA-256, hexadecimal. Names come over the network and become names of files.
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


class BundleStore:
    """Keeps bundles in one directory: ``<digest>`` when complete and checked, in a part until then.

    An upload and a fetch of the same bundle may meet: each has a part of its own, or one would go on writing into what
    the other one has completed. Any thread may use it. Raises `Unavailable` when the directory cannot be made or read.
    """

    def __init__(self, directory: Path, *, is_on_host: bool = False) -> None:
        """``is_on_host``: the directory is one of the host's own, not below YARN's, whose owners are YARN's affair."""
        self._directory = directory
        self._lock = threading.Lock()
        if is_on_host:
            # Code is run from here: nobody else may have put it there.
            make_private(directory, "code.directory")
            tighten(directory)
            return
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"code.directory: {directory} cannot be made: {error.strerror}") from error

    def load(self) -> frozenset[str]:
        """Return the bundles that are complete; each is read and checked, a damaged one is removed.

        Removing is safe here: damaged is not absent, and what is lacking will be fetched.
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
        """Return where a complete bundle lies; raises `BadConfiguration` for what is no bundle's name."""
        if not _DIGEST.match(bundle):
            raise BadConfiguration(f"{bundle!r} is not the name of a bundle")
        return self._directory / bundle

    def part(self, bundle: str) -> Path:
        """Return where what was uploaded of a bundle lies until it is complete."""
        path = self.path(bundle)
        return path.with_name(f"{path.name}.part")

    def fetched(self, bundle: str) -> Path:
        """Return where what was fetched of a bundle lies until it is complete; written to by one fetch at a time."""
        path = self.path(bundle)
        return path.with_name(f"{path.name}.fetched")

    def has(self, bundle: str) -> bool:
        """Return whether a bundle is complete."""
        return self.path(bundle).exists()

    def size(self, bundle: str) -> int:
        """Return how many bytes there are of a bundle: all, or as many as were uploaded."""
        for path in (self.path(bundle), self.part(bundle)):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                continue
        return 0

    def append(self, bundle: str, start: int, data: bytes) -> int:
        """Add ``data`` if the part has exactly ``start`` bytes so far; return how many it has then.

        Raises `BadConfiguration` beyond the largest bundle that is taken, `Unavailable` when the disk refuses.
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
        """Make ``part``, which is whole, the bundle, unless it is there already; no part is left.

        Raises `CorruptState`, this part gone, when it is not that bundle.
        """
        with self._lock:
            try:
                if not self.has(bundle):
                    if checksum(part) != bundle:
                        part.unlink()
                        raise CorruptState(f"bundle {bundle}: what came has another checksum")
                    with part.open("rb") as file:
                        os.fsync(file.fileno())
                    part.rename(self.path(bundle))
                for each in (self.part(bundle), self.fetched(bundle)):
                    each.unlink(missing_ok=True)
            except OSError as error:
                raise Unavailable(f"{part}: {error.strerror}") from error

    def read(self, bundle: str, start: int) -> Iterator[bytes]:
        """Yield a complete bundle from byte ``start`` on, in pieces; raises `Unavailable` when it is not there."""
        try:
            with self.path(bundle).open("rb") as file:
                file.seek(start)
                while piece := file.read(_PIECE_BYTES):
                    yield piece
        except OSError as error:
            raise Unavailable(f"bundle {bundle}: {error.strerror}") from error

    def remove(self, bundle: str) -> None:
        """Delete a bundle and what there is of it; raises `Unavailable` when the disk refuses."""
        with self._lock:
            for path in (self.path(bundle), self.part(bundle), self.fetched(bundle)):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise Unavailable(f"{path}: {error.strerror}") from error


def checksum(path: Path) -> str:
    """Return the name of the bundle that a file is."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
