"""What every database keeps: the one in memory and RocksDB alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from standby.adapters.rocksdict import open_database
from standby.errors import Transient, Unavailable
from standby.kernel.ports import OpenDatabase, Profile
from tests.fakes.database import MemoryDisk


@pytest.fixture(params=["memory", "rocksdb"])
def open_one(request: pytest.FixtureRequest) -> OpenDatabase:
    return MemoryDisk().open if request.param == "memory" else open_database


@pytest.mark.parametrize("profile", Profile)
def test_it_returns_what_was_written(open_one: OpenDatabase, profile: Profile, tmp_path: Path) -> None:
    database = open_one(tmp_path / "db", profile)
    database.write([(b"a", b"1"), (b"b", b""), (b"", b"empty key"), (b"gone", b"x"), (b"gone", None)])
    assert database.get_many([b"b", b"a", b"missing", b"", b"gone"]) == [b"", b"1", None, b"empty key", None]
    assert database.get_many([]) == []
    database.close()


def test_the_last_write_of_a_key_in_a_batch_counts(open_one: OpenDatabase, tmp_path: Path) -> None:
    database = open_one(tmp_path / "db", Profile.SERVING)
    database.write([(b"k", b"1"), (b"k", None), (b"k", b"3")])
    assert database.get_many([b"k"]) == [b"3"]
    database.write([(b"k", None), (b"never", None)])
    assert database.get_many([b"k"]) == [None]
    database.close()


def test_items_are_the_keys_of_the_prefix_in_order(open_one: OpenDatabase, tmp_path: Path) -> None:
    database = open_one(tmp_path / "db", Profile.SERVING)
    database.write([(b"b\xff", b"3"), (b"b", b"1"), (b"a", b"0"), (b"ba", b"2"), (b"c", b"4")])
    assert list(database.items(b"b")) == [(b"b", b"1"), (b"ba", b"2"), (b"b\xff", b"3")]
    assert list(database.items(b"zz")) == []
    database.close()


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


def test_a_second_opening_is_refused_for_now(open_one: OpenDatabase, tmp_path: Path) -> None:
    database = open_one(tmp_path / "db", Profile.SERVING)
    with pytest.raises(Transient, match="in use"):
        open_one(tmp_path / "db", Profile.SERVING)
    database.write([(b"k", b"v")])
    database.close()
    again = open_one(tmp_path / "db", Profile.SERVING)
    assert again.get_many([b"k"]) == [b"v"]
    again.close()


def test_a_closed_one_is_unavailable(open_one: OpenDatabase, tmp_path: Path) -> None:
    database = open_one(tmp_path / "db", Profile.SERVING)
    database.close()
    with pytest.raises(Unavailable):
        database.get_many([b"k"])
    with pytest.raises(Unavailable):
        database.write([(b"k", b"v")])
    with pytest.raises(Unavailable):
        database.flush()
