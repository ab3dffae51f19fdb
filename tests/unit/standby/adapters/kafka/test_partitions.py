"""The partitions that the writer selects are those that librdkafka would select."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appmaster.topics.partitioners import PARTITIONERS
from appmaster.topics.partitioners import murmur2 as of_one
from standby.adapters.kafka.partitions import BY_LIBRARY, OutputPartitions, murmur2


class Topics:
    """Numbers of partitions, and how often they were asked for."""

    def __init__(self, **counts: int | None) -> None:
        self.counts = counts
        self.asked = 0
        self.now = 100.0

    def count_of(self, topic: str) -> int | None:
        self.asked += 1
        return self.counts[topic]

    def partitions(self, partitioner: str = "murmur2_random") -> OutputPartitions:
        return OutputPartitions(partitioner, self.count_of, lambda: self.now)


def of_each(partitions: OutputPartitions, keys: Sequence[bytes | None]) -> list[int]:
    """Return the partition of each record for ``out``."""
    found: dict[int, int] = {}
    for partition, part in partitions.parts("out", keys):
        assert part
        assert sorted(part) == list(part), "in the order in which they were emitted"
        assert found.keys().isdisjoint(part)
        found |= dict.fromkeys(part, partition)
    return [found[each] for each in range(len(keys))]


@given(st.lists(st.binary(max_size=40)))
def test_hashes_of_many_keys_are_those_of_each(keys: list[bytes]) -> None:
    assert murmur2(keys).tolist() == [of_one(each) for each in keys]


@pytest.mark.parametrize("partitioner", ["murmur2_random", "murmur2"])
def test_a_key_has_the_partition_of_the_java_clients(partitioner: str) -> None:
    keys = [random.Random(each).randbytes(each % 60) for each in range(500)]
    for count in (7, 70_000):
        found = of_each(Topics(out=count).partitions(partitioner), keys)
        assert found == [PARTITIONERS["murmur2"](each, count) for each in keys]


def test_records_without_a_key_or_with_a_long_one_are_left_to_the_library() -> None:
    keys = [b"k", None, b"", b"k" * 257, b"k" * 256]
    found = of_each(Topics(out=5).partitions(), keys)
    assert [at for at, each in enumerate(found) if each == BY_LIBRARY] == [1, 3]
    assert of_each(Topics(out=5).partitions(), [None]) == [BY_LIBRARY]


def test_all_records_of_a_topic_with_one_partition_keep_their_order() -> None:
    keys = [b"k", None, b"k" * 257, b"k"]
    assert list(Topics(out=1).partitions().parts("out", keys)) == [(0, range(4))]


def test_another_partitioner_of_the_job_is_obeyed() -> None:
    topics = Topics(out=5)
    assert of_each(topics.partitions("consistent_random"), [b"k", None]) == [BY_LIBRARY] * 2
    assert not topics.asked


def test_a_topic_that_grows_is_noticed_after_a_minute() -> None:
    topics = Topics(out=1)
    partitions = topics.partitions()
    keys = [b"%d" % each for each in range(50)]
    assert {*of_each(partitions, keys)} == {0}
    topics.counts["out"] = 4
    topics.now += 59
    assert {*of_each(partitions, keys)} == {0}
    assert topics.asked == 1
    topics.now += 1
    assert {*of_each(partitions, keys)} == {0, 1, 2, 3}


def test_without_an_answer_the_last_one_stays_and_is_left_to_the_library_before_any() -> None:
    topics = Topics(out=None)
    partitions = topics.partitions()
    assert of_each(partitions, [b"k"]) == of_each(partitions, [b"k"]) == [BY_LIBRARY]
    assert topics.asked == 1, "an answer that does not come may take a second each time"
    topics.counts["out"] = 1
    topics.now += 60
    assert of_each(partitions, [b"k"]) == [0]
    topics.counts["out"] = None
    topics.now += 60
    assert of_each(partitions, [b"k"]) == [0]
