"""What a process and its children use, and what they print to a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from standby.adapters.logfiles import LogFiles
from standby.adapters.processes import ChildrenTime, ProcessFigures, ProcessMeter, measure
from tests.floods import descriptors

#: Uses processor time, says so, and waits for its end.
BURN = "sum(range(2_000_000)); print(flush=True); input()"

JVM, WORKER, AGAIN = (7, 1.0), (8, 2.0), (8, 9.0)


def test_time_of_children_never_falls() -> None:
    children = ChildrenTime()
    assert children.seen({}) == 0
    assert children.seen({JVM: 5.0, WORKER: 1.0}) == 6
    assert children.seen({JVM: 7.0}) == 8, "one has ended"
    assert children.seen({JVM: None, AGAIN: None}) == 8, "they could not be looked at"
    assert children.seen({JVM: 7.5, AGAIN: 0.25}) == 8.75, "a process id is used again"
    assert children.seen({}) == 8.75


def test_child_that_ends_takes_no_time_along() -> None:
    children = ChildrenTime()
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = measure(children)
        child.kill()
    ended = measure(children)
    assert living.children == ended.children + 1
    assert 0 < living.children_cpu_seconds <= ended.children_cpu_seconds


def test_figures_stay_while_nothing_can_be_measured() -> None:
    meter = ProcessMeter()
    with descriptors(0):
        meter.look()
    assert meter.figures == ProcessFigures()
    meter.look()
    before = meter.figures
    assert before.rss_bytes > 0
    with descriptors(0):
        meter.look()
    assert meter.figures == before


# ---- what is printed stays within bounds, whichever process has the file open ----


MOST_BYTES = 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "container.log"


@pytest.fixture
def printed(path: Path) -> Iterator[int]:
    """Return a descriptor as YARN's shell gives it to a process: not for appending."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    os.fchmod(descriptor, 0o640)
    yield descriptor
    os.close(descriptor)


def lines(count: int, beginning: int = 0) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(beginning, beginning + count))


def test_short_file_is_left_alone(path: Path, printed: int) -> None:
    files = LogFiles(MOST_BYTES, (printed,))
    os.write(printed, lines(10))
    files.look()
    assert path.read_bytes() == lines(10)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_long_file_is_cut_and_its_end_is_kept_beside_it(path: Path, printed: int) -> None:
    former = path.with_name("container.log.1")
    files = LogFiles(MOST_BYTES, (printed, printed))
    os.write(printed, lines(2_000))
    files.look()
    assert path.read_bytes() == b""
    assert former.read_bytes() == lines(2_000)[-MOST_BYTES // 2 :]
    assert former.stat().st_mode & 0o777 == 0o640
    # What comes next begins where the file does, and not behind a hole.
    os.write(printed, lines(3, 2_000))
    assert path.read_bytes() == lines(3, 2_000)
    for _ in range(5):
        os.write(printed, lines(1_000))
        files.look()
        assert sum(each.stat().st_size for each in path.parent.iterdir()) <= MOST_BYTES


def test_child_that_has_the_file_open_prints_to_its_new_beginning(path: Path, printed: int) -> None:
    files = LogFiles(MOST_BYTES, (printed,))
    os.write(printed, lines(1_000))
    # It was started before the file is cut, as a JVM is, and prints after that.
    child = subprocess.Popen(
        [sys.executable, "-c", "input(); print('from a child', flush=True)"],
        stdin=subprocess.PIPE,
        stdout=printed,
    )
    files.look()
    child.communicate(b"\n")
    assert path.read_bytes() == b"from a child\n"


def test_pipe_terminal_and_closed_descriptor_are_left_alone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        files = LogFiles(MOST_BYTES, (writing, 9_999))
        files.start()
        files.look()
    finally:
        os.close(reading)
        os.close(writing)


def test_file_that_cannot_be_kept_or_was_moved_is_cut_all_the_same(path: Path, printed: int) -> None:
    files = LogFiles(MOST_BYTES, (printed,))
    os.write(printed, lines(1_000))
    path.with_name(".container.log.1").mkdir()
    files.look()
    assert path.stat().st_size == 0
    os.write(printed, lines(1_000))
    moved = path.rename(path.with_name("moved"))
    path.write_bytes(b"of somebody else")
    files.look()
    assert moved.stat().st_size == 0
    assert path.read_bytes() == b"of somebody else"
