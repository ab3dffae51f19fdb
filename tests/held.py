"""Processes of a deployed job that stop at named points until a test lets them go on.

A test gives its job `HoldPoints.python` as its Python. That runs this module in place of the product's entry points,
which know nothing of it: neither a job's setting nor a variable holds a process.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.patience import LOOK_SECONDS, soon

_ROOT = Path(__file__).parents[1]


class HoldPoints:
    """The points at which the processes that were started by `python` stop; a directory tells them and the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.python = directory / "python"
        command = shlex.join((sys.executable, "-m", "tests.held", str(directory)))
        self.python.write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(_ROOT))} exec {command} "$@"\n', encoding="utf-8"
        )
        self.python.chmod(0o755)

    @contextmanager
    def held(self, point: str) -> Iterator[HeldPoint]:
        """Hold whoever comes to a point, until the block ends."""
        point_held = HeldPoint(self._directory, point)
        point_held.hold()
        try:
            yield point_held
        finally:
            point_held.let_go()


class HeldPoint:
    """A point, held or not, and the processes that have come to it while it was held."""

    def __init__(self, directory: Path, point: str) -> None:
        self._directory = directory
        self._name = re.sub(r"\W+", "-", point)
        self._held = directory / f"{self._name}.held"

    def hold(self) -> None:
        for each in self._directory.glob(f"{self._name}.reached.*"):
            each.unlink()
        self._held.touch()

    def let_others_pass(self) -> None:
        """Have those that stand there stay, and nobody else."""
        self._held.write_text(" ".join(map(str, self.reached)), encoding="utf-8")

    def holds(self, pid: int) -> bool:
        """Return whether a process that comes to it stops there."""
        try:
            only = self._held.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return False
        return not only or str(pid) in only

    def let_go(self) -> None:
        """Have those that stand there go on, and all others pass."""
        self._held.unlink(missing_ok=True)

    def arrive(self) -> None:
        (self._directory / f"{self._name}.reached.{os.getpid()}").touch()

    @property
    def reached(self) -> set[int]:
        """The processes that have come to it."""
        return {int(each.suffix[1:]) for each in self._directory.glob(f"{self._name}.reached.*")}

    def wait(self, processes: int = 1) -> set[int]:
        """Return the processes that have come to it, as soon as there are so many."""
        soon(lambda: len(self.reached) >= processes, f"{processes} at {self._name}")
        return self.reached


def reach(directory: Path, point: str) -> None:
    """Stop the process that has come to a point for as long as the point is held."""
    held = HeldPoint(directory, point)
    if held.holds(os.getpid()):
        held.arrive()
        while held.holds(os.getpid()):
            time.sleep(LOOK_SECONDS)


def _main(directory: str, command: Sequence[str]) -> None:
    """Run what the product's interpreter would, held at the points of a directory."""
    probe = partial(reach, Path(directory))
    match tuple(command):
        case ("-m", "standby"):
            # Nothing before it that its witness would have to keep.
            from standby.__main__ import start as start_container

            start_container(probe)
        case ("-m", "appmaster"):
            from appmaster.__main__ import start as start_candidate

            start_candidate(probe)
        case ("-m", "appmaster.supervisor"):
            from appmaster.supervisor import supervise

            sys.exit(supervise([sys.executable, "-m", "tests.held", directory, "-m", "appmaster"]))
        case _:
            os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
