"""The format of a transferred copy of a replica's state, and which files of it can be reused. Pure.

The provider writes a *manifest*: the task, the position, and every file with its size and SHA-256. The fetcher trusts
only the digests: neither a file's name nor its size proves that its content is right. SHA-256 is used because
current processors have instructions for it, which make it faster than BLAKE2 (measured).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from standby.errors import CorruptState
from standby.replica.store.origin import Origin, decode_origin
from standby.shared.model import Role

#: Incremented when the manifest or the file requests change incompatibly.
SNAPSHOT_FORMAT: Final = 1

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of the copy."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that a fetcher must know about a copy before it fetches the first file."""

    lease: str
    """The provider's name of the copy, kept while it is being fetched."""
    origin: Origin
    """The task, the changelog, and a lower bound of the position."""
    role: Role
    """The provider's role when the copy was made."""
    epoch: int
    """The provider's epoch at that time."""
    files: tuple[SnapshotFile, ...]
    format: int = SNAPSHOT_FORMAT

    @property
    def total_bytes(self) -> int:
        """The total size of all files."""
        return sum(each.size for each in self.files)

    def encode(self) -> bytes:
        """Return the manifest as the provider sends it."""
        return json.dumps(asdict(self)).encode() + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest in ``data``. Raises `CorruptState` when it is not of this format.

    A file's name is a single path component, so it cannot point outside of the fetcher's directory.
    """
    try:
        content: Any = json.loads(data)
        if content["format"] != SNAPSHOT_FORMAT:
            raise CorruptState(f"the manifest is of format {content['format']!r}, not {SNAPSHOT_FORMAT}")
        files = tuple(_file(each) for each in content["files"])
        if len({each.name for each in files}) != len(files):
            raise CorruptState("the manifest names a file twice")
        lease, epoch = content["lease"], content["epoch"]
        if not (isinstance(lease, str) and _NAME.match(lease) and type(epoch) is int):
            raise CorruptState(f"the manifest has no usable lease or epoch: {lease!r}, {epoch!r}")
        origin = decode_origin(json.dumps(content["origin"]).encode())
        return Manifest(lease, origin, Role(content["role"]), epoch, files)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"not a manifest of a state: {type(error).__name__}: {error}") from error


def _file(content: Mapping[str, Any]) -> SnapshotFile:
    name, size, digest = content["name"], content["size"], content["sha256"]
    if not (isinstance(name, str) and _NAME.match(name)):
        raise CorruptState(f"{name!r} is not a valid file name")
    if type(size) is not int or size < 0:
        raise CorruptState(f"{name}: {size!r} is not a size")
    if not (isinstance(digest, str) and _DIGEST.match(digest)):
        raise CorruptState(f"{name}: {digest!r} is not a SHA-256")
    return SnapshotFile(name, size, digest)


def resumable(
    before: Manifest | None, now: Manifest, present: Mapping[str, int]
) -> tuple[dict[str, int], Collection[str]]:
    """Return the files of an earlier attempt with the byte to resume at, and the files to delete.

    ``before`` is the manifest of the earlier attempt, ``present`` the files that it left: name → size. Copies of
    different providers use the same names for different files; files are the same only if their SHA-256 is.
    """
    wanted = {each.name: each for each in now.files}
    known = {each.name: each for each in before.files} if before is not None else {}
    kept = {
        name: size
        for name, size in present.items()
        if name in wanted and wanted[name] == known.get(name) and size <= wanted[name].size
    }
    return kept, sorted(set(present) - set(kept))
