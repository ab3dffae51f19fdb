"""Processes that run during a measurement, until they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.contest import ROOT, Failed

_MOST_LINES: Final = 10_000


class Running:
    """One process with its session; as a context manager it ends with the block in every case."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Its standard error is appended to ``log``."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._lines: list[str] = []
        self._has_ended = False
        self._changed = threading.Condition()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._process.poll() is None

    def await_ready(self, seconds: float) -> None:
        """Wait until it has written ``ready``; raises `Failed`."""
        with self._changed:
            self._changed.wait_for(lambda: "ready" in self._lines or self._has_ended, seconds)
            if "ready" not in self._lines:
                raise Failed(f"it is not ready after {seconds:.0f} s; see {self._log}")

    def tell(self, line: str) -> None:
        """Write a line to its standard input; raises `Failed` if it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(f"it does not listen; see {self._log}") from error

    def ask(self, question: str, seconds: float) -> str:
        """Send ``question`` and return the next line that it writes; raises `Failed`."""
        with self._changed:
            known = len(self._lines)
            self.tell(question)
            self._changed.wait_for(lambda: len(self._lines) > known or self._has_ended, seconds)
            if len(self._lines) == known:
                raise Failed(f"it does not answer within {seconds:.0f} s; see {self._log}")
            return self._lines[known]

    def check(self) -> None:
        """Raise `Failed` if it has ended."""
        if not self.is_alive:
            raise Failed(f"it has ended with status {self._process.returncode}; see {self._log}")

    def join(self, seconds: float) -> str:
        """Wait until it ends by itself, and return its standard output; raises `Failed`."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"it does not end within {seconds:.0f} s; see {self._log}") from error
        if status != 0:
            raise Failed(f"it ended with status {status}; see {self._log}")
        self._reader.join(10)
        return "\n".join(self._lines)

    def end(self, seconds: float) -> None:
        """Close its standard input, and wait until it has ended successfully; raises `Failed`."""
        self._close_input()
        self.join(seconds)

    def kill(self) -> None:
        """Kill it with everything in its session, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_input()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    # Libraries write there as well, so unread lines are not kept for ever.
                    if len(self._lines) < _MOST_LINES:
                        self._lines.append(line.strip())
                        self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
