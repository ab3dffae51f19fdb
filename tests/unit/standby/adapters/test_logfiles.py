"""What a process prints to a file stays within bounds, whichever process has the file open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from standby.adapters.logfiles import LogFiles

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
