"""The supervisor: a candidate's crash does not end the application, its finish does."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from appmaster.supervisor import FINISHED, MADE_WAY, RESIGNED, SUPERSEDED, supervise
from tests.patience import PATIENCE_SECONDS

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


@pytest.mark.parametrize("status", [70, 3, 1])
def test_no_crash_loop_ends_the_attempt_and_its_containers_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.0)
    assert live(tmp_path, *[status] * 15, FINISHED) == (FINISHED, 16)


def test_crash_loop_backs_off_and_tells_the_candidate_of_its_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.001)
    told = tmp_path / "told"
    program = (
        "import os, pathlib, sys; path = pathlib.Path(sys.argv[1]); "
        "line = os.environ['STANDFAST_CANDIDATE_LIFE'] + ' ' + os.environ['STANDFAST_CANDIDATE_ENDED'][:9].strip(); "
        "lines = path.read_text().splitlines() if path.exists() else []; "
        "path.write_text('\\n'.join([*lines, line])); sys.exit(70 if len(lines) < 3 else 0)"
    )
    with caplog.at_level("ERROR"):
        assert supervise([sys.executable, "-c", program, str(told)]) == FINISHED
    assert told.read_text().splitlines() == ["1 ", "2 status 70", "3 status 70", "4 status 70"]
    waits = [float(each.args[2]) for each in caplog.records if isinstance(each.args, tuple)]  # type: ignore[arg-type]
    assert waits == [0.002, 0.004, 0.008]


def test_bad_configuration_found_later_takes_no_containers_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.0)
    assert live(tmp_path, RESIGNED, 2, FINISHED) == (FINISHED, 3)


def test_bad_configuration_found_late_in_a_first_life_takes_no_containers_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.0)
    monkeypatch.setattr("appmaster.supervisor._GOOD_LIFE", 0.0)
    assert live(tmp_path, 2, FINISHED) == (FINISHED, 2)


def test_host_that_can_start_no_process_for_a_while_costs_no_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.supervisor._FIRST_BACKOFF", 0.0)
    program, hidden, counter = tmp_path / "python", tmp_path / "hidden", tmp_path / "lives"
    program.symlink_to(sys.executable)
    told: list[str] = []

    class Meanwhile(logging.Handler):
        """Takes the program away after its first life, and gives it back when it could not be started."""

        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.msg)
            if len(told) in (1, 2):
                first, second = (program, hidden) if len(told) == 1 else (hidden, program)
                first.rename(second)

    handler = Meanwhile()
    logging.getLogger("appmaster.supervisor").addHandler(handler)
    try:
        assert supervise([str(program), "-c", LIVES, str(counter), "1", str(FINISHED)]) == FINISHED
    finally:
        logging.getLogger("appmaster.supervisor").removeHandler(handler)
    assert len(counter.read_text()) == 2
    assert [each.partition(":")[0] for each in told].count("the candidate could not be started") == 1


@pytest.mark.parametrize("status", [SUPERSEDED, MADE_WAY])
def test_candidate_that_is_not_its_cell_s_ends_its_attempt(tmp_path: Path, status: int) -> None:
    assert live(tmp_path, RESIGNED, status, FINISHED) == (status, 2)


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
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
