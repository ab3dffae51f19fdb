"""The cache of pinned jars: ``python -m embedded.jars fetch|verify|lock``.

A set of jars is in one directory, whose name depends on the set's content. The directory gets that name atomically,
after every jar was downloaded and compared with the lock. An existing set is therefore complete, even if a download
was interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embedded.jars.ivy import download
from embedded.jars.lock import Coordinate, Jar, JarSet, distinct, measure, read_lock, relock, sha256_of
from embedded.java import find_java
from embedded.places import cache_directory, yarn_conf
from embedded.terminal import ProgressLine
from standby.errors import BadConfiguration, StandfastError, Unavailable

#: Space for Ivy's metadata in addition to the jars.
_SPARE_BYTES: Final = 32 << 20

_STAGING_PREFIX: Final = ".staging-"


@dataclass(frozen=True, slots=True)
class JarCache:
    """The jar sets of one lock file, and their directory."""

    sets: Mapping[str, JarSet]
    directory: Path
    environment: Mapping[str, str]
    ivy_settings: Path

    def classpath(self, name: str) -> list[Path]:
        """Return the jars of the set ``name``. Raises :class:`Unavailable` if they are not in the cache."""
        jar_set = self._set(name)
        if not self._is_present(jar_set):
            raise Unavailable(
                f"the jars of {name} are not in {self.directory}: run python -m embedded.jars fetch"
            )
        return [self.path(name) / jar.file_name for jar in jar_set.jars]

    def path(self, name: str) -> Path:
        """Return the directory of the set ``name``, which may not exist; it contains only the jars."""
        return self.directory / self._set(name).directory_name

    def require(self, *names: str, show: Callable[[str], None] = lambda _: None) -> None:
        """Ensure that the sets ``names`` (default: all) are in the cache; download missing ones.

        ``show`` is called with the progress. Raises :class:`BadConfiguration` for an unknown name, and
        :class:`Unavailable` if the jars cannot be downloaded; then the cache is unchanged.
        """
        wanted = [self._set(name) for name in names or self.sets]
        if all(map(self._is_present, wanted)):
            return
        java = find_java(self.environment)
        with self._locked(show):
            missing = [each for each in wanted if not self._is_present(each)]
            if not missing:
                return
            unlocked = next((jar for jar in distinct(missing) if not jar.is_locked), None)
            if unlocked:
                raise BadConfiguration(
                    f"the lock has no checksum of {unlocked.coordinate}: run python -m embedded.jars lock"
                )
            self._check_room(sum(jar.size_bytes for jar in distinct(missing)))
            with self._staging() as staging:
                jars = {jar.coordinate: jar for jar in distinct(missing)}
                total_megabytes = sum(jar.size_bytes for jar in jars.values()) / 1e6
                found = download(
                    list(jars),
                    staging,
                    java=java,
                    environment=self.environment,
                    default_settings=self.ivy_settings,
                    on_bytes=lambda count: show(
                        f"downloading {len(jars)} jars: {count / 1e6:.0f} of {total_megabytes:.0f} MB"
                    ),
                )
                show(f"comparing {len(jars)} jars with their checksums")
                for coordinate, path in found.items():
                    _compare(jars[coordinate], path)
                for each in missing:
                    self._put_in_place(each, found, staging)

    def verify(self, *names: str) -> None:
        """Compare every byte of the sets ``names`` (default: all) with the lock. Raises :class:`Unavailable`."""
        for name in names or self.sets:
            for path, jar in zip(self.classpath(name), self._set(name).jars, strict=True):
                _compare(jar, path)

    def fetch_unverified(self, show: Callable[[str], None]) -> dict[Coordinate, Jar]:
        """Download all jars again and return their sizes and checksums, for a new lock; the cache is unchanged.

        Since there is no lock to compare with, Ivy checks the repository's checksums.
        """
        java = find_java(self.environment)
        options = f"{self.environment.get('JAVA_TOOL_OPTIONS', '')} -Divy.checksums=sha1"
        with self._locked(show), self._staging() as staging:
            found = download(
                [jar.coordinate for jar in distinct(self.sets.values())],
                staging,
                java=java,
                environment={**self.environment, "JAVA_TOOL_OPTIONS": options.strip()},
                default_settings=self.ivy_settings,
                on_bytes=lambda count: show(f"downloading: {count / 1e6:.0f} MB"),
            )
            return {coordinate: measure(coordinate, path) for coordinate, path in found.items()}

    def _set(self, name: str) -> JarSet:
        if name not in self.sets:
            raise BadConfiguration(
                f"there is no set of jars {name!r}; there are {', '.join(sorted(self.sets))}"
            )
        return self.sets[name]

    def _is_present(self, jar_set: JarSet) -> bool:
        directory = self.directory / jar_set.directory_name
        try:
            sizes = {entry.name: entry.stat().st_size for entry in os.scandir(directory)}
        except OSError:
            return False
        return sizes == {jar.file_name: jar.size_bytes for jar in jar_set.jars}

    @contextlib.contextmanager
    def _locked(self, show: Callable[[str], None]) -> Iterator[None]:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / ".lock").open("w")
        except OSError as error:
            raise Unavailable(
                f"{self.directory} cannot be written ({error.strerror}): set STANDFAST_CACHE to a writable directory"
            ) from error
        with lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    show(f"waiting for another process that fills {self.directory}")
                    time.sleep(0.2)
            # The processes that left these directories have died: they would otherwise still hold the lock.
            for leftover in self.directory.glob(_STAGING_PREFIX + "*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        """A directory on the cache's own file system, so that moving a set into place is one rename."""
        try:
            staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=self.directory))
        except OSError as error:
            raise _as_unavailable(error, self.directory) from error
        try:
            yield staging
        except OSError as error:
            raise _as_unavailable(error, self.directory) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _check_room(self, size_bytes: int) -> None:
        free = shutil.disk_usage(self.directory).free
        if free < size_bytes + _SPARE_BYTES:
            raise Unavailable(
                f"the jars need {(size_bytes + _SPARE_BYTES) / 1e6:.0f} MB and {self.directory} has "
                f"{free / 1e6:.0f} MB left: free some space, or set STANDFAST_CACHE to another directory"
            )

    def _put_in_place(self, jar_set: JarSet, found: Mapping[Coordinate, Path], staging: Path) -> None:
        made = staging / jar_set.directory_name
        made.mkdir()
        for jar in jar_set.jars:
            # A link, since another set may need the same jar.
            os.link(found[jar.coordinate], made / jar.file_name)
        final = self.directory / jar_set.directory_name
        if final.exists():  # something has spoilt it
            final.rename(staging / "spoilt")
        made.rename(final)


def open_cache(environment: Mapping[str, str] = os.environ) -> JarCache:
    """Return the cache of ``environment`` (default: of this process)."""
    conf = yarn_conf()
    return JarCache(
        sets=read_lock(conf / "jars.lock"),
        directory=cache_directory(environment) / "jars",
        environment=environment,
        ivy_settings=conf / "ivysettings.xml",
    )


def _compare(jar: Jar, path: Path) -> None:
    size = path.stat().st_size
    found = (
        sha256_of(path)
        if size == jar.size_bytes
        else f"unlike, with {size} instead of {jar.size_bytes} bytes"
    )
    if found != jar.sha256:
        raise Unavailable(
            f"{jar.coordinate} is not the file that was pinned: its SHA-256 is {found}, the lock says {jar.sha256}. "
            "It was changed on the way from the repository, or on disk: try again, and if the error persists, "
            "do not use that repository"
        )


def _as_unavailable(error: OSError, directory: Path) -> Unavailable:
    remedy = "set STANDFAST_CACHE to a writable directory with enough space"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return Unavailable(f"the disk of {directory} is full: free some space, or {remedy}")
    return Unavailable(f"{directory} cannot be used ({error.strerror}): {remedy}")


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out ``fetch``, ``verify`` or ``lock``; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m embedded.jars", description="The cache of pinned jars.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("fetch", "download what is missing"), ("verify", "compare every byte with the lock")):
        commands.add_parser(name, help=text).add_argument(
            "sets", nargs="*", metavar="SET", help="default: all"
        )
    commands.add_parser(
        "lock", help="download everything and write new sizes and checksums into the lock file"
    )
    arguments = parser.parse_args(argv)
    progress = ProgressLine()
    try:
        cache = open_cache()
        if arguments.command == "fetch":
            cache.require(*arguments.sets, show=progress.show)
            progress.close(f"the jars are in {cache.directory}")
        elif arguments.command == "verify":
            cache.verify(*arguments.sets)
            progress.close(f"the jars in {cache.directory} are the ones that were pinned")
        else:
            relock(yarn_conf() / "jars.lock", cache.fetch_unverified(progress.show))
            progress.close(f"{yarn_conf() / 'jars.lock'} is written")
    except StandfastError as error:
        progress.close(f"jars: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        progress.close("jars: interrupted")
        return 130
    return 0
