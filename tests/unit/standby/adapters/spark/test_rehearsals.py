"""What a process of this host ended over is not rehearsed here again; what any other process rehearses, is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from standby.adapters.spark.rehearsals import FOLDER, RehearsalNotes
from tests.fakes.feed_rows import of_two, rows
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[5]

KILLED = """
import os, signal, sys
from pathlib import Path
from standby.adapters.spark.rehearsals import RehearsalNotes
from tests.fakes.feed_rows import rows
note = RehearsalNotes(Path(sys.argv[1]), "run").leave(rows((0, 3), (0, 7), (2, 5)))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the directory of a job's run."""
    tmp_path.chmod(0o700)
    return tmp_path / "run"


@pytest.fixture
def notes(run: Path) -> RehearsalNotes:
    return RehearsalNotes(run.parent, run.name)


def fatal(notes: RehearsalNotes, over: pa.Table) -> None:
    note = notes.leave(over)
    assert note is not None
    note.confirm()


def places(table: pa.Table | None) -> list[tuple[int, int]]:
    return (
        []
        if table is None
        else list(zip(*(table[name].to_pylist() for name in ("_task", "_offset")), strict=True))
    )


def files(run: Path) -> list[str]:
    return [each.suffix for each in (run / FOLDER).iterdir()]


def test_what_a_killed_process_was_rehearsing_is_left_out(run: Path, notes: RehearsalNotes) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(run.parent)], cwd=ROOT, timeout=PATIENCE_SECONDS, check=False
    )
    assert killed.returncode == -9
    assert files(run) == [".json"]
    recent = rows((0, 2), (0, 3), (0, 5), (0, 7), (0, 8), (1, 5), (2, 5), (2, 6))
    assert places(notes.survivable(recent)) == [(0, 2), (0, 8), (1, 5), (2, 6)]
    assert notes.survivable(rows((0, 4), (2, 5))) is None


def test_what_is_being_rehearsed_or_was_survived_is_rehearsed(run: Path, notes: RehearsalNotes) -> None:
    recent = rows((0, 3), (0, 4))
    note = notes.leave(recent)
    assert note is not None
    assert notes.survivable(recent) == recent, "its process is alive"
    note.take_back()
    assert notes.survivable(recent) == recent
    assert not run.exists(), "directories that are empty go, too"


def test_a_note_that_the_input_has_passed_is_deleted(run: Path, notes: RehearsalNotes) -> None:
    fatal(notes, rows((0, 3), (0, 7), (1, 5)))
    # Of partition 1 nothing is known here.
    assert places(notes.survivable(rows((0, 8)))) == [(0, 8)]
    assert files(run) == [".json"]
    assert places(notes.survivable(rows((0, 8), (1, 6)))) == [(0, 8), (1, 6)]
    assert files(run) == []


def test_inputs_are_told_apart(notes: RehearsalNotes) -> None:
    fatal(notes, of_two(("clicks", 5, 0)))
    found = notes.survivable(of_two(("clicks", 5, 0), ("orders", 5, 0)))
    assert found is not None
    assert found["_topic"].to_pylist() == ["orders"]


@pytest.mark.parametrize("spoil", [Path.mkdir, Path.touch], ids=["a directory", "an empty file"])
def test_what_is_no_note_is_passed_over(
    run: Path, notes: RehearsalNotes, spoil: Callable[[Path], None]
) -> None:
    fatal(notes, rows((0, 3)))
    spoil(run / FOLDER / "0.json")
    assert places(notes.survivable(rows((0, 3), (0, 4)))) == [(0, 4)]


def test_where_nothing_can_be_noted_everything_is_rehearsed(
    run: Path, notes: RehearsalNotes, caplog: pytest.LogCaptureFixture
) -> None:
    recent = rows((0, 3))
    assert RehearsalNotes().leave(recent) is None
    assert RehearsalNotes().survivable(recent) == recent
    run.touch()
    for _ in range(2):
        assert notes.leave(recent) is None
    assert notes.survivable(recent) == recent
    assert caplog.text.count("no note of a rehearsal can be left") == 1


def test_disk_that_is_full_or_fails_ends_no_rehearsal_and_keeps_no_part_of_a_note(
    run: Path, notes: RehearsalNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = rows((0, 3))
    fatal(notes, recent)

    def failing(*arguments: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("pathlib.Path.rename", "json.dump"):
        with monkeypatch.context() as patch:
            patch.setattr(name, failing)
            assert notes.leave(recent) is None
    assert files(run) == [".json"]
    monkeypatch.setattr("pathlib.Path.glob", failing)
    assert notes.survivable(recent) == recent
