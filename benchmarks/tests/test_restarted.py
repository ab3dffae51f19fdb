"""What continues when a contestant without standbys is killed: real processes, each of a few lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from benchmarks.contest import Failed
from benchmarks.restarted import Processes, Restarted, WarmSpark
from tests.patience import PATIENCE_SECONDS

#: Notes that it works, in a file of its own disk; a spare only on request.
PROGRAM = """
import pathlib, sys
disk, is_spare = pathlib.Path(sys.argv[2]), "--rehearse" in sys.argv
disk.mkdir()
(disk / "arguments").write_text(" ".join(sys.argv[3:]))
if is_spare:
    print("ready", flush=True)
    sys.stdin.readline()
(disk / "works").touch()
print("works", flush=True)
for line in sys.stdin:
    print("here", flush=True)
"""


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    command = [sys.executable, "-c", PROGRAM, "--local", "nowhere", "--step", "keep"]
    return Processes(command, "--local", tmp_path, tmp_path / "log")


def topics() -> Iterator[tuple[str, str]]:
    for number in count():
        yield f"in-{number}", f"out-{number}"


def working(state: Path) -> list[str]:
    return sorted(path.parent.name for path in state.glob("disk-*/works"))


def test_one_that_is_restarted_has_an_empty_disk_each_time(processes: Processes, tmp_path: Path) -> None:
    one = Restarted(processes, 2)
    one.start()
    try:
        one.ready()
        assert one.kill() == (0, 1)
        one.mend()
        assert one._running is not None
        assert one._running.ask("who is there?", PATIENCE_SECONDS) in ("works", "here")
        assert (tmp_path / "disk-1" / "arguments").read_text() == "--step keep"
    finally:
        one.close()
    assert not one._running.is_alive


def test_a_spare_goes_on_when_the_first_is_killed_and_has_a_spare_itself(
    processes: Processes, tmp_path: Path
) -> None:
    one = WarmSpark(processes, 2, topics().__next__)
    one.start()
    try:
        for life in (1, 2):
            one.ready()
            first, spare = one._running, one._spare
            assert first is not None
            assert spare is not None
            assert (
                tmp_path / f"disk-{life}" / "arguments"
            ).read_text() == f"--step keep --rehearse in-{life - 1} out-{life - 1}"
            assert f"disk-{life}" not in working(tmp_path)
            assert one.kill() == (0, 1)
            assert not first.is_alive
            assert spare.ask("who is there?", PATIENCE_SECONDS) in ("works", "here")
            assert f"disk-{life}" in working(tmp_path)
            # The next spare takes nothing from it before the gap has been measured.
            assert not (tmp_path / f"disk-{life + 1}").exists()
            one.mend()
            assert one._running is spare
            assert spare.is_alive
    finally:
        one.close()
    assert one._running is not None
    assert not one._running.is_alive


def test_a_spare_that_does_not_get_warm_has_failed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "pass", "--local", "nowhere"]
    one = WarmSpark(Processes(command, "--local", tmp_path, tmp_path / "log"), 2, topics().__next__)
    one.start()
    with pytest.raises(Failed, match="not ready"):
        one.ready()
    one.close()
