"""The peers' jars, verified against a separate lock, and the compiled programs of Kafka Streams."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.contest import ROOT, say
from embedded.jars.cache import JarCache, open_cache
from embedded.jars.lock import read_lock, relock
from embedded.java import find_java
from standby.errors import Unavailable

_HERE: Final = Path(__file__).parent
_LOCK: Final = _HERE / "jars.lock"
_CLASSES: Final = ROOT / "build" / "benchmarks" / "classes"


def cache() -> JarCache:
    """Return the project's cache of jars with the sets of this lock."""
    return replace(open_cache(), sets=read_lock(_LOCK))


def java_command(program: str, *, heap_mb: int) -> list[str]:
    """Return the command of a program of this directory, compiled again if its source has changed.

    Missing jars are downloaded. Raises `Unavailable` if that fails, or without a JDK.
    """
    java = find_java(os.environ)
    open_cache().require("kafka", show=lambda _: None)
    cache().require("streams", show=lambda _: None)
    jars = [*open_cache().classpath("kafka"), *cache().classpath("streams")]
    path = os.pathsep.join(map(str, (*jars, _CLASSES)))
    _compile(java.home / "bin" / "javac", _HERE / f"{program}.java", path)
    return [
        str(java.command),
        f"-Xmx{heap_mb}m",
        "-XX:-UsePerfData",
        f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
        *("-cp", path, program),
    ]


def spark_connector() -> list[Path]:
    """Return the jars of Spark's Kafka connector; missing ones are downloaded. Raises `Unavailable` if that fails."""
    cache().require("spark-kafka", show=lambda _: None)
    return cache().classpath("spark-kafka")


def _compile(javac: Path, source: Path, classpath: str) -> None:
    compiled = _CLASSES / f"{source.stem}.class"
    if compiled.exists() and compiled.stat().st_mtime > source.stat().st_mtime:
        return
    if not javac.is_file():
        raise Unavailable(f"{javac} is not there: Kafka Streams' programs need a JDK, not a runtime only")
    _CLASSES.mkdir(parents=True, exist_ok=True)
    found = subprocess.run(
        [str(javac), "--release", "17", "-cp", classpath, "-d", str(_CLASSES), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if found.returncode != 0:
        raise Unavailable(f"{source.name} cannot be compiled: {found.stderr.strip()}")


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch the jars, or with ``lock`` write their sizes and checksums; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kafkastreams.build", description="The peers' jars."
    )
    parser.add_argument("command", choices=("fetch", "lock"))
    if parser.parse_args(argv).command == "lock":
        relock(_LOCK, cache().fetch_unverified(say))
    else:
        cache().require(show=say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
