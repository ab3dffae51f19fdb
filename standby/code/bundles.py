"""A job's modules as one bundle of bytes, named by what is in it. Pure but for the reading of the modules' files.

A bundle is a zip archive that depends on nothing but the files' paths and contents: the same modules give the
same digest whenever and wherever they are packed, so a revision that changes no code needs no new bundle. For the
same reason nothing is compressed: what deflate makes of a file differs between its implementations.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from standby.errors import BadConfiguration, CorruptState

#: A bundle larger than this is refused: candidates and containers take it into memory.
MOST_BYTES: Final = 256 << 20

#: No larger one is left in ZooKeeper, which keeps everything in memory.
LEFT_BYTES: Final = 8 << 20

#: ZooKeeper takes no more than 1 MB in one znode.
CHUNK_BYTES: Final = 512 << 10

#: The earliest time that a zip archive can express.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)

_MODE: Final = 0o644 << 16


@dataclass(frozen=True, slots=True)
class Bundle:
    """Packed modules."""

    digest: str
    """SHA-256 of `data`, hexadecimal."""
    data: bytes


def pack(directory: Path, most_bytes: int = MOST_BYTES) -> Bundle:
    """Return everything in ``directory`` as a bundle; symbolic links are followed, caches left out.

    Raises `BadConfiguration` when it is larger than ``most_bytes`` or a file cannot be read.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(_files(directory), key=lambda each: each.relative_to(directory).parts):
            entry = zipfile.ZipInfo(path.relative_to(directory).as_posix(), _NO_TIME)
            entry.external_attr = _MODE
            # What made the archive is written into it, and is not the same on each system.
            entry.create_system = 3
            try:
                archive.writestr(entry, path.read_bytes())
            except OSError as error:
                raise BadConfiguration(f"job.modules: {path} cannot be read: {error.strerror}") from error
    data = content.getvalue()
    if len(data) > most_bytes:
        raise BadConfiguration(
            f"job.modules: packed they are {_mib(len(data))}, more than the {_mib(most_bytes)} that can be rolled "
            "out; put data and large libraries into the environment that job.python.archive names"
        )
    return Bundle(digest_of(data), data)


def unpack(digest: str, data: bytes, directory: Path) -> None:
    """Write the files of a bundle into ``directory``, which is made.

    Raises `CorruptState` when ``data`` is not the bundle called ``digest``, or leads out of the directory.
    """
    check(digest, data)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise CorruptState(f"bundle {digest}: no archive: {error}") from error
    directory.mkdir(parents=True, exist_ok=True)
    for name in archive.namelist():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise CorruptState(f"bundle {digest}: {name!r} leads out of its directory")
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(archive.read(name))


def chunks(data: bytes) -> tuple[bytes, ...]:
    """Return ``data`` in parts of at most `CHUNK_BYTES`, in order."""
    return tuple(data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))


def check(digest: str, data: bytes) -> None:
    """Raise `CorruptState` unless ``data`` is the bundle called ``digest``."""
    found = digest_of(data)
    if found != digest:
        raise CorruptState(f"bundle {digest}: its {len(data)} bytes have the checksum {found}")


def digest_of(data: bytes) -> str:
    """Return the name of a bundle with this content."""
    return hashlib.sha256(data).hexdigest()


def _files(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.name == "__pycache__" or path.suffix == ".pyc":
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
