"""What the benchmarks of the state kernel are made of: the noted database, the peers' jars, the picture."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from benchmarks import chart, traced
from benchmarks.kafkastreams import build
from benchmarks.lags import delays
from benchmarks.streams import ALL, OURS, WITH_STANDBYS, Case, Place, commands
from embedded.jars.lock import read_lock
from embedded.places import yarn_conf
from standby.errors import BadConfiguration
from standby.kernel.ports import Profile
from standby.replica.store.keys import POSITION
from standby.replica.store.origin import Position


def test_every_position_that_a_database_is_given_is_noted_by_task(tmp_path: Path) -> None:
    trace = traced.Trace()
    database = trace.open(tmp_path / "main.3" / "rocksdb", Profile.SERVING)
    database.write([(b"\x01sa", b"1"), (POSITION, Position(7, 0).encode())])
    database.write([(b"\x01sb", b"2")])
    database.write(((POSITION, Position(9, 0).encode()),))
    assert dict(database.items(b"\x01s")) == {b"\x01sa": b"1", b"\x01sb": b"2"}
    database.close()
    trace.save(tmp_path / "trace.json")
    found = traced.load(tmp_path / "trace.json")
    assert list(found) == ["main.3"]
    assert [each.offset for each in found["main.3"]] == [7, 9]
    assert delays(found["main.3"], found["main.3"], 0, float("inf")) == [0.0, 0.0]


def test_the_peers_jars_are_of_the_releases_that_they_run_with_and_locked() -> None:
    broker = next(
        each for each in read_lock(yarn_conf() / "jars.lock")["kafka"].jars if "kafka_" in each.file_name
    )
    streams = {each.coordinate.artifact: each for each in build.cache().sets["streams"].jars}
    assert streams["kafka-streams"].coordinate.version == broker.coordinate.version
    connector = {each.coordinate.artifact: each for each in build.cache().sets["spark-kafka"].jars}
    assert connector["spark-sql-kafka-0-10_2.13"].coordinate.version == importlib.metadata.version("pyspark")
    assert all(each.is_locked for each in (*streams.values(), *connector.values()))


def test_the_projects_own_jars_do_without_kafka_streams() -> None:
    artifacts = {
        each.coordinate.artifact
        for jars in read_lock(yarn_conf() / "jars.lock").values()
        for each in jars.jars
    }
    assert not artifacts & {each.coordinate.artifact for each in build.cache().sets["streams"].jars}


def test_an_active_and_its_standbys_are_processes_of_their_own(tmp_path: Path) -> None:
    found = commands(OURS, Case("count", 4, 2), Place("h:1", "job", tmp_path))
    assert [command[command.index("--copy") + 1] for command in found] == ["0", "1", "2"]


@pytest.mark.parametrize("name", sorted(set(ALL) - set(WITH_STANDBYS)))
def test_who_has_no_standbys_is_not_started_with_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="no standbys"):
        commands(name, Case("count", 1, 1), Place("h:1", "job", tmp_path))


def test_a_picture_is_drawn_with_what_there_is(tmp_path: Path) -> None:
    figure = {"median": 2.0, "min": 1.0, "max": 4.0}
    groups = {"one": {"a": {"wall": figure}, "b": {}}, "two": {"a": {"wall": figure, "cpu": figure}}}
    chart.bars(tmp_path / "x" / "it.png", "It", (("wall", "s", 1.0), ("cpu", "s", 1.0)), groups)
    assert (tmp_path / "x" / "it.png").read_bytes().startswith(b"\x89PNG")
