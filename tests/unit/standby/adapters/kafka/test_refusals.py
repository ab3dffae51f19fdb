"""Which failures are explained by the answer to a client's login."""

from __future__ import annotations

import math
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from standby.adapters.kafka.refusals import Refusals
from standby.errors import BadConfiguration, Transient, Unavailable
from standby.kernel.ports import WriterLost

TIMED_OUT = KafkaError._TIMED_OUT
LOGIN = KafkaError(KafkaError._AUTHENTICATION, "no token")


class Client:
    """Tells what it has to tell when it is polled."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def poll(self, timeout: float = math.inf) -> None:
        assert timeout == 0
        self._tell()


def test_question_without_an_answer_is_explained_and_keeps_its_code() -> None:
    refusals = Refusals()
    error = KafkaException(KafkaError(TIMED_OUT, "too late"))
    refusals.explain(error, Client(lambda: refusals.note(LOGIN)))
    assert error.args[0].code() == TIMED_OUT
    assert error.args[0].str() == "too late: no token"


def test_error_of_ours_is_explained_once_and_stays_what_it_is() -> None:
    refusals = Refusals()
    refusals.note(LOGIN)
    error = WriterLost("no answer", fenced=True)
    refusals.explain(error)
    refusals.explain(error)
    assert str(error) == "no answer: no token"
    assert error.fenced


def test_what_has_a_reason_of_its_own_is_left_alone() -> None:
    for error in (
        KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not you")),
        KafkaException("text alone"),
        Unavailable("the disk is full"),
        BadConfiguration("a key is wrong"),
        ValueError("a bug"),
    ):
        before, refusals = str(error), Refusals()
        refusals.note(LOGIN)
        refusals.explain(error)
        assert str(error) == before


def test_a_broker_that_is_away_and_a_login_of_long_ago_explain_nothing() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    refusals.note(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    assert refusals.why() == ""
    refusals.note(LOGIN)
    assert refusals.why() == "no token"
    now = 60.0
    error = Transient("no answer")
    refusals.explain(error)
    assert str(error) == "no answer"
