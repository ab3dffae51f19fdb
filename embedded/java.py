"""Finds the Java installation that runs the servers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standby.errors import Unavailable

#: Hadoop 3.5 and Kafka 4 are compiled for this release.
OLDEST: Final = 17

_REMEDY: Final = (
    f"install a JDK of release {OLDEST} or newer (Debian and Ubuntu: apt-get install openjdk-{OLDEST}-jdk-headless) "
    "or set JAVA_HOME to one"
)

#: For short-lived and small JVMs: no parallel collector, no second compiler, no shared statistics file.
LEAN: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-XX:-UsePerfData", "-Xshare:auto")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that is new enough."""

    home: Path
    release: int

    @property
    def command(self) -> Path:
        """The path of its ``java``."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the Java of ``JAVA_HOME`` in ``environment``, or else the one on its ``PATH``.

    Raises :class:`Unavailable` if there is none, if it does not run, and if it is too old.
    """
    given = environment.get("JAVA_HOME")
    if given:
        command = Path(given) / "bin" / "java"
        if not command.is_file():
            raise Unavailable(f"JAVA_HOME is {given}, which has no bin/java: {_REMEDY}")
    else:
        found = shutil.which("java", path=environment.get("PATH", ""))
        if found is None:
            raise Unavailable(f"no java on the PATH, and JAVA_HOME is not set: {_REMEDY}")
        command = Path(found)
    said = _settings(command, environment)
    release = _release(command, said)
    if release < OLDEST:
        raise Unavailable(f"{command} is Java {release}, which is too old: {_REMEDY}")
    return Java(home=Path(given) if given else _home(command, said), release=release)


def _settings(command: Path, environment: Mapping[str, str]) -> str:
    """Return what a ``java`` says of itself."""
    try:
        answer = subprocess.run(
            [str(command), "-XshowSettings:properties", "-version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{command} does not run ({error}): {_REMEDY}") from error
    return answer.stderr + answer.stdout


def _release(command: Path, said: str) -> int:
    # "1.8" is how Java 8 and older name themselves.
    match = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", said)
    if match is None:
        raise Unavailable(f"{command} does not say which release it is: {_REMEDY}")
    return int(match[1])


def _home(command: Path, said: str) -> Path:
    """Return the home of the Java that ``command`` has run, which may be a tool's shim for it (asdf, jenv, mise)."""
    found = re.search(r"^ *java\.home = (.+)$", said, re.MULTILINE)
    return Path(found[1]) if found is not None else command.resolve().parent.parent


def main() -> int:
    """Check that there is a suitable Java; return the exit status."""
    try:
        find_java(os.environ)
    except Unavailable as error:
        sys.stderr.write(f"java: {error}\n")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
