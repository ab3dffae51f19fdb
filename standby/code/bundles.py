"""A job's modules as one bundle of bytes, named by its digest. Pure, except for reading the modules' files.

A bundle is a zip archive that depends only on the files' paths and contents: the same modules always give the same
digest, so a revision without code changes needs no new bundle. For the same reason nothing is compressed: the output
of deflate differs between its implementations.
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

#: Larger bundles are refused, because candidates and containers load them into memory.
MOST_BYTES: Final = 256 << 20

#: Larger bundles are not stored in ZooKeeper, which keeps everything in memory.
LEFT_BYTES: Final = 8 << 20

#: ZooKeeper limits a znode to 1 MB.
CHUNK_BYTES: Final = 512 << 10

_PIECE_BYTES: Final = 256 << 10

#: The earliest time that a zip archive can represent.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)

_MODE: Final = 0o644 << 16


@dataclass(frozen=True, slots=True)
class Bundle:
    """Packed modules."""

    digest: str
    """SHA-256 of `data`, hexadecimal."""
    data: bytes


def pack(directory: Path, most_bytes: int = MOST_BYTES) -> Bundle:
    """Return the content of ``directory`` as a bundle; symbolic links are followed, caches are omitted.

    Raises `BadConfiguration` when it is larger than ``most_bytes``, or a file cannot be read or has a name that is not
    UTF-8.
    """
    content, size = io.BytesIO(), 0
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(files_of(directory), key=lambda each: each.relative_to(directory).parts):
            entry = zipfile.ZipInfo(path.relative_to(directory).as_posix(), _NO_TIME)
            entry.external_attr = _MODE
            # The archive records the creating system, which must not vary.
            entry.create_system = 3
            try:
                # Before it is in memory: a folder may contain any amount of data.
                size += path.stat().st_size
                _check_size(size, most_bytes)
                archive.writestr(entry, path.read_bytes())
            except OSError as error:
                raise BadConfiguration(f"job.modules: {path} cannot be read: {error.strerror}") from error
            except UnicodeEncodeError as error:
                raise BadConfiguration(
                    f"job.modules: {str(path)!r} has a name that is not UTF-8 text; rename that file"
                ) from error
    data = content.getvalue()
    _check_size(len(data), most_bytes)
    return Bundle(digest_of(data), data)


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise BadConfiguration(
            f"job.modules: packed they have {_mib(size)} or more, above the {_mib(most_bytes)} that can be rolled out; "
            "put data and large libraries into the environment that job.python.archive names"
        )


def unpack(digest: str, data: bytes, directory: Path) -> None:
    """Write the files of a bundle into ``directory``, which is created.

    Raises `CorruptState` when ``data`` is not the bundle called ``digest``, or has paths outside of the directory.
    """
    check(digest, data)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise CorruptState(f"bundle {digest}: not an archive: {error}") from error
    directory.mkdir(parents=True, exist_ok=True)
    for name in archive.namelist():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise CorruptState(f"bundle {digest}: {name!r} is outside of its directory")
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


def checksum(path: Path) -> str:
    """Return the digest of a file: its bundle's name, if it contains one; raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def shipped_name(digest: str) -> str:
    """Return the name of the file in a master's working directory in which YARN ships a bundle."""
    return f"bundle-{digest}"


def files_of(directory: Path) -> Iterator[Path]:
    """Yield the files of a job's code, in linked directories as well, without what Python has compiled from them.

    Raises `BadConfiguration` for a directory that contains itself through a symbolic link, or that cannot be read.
    """
    return _files_below(directory, directory, frozenset())


def _files_below(directory: Path, top: Path, above: frozenset[Path]) -> Iterator[Path]:
    real = directory.resolve()
    if real in above:
        raise BadConfiguration(
            f"job.modules: {directory.relative_to(top)} leads back to {real}, in which it is; remove that symbolic link"
        )
    for path, is_directory in _paths_in(directory):
        if path.name == "__pycache__" or (path.suffix == ".pyc" and path.with_suffix(".py").is_file()):
            continue
        if is_directory:
            yield from _files_below(path, top, above | {real})
        else:
            yield path


def _paths_in(directory: Path) -> list[tuple[Path, bool]]:
    """Return the files and directories in ``directory``, and which of them are directories."""
    try:
        found = [(path, path.is_dir()) for path in directory.iterdir()]
        return [(path, is_directory) for path, is_directory in found if is_directory or path.is_file()]
    except OSError as error:
        raise BadConfiguration(f"job.modules: {directory} cannot be read: {error.strerror}") from error


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
