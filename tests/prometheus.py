"""Debian's Prometheus for the tests: where it is, and ``python -m tests.prometheus`` to get it (`make prometheus`).

The package is unpacked into the cache, not installed, because an installed one would start a service.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from embedded.machine.ports import free_ports
from embedded.places import cache_directory
from embedded.web import open_url
from standby.errors import Unavailable
from tests.patience import PATIENCE_SECONDS, TRY_SECONDS, looks

_HOST: Final = "127.0.0.1"


def tool(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where ``prometheus`` or ``promtool`` is: on the PATH, or in the cache; raises `Unavailable`."""
    on_path = shutil.which(name, path=environment.get("PATH", ""))
    if on_path is not None:
        return Path(on_path)
    cached = _unpacked(environment) / "usr" / "bin" / name
    if cached.is_file():
        return cached
    raise Unavailable(
        f"{name} is neither on the PATH nor in {cached.parent}: `make prometheus` gets it on Debian and Ubuntu; "
        "elsewhere install Prometheus 2.42 or newer"
    )


def fetch(environment: Mapping[str, str] = os.environ) -> None:
    """Make sure that both tools exist; raises `Unavailable` if they cannot be obtained."""
    try:
        tool("prometheus", environment)
        tool("promtool", environment)
    except Unavailable as missing:
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise missing from None
    else:
        return
    target = _unpacked(environment)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Next to its place, so that moving it there is one rename; readable by apt's own user.
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        print("unpacking Debian's package prometheus into the cache")
        _run(("apt-get", "download", "--quiet", "--quiet", "prometheus"), Path(scratch))
        packages = list(Path(scratch).glob("prometheus_*.deb"))
        if len(packages) != 1:
            raise Unavailable(f"apt-get downloaded {len(packages)} packages, not one")
        unpacked = Path(scratch) / "unpacked"
        _run(("dpkg", "-x", str(packages[0]), str(unpacked)), Path(scratch))
        # Remove what a failed unpacking has left.
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)


class Prometheus:
    """A separate Prometheus on loopback, with its data in a directory, until it is closed."""

    def __init__(self, directory: Path, config: Path) -> None:
        """Start it with a configuration file; raises `Unavailable` if it does not serve in time."""
        (self.port,) = free_ports(1, _HOST)
        self._log = directory / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(tool("prometheus")),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address={_HOST}:{self.port}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API (``/api/v1/…``)."""
        url = f"http://{_HOST}:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with open_url(url, timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{url}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an instant query."""
        result = self.ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def close(self) -> None:
        """End it; its data stay until their directory goes."""
        self._process.kill()
        self._process.wait()

    def _until_ready(self) -> None:
        for _ in looks():
            if self._process.poll() is not None:
                raise Unavailable(f"Prometheus has ended: {self.log}")
            try:
                with open_url(f"http://{_HOST}:{self.port}/-/ready", timeout=TRY_SECONDS):
                    return
            except (urllib.error.URLError, OSError):
                continue
        raise Unavailable(f"Prometheus does not serve within {PATIENCE_SECONDS:g} s: {self.log}")


def _unpacked(environment: Mapping[str, str]) -> Path:
    return cache_directory(environment) / "prometheus"


def _run(command: tuple[str, ...], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=3 * PATIENCE_SECONDS, check=False
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


def main() -> int:
    """Get Prometheus if it is missing; return the exit status."""
    try:
        fetch()
    except Unavailable as error:
        print(f"make: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
