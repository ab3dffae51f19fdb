"""An interrupted demo leaves nothing running, whatever the moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from embedded.registry import names
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]


def start(output: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "demo", "--output", str(output)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def read_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Return the lines up to the one with ``words``; fails when the process ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"the demo ended without {words!r}:\n{''.join(lines)}")


def remains(pid: int) -> Iterator[str]:
    """Yield every process of the cluster that the demo with that pid started."""
    mark = f"demo-{pid}"
    for process in psutil.process_iter():
        try:
            texts = (*process.cmdline(), process.cwd(), *process.environ().values())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(mark in text for text in texts):
            yield f"{process.pid} {' '.join(process.cmdline())[:200]}"


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send the signal, twice as an impatient user does; return the exit status, and what was still said."""
    process.send_signal(number)
    process.send_signal(number)
    assert process.stdout is not None
    said = process.stdout.read()
    return process.wait(PATIENCE_SECONDS), said


@pytest.mark.parametrize(
    ("words", "number", "status"),
    [
        ("starting ZooKeeper", signal.SIGINT, 130),
        ("submitted as application_", signal.SIGTERM, 143),
    ],
)
def test_nothing_is_left(tmp_path: Path, words: str, number: signal.Signals, status: int) -> None:
    process = start(tmp_path)
    try:
        read_until(process, words)
        ended_with, said = interrupt(process, number)
        assert ended_with == status, said
        assert list(remains(process.pid)) == []
        assert f"demo-{process.pid}" not in names()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
