"""What librdkafka answers about offsets."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from standby.adapters.kafka.offsets import LATEST, offset_in
from standby.errors import Transient


def test_an_offset_that_is_none_is_no_answer() -> None:
    """As an end it would be below every position: a promotion would take its changelog for drained."""
    assert offset_in(TopicPartition("t", 0, 0), "asking") == 0
    with pytest.raises(Transient, match="asking: no answer in time"):
        offset_in(TopicPartition("t", 0, LATEST), "asking")
