"""Runs the command line as a user would, and ends it as Ctrl-C would."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from standby.errors import Unavailable

ROOT: Final = Path(__file__).resolve().parent.parent

_SECONDS: Final = 300.0
#: How long a command that was interrupted may take to end by itself.
_INTERRUPTED_SECONDS: Final = 5.0


def standfast(environment: Mapping[str, str], show: Callable[[str], None], *arguments: str) -> None:
    """Run the command line, showing what it prints; raises `Unavailable` when it fails."""
    command = [sys.executable, "-m", "appmaster.cli.main", *arguments]
    last = ""
    # A session of its own: Ctrl-C is this program's to pass on, in its own order.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                last = line.strip() or last
                show(line.rstrip())
        status = process.wait(_SECONDS)
    except BaseException:
        _end(process)
        raise
    if status != 0:
        raise Unavailable(f"standfast {arguments[0]} ended with status {status}: {last}")


def _end(process: subprocess.Popen[str]) -> None:
    """End a command that is not wanted any more, as Ctrl-C would, and everything that it started."""
    try:
        # Skein's driver is a process of its own session: the command has to end it, or we do.
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_INTERRUPTED_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
