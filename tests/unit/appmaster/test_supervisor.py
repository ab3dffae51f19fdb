"""The supervisor: a candidate's crash does not end the application, its finish does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from appmaster.supervisor import FINISHED, RESIGNED, supervise

#: Exits with the n-th status of its arguments at its n-th life, which it counts in a file.
LIVES = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
life = len(path.read_text()) if path.exists() else 0
path.write_text("x" * (life + 1))
sys.exit(int(sys.argv[2:][life]))
"""


def live(tmp_path: Path, *statuses: int) -> tuple[int, int]:
    """Return the supervisor's status and how many lives the candidate had."""
    counter = tmp_path / "lives"
    command = [sys.executable, "-c", LIVES, str(counter), *map(str, statuses)]
    return supervise(command), len(counter.read_text())


def test_finished_candidate_ends_the_application(tmp_path: Path) -> None:
    assert live(tmp_path, FINISHED) == (FINISHED, 1)


def test_crashed_and_resigned_candidates_are_started_again(tmp_path: Path) -> None:
    assert live(tmp_path, 1, RESIGNED, FINISHED) == (FINISHED, 3)


def test_candidate_that_was_started_wrongly_is_not_tried_again(tmp_path: Path) -> None:
    assert live(tmp_path, 2, FINISHED) == (2, 1)


def test_crash_loop_ends_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.0)
    monkeypatch.setattr("appmaster.supervisor._MOST_SHORT_LIVES", 3)
    assert live(tmp_path, *[70] * 10) == (70, 4)


def test_server_that_is_away_never_ends_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.0)
    monkeypatch.setattr("appmaster.supervisor._MOST_SHORT_LIVES", 3)
    assert live(tmp_path, *[3] * 10, FINISHED) == (FINISHED, 11)


def test_termination_is_passed_on_and_ends_it() -> None:
    program = (
        "import sys; from appmaster.supervisor import supervise; "
        "sys.exit(supervise([sys.executable, '-c', "
        "'import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
        "print(1, flush=True); signal.pause()']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.terminate()
        assert process.wait(timeout=10) == 0
