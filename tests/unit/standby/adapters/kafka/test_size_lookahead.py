"""A look at the records to come, on a broker that librdkafka plays itself."""

from __future__ import annotations

import logging

import pytest

from standby.adapters.kafka.size_lookahead import SizeLookahead
from standby.config import KafkaSettings

#: A topic that is asked for is there, and empty.
SETTINGS: KafkaSettings = {
    "bootstrap.servers": "",
    "test.mock.num.brokers": 1,
    "allow.auto.create.topics": True,
}

#: How often a look is begun, or waited for a little: the first may end before the client has found its broker.
TURNS = 20


def test_place_behind_the_end_is_worth_no_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ahead = SizeLookahead(SETTINGS, "group")
    for _ in range(TURNS):
        ahead.look({("in", 0): 1_000}, records=1_000)
        assert ahead.largest() == 0
    ahead.close()
    assert caplog.messages == []
