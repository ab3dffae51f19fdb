"""Downloads pinned jars with Apache Ivy, which is part of the pyspark wheel.

Ivy uses the repositories that the user configured: those of the settings file in ``STANDFAST_IVY_SETTINGS``, else of
``~/.ivy2/ivysettings.xml``, else Ivy's default repository.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from embedded.jars.lock import Coordinate
from embedded.jars.proxies import java_options
from embedded.java import LEAN, Java
from embedded.places import home_directory
from standby.errors import BadConfiguration, Unavailable

#: Number of parallel Ivy processes. One process requests one file after the other, so it mostly waits; on two cores
#: 211 jars took 23 s with one process, 11 s with two, 7.5 s with four, 6.9 s with six.
PROCESSES: Final = 6

_POLL_SECONDS: Final = 0.2
_MAVEN_NAMESPACE: Final = "http://ant.apache.org/ivy/maven"

#: Patterns of Ivy's log, and the messages for the user; the first match is used.
_CAUSES: Final = (
    (
        re.compile(r"No space left on device|Disk quota exceeded|File too large"),
        "the disk is full: free some space, or set STANDFAST_CACHE to a directory with enough of it",
    ),
    (
        re.compile(
            r"UnknownHostException|Host \S+ not found|NoRouteToHost|Network is unreachable"
            r"|Connection refused|ConnectException|[Cc]onnect(?:ion)? timed out"
            r"|SocketTimeoutException|SSLHandshakeException|Connection reset"
        ),
        (
            "the repository cannot be reached: check the network and the proxy (https_proxy, or "
            "-Dhttps.proxyHost=… in JAVA_TOOL_OPTIONS), or set STANDFAST_IVY_SETTINGS to an Ivy settings file with a "
            "repository that can be reached"
        ),
    ),
    (
        re.compile(r"Server access error|HTTP response status: (?:4|5)\d\d"),
        "the repository refused: set STANDFAST_IVY_SETTINGS to an Ivy settings file with another repository",
    ),
)


def download(
    coordinates: Sequence[Coordinate],
    directory: Path,
    *,
    java: Java,
    environment: Mapping[str, str],
    default_settings: Path,
    processes: int = PROCESSES,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> dict[Coordinate, Path]:
    """Download the jars below ``directory``; return the path of each.

    ``on_bytes`` is called regularly with the number of bytes so far. Nothing is verified. On failure, downloaded
    files stay in ``directory``. Raises :class:`Unavailable` with cause and remedy.
    """
    settings = _settings(environment, default_settings)
    parts = [tuple(coordinates[start::processes]) for start in range(min(processes, len(coordinates)))]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, part in enumerate(parts):
            running.append(_start(number, part, directory, java, environment, settings))
        while any(process.poll() is None for process in running):
            on_bytes(_downloaded_bytes(directory))
            time.sleep(_POLL_SECONDS)
    finally:
        for process in running:
            process.kill()
            process.wait()
    on_bytes(_downloaded_bytes(directory))

    found: dict[Coordinate, Path] = {}
    for number, part in enumerate(parts):
        for coordinate in part:
            path = _cached(directory / f"part{number}", coordinate)
            if path.is_file():
                found[coordinate] = path
    if len(found) < len(coordinates) or any(process.returncode for process in running):
        missing = next((each for each in coordinates if each not in found), coordinates[0])
        raise Unavailable(_explain(missing, len(coordinates) - len(found), directory))
    return found


def _settings(environment: Mapping[str, str], default_settings: Path) -> Path:
    named = environment.get("STANDFAST_IVY_SETTINGS")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise BadConfiguration(f"STANDFAST_IVY_SETTINGS names {path}, which is not a file")
        return path
    home = home_directory()
    own = home / ".ivy2" / "ivysettings.xml" if home is not None else None
    return own if own is not None and own.is_file() else default_settings


def _start(
    number: int,
    part: tuple[Coordinate, ...],
    directory: Path,
    java: Java,
    environment: Mapping[str, str],
    settings: Path,
) -> subprocess.Popen[bytes]:
    ivy_file = directory / f"part{number}.xml"
    # In a file, since the options may include a proxy's password.
    options = directory / f"part{number}.options"
    proxies = java_options(environment)
    try:
        options.touch(0o600)
        options.write_text("".join(f"{_quoted(each)}\n" for each in proxies), encoding="utf-8")
        _write_ivy_file(ivy_file, number, part)
        log = (directory / f"part{number}.log").open("wb")
    except OSError as error:
        raise Unavailable(f"{directory} cannot be written: {error.strerror}") from error
    with log:
        return subprocess.Popen(
            [
                str(java.command),
                *LEAN,
                f"@{options}",
                *(["-cp", str(pyspark_jar("ivy")), "org.apache.ivy.Main"]),
                *(["-settings", str(settings)]),
                *(["-cache", str(directory / f"part{number}")]),
                *(["-ivy", str(ivy_file)]),
                *(["-confs", "default"]),
                *(["-types", "jar", "bundle"]),
            ],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _quoted(option: str) -> str:
    """Return an option as a line of a Java argument file."""
    escaped = option.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _write_ivy_file(path: Path, number: int, part: Sequence[Coordinate]) -> None:
    ET.register_namespace("m", _MAVEN_NAMESPACE)
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="standfast", module=f"part{number}")
    configurations = ET.SubElement(module, "configurations")
    ET.SubElement(configurations, "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    # Two sets may pin two versions of one library; by default Ivy would download only the newer one.
    conflicts = ET.SubElement(module, "conflicts")
    ET.SubElement(conflicts, "manager", name="all")

    by_module: dict[tuple[str, str, str], list[str]] = {}
    for each in part:
        by_module.setdefault((each.group, each.artifact, each.version), []).append(each.classifier)
    for (group, artifact, version), classifiers in by_module.items():
        dependency = ET.SubElement(
            dependencies,
            "dependency",
            org=group,
            name=artifact,
            rev=version,
            transitive="false",
            # Modules found with a POM have the configuration "master", those without one "default" only.
            conf="default->master(default)",
        )
        for classifier in classifiers:
            extra = {f"{{{_MAVEN_NAMESPACE}}}classifier": classifier} if classifier else {}
            ET.SubElement(dependency, "artifact", {"name": artifact, "type": "jar", "ext": "jar", **extra})
    # The element order is part of Ivy's schema: conflicts come after the dependencies.
    ET.ElementTree(module).write(path, encoding="utf-8", xml_declaration=True)


def pyspark_jar(name: str) -> Path:
    """Return the jar ``<name>-<version>.jar`` inside the pyspark wheel. Raises :class:`Unavailable`."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable(
            f"pyspark is not installed, and {name} comes with it: install standfast with its dependencies"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob(f"{name}-[0-9]*.jar"))
    if not jars:
        raise Unavailable(f"{Path(spec.origin).parent / 'jars'} has no {name}: install pyspark again")
    return jars[-1]


def _cached(cache: Path, coordinate: Coordinate) -> Path:
    return cache / coordinate.group / coordinate.artifact / "jars" / coordinate.file_name


def _downloaded_bytes(directory: Path) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        for name in files:
            if name.endswith((".jar", ".jar.part")):
                try:
                    total += (Path(parent) / name).stat().st_size
                except FileNotFoundError:
                    continue  # Ivy has just given it its final name
    return total


def _explain(missing: Coordinate, count: int, directory: Path) -> str:
    logs = [
        path.read_text(encoding="utf-8", errors="replace") for path in sorted(directory.glob("part*.log"))
    ]
    what = f"{missing} and {count - 1} more jars" if count > 1 else str(missing)
    for pattern, remedy in _CAUSES:
        if any(pattern.search(log) for log in logs):
            return f"{what} cannot be downloaded: {remedy}"
    messages = [
        line.strip()
        for log in logs
        for line in log.splitlines()
        if missing.artifact in line and "not found" in line
    ]
    return f"{what} cannot be downloaded: " + (messages[0] if messages else _last_words(logs))


def _last_words(logs: Sequence[str]) -> str:
    """Return the last line of Ivy's output that looks like a reason, for unexpected errors."""
    lines = [line.strip() for log in logs for line in log.splitlines() if line.strip()]
    complaints = [
        line for line in lines if re.search(r"error|exception|failed|not found", line, re.IGNORECASE)
    ]
    return (complaints or lines or ["Ivy printed nothing"])[-1]
