"""The versions of all programs in a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from typing import Final

from embedded.jars.lock import Coordinate
from embedded.java import find_java
from embedded.places import yarn_conf

_DISTRIBUTIONS: Final = (
    "standfast",
    "pyspark",
    "skein",
    "confluent-kafka",
    "rocksdict",
    "kazoo",
    "grpcio",
    "pyarrow",
)

#: Program → the jar that has its version.
_JARS: Final = {
    "hadoop": "hadoop-yarn-server-resourcemanager",
    "kafka": "kafka_2.13",
    "zookeeper": "zookeeper",
}


def versions() -> dict[str, str]:
    """Return program → version, including Python and Java; ``unknown`` if it cannot be determined."""
    return {
        "python": platform.python_version(),
        "java": _java(),
        "os": f"{platform.system()} {platform.release()}",
        "cores": str(len(os.sched_getaffinity(0))),
        **{name: _distribution(name) for name in _DISTRIBUTIONS},
        **_jars(),
    }


def _distribution(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _java() -> str:
    command = find_java(os.environ).command
    found = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=30)
    # `openjdk version "17.0.9" 2023-10-17`
    parts = found.stderr.split('"')
    return parts[1] if len(parts) > 1 else "unknown"


def _jars() -> dict[str, str]:
    text = (yarn_conf() / "jars.lock").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    locked = {each.artifact: each.version for each in (Coordinate.parse(line[1]) for line in lines)}
    return {name: locked.get(artifact, "unknown") for name, artifact in _JARS.items()}
