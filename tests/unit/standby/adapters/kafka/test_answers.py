"""What Kafka's answers mean, and when a client that gets none is replaced."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ALL_COMPLETED, Future, wait
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)

from standby.adapters.kafka import broker as broker_module
from standby.adapters.kafka import clients, offsets, renewable_client
from standby.adapters.kafka.broker import connect
from standby.adapters.kafka.offsets import LATEST, offset_in
from standby.adapters.kafka.refusals import Refusals
from standby.adapters.kafka.renewable_client import RenewableClient
from standby.adapters.kafka.transaction_log import _state_in, partition_of, records_until
from standby.errors import BadConfiguration, Transient, Unavailable
from standby.kernel.ports import WriterLost
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import job_config
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon


def test_an_offset_that_is_none_is_no_answer() -> None:
    """As an end it would be below every position: a promotion would take its changelog for drained."""
    assert offset_in(TopicPartition("t", 0, 0), "asking") == 0
    with pytest.raises(Transient, match="asking: no answer in time"):
        offset_in(TopicPartition("t", 0, LATEST), "asking")


class Fetched:
    """A client that has 1,500 records of a partition, a marker behind them, and that this is its end."""

    def __init__(self) -> None:
        at_end = KafkaError(KafkaError._PARTITION_EOF)
        self.left = [Message(topic="t", partition=0, offset=each) for each in range(1_500)]
        self.left.append(Message(topic="t", partition=0, offset=1_501, error=at_end))
        self.waits = 0

    def assign(self, _: object) -> None:
        """Nothing is fetched any more."""

    def consume(self, count: int, seconds: float) -> list[Message]:
        taken, self.left = self.left[:count], self.left[count:]
        self.waits += len(taken) < count and seconds > 0
        return taken

    def position(self, _: object) -> list[TopicPartition]:
        return [TopicPartition("t", 0, (self.left[0].offset() or 0) if self.left else 1_501)]


def test_records_that_were_fetched_are_read_to_their_end_without_a_wait() -> None:
    """Each would be 100 ms of a take-over, after which the client has no more."""
    client: Any = Fetched()
    found = list(records_until(client, TopicPartition("t", 0, 0), 1_501))
    assert [each.offset() for each in found] == list(range(1_500))
    assert client.waits == 0


DEFINITION = JobDefinition("job", "run", {}, "changelog", "group", 1)


def describing(monkeypatch: pytest.MonkeyPatch, partitions: int) -> list[list[str]]:
    """Have each topic described with this number of partitions; returns what is asked for."""
    asked: list[list[str]] = []

    def describe_topics(topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        asked.append(topics.topic_names)
        found: dict[str, Future[Any]] = {each: Future() for each in topics.topic_names}
        for each in found.values():
            each.set_result(
                SimpleNamespace(partitions=[SimpleNamespace(id=id_) for id_ in range(partitions)])
            )
        return found

    client: Any = SimpleNamespace(describe_topics=describe_topics, poll=lambda _: 0)
    admin = replace(clients.QUESTIONS, library=lambda *_, **__: client)
    monkeypatch.setattr(clients, "QUESTIONS", admin)
    return asked


def test_only_topics_that_are_written_to_are_asked_for_their_ends_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka refuses a request that names a topic twice; one that gets no dead letters need not exist."""
    asked = describing(monkeypatch, partitions=0)
    for outputs, on_error, topics in (
        ("out", "fail", ["out"]),
        ("out", "dead-letter", ["out", "dead"]),
        ("out,dead", "dead-letter", ["out", "dead"]),
        ("out,out", "skip", ["out"]),
    ):
        config = job_config(task__outputs=outputs, task__dead__letter="dead", task__on__error=on_error)
        broker = connect("cluster", config, DEFINITION)
        assert broker.output_ends() == {}
        broker.close()
        assert asked.pop() == topics


class TwoLeaders:
    """A consumer: each partition has a leader of its own, and that of the second one is slow."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def list_topics(self, topic: str, timeout_seconds: float) -> Any:
        partitions = {each: SimpleNamespace(leader=each, error=None) for each in range(2)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def offsets_for_times(self, asked: list[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
        if len(asked) > 1:
            raise KafkaException(KafkaError(TIMED_OUT))
        if asked[0].partition:
            assert self.may_answer.wait(PATIENCE_SECONDS)
        return [TopicPartition(each.topic, each.partition, 7) for each in asked]


def test_a_slow_leader_is_waited_for_only_where_all_answers_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the ends of all outputs no batch begins, and the same leader would be slow the next time."""
    consumer = TwoLeaders()

    def waiting(asked: Any, seconds: float, until: str = ALL_COMPLETED) -> Any:
        if until == ALL_COMPLETED and seconds:
            consumer.may_answer.set()
        return wait(asked, seconds, until)

    monkeypatch.setattr(offsets, "_AT_ONCE_SECONDS", 0.0)
    monkeypatch.setattr(offsets, "wait", waiting)
    level = IsolationLevel.READ_UNCOMMITTED
    kind = replace(offsets._KINDS[level], library=lambda *_, **__: cast("Any", consumer))
    monkeypatch.setitem(offsets._KINDS, level, kind)
    describing(monkeypatch, partitions=2)
    broker = connect("cluster", job_config(task__outputs="out"), DEFINITION)
    assert broker.changelog_ends([0, 1]) == {0: 7}
    consumer.may_answer.set()
    consumer.may_answer = threading.Event()
    assert broker.output_ends() == {("out", 0): 7, ("out", 1): 7}
    broker.close()


# ---- the coordinator's log, as Kafka's own classes have it ----


def test_partition_is_that_of_javas_hash() -> None:
    # By Java's String.hashCode; the last but one is the least number of all.
    hashes = {"": 0, "a": 97, "standfast": 2_036_908_338, "polygenelubricants": 0, "𝄞": 1_772_394}
    for name, hashed in hashes.items():
        assert partition_of(name, 50) == hashed % 50, name


def test_a_value_of_each_version_has_the_state_and_the_partitions() -> None:
    for version, status in ((0, 3), (1, 2)):
        value = struct.pack(">hqhib", version, 7, 1, 5_000, status)
        value += struct.pack(">i", 2) if version == 0 else b"\3"
        for topic, numbers in ((b"out", (0, 2)), (b"changelog", (1,))):
            if version == 0:
                value += struct.pack(">h", len(topic)) + topic
                value += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
            else:
                # With one unknown tagged field.
                value += bytes([len(topic) + 1]) + topic
                value += bytes([len(numbers) + 1]) + struct.pack(f">{len(numbers)}i", *numbers) + b"\1\7\2ab"
        found = _state_in(value + struct.pack(">qq", 1, 1) + b"\0")
        assert found is not None, version
        assert found.status == status, version
        assert found.places == {("out", 0), ("out", 2), ("changelog", 1)}, version


def test_what_is_not_known_is_passed_over() -> None:
    for value in (None, b"", b"\0\7" + bytes(30), struct.pack(">hqhibi", 0, 7, 1, 5, 2, 9)):
        assert _state_in(value) is None, value


# ---- which failures are explained by the answer to a login ----


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


# ---- when a client is replaced ----


class Clients:
    """Numbers the clients it makes, and has a clock."""

    def __init__(self) -> None:
        self.made = 0
        self.seconds = 0.0
        self.lasting = RenewableClient(self._make, lambda: self.seconds)

    def _make(self) -> int:
        self.made += 1
        return self.made

    def ask(self, *, fails: bool, after: float = 0.0) -> int:
        """Return which client was asked; what is raised must reach its caller."""
        self.seconds += after
        failure = pytest.raises(OSError, match="no leaders") if fails else nullcontext()
        with failure, self.lasting.use() as asked:
            if fails:
                raise OSError("no leaders")
        return asked


def test_one_that_fails_for_long_is_replaced_and_the_next_one_gets_its_time() -> None:
    clients = Clients()
    assert [clients.ask(fails=True, after=3) for _ in range(5)] == [1, 1, 1, 1, 2]
    assert [clients.ask(fails=True, after=3) for _ in range(4)] == [2, 2, 2, 3]


def test_an_answer_in_between_counts() -> None:
    clients = Clients()
    for _ in range(10):
        assert clients.ask(fails=True, after=5) == 1
        assert clients.ask(fails=False, after=1) == 1


def test_what_needs_no_answer_does_not_count_as_one() -> None:
    clients = Clients()
    for number in (1, 1, 1, 2):
        assert clients.lasting.present() == number
        clients.ask(fails=True, after=5)


class Unanswered:
    """An admin client whose requests fail."""

    def __init__(self, code: int) -> None:
        self.code = code

    def describe_topics(self, *_: object, **__: object) -> dict[str, Future[Any]]:
        found: Future[Any] = Future()
        found.set_exception(KafkaException(KafkaError(self.code)))
        return {"in": found}


@pytest.mark.parametrize(
    ("code", "count"),
    [
        pytest.param(KafkaError._TRANSPORT, 2, id="after 8 s"),
        pytest.param(
            KafkaError._TIMED_OUT, 4, id="at once, since it may be connected to a host that is gone"
        ),
    ],
)
def test_one_that_sends_questions_about_topics_and_gets_no_answers_is_replaced(
    monkeypatch: pytest.MonkeyPatch, code: int, count: int
) -> None:
    made: list[Unanswered] = []
    seconds = 0.0

    def make() -> Unanswered:
        made.append(Unanswered(code))
        return made[-1]

    def lasting(kind: object, *more: Any) -> RenewableClient[Any]:
        if kind is clients.QUESTIONS:
            return RenewableClient(make, lambda: seconds)
        return renewable_client.lasting(cast("Any", kind), *more)

    monkeypatch.setattr(broker_module, "lasting", lasting)
    broker = connect("cluster", job_config(), JobDefinition("job", "run", {}, "changelog", "group", 1))
    for _ in range(3):
        seconds += 5
        with pytest.raises(Transient, match="describing in"):
            broker.ask_topic_ids(["in"])()
    assert len(made) == count
    broker.close()


def test_a_failure_of_the_former_client_is_not_the_new_one_s() -> None:
    clients = Clients()
    clients.ask(fails=True)
    slow = clients.lasting.use()
    slow.__enter__()
    clients.ask(fails=True, after=10)
    assert clients.made == 2
    assert slow.__exit__(OSError, OSError("late"), None) is not True
    assert clients.ask(fails=True, after=1) == 2
    assert clients.ask(fails=True, after=5) == 2, "its own time has begun with its own first failure"
    assert clients.made == 2


def test_clients_of_a_job_end_with_it_although_its_objects_stay() -> None:
    def threads() -> set[Path]:
        """Return librdkafka's threads in this process."""
        found = set[Path]()
        for each in Path("/proc/self/task").glob("*/comm"):
            # A thread may end meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                if each.read_text().startswith("rdk:"):
                    found.add(each)
        return found

    before = threads()
    broker = connect("cluster", job_config(), JobDefinition("job", "run", {}, "changelog", "group", 1))
    for ask in (broker.changelog_ends, broker.input_ends):
        with pytest.raises(Transient):
            ask([0], timeout_seconds=LOOK_SECONDS)
    assert len(threads() - before) >= 4, "at least one for each client"
    broker.close()
    # Clients of an earlier test may end meanwhile, too.
    soon(lambda: threads() <= before, "clients of an ended job are there")
    for late in (broker.committed, broker.changelog_ends):
        with pytest.raises(Transient, match="the job has ended here"):
            late([0])
    with pytest.raises(Transient, match="the job has ended here"):
        broker.ask_topic_ids(["in"])


def test_what_the_clients_of_a_standby_tell_while_all_brokers_are_away_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks for the ends of changelogs only; what nobody takes from the other clients, they keep."""
    told: list[Refusals] = []
    monkeypatch.setattr(Refusals, "note", lambda self, _error: told.append(self))
    broker = connect("cluster", job_config(), JobDefinition("job", "run", {}, "changelog", "group", 1))

    def has_told() -> bool:
        with suppress(Transient):
            broker.changelog_ends([0], timeout_seconds=LOOK_SECONDS)
        # Those of the clients that are asked for ends, of the one of the group, and of the admin client.
        return len(set(told)) >= 3

    soon(has_told, "what clients tell is not taken")
    assert broker._refusals in told
    broker.close()
