"""A pool on this machine: masters and nodes by the command line, each on a loopback address of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from demo.command import CLI, ROOT, without_yarn
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS


def host(number: int) -> str:
    """Return a node's host."""
    return f"127.0.0.{20 + number}"


@dataclass
class PoolOnLoopback:
    """The processes of a cluster called ``name``; what they print is in ``directory``."""

    cluster: LocalCluster
    name: str
    directory: Path
    python: Path = Path(sys.executable)
    """What masters, nodes and their processes run with."""
    settings: dict[str, str] = field(default_factory=dict)
    """Keys of the cluster, which its jobs have to agree with."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """What was started → its process, until it was ended."""

    @property
    def environment(self) -> dict[str, str]:
        """As of a client, without anything of YARN."""
        return without_yarn(self.cluster.environment())

    def init(self, **settings: str) -> None:
        """Make the cluster's files."""
        self.settings = settings
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        command = [*CLI, "init", "--cluster", self.name, "--to", str(self.directory / "etc"), *sets]
        subprocess.run(command, cwd=ROOT, env=self.environment, check=True, stdin=subprocess.DEVNULL)

    def master(self, number: int) -> None:
        """Start a master."""
        self._start("master", number)

    def node(self, number: int, on: int | None = None, **environment: str) -> None:
        """Start a node, on the host of its number or of another one, with more in its environment."""
        self._start("node", number, on=on, environment=environment)

    def _start(
        self, what: str, number: int, on: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        name = f"{what}-{number}"
        where = ["--config", str(self.directory / "etc"), "--host", host(number if on is None else on)]
        command = [str(self.python), *CLI[1:], what, *where]
        state = self.directory / f"state-{number}"
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*command, "--state", str(state)],
                cwd=ROOT,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """End what was started; return its exit status."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """Kill all that was started, at once."""
        for process in self.running.values():
            process.kill()
        for each in list(self.running):
            self.end(each, signal.SIGKILL)

    def text(self, name: str) -> str:
        """Return what it has printed."""
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")


@contextmanager
def pool_on_loopback(
    cluster: LocalCluster, name: str, directory: Path, python: Path = Path(sys.executable)
) -> Iterator[PoolOnLoopback]:
    """Yield a pool without any process yet; end all of them after the block."""
    directory.mkdir()
    pool = PoolOnLoopback(cluster, name, directory, python)
    try:
        yield pool
    finally:
        pool.kill()
