"""Quix Streams in a virtual environment of its own: it is no part of the project, and in none of its locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.contest import ROOT
from standby.errors import Unavailable

#: Pinned, so that two runs compare the same; with what the contestants themselves need.
_PACKAGES: Final = ("quixstreams==3.28.1", "psutil>=6")
_DIRECTORY: Final = ROOT / "build" / "benchmarks" / "quix-venv"


def python() -> Path:
    """Return the Python that has Quix Streams, made on first use; raises `Unavailable` when it cannot be."""
    interpreter = _DIRECTORY / "bin" / "python"
    mark = _DIRECTORY / "installed"
    wanted = "\n".join(_PACKAGES)
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return interpreter
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(_DIRECTORY)],
        [str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *_PACKAGES],
    ):
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"Quix Streams cannot be installed: {error}") from error
        if found.returncode != 0:
            lines = (found.stderr or found.stdout).strip().splitlines() or ["no reason given"]
            raise Unavailable(f"Quix Streams cannot be installed: {lines[-1]}")
    mark.write_text(wanted, encoding="utf-8")
    return interpreter
