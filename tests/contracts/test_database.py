"""What every database keeps: the one in memory and RocksDB alike."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rocksdict import WriteBatch

from standby.adapters import rocksdict
from standby.adapters.rocksdict import RocksDatabase, open_database
from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.ports import Database, OpenDatabase, Profile
from tests.fakes.database import MemoryDisk
from tests.patience import PATIENCE_SECONDS

#: RocksDB's default rate of writes that are slowed down, bytes per second.
RATE = 16 << 20


@pytest.fixture(params=["memory", "rocksdb"])
def open_one(request: pytest.FixtureRequest) -> OpenDatabase:
    return MemoryDisk().open if request.param == "memory" else open_database


@pytest.fixture
def database(open_one: OpenDatabase, tmp_path: Path) -> Iterator[Database]:
    made = open_one(tmp_path / "db", Profile.SERVING)
    yield made
    made.close()


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksDatabase]:
    """RocksDB, where the one in memory shows nothing."""
    made = open_database(tmp_path / "db", Profile.SERVING)
    yield made
    made.close()


@pytest.mark.parametrize("profile", Profile)
def test_it_returns_what_was_written_last(open_one: OpenDatabase, profile: Profile, tmp_path: Path) -> None:
    database = open_one(tmp_path / "db", profile)
    database.write([(b"a", b"1"), (b"b", b""), (b"", b"empty key"), (b"gone", b"x"), (b"gone", None)])
    assert database.get_many([b"b", b"a", b"missing", b"", b"gone"]) == [b"", b"1", None, b"empty key", None]
    assert database.get_many([]) == []
    database.write([(b"a", b"2"), (b"a", None), (b"a", b"3"), (b"b", None), (b"never", None)])
    assert database.get_many([b"a", b"b", b"never"]) == [b"3", None, None]
    database.close()


@pytest.mark.parametrize("profile", Profile)
def test_a_batch_of_keys_in_no_order_is_what_its_changes_come_to(
    open_one: OpenDatabase, profile: Profile, tmp_path: Path
) -> None:
    draw = random.Random(5)
    keys = [b"%d" % number for number in range(300)]
    expected: dict[bytes, bytes | None] = dict.fromkeys(keys)
    database = open_one(tmp_path / "db", profile)
    for _ in range(5):
        changes = [
            (draw.choice(keys), None if draw.random() < 0.3 else draw.randbytes(8)) for _ in range(1_000)
        ]
        database.write(changes)
        expected.update(changes)
        assert database.get_many(keys) == list(expected.values())
    database.close()


def test_values_are_in_the_order_of_the_keys_however_many(database: Database) -> None:
    content = {b"%d" % number: b"value %d" % number for number in range(2_000)}
    database.write(content.items())
    # More than RocksDB is asked for at once, in no order, and some of them twice.
    asked = random.Random(6).choices([*content, b"missing"], k=2_500)
    assert database.get_many(asked) == [content.get(key) for key in asked]


def test_items_are_the_keys_of_the_prefix_in_order(database: Database) -> None:
    database.write([(b"b\xff", b"3"), (b"b", b"1"), (b"a", b"0"), (b"ba", b"2"), (b"c", b"4")])
    assert list(database.items(b"b")) == [(b"b", b"1"), (b"ba", b"2"), (b"b\xff", b"3")]
    assert list(database.items(b"zz")) == []


def test_a_page_is_a_stretch_of_a_range_in_either_direction(database: Database) -> None:
    keys = [b"a", b"b", b"b\x00", b"ba", b"b\xff", b"c"]
    database.write([(each, each + b"!") for each in keys])
    database.write([(b"bb", b"x"), (b"bb", None)])

    def page(start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> tuple[list[bytes], bool]:
        found = database.page(start, stop, limit, reverse=reverse)
        assert all(value == key + b"!" for key, value in found.items)
        return [key for key, _ in found.items], found.is_last

    assert page(b"b", b"c", 10) == ([b"b", b"b\x00", b"ba", b"b\xff"], True)
    assert page(b"b", b"c", 10, reverse=True) == ([b"b\xff", b"ba", b"b\x00", b"b"], True)
    assert page(b"b", b"c", 2) == ([b"b", b"b\x00"], False)
    assert page(b"b", b"c", 2, reverse=True) == ([b"b\xff", b"ba"], False)
    assert page(b"b", b"ba", 1, reverse=True) == ([b"b\x00"], False)
    assert page(b"", b"\xff", 6) == (keys, True)
    assert page(b"", b"\xff", 6, reverse=True) == (keys[::-1], True)
    for reverse in (False, True):
        assert page(b"bb", b"bc", 5, reverse=reverse) == ([], True)
        assert page(b"d", b"e", 5, reverse=reverse) == ([], True)
        assert page(b"0", b"1", 5, reverse=reverse) == ([], True)
        assert page(b"b", b"b", 5, reverse=reverse) == ([], True)
        assert page(b"c", b"b", 5, reverse=reverse) == ([], True)
    database.close()
    with pytest.raises(Unavailable):
        database.page(b"", b"\xff", 6)


def test_a_page_is_bounded_in_bytes_too(rocks: RocksDatabase) -> None:
    rocks.write([(b"%03d" % number, b"x" * 400_000) for number in range(10)])
    first = rocks.page(b"", b"\xff", 1000)
    assert [key for key, _ in first.items] == [b"000", b"001", b"002"]
    assert not first.is_last


@pytest.mark.parametrize("reverse", [False, True])
def test_a_damaged_block_does_not_pass_for_the_end(reverse: bool, tmp_path: Path) -> None:
    database = open_database(tmp_path / "db", Profile.SERVING)
    database.write([(b"%05d" % number, os.urandom(100)) for number in range(2_000)])
    database.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)
    database = open_database(tmp_path / "db", Profile.SERVING)
    with pytest.raises(CorruptState) as kept:
        database.page(b"", b"\xff", 5_000, reverse=reverse)
    database.close()
    # Although somebody keeps the error, and with it the frames of the scan.
    open_database(tmp_path / "db", Profile.SERVING).close()
    assert str(kept.value)


@pytest.mark.parametrize("then", Profile)
@pytest.mark.parametrize("first", Profile)
def test_everything_is_there_after_closing_and_opening_in_any_profile(
    open_one: OpenDatabase, first: Profile, then: Profile, tmp_path: Path
) -> None:
    database = open_one(tmp_path / "db", first)
    database.write([(b"%d" % number, b"x" * number) for number in range(1000)])
    database.close()
    database.close()
    again = open_one(tmp_path / "db", then)
    assert again.get_many([b"999", b"0"]) == [b"x" * 999, b""]
    again.write([(b"more", b"y")])
    assert again.get_many([b"more", b"500"]) == [b"y", b"x" * 500]
    again.close()


def test_what_was_loaded_takes_writes_at_once_however_many_files_it_is(tmp_path: Path) -> None:
    noise = random.Random(7)
    database = open_database(tmp_path / "db", Profile.LOADING)
    for _ in range(40):
        database.write([(noise.randbytes(16), noise.randbytes(100)) for _ in range(2_000)])
        database.flush()
    database.close()
    database = open_database(tmp_path / "db", Profile.SERVING)
    # With RocksDB's own bound of 36 files nothing is written before they are compacted.
    assert database._db.property_int_value("rocksdb.is-write-stopped") == 0
    database.close()


def test_little_of_what_is_served_is_in_memory(rocks: RocksDatabase) -> None:
    noise = random.Random(7)
    value = noise.randbytes(4_000)
    most = 0
    for _ in range(20):
        rocks.write([(noise.randbytes(16), value) for _ in range(250)])
        most = max(most, rocks._db.property_int_value("rocksdb.cur-size-active-mem-table") or 0)
    # Each write brings a megabyte.
    assert 6 << 20 < most < 10 << 20


def test_a_few_small_files_are_not_merged_with_all_that_lies_below(rocks: RocksDatabase) -> None:
    for number in range(7):
        rocks.write([(b"key", b"%d" % number)])
        rocks.flush()
    names = ("num-files-at-level0", "compaction-pending", "num-running-compactions")
    assert [rocks._db.property_int_value(f"rocksdb.{each}") for each in names] == [7, 0, 0]


def test_calls_in_which_the_library_holds_the_interpreters_lock_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @contextmanager
    def disk_call() -> Iterator[None]:
        seen.append("from here")
        yield
        seen.append("to here")

    def traced(call: str) -> None:
        made = getattr(rocksdict, call)

        def make(*given: Any, **named: Any) -> Any:
            seen.append(call)
            return made(*given, **named)

        monkeypatch.setattr(rocksdict, call, make)

    traced("Rdict")
    traced("Checkpoint")
    database = open_database(tmp_path / "db", Profile.SERVING, disk_call)
    database.checkpoint(tmp_path / "copy")
    database.close()
    assert seen == ["from here", "Rdict", "to here", "from here", "Checkpoint", "to here"]


class Pauses(threading.Event):
    """The pauses of a write that RocksDB does not take: they take no time, and ``on_pause`` says if it is cancelled."""

    def __init__(self, on_pause: Callable[[], bool]) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._on_pause = on_pause

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return self._on_pause()


def filled(path: Path, profile: Profile) -> RocksDatabase:
    """Return a database with one file."""
    database = open_database(path, profile)
    database.write([(b"k", b"0")])
    database.flush()
    return database


def limit(database: RocksDatabase, *, slow: int = 100, stop: int = 100) -> None:
    """Set the numbers of files from which RocksDB slows writes down, and stops them."""
    bounds = {"level0_slowdown_writes_trigger": slow, "level0_stop_writes_trigger": stop}
    options = {name: str(bound) for name, bound in bounds.items()}
    # The bounds count only where files are compacted.
    database._db.set_options({"disable_auto_compactions": "false", **options})


@pytest.mark.parametrize("profile", Profile)
def test_a_write_waits_while_rocksdb_takes_none(profile: Profile, tmp_path: Path) -> None:
    """In RocksDB, it would wait with the interpreter's lock."""
    database = filled(tmp_path / "db", profile)
    limit(database, stop=1)
    changes = [(b"k", b"1"), (b"new", b"2")]

    def pause() -> bool:
        assert database.get_many([b"k", b"new"]) == [b"0", None], "nothing of it is there"
        if len(pauses.seconds) == 6:
            limit(database, stop=100)
        return False

    pauses = Pauses(pause)
    database.write(iter(changes), pauses)
    assert database.get_many([b"k", b"new"]) == [b"1", b"2"]
    assert pauses.seconds == [0.005, 0.01, 0.02, 0.04, 0.05, 0.05]
    database.close()


def test_a_write_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    database = filled(tmp_path / "db", Profile.SERVING)
    cancelled = threading.Event()
    cancelled.set()
    database.write([(b"k", b"1")], cancelled)
    limit(database, stop=1)
    with pytest.raises(Transient, match="cancelled"):
        database.write([(b"k", b"2")], cancelled)
    assert database.get_many([b"k"]) == [b"1"]
    database.close()


def test_a_limited_write_is_tried_again_when_its_size_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt before that only prolongs the wait: one of 2 MB, repeated every 50 ms, was never taken."""
    database = filled(tmp_path / "db", Profile.SERVING)
    limit(database, slow=1)
    tries = Counter[str]()

    def batch(**options: bool) -> WriteBatch:
        tries["all"] += 1
        return WriteBatch(**options)

    def pause() -> bool:
        if sum(pauses.seconds) >= 2 * 2e6 / RATE:
            limit(database, slow=100)
        return False

    pauses = Pauses(pause)
    monkeypatch.setattr("standby.adapters.rocksdict.WriteBatch", batch)
    for each in (b"1", b"2"):
        # The size of the first is what the second has to wait for.
        database.write([(b"k", each * 2_000_000)], pauses)
    assert database.get_many([b"k"]) == [b"2" * 2_000_000]
    assert tries["all"] == 3
    database.close()


def test_a_second_opening_is_refused_for_now(
    database: Database, open_one: OpenDatabase, tmp_path: Path
) -> None:
    with pytest.raises(Transient, match="in use"):
        open_one(tmp_path / "db", Profile.SERVING)
    database.write([(b"k", b"v")])
    database.close()
    again = open_one(tmp_path / "db", Profile.SERVING)
    assert again.get_many([b"k"]) == [b"v"]
    again.close()


def test_a_closed_one_is_unavailable(database: Database) -> None:
    database.close()
    with pytest.raises(Unavailable):
        database.get_many([b"k"])
    with pytest.raises(Unavailable):
        database.write([(b"k", b"v")])
    with pytest.raises(Unavailable):
        database.flush()


def test_a_checkpoint_is_a_database_of_its_own(
    database: Database, open_one: OpenDatabase, tmp_path: Path
) -> None:
    database.write([(b"%d" % number, b"x" * number) for number in range(1000)])
    database.checkpoint(tmp_path / "copy")
    database.write([(b"later", b"y"), (b"1", None)])
    # What the first one does with its files is nothing to the second one.
    database.flush()
    copy = open_one(tmp_path / "copy", Profile.SERVING)
    assert copy.get_many([b"999", b"1", b"later"]) == [b"x" * 999, b"x", None]
    copy.write([(b"999", b"of the copy")])
    copy.close()
    assert database.get_many([b"999", b"1", b"later"]) == [b"x" * 999, None, b"y"]
    database.close()
    again = open_one(tmp_path / "copy", Profile.LOADING)
    assert again.get_many([b"999"]) == [b"of the copy"]
    again.close()


def test_a_checkpoint_needs_a_new_directory_and_an_open_database(database: Database, tmp_path: Path) -> None:
    database.write([(b"k", b"v")])
    (tmp_path / "there").mkdir()
    with pytest.raises(Unavailable):
        database.checkpoint(tmp_path / "there")
    with pytest.raises(Unavailable):
        database.checkpoint(tmp_path / "no" / "parent")
    database.checkpoint(tmp_path / "copy")
    database.close()
    with pytest.raises(Unavailable):
        database.checkpoint(tmp_path / "another")


def test_a_checkpoint_taken_while_somebody_writes_is_one_moment(
    database: Database, open_one: OpenDatabase, tmp_path: Path
) -> None:
    begun, done = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            database.write([(b"a", b"%d" % number), (b"b", b"%d" % number)])
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(PATIENCE_SECONDS)
    before = database.get_many([b"a"])[0]
    database.checkpoint(tmp_path / "copy")
    done.set()
    writer.join()
    database.close()
    copy = open_one(tmp_path / "copy", Profile.SERVING)
    first, second = copy.get_many([b"a", b"b"])
    copy.close()
    assert before is not None
    assert first is not None
    assert first == second
    assert int(first) >= int(before)
