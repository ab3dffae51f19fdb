"""How the parts of a candidate are composed: those with ports, clients and threads of their own are stand-ins."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

import appmaster.__main__ as root
from appmaster.__main__ import CandidateEnvironment, CandidateRuntime
from appmaster.planning.state.view import ClusterView
from appmaster.records import CandidateRecord
from appmaster.supervisor import RESIGNED
from standby.cluster import ClusterConfig
from standby.errors import Fenced, Transient, Unavailable
from standby.shared.clock import REAL
from standby.shared.probes import no_probe
from tests.interrupted import before_each_line
from tests.patience import PATIENCE_SECONDS


class Composed:
    """A candidate that stands for election until a test ends it, and what its parts were told, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.registered: list[CandidateRecord] = []
        self.served: dict[str, tuple[Any, ...]] = {}
        self.expire: Callable[[], None] = lambda: None
        #: What the watchdog looks at.
        self.count: Callable[[], int] = int
        #: Ends the candidate, during its first look at who leads.
        self.end: Callable[[], None] = lambda: None
        code = SimpleNamespace(may_lead=lambda: ())
        self._replace(monkeypatch, "EventLog", append=None, close=self._told("events closed"))
        self._replace(
            monkeypatch,
            "CandidateServices",
            code=code,
            changes=SimpleNamespace(info=dict),
            peer_port=7,
            **dict.fromkeys(("quarantined", "waiting", "change", "api"), lambda *_: {}),
            start=self._told("services started"),
            close=self._told("services closed"),
        )
        self._replace(monkeypatch, "ControlServer", start=lambda host: 5, stop=self._told("control closed"))
        self._replace(monkeypatch, "HttpPort", port=6, close=self._told("pages closed"))
        self._replace(monkeypatch, "Metrics", count=None, turned=None)
        zookeeper = SimpleNamespace(
            **dict.fromkeys(("client", "cells", "records", "jobs"), None),
            election=SimpleNamespace(controller=self._look, resign_lead=self._told("resigned")),
            registry=SimpleNamespace(register=self._register),
            on_session=lambda lost: setattr(self, "expire", lost),
        )
        begun: Any = (ClusterConfig("c", "z:1", is_pool=True), "h1", "container_1", None, None, None)
        self.runtime = CandidateRuntime(CandidateEnvironment(*begun), zookeeper, no_probe)  # type: ignore[arg-type]

    def _replace(self, monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
        def make(*arguments: Any, **_: Any) -> Any:
            self.served[name] = arguments
            return SimpleNamespace(**attributes)

        monkeypatch.setattr(root, name, make)

    def _told(self, what: str) -> Callable[..., None]:
        return lambda *_: self.told.append(what)

    def _register(self, record: CandidateRecord) -> None:
        self.told.append("registered")
        self.registered.append(record)

    def _look(self, watch: object) -> None:
        self.told.append("in the election")
        self.end()
        raise Transient("by the test")


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Composed]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    made = Composed(monkeypatch)
    yield made
    made.runtime._effects.writer.close()
    for each, handler in before.items():
        signal.signal(each, handler)
    # A signal at the end of `run` has begun to time the end of the process.
    made.runtime._signals.close()
    made.runtime._signals.join(PATIENCE_SECONDS)
    made.runtime._is_in_time()


def tell_to_end(composed: Composed) -> None:
    signal.raise_signal(signal.SIGTERM)
    # Until another thread has done what the signal asks for, the candidate looks again.
    assert composed.runtime._signals.flush(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("why", "end"),
    [
        ("the ZooKeeper session has expired", lambda composed: composed.expire()),
        ("told to end", tell_to_end),
    ],
)
def test_a_candidate_is_found_once_it_serves_and_leaves_nothing_behind_when_it_is_to_end(
    composed: Composed, why: str, end: Callable[[Composed], None]
) -> None:
    composed.end = lambda: end(composed)
    with pytest.raises(Fenced, match=why):
        composed.runtime.run()
    assert composed.told == [
        *("services started", "registered", "in the election", "resigned"),
        *("services closed", "events closed", "pages closed", "control closed"),
    ]
    (record,) = composed.registered
    assert (record.port, record.http_port, record.peer_port) == (5, 6, 7)


def test_a_candidate_that_is_told_to_end_does_so_without_zookeeper(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call waited until ZooKeeper answered again, and the process until it was killed."""
    late: list[Callable[[], object]] = []
    ended: list[int] = []

    def later(seconds: float, act: Callable[[], object]) -> Callable[[], None]:
        def cancel() -> None:
            if act in late:
                late.remove(act)

        late.append(act)
        return cancel

    def away() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        # Both signals: the second one calls off what the first one has begun, and begins it anew.
        assert composed.runtime._signals.flush(PATIENCE_SECONDS)
        (at_last,) = late
        at_last()

    monkeypatch.setattr(REAL, "later", later)
    monkeypatch.setattr(root, "_end", ended.append)
    composed.end = away
    with pytest.raises(Fenced, match="told to end"):
        composed.runtime.run()
    assert ended == [RESIGNED]
    assert late == [], "in time, nothing ends it"


def test_a_candidate_that_is_told_to_end_at_any_moment_of_a_wait_ends(composed: Composed) -> None:
    """Its handler waited for a lock that the interrupted wait held, and it kept its lease until it was killed."""
    with ExitStack() as waiting:
        composed.end = lambda: waiting.enter_context(
            before_each_line(lambda _: signal.raise_signal(signal.SIGTERM))
        )
        with pytest.raises(Fenced, match="told to end"):
            composed.runtime.run()


def test_a_candidate_that_does_not_lead_answers_for_no_leader_and_acts_for_none(composed: Composed) -> None:
    _, _, status, *_ = composed.served["HttpPort"]
    with pytest.raises(Unavailable, match="does not lead"):
        status()
    assert not composed.runtime._leads()
    assert not composed.runtime._cells.may_act()
    # Nor does one whose lease is over, as while ZooKeeper does not answer.
    composed.runtime._driver.view = ClusterView(epoch=3)
    with pytest.raises(Unavailable, match="cannot be certain"):
        status()
    _, _, has_lease = composed.served["Metrics"]
    assert not has_lease()


def test_a_turn_of_a_leader_that_does_not_end_is_noticed_and_no_wait_between_turns_is(
    composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was renewed by another thread, so it led for ever without deciding anything."""
    runtime, seen = composed.runtime, dict[str, set[int]]()

    class Watching:
        def __init__(self, count: Callable[[], int], on_stuck: Callable[[], None], *, looks: int) -> None:
            assert (on_stuck, looks / 2) == (root.end_stuck, 60)
            composed.count = count

        start, stop = composed._told("watched"), composed._told("no longer watched")

    def look(when: str) -> bool:
        seen[when] = {composed.count(), composed.count()}
        return False

    def lead(epoch: int, taken_over: Callable[[], None]) -> ClusterView:
        composed.told.append("leading")
        look("taking over")
        runtime._driver.turn([])
        look("waiting")
        return ClusterView()

    monkeypatch.setattr(root, "Watchdog", Watching)
    runtime._driver._may_act = lambda: look("turning")
    runtime._driver._turned = lambda seconds: None
    runtime._candidate = SimpleNamespace(lead=lead, has_more=lambda view: False)  # type: ignore[assignment]
    monkeypatch.setattr(runtime._services.code, "lead", lambda epoch: None, raising=False)
    monkeypatch.setattr(runtime._services.changes, "rest", lambda: None, raising=False)
    runtime._lead(1)
    assert {when: len(each) for when, each in seen.items()} == {"taking over": 2, "turning": 1, "waiting": 2}
    assert composed.told == ["watched", "leading", "no longer watched"]
