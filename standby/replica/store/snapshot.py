"""What a copy of a replica's state consists of when it travels, and what of it is there already. Pure.

The giver writes a *manifest*: whose state it is, how far it is, and every file with its size and SHA-256. The
taker believes nothing else: neither a file's name nor its length says that its bytes are the right ones.
SHA-256 because every processor of today has instructions for it; it is faster than BLAKE2 there (measured).
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

#: Raised when the manifest or the way the files are asked for changes incompatibly.
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
    """Everything that a taker must know of a copy before it takes the first file."""

    lease: str
    """The giver's name of the copy, kept as long as somebody fetches it."""
    origin: Origin
    """Whose state it is, of which changelog, and at least how far it is."""
    role: Role
    """What the giver was when the copy was made."""
    epoch: int
    """The giver's epoch then."""
    files: tuple[SnapshotFile, ...]
    format: int = SNAPSHOT_FORMAT

    @property
    def total_bytes(self) -> int:
        """Return how many bytes all files have together."""
        return sum(each.size for each in self.files)

    def encode(self) -> bytes:
        """Return it as the giver sends it."""
        return json.dumps(asdict(self)).encode() + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest in ``data``; raises `CorruptState` when it is none of this format.

    A file's name is one name: it cannot lead out of the directory that the taker has for it.
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
        raise CorruptState(f"no manifest of a state: {type(error).__name__}: {error}") from error


def _file(content: Mapping[str, Any]) -> SnapshotFile:
    name, size, digest = content["name"], content["size"], content["sha256"]
    if not (isinstance(name, str) and _NAME.match(name)):
        raise CorruptState(f"{name!r} is no name of a file")
    if type(size) is not int or size < 0:
        raise CorruptState(f"{name}: {size!r} is no size")
    if not (isinstance(digest, str) and _DIGEST.match(digest)):
        raise CorruptState(f"{name}: {digest!r} is no SHA-256")
    return SnapshotFile(name, size, digest)


def resumable(
    before: Manifest | None, now: Manifest, present: Mapping[str, int]
) -> tuple[dict[str, int], Collection[str]]:
    """Return which files of an earlier attempt go on at which byte, and which are to be deleted.

    ``before`` is the manifest that the earlier attempt worked by, ``present`` what it left: name → size. Copies
    of different givers use the same names for different files; only one with the same SHA-256 is the same.
    """
    wanted = {each.name: each for each in now.files}
    known = {each.name: each for each in before.files} if before is not None else {}
    kept = {
        name: size
        for name, size in present.items()
        if name in wanted and wanted[name] == known.get(name) and size <= wanted[name].size
    }
    return kept, sorted(set(present) - set(kept))
