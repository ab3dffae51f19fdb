"""Topics of a run that were deleted and created again (rule `topic-id`)."""

from __future__ import annotations

import pytest

from standby.replica.identity import RunTopics, TopicChanged
from standby.shared.model import TopicIdentity


def topics(**recorded: TopicIdentity) -> RunTopics:
    return RunTopics("flights", "log", ("in",), recorded)


def test_the_message_says_what_is_lost_with_the_former_topic() -> None:
    run = topics(**{"in": TopicIdentity("a"), "log": TopicIdentity("b")})
    run.check({"in": "a", "log": "b", "out": "c"})
    with pytest.raises(TopicChanged, match=r"input in was deleted .*offsets are invalid.*--from earliest`"):
        run.check({"in": "other"})
    with pytest.raises(
        TopicChanged, match=r"changelog log was deleted .*state .* is not in it.*--accept log`"
    ):
        run.check({"log": "other"})


def test_topics_that_nobody_accepted_are_of_generation_0() -> None:
    assert topics().generation == 0
    assert topics(log=TopicIdentity("b", 2), **{"in": TopicIdentity("a", 1)}).generation == 2
