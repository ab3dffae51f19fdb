"""Examines the host on which it runs, as a job's containers will find it: ``PYTHON on_host.py QUESTION.JSON``.

It is shipped as a file and needs only Python, since standfast may not be installed there. Its result becomes the
diagnostics of the application whose master it is.
"""

from __future__ import annotations

import getpass
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

#: How long a JVM may take to print its version, seconds.
_JAVA_SECONDS = 20

#: The variables in which gRPC looks for a proxy.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

#: The release of Java that Spark needs.
_JAVA_RELEASE = 17


def inspect_host(question: dict[str, Any]) -> dict[str, Any]:
    """Return the result: ``wrong``, one sentence for each problem, and the versions."""
    wrong = [*_imports(question), *_versions(question), *_state(question["state_dirs"])]
    if question["needs_java"]:
        wrong += _java()
    return {
        "host": socket.gethostname(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "standfast": version(),
        "wrong": wrong,
    }


def _imports(question: dict[str, Any]) -> Iterator[str]:
    for name in question["modules"]:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a broken library may raise anything
            yield f"job.python: {sys.executable} cannot import {name}: {type(error).__name__}: {error}"
            return  # further imports would fail for the same reason
    if question["needs_java"] and importlib.util.find_spec("pyspark") is None:
        yield f"job.python: {sys.executable} has no pyspark"


def _versions(question: dict[str, Any]) -> Iterator[str]:
    here, there = version(), question["standfast"]
    if "unknown" not in (here, there) and here != there:
        yield f"job.python: {sys.executable} has standfast {here}, and this command is of {there}; install the same"


def version() -> str:
    """Return the version of the installed standfast, or ``unknown``."""
    try:
        return importlib.metadata.version("standfast")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _state(directories: list[str]) -> Iterator[str]:
    for directory in map(Path, directories):
        yield from _owners(directory)
        made = [each for each in (directory, *directory.parents) if not each.is_dir()]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                pass
        except OSError as error:
            yield f"job.state.dir: {directory} cannot be written by {getpass.getuser()}: {error.strerror}"
        finally:
            for each in made:
                # Unless another process has filled it meanwhile.
                with suppress(OSError):
                    each.rmdir()


def _owners(directory: Path) -> Iterator[str]:
    """Yield which other users could put state there, judged as containers do it; nothing without standfast."""
    try:
        from standby.errors import Unavailable
        from standby.kernel.store.directories import check_owners
    except ImportError:
        return
    try:
        check_owners(directory)
    except Unavailable as error:
        yield f"job.state.dir: {error}"


def _java() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    command = str(java) if java is not None and java.is_file() else shutil.which("java")
    if command is None:
        yield "task.feed=spark: there is no java on PATH, nor in JAVA_HOME"
        return
    try:
        done = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"task.feed=spark: {command} does not run: {error}"
        return
    release = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr + done.stdout)
    if done.returncode != 0 or release is None:
        said = " ".join(done.stderr.split())
        yield f"task.feed=spark: {command} -version ends with status {done.returncode}: {said[:200]}"
    elif int(release[1]) < _JAVA_RELEASE:
        yield f"task.feed=spark: {command} is Java {release[1]}; Spark needs {_JAVA_RELEASE} or newer"


if __name__ == "__main__":
    answer = json.dumps(inspect_host(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    # For the log, in case the rest fails.
    print(answer, flush=True)
    # The master is inside the cluster, so no proxy may be used; this process does nothing else from here on.
    for name in [each for each in os.environ if each.lower() in _PROXIES]:
        del os.environ[name]
    import skein

    # standfast may not be installed here.
    client = skein.ApplicationClient.from_current()  # noqa: TID251
    client.shutdown(status="SUCCEEDED", diagnostics=answer)
