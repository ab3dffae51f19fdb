"""What a submit says of Kafka's brokers and topics, and what it does not say."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from appmaster.topics.brokers import Brokers, check, warnings
from appmaster.topics.ports import TopicShape
from standby.errors import BadConfiguration

SAFE = TopicShape(4, 3, {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"})


def three(level: int | None = 29) -> dict[int, int | None]:
    return {1: level, 2: level, 3: level}


def shape(replicas: int = 3, in_sync: int = 2, *, unclean: bool = False) -> TopicShape:
    settings = {"min.insync.replicas": str(in_sync), "unclean.leader.election.enable": str(unclean).lower()}
    return TopicShape(4, replicas, settings)


def test_nothing_is_said_of_what_is_as_it_should_be() -> None:
    assert list(warnings(Brokers(three(), {"out": SAFE, "__transaction_state": SAFE}))) == []
    assert list(warnings(Brokers({}, {}))) == [], "nothing is known, and the job is checked elsewhere"


def test_brokers_that_leave_markers_out_are_named_with_the_releases_that_do_not() -> None:
    (found,) = warnings(Brokers({1: 29, 2: 30, 3: 31}, {"out": SAFE}))
    assert found.startswith("warning: Kafka brokers 2, 3 are of release 4.3 or later, ")
    assert "KAFKA-20734" in found
    assert "4.0 to 4.2 do not" in found
    (found,) = warnings(Brokers({1: 29, 2: None, 3: 29}, {"out": SAFE}))
    assert found.startswith("warning: the release of Kafka broker 2 is unknown"), "it is not guessed"


def test_one_broker_alone_is_one_line() -> None:
    alone = {"out": shape(1, 1), "changelog": shape(1, 1), "__transaction_state": shape(1, 1)}
    (found,) = warnings(Brokers({1: 30}, alone))
    assert "there is only one Kafka broker" in found
    assert "KAFKA-20734" in found
    (found,) = warnings(Brokers({1: 29}, alone))
    assert "KAFKA-20734" not in found


def test_topics_are_named_once_for_each_thing() -> None:
    topics = {
        "a": shape(1, 1),
        "b": shape(1, 1),
        "c": shape(3, 1),
        "d": shape(2, 2),
        "e": shape(unclean=True),
    }
    one, few, above, high, unclean = warnings(Brokers(three(), topics | {"f": shape(2, 3)}))
    assert above.startswith("warning: topic f has min.insync.replicas above their replicas: only the number")
    assert one.startswith("warning: topics a, b have one replica")
    assert few.startswith("warning: topic c has min.insync.replicas=1: a broker that dies could take")
    assert high.startswith(
        "warning: topic d has min.insync.replicas as high as their replicas: the job stops"
    )
    assert unclean.startswith("warning: topic e has unclean.leader.election.enable=true")


def test_topic_to_which_its_brokers_refuse_every_write_is_refused() -> None:
    """Since 3.7, brokers need no more replicas in sync than there are; where the release is unknown it is a warning."""
    topics = {"out": shape(1, 2), "both": shape(2, 2)}
    for levels, is_refused in ((three(14), True), (three(15), False), (three(None), False), ({}, False)):
        refused = pytest.raises(BadConfiguration, match=r"^topic out has .*=2 and 1 replica: .*replicas=1,")
        with refused if is_refused else nullcontext():
            check(Brokers(levels, topics), 5_000)


def test_transaction_that_may_take_longer_than_the_brokers_allow_is_refused() -> None:
    told = r"^job\.transaction\.timeout\.ms: 5000, and the brokers allow 4999 ms \(transaction\.max\.timeout\.ms\);"
    for most, is_refused in ((4_999, True), (5_000, False), (None, False)):
        refused = pytest.raises(BadConfiguration, match=told)
        with refused if is_refused else nullcontext():
            check(Brokers(three(), {"out": SAFE}, most_transaction_ms=most), 5_000)
