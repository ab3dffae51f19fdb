"""The control stream over real sockets and real TLS, against a scripted leader on loopback."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from standby.adapters.grpc import ControlStream
from standby.adapters.tls import TlsCredentials
from standby.control.effects import OpenStream
from standby.control.events import (
    AssignmentReceived,
    ControlEvent,
    ExitReceived,
    StreamBroken,
    StreamConnected,
)
from standby.errors import BadConfiguration
from standby.security.credentials import FILE, load
from standby.shared.clock import REAL
from standby.shared.records import ControllerRecord
from standby.shared.roles import PeerRole
from standby.shared.wire import Exit, Heartbeat, Hello, Report
from tests.fakes.certificates import keys_of, new_keyring, shared_keyring, write_credentials
from tests.fakes.leader import ScriptedLeader, Session
from tests.patience import PATIENCE_SECONDS, soon

HELLO = Hello(1, "container_1", "anywhere_0", 1, 7, "127.0.0.1", 4001, 4002, 77, 0)

_Kind = TypeVar("_Kind", bound=ControlEvent)


class News:
    """What the stream posted."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ControlEvent] = queue.SimpleQueue()
        self.post = self._queue.put

    def next(self, kind: type[_Kind]) -> _Kind:
        """Return the next event, which must be of that kind."""
        event = self._queue.get(timeout=PATIENCE_SECONDS)
        assert isinstance(event, kind), event
        return event

    def take(self, count: int) -> list[ControlEvent]:
        """Return the next events, of whatever kind."""
        return [self._queue.get(timeout=PATIENCE_SECONDS) for _ in range(count)]

    def is_empty(self) -> bool:
        return self._queue.empty()


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture
def leader() -> Iterator[ScriptedLeader]:
    with ScriptedLeader(keys_of(PeerRole.MASTER)) as leader:
        yield leader


def connect(
    leader: ScriptedLeader | int,
    news: News,
    keys: TlsCredentials | None = None,
    interval_ms: int = 50,
    clock: Callable[[], float] = REAL.monotonic,
) -> ControlStream:
    port = leader if isinstance(leader, int) else leader.record.port
    order = OpenStream(3, ControllerRecord("a", "127.0.0.1", port, 1), HELLO)
    return ControlStream(keys or keys_of(PeerRole.CONTAINER), interval_ms, order, news.post, clock)


def test_missing_credentials_are_named_and_none_shows_its_key(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=rf"{FILE}: No such file.*standfast submit"):
        load(tmp_path)
    write_credentials(tmp_path)
    bootstrap = shared_keyring().bootstrap(PeerRole.CONTAINER)
    assert load(tmp_path) == bootstrap
    assert "KEY" not in repr(bootstrap)
    assert bootstrap.secret not in repr(bootstrap)
    (tmp_path / FILE).write_bytes(b'{"credentials": 1}')
    with pytest.raises(BadConfiguration, match=rf"{FILE}: no credentials"):
        load(tmp_path)


def test_the_introduction_comes_first_then_everything_in_order_to_the_last_words(
    leader: ScriptedLeader, news: News
) -> None:
    stream, sent = connect(leader, news), list[int]()
    for number in range(100):
        stream.send(Report(number, ()), partial(sent.append, number))
    stream.finish(PATIENCE_SECONDS)
    session = leader.session()
    assert session.hello == HELLO
    session.wait_for(Report, lambda each: each.number == 99)
    numbers = [each.number for each in session.received if isinstance(each, Report)]
    assert numbers == list(range(100))
    assert sent == numbers
    assert session.is_over.wait(PATIENCE_SECONDS)


def test_a_process_that_stood_still_does_not_make_up_for_the_heartbeats_it_missed(
    leader: ScriptedLeader, news: News
) -> None:
    now = [1_000.0]
    stream = connect(leader, news, clock=lambda: now[0])
    session = leader.session()
    session.wait_for(Heartbeat)
    stream.send(Report(1, ()), lambda: None)
    session.wait_for(Report, lambda each: each.number == 1)
    assert beats(session) == [1], "no sooner than asked"
    now[0] += 600
    # The one that is late, and the one behind it on time.
    session.wait_for(Heartbeat, lambda each: each.sequence == 3)
    stream.send(Report(2, ()), lambda: None)
    session.wait_for(Report, lambda each: each.number == 2)
    assert beats(session) == [1, 2, 3]
    stream.drop()


def beats(session: Session) -> list[int]:
    return [each.sequence for each in session.received if isinstance(each, Heartbeat)]


def test_heartbeats_come_by_themselves_in_sequence_and_no_report_holds_them_up(
    leader: ScriptedLeader, news: News
) -> None:
    stream = connect(leader, news)
    session = leader.session()

    def has_beaten() -> bool:
        stream.send(Report(1, ()), lambda: None)
        return len(beats(session)) >= 7

    soon(has_beaten, "heartbeats come between reports")
    assert beats(session)[:7] == [1, 2, 3, 4, 5, 6, 7]
    stream.drop()


def test_orders_are_posted_in_order(leader: ScriptedLeader, news: News) -> None:
    stream = connect(leader, news)
    session = leader.session()
    sent = [session.assign(number) for number in range(1, 51)]
    session.exit(epoch=4)
    # That the connection stands is reported by another thread: it may come between the first orders.
    told = [each for each in news.take(52) if not isinstance(each, StreamConnected)]
    assert told == [
        *(AssignmentReceived(3, each) for each in sent),
        ExitReceived(3, Exit(4, "told by the test")),
    ]
    stream.drop()


def test_a_dead_leader_an_end_in_order_and_what_is_no_message_break_the_stream(
    leader: ScriptedLeader, news: News
) -> None:
    ends: tuple[tuple[Callable[[Session], object], str], ...] = (
        (Session.end, "ended by the leader"),
        (lambda session: session.send(HELLO), "not a message"),  # type: ignore[arg-type]
        (lambda _: leader.cut(), ""),
    )
    for end, reason in ends:
        connect(leader, news)
        session = leader.session()
        news.next(StreamConnected)
        end(session)
        broken = news.next(StreamBroken)
        assert reason in broken.reason
        assert broken.stream == 3


def test_a_leader_that_comes_back_is_connected_without_the_back_off_of_earlier_tries(news: News) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connect(port, news)
    assert "UNAVAILABLE" in news.next(StreamBroken).reason
    with ScriptedLeader(keys_of(PeerRole.MASTER), port=port) as leader:
        # The very next try: nothing of the one before is left, such as gRPC's own back-off.
        stream = connect(leader, news)
        news.next(StreamConnected)
        stream.drop()


def test_who_has_other_credentials_or_is_no_master_is_not_taken_for_a_leader(news: News) -> None:
    others = (PeerRole.MASTER, new_keyring()), (PeerRole.CONTAINER, None), (PeerRole.OPERATOR, None)
    for role, ring in others:
        with ScriptedLeader(keys_of(role, ring)) as pretender:
            connect(pretender, news)
            assert "UNAVAILABLE" in news.next(StreamBroken).reason, role


def test_a_dropped_stream_says_nothing_more(leader: ScriptedLeader, news: News) -> None:
    before = set(threading.enumerate())
    stream = connect(leader, news)
    session = leader.session()
    news.next(StreamConnected)
    (reader,) = (each for each in threading.enumerate() if each.name == "stream-3" and each not in before)
    stream.drop()
    assert session.is_over.wait(PATIENCE_SECONDS)
    reader.join(PATIENCE_SECONDS)
    assert not reader.is_alive()
    assert news.is_empty()


def test_a_leader_that_does_not_read_loses_the_stream(news: News) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        stream, sent = connect(mute.getsockname()[1], news), list[int]()
        for number in range(300):
            stream.send(Report(number, ()), partial(sent.append, number))
        assert "CANCELLED" in news.next(StreamBroken).reason
        assert sent == [], "none has left"
