"""The loop carries events in and effects out, in order, over fakes of everything around it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from standby.control.effects import OpenStream, WriteLog
from standby.control.events import (
    AssignmentReceived,
    ControlEvent,
    LeaderChanged,
    Registered,
    SessionConnected,
    StreamBroken,
    StreamConnected,
    Terminated,
)
from standby.control.loop import TICK_SECONDS, ControlLoop
from standby.control.ports import OpenedStream, Ports, PostEvent
from standby.control.state import ControlPolicy, ControlState, NoStream
from standby.shared import exits
from standby.shared.clock import REAL, Clock
from standby.shared.model import Leftover, Phase, ReplicaId, Role, TaskId, Wanted
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import PROTOCOL, Assignment, JobDefinition, Report
from standby.threads.inbox import Inbox
from tests.fakes.clock import held
from tests.fakes.replicas import BREAKS, NEVER_CLOSES, FakeReplicas
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon

JOB = JobDefinition("flights", "r1", {}, "changelog", "group", 1)
LEFT = (Leftover(TaskId("flights", "main", 4), "r1", 9),)


class FakeStream:
    """Keeps what was sent."""

    def __init__(self, order: OpenStream) -> None:
        self.order = order
        self.sent: list[Report] = []
        self.is_dropped = False
        self.is_finished = False
        self.leave: Callable[[], None] = lambda: None

    def send(self, report: Report, is_sent: Callable[[], None]) -> None:
        self.sent.append(report)
        self.leave = is_sent

    def finish(self, timeout_seconds: float) -> None:
        self.is_finished = timeout_seconds > 0

    def drop(self) -> None:
        self.is_dropped = True


class Surrounded:
    """A loop in a world of fakes: ZooKeeper answers at once, streams connect at once."""

    def __init__(self, find: Callable[[], tuple[Leftover, ...]] = lambda: LEFT, clock: Clock = REAL) -> None:
        self.inbox: Inbox[ControlEvent] = Inbox()
        self.replicas = FakeReplicas()
        self.streams: list[FakeStream] = []
        self.has_left = False
        self.loop = ControlLoop(
            ControlState(
                ContainerRecord("container_1", "anywhere_0", 1, "h", 1, 2, 3, PROTOCOL, "1"),
                ControlPolicy(orphan_timeout_ms=60_000, close_deadline_ms=50),
            ),
            self.inbox,
            Ports(
                membership=self,
                connect=self.connect,
                replicas=self.replicas,
                find_leftovers=find,
                rss_bytes=lambda: 123,
            ),
            clock,
        )

    def register(self) -> None:
        self.inbox.post(Registered(7))

    def look_up_leader(self) -> None:
        self.inbox.post(LeaderChanged(ControllerRecord("a", "h", 5, 1)))

    def leave(self, timeout_seconds: float) -> None:
        self.has_left = timeout_seconds > 0

    def connect(self, order: OpenStream, post: PostEvent) -> OpenedStream:
        stream = FakeStream(order)
        self.streams.append(stream)
        post(StreamConnected(order.stream))
        return stream

    def led(self) -> FakeStream:
        """Turn until there is a stream; return it."""
        self.loop.begin()
        self.inbox.post(SessionConnected())
        return self.stream(1)

    def stream(self, count: int) -> FakeStream:
        def has_come() -> bool:
            self.loop.turn(LOOK_SECONDS)
            return len(self.streams) == count

        soon(has_come, lambda: f"{len(self.streams)} streams")
        return self.streams[-1]

    def order(self, *partitions: int) -> None:
        wanted = tuple(
            Wanted(ReplicaId(TaskId("flights", "main", each), 0), Role.ACTIVE, 1) for each in partitions
        )
        stream = self.streams[-1].order
        message = Assignment(1, 7, len(self.replicas.applied) + 1, wanted, (JOB,))
        self.inbox.post(AssignmentReceived(stream.stream, message))
        self.loop.turn(LOOK_SECONDS)


def test_an_order_is_obeyed_before_it_is_reported_and_a_broken_stream_dropped_before_the_next_one() -> None:
    world = Surrounded()
    first = world.led()
    assert first.order.hello.leftovers == LEFT, "what the disks hold"
    world.order(0)
    assert len(world.replicas.applied) == 1
    report = first.sent[-1]
    assert (report.number, report.rss_bytes, report.warm) == (1, 123, True)
    assert [each.phase for each in report.replicas] == [Phase.ACTIVE]
    assert report.replicas not in world.replicas.reported
    first.leave()
    assert world.replicas.reported == [report.replicas], "the kernel hears what has left the process"
    world.inbox.post(StreamBroken(1, "reset"))
    second = world.stream(2)
    assert first.is_dropped
    assert [each.phase for each in second.order.hello.replicas] == [Phase.ACTIVE]
    turns = world.loop.turns
    world.loop.turn(0)
    assert world.loop.turns == turns + 1


def test_disks_that_cannot_be_read_hold_nothing_up() -> None:
    def broken() -> tuple[Leftover, ...]:
        raise OSError("no such device")

    world = Surrounded(broken)
    assert world.led().order.hello.leftovers == ()


def test_disks_that_do_not_answer_do_not_hold_the_loop_up() -> None:
    answer = threading.Event()

    def slow() -> tuple[Leftover, ...]:
        answer.wait(PATIENCE_SECONDS)
        return LEFT

    before = set(threading.enumerate())
    world = Surrounded(slow)
    world.loop.begin()
    world.inbox.post(SessionConnected())
    for _ in range(5):
        world.loop.turn(LOOK_SECONDS)
    assert not world.streams
    # One of an earlier test may still be on its way out.
    looking = (each for each in threading.enumerate() if each.name == "leftovers" and each not in before)
    assert [each.daemon for each in looking] == [True]
    answer.set()
    assert world.stream(1).order.hello.leftovers == LEFT


def test_a_container_without_a_leader_for_a_minute_ends() -> None:
    clock = held()
    world = Surrounded(clock=clock)
    world.loop.turn(0)
    for passed in range(1, 61):
        clock.advance(1)
        world.loop.turn(0)
        assert (world.loop.state.closing is not None) is (passed == 60), passed
    assert world.loop.run().code == exits.ORPHANED


def test_the_exit_code_says_how_it_ended() -> None:
    for partition, code in ((0, exits.ORDERLY), (NEVER_CLOSES, exits.UNCLEAN), (BREAKS, exits.BROKEN)):
        world = Surrounded()
        stream = world.led()
        world.order(partition)
        world.inbox.post(Terminated("SIGTERM"))
        assert world.loop.run().code == code
        if code != exits.BROKEN:
            assert world.replicas.closed_by == (0.05, True), "a thread that hangs does not keep the process"
        world.loop.leave()
        assert stream.is_finished
        assert world.has_left


def test_a_warning_is_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for is_warning in (True, False):
        Surrounded().loop._perform(WriteLog("text", is_warning))
    assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.INFO]


def test_an_end_in_which_closing_fails_is_not_orderly() -> None:
    def fails(deadline_seconds: float) -> bool:
        raise OSError("no such device")

    world = Surrounded()
    world.replicas.close = fails  # type: ignore[method-assign]
    world.inbox.post(Terminated("SIGTERM"))
    assert world.loop.run().code == exits.UNCLEAN


def test_an_idle_loop_pauses_until_the_next_deadline() -> None:
    clock = held()
    world = Surrounded(clock=clock)
    now_ms = clock.monotonic_ms()
    for retry_at_ms, seconds in (
        (now_ms + 50, 0.05),
        (now_ms + 500, TICK_SECONDS),
        (now_ms, TICK_SECONDS),
        (None, TICK_SECONDS),
    ):
        world.loop._state = replace(world.loop.state, link=NoStream(1, retry_at_ms))
        assert world.loop._pause_seconds() == seconds, retry_at_ms
