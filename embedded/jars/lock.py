"""The lock file of pinned jars: their sets, sizes and checksums.

The lock file has one line per jar and set: set, ``group:artifact:version[:classifier]``, file name,
size in bytes, SHA-256 in hex. ``-`` for the last two marks a jar that was added by hand and is not locked yet. A
``#`` starts a comment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration

_UNKNOWN: Final = "-"
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """The name of a jar in a Maven repository."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Return the coordinate written as ``group:artifact:version[:classifier]``.

        Raises :class:`BadConfiguration` for any other form.
        """
        if not re.fullmatch(r"[\w.-]+(:[\w.-]+){2,3}", text):
            raise BadConfiguration(
                f"{text!r} is not group:artifact:version or group:artifact:version:classifier"
            )
        return cls(*text.split(":"))

    @property
    def file_name(self) -> str:
        """The file's name in a repository."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{tail}.jar"

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar."""

    coordinate: Coordinate
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name."""
        return self.coordinate.file_name

    @property
    def is_locked(self) -> bool:
        """Whether size and checksum are known."""
        return bool(self.sha256)


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars of one class path."""

    name: str
    jars: tuple[Jar, ...]

    @property
    def directory_name(self) -> str:
        """A name that depends on the content, so that a cached set always matches its lock file."""
        content = "\n".join(sorted(f"{jar.coordinate} {jar.sha256}" for jar in self.jars))
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def read_lock(path: Path) -> dict[str, JarSet]:
    """Return the sets of the lock file at ``path`` by name. Raises :class:`BadConfiguration`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(f"the jar lock {path} cannot be read: {error.strerror}") from error
    sets: dict[str, list[Jar]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            name, jar = _parse(fields)
        except (BadConfiguration, ValueError) as error:
            raise BadConfiguration(f"{path}, line {number}: {error}") from error
        if any(other.file_name == jar.file_name for other in sets.setdefault(name, [])):
            raise BadConfiguration(f"{path}, line {number}: {jar.file_name} is already in the set {name}")
        sets[name].append(jar)
    return {name: JarSet(name, tuple(jars)) for name, jars in sets.items()}


def _parse(fields: list[str]) -> tuple[str, Jar]:
    if len(fields) != 5:
        raise ValueError(f"{len(fields)} fields instead of five: set, coordinate, file, size, sha256")
    name, coordinate_text, file_name, size, sha256 = fields
    coordinate = Coordinate.parse(coordinate_text)
    if file_name != coordinate.file_name:
        raise ValueError(f"the file of {coordinate} is {coordinate.file_name}, not {file_name}")
    if size == sha256 == _UNKNOWN:
        return name, Jar(coordinate, 0, "")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError(f"{sha256!r} is not a SHA-256 in lower-case hex")
    return name, Jar(coordinate, int(size), sha256)


def relock(path: Path, locked: Mapping[Coordinate, Jar]) -> None:
    """Write the sizes and checksums of ``locked`` into the lock file, keeping comments and order."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            lines.append(line)
            continue
        jar = locked[Coordinate.parse(fields[1])]
        lines.append(f"{fields[0]} {jar.coordinate} {jar.file_name} {jar.size_bytes} {jar.sha256}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(coordinate: Coordinate, path: Path) -> Jar:
    """Return the locked jar of the file at ``path``."""
    return Jar(coordinate, path.stat().st_size, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def distinct(sets: Iterable[JarSet]) -> Iterator[Jar]:
    """Yield each jar of ``sets`` once, by coordinate."""
    seen: set[Coordinate] = set()
    for jar_set in sets:
        for jar in jar_set.jars:
            if jar.coordinate not in seen:
                seen.add(jar.coordinate)
                yield jar
