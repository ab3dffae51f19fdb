"""Runs the command line like a user, and ends it like Ctrl-C."""

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

#: The command line.
CLI: Final = (sys.executable, "-m", "appmaster.cli.main")

_SECONDS: Final = 300.0
#: The time in which an interrupted command has to end by itself.
_INTERRUPTED_SECONDS: Final = 5.0


def without_yarn(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without anything of YARN, for a process that begins in any directory."""
    found = {name: value for name, value in environment.items() if name != "HADOOP_CONF_DIR"}
    return {**found, "PYTHONPATH": str(ROOT)}


def standfast(environment: Mapping[str, str], show: Callable[[str], None], *arguments: str) -> None:
    """Run the command line and show its output; raises `Unavailable` when it fails."""
    command = [*CLI, *arguments]
    last = ""
    # In a separate session, because this program passes Ctrl-C on itself, in its own order.
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
    """End a command like Ctrl-C, and every process that it started."""
    try:
        # Skein's driver runs in a separate session: if the command does not end it, this function does.
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
