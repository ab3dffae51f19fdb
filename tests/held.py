"""Processes of a deployed job that stop at named points until a test lets them go on.

A test starts a pool's masters and nodes with `HoldPoints.python`. It runs this module instead of the product's entry
points, which do not know it: neither a job's setting nor a variable can hold a process.
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
    """The points at which processes started with `python` stop; they and the test communicate through a directory."""

    PYTHON = "python"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.python = directory / self.PYTHON
        command = shlex.join((sys.executable, "-m", "tests.held", str(directory)))
        self.python.write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(_ROOT))} exec {command} "$@"\n', encoding="utf-8"
        )
        self.python.chmod(0o755)

    @contextmanager
    def held(self, point: str) -> Iterator[HeldPoint]:
        """Hold every process that reaches a point, until the block ends."""
        point_held = HeldPoint(self._directory, point)
        point_held.hold()
        try:
            yield point_held
        finally:
            point_held.let_go()


class HeldPoint:
    """A point, held or not, and the processes that have reached it while it was held."""

    def __init__(self, directory: Path, point: str) -> None:
        self._directory = directory
        self._name = re.sub(r"\W+", "-", point)
        self._held = directory / f"{self._name}.held"

    def hold(self) -> None:
        for each in self._directory.glob(f"{self._name}.reached.*"):
            each.unlink()
        self._held.touch()

    @property
    def is_held(self) -> bool:
        """Whether a process that reaches it stops there."""
        return self._held.exists()

    def let_go(self) -> None:
        """Let the held processes continue, and all others pass."""
        self._held.unlink(missing_ok=True)

    def arrive(self) -> None:
        (self._directory / f"{self._name}.reached.{os.getpid()}").touch()

    @property
    def reached(self) -> set[int]:
        """The ids of the processes that have reached it."""
        return {int(each.suffix[1:]) for each in self._directory.glob(f"{self._name}.reached.*")}

    def wait(self, processes: int = 1) -> set[int]:
        """Wait until ``processes`` have reached it, and return their ids."""
        soon(lambda: len(self.reached) >= processes, f"{processes} at {self._name}")
        return self.reached


def reach(directory: Path, point: str) -> None:
    """Stop this process at a point for as long as the point is held."""
    held = HeldPoint(directory, point)
    if held.is_held:
        held.arrive()
        while held.is_held:
            time.sleep(LOOK_SECONDS)


def _main(directory: str, command: Sequence[str]) -> None:
    """Run the same as the product's interpreter, held at the points of a directory."""
    probe = partial(reach, Path(directory))
    match tuple(command):
        case ("-m", "standby"):
            # Imported here, so that the witness does not load anything before it.
            from standby.__main__ import start as start_container

            start_container(probe)
        case ("-m", "appmaster"):
            from appmaster.__main__ import start as start_candidate

            start_candidate(probe)
        case ("-m", "appmaster.cli.main", *arguments):
            # A master or a node starts its processes with its own interpreter.
            sys.executable = str(Path(directory) / HoldPoints.PYTHON)
            from appmaster.cli.main import main

            sys.exit(main(arguments))
        case _:
            os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
