"""What librdkafka answers about offsets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from standby.adapters.kafka.input import offset_in
from standby.errors import Transient


def test_an_offset_that_is_none_is_no_answer() -> None:
    """As an end it would be below every position: a promotion would take its changelog for drained."""
    assert offset_in(SimpleNamespace(offset=0), "asking") == 0
    with pytest.raises(Transient, match="asking: no answer in time"):
        offset_in(SimpleNamespace(offset=-1001), "asking")
