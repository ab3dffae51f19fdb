"""Where the rows of a batch are on their way to Spark's workers. Without a JVM."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from standby.adapters.spark import exchange
from standby.adapters.spark.exchange import RowExchange
from standby.errors import Transient

ROWS = pa.table({"value": [b"x" * 1_000] * 100})


def test_only_the_rows_of_dead_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_IN_MEMORY", tmp_path)
    RowExchange().put(ROWS, 2)
    (own,) = tmp_path.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = tmp_path / own.name.replace(own.name.split("-")[2], str(child.pid))
    left.mkdir()
    (left / "0").write_bytes(b"rows")
    (tmp_path / "somebody-elses").mkdir()
    exchange.sweep()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([own.name, "somebody-elses"])


def test_transform_is_made_although_no_descriptor_is_left_to_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("pathlib.Path.glob", refused)
    exchange.sweep()


def test_without_a_place_in_memory_it_is_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_IN_MEMORY", tmp_path / "absent")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = RowExchange()
    rows.put(ROWS, 1)
    (place,) = tmp_path.iterdir()
    rows.clear()
    assert not place.exists()


def test_rows_for_which_there_is_no_room_in_memory_are_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(exchange, "_IN_MEMORY", memory)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    rows = RowExchange()

    def sizes() -> list[int]:
        return [sum(each.lstat().st_size for each in place.rglob("0")) for place in (memory, disk)]

    rows.put(ROWS, 1)
    assert sizes()[1] == 0
    monkeypatch.setattr(exchange, "_ROOM", 1e12)
    rows.put(ROWS, 1)
    in_memory, on_disk = sizes()
    assert in_memory < 1_000 < ROWS.nbytes < on_disk
    (known,) = memory.rglob("0")
    with pa.memory_map(str(known)) as file:
        assert pa.ipc.open_stream(file).read_all() == ROWS
    monkeypatch.undo()
    monkeypatch.setattr(exchange, "_IN_MEMORY", memory)
    rows.put(ROWS, 1)
    assert not known.is_symlink()
    rows.clear()
    assert [*memory.iterdir(), *disk.iterdir()] == []


def test_a_place_without_room_is_named_and_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_IN_MEMORY", tmp_path)
    rows = RowExchange()
    with files_of_at_most(50_000), pytest.raises(Transient) as raised:
        rows.put(ROWS, 1)
    assert str(raised.value) == f"the rows of a batch cannot be written to {tmp_path}: File too large"
    assert list(tmp_path.iterdir()) == []
    rows.put(ROWS, 1)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Refuse writes as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
