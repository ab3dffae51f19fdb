"""Look-ups from outside: committed state only, of known age, and without a word to those who write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from standby.api import Store
from standby.errors import Transient
from standby.kernel.ports import Profile, StepFunction
from standby.kernel.reads import Declined, LookupRequest, LookupResult, look_up
from standby.shared.model import Phase, Role
from standby.state import INT, TEXT, Counters
from tests.meanwhile import Hold
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    return make_lab(1)


def count(rows: Any, state: Any, _: Any) -> None:
    """Count each key's records."""
    Counters(state["counts"], key=TEXT).add_many([key.decode() for key in rows["key"].to_pylist()])


def counting_one(lab: MemoryLab, step: StepFunction = count, **more: Any) -> MemoryContainer:
    """Return an active that has seen one record, of key k."""
    active = lab.begun(0, step=step, **more)
    lab.kafka.append("in", 0, b"k", b"v")
    active.await_processed()
    return active


def ask(
    container: MemoryContainer, key: str, role: Role = Role.ACTIVE, job: str = JOB, **more: Any
) -> list[LookupResult | Declined]:
    question = LookupRequest(job, "counts", key.encode(), role, **more)
    return list(look_up(question, container.replicas.held(), container.lab.clock.now_ms))


def found(container: MemoryContainer, key: str, role: Role = Role.ACTIVE, **more: Any) -> LookupResult:
    (answer,) = ask(container, key, role, **more)
    assert isinstance(answer, LookupResult), answer
    return answer


def tells(standby: MemoryContainer, number: int) -> bool:
    """Return whether a standby answers that it has seen so many records of key k."""
    (answer,) = ask(standby, "k", Role.STANDBY)
    return isinstance(answer, LookupResult) and answer.value == INT.dump(number)


def declined(container: MemoryContainer, key: str, role: Role = Role.ACTIVE, **more: Any) -> str:
    (answer,) = ask(container, key, role, **more)
    assert isinstance(answer, Declined), answer
    return answer.why


def test_the_active_and_a_standby_in_step_say_the_same(lab: MemoryLab) -> None:
    # It stays in step, however long it waits for its turn.
    lab.clock.hold()
    active = lab.container("a", step=count).activate()
    standby = lab.container("b", step=count).want(1, Role.STANDBY, 1)
    for _ in range(3):
        lab.kafka.append("in", 0, b"k", b"v")
    active.await_processed()
    standby.await_phase(Phase.TAILING)
    one = found(active, "k")
    assert (one.value, one.role, one.epoch, one.lag_ms) == (INT.dump(3), Role.ACTIVE, 1, 0)
    assert found(active, "other").value is None
    standby.eventually(lambda: tells(standby, 3))
    other = found(standby, "k", Role.STANDBY, max_lag_ms=10_000)
    assert (other.role, other.phase, other.replica.copy) == (Role.STANDBY, Phase.TAILING, 1)
    assert other.run == one.run == lab.definition.run
    assert "not active" in declined(standby, "k")
    assert "not standby" in declined(active, "k", Role.STANDBY)
    assert ask(active, "k", partition=7) == []
    assert ask(active, "k", job="other") == []


def test_what_is_not_in_the_store_yet_is_not_seen_and_no_reader_waits(lab: MemoryLab) -> None:
    active, hold = counting_one(lab), Hold()
    lab.kafka.after_commit = hold
    lab.kafka.append("in", 0, b"k", b"v")
    hold.await_reached()
    # The batch thread stands in its commit: the answer comes all the same, and is that of the commit before.
    assert found(active, "k").value == INT.dump(1)
    hold.let_go()
    active.await_processed()
    assert found(active, "k").value == INT.dump(2)


def test_a_standby_says_how_old_it_may_be_and_is_not_asked_when_that_is_too_old(lab: MemoryLab) -> None:
    lab.clock.hold()
    counting_one(lab)
    standby = lab.container("b", step=count).stand_by()
    standby.eventually(lambda: tells(standby, 1))
    lab.kafka.is_away = True
    lab.now_ms += 60_000
    # What is beyond it is unknown now.
    assert found(standby, "k", Role.STANDBY).lag_ms >= 59_000
    assert "behind" in declined(standby, "k", Role.STANDBY, max_lag_ms=30_000)
    lab.kafka.is_away = False
    standby.eventually(
        lambda: isinstance(ask(standby, "k", Role.STANDBY, max_lag_ms=30_000)[0], LookupResult)
    )


def test_one_whose_age_is_not_known_does_not_answer(lab: MemoryLab) -> None:
    lab.name(0, 1)
    standby = lab.container("b", step=count)
    lab.kafka.read_limit = 0
    lab.kafka.append("changelog", 0, b"\x06countsk", INT.dump(5))
    standby.want(1, Role.STANDBY, 1).await_phase(Phase.RESTORING)
    assert "not known" in declined(standby, "k", Role.STANDBY)
    lab.kafka.read_limit = 10
    standby.await_phase(Phase.TAILING)
    assert found(standby, "k", Role.STANDBY).value == INT.dump(5)


def test_a_state_that_is_being_loaded_is_left_alone(lab: MemoryLab) -> None:
    lab.name(0, 1)
    standby = lab.container("b", step=count).stand_by()
    (held,) = standby.replicas.held()
    readable = held.readable()
    assert readable is not None
    readable[0]._profile = Profile.LOADING
    with pytest.raises(Transient, match="restored"):
        readable[0].look_up([b"k"])
    assert "restored" in declined(standby, "k", Role.STANDBY)
    readable[0]._profile = Profile.SERVING


def test_a_replica_that_changes_while_it_is_read_is_judged_anew(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = counting_one(lab)
    (held,) = active.replicas.held()
    readable = held.readable()
    assert readable is not None
    store, before = readable[0], held.replica
    read = store.look_up

    def fenced_meanwhile(keys: Any) -> list[bytes | None]:
        held.replica = replace(before, phase=Phase.FENCED)
        return read(keys)

    monkeypatch.setattr(store, "look_up", fenced_meanwhile)
    assert "it is fenced, not active" in declined(active, "k")
    held.replica = before


def test_a_store_that_a_step_keeps_is_of_no_use_after_its_batch(lab: MemoryLab) -> None:
    kept: list[Store] = []

    def keep(rows: Any, state: Any, out: Any) -> None:
        count(rows, state, out)
        kept.append(state["counts"])

    active = counting_one(lab, step=keep)
    with pytest.raises(RuntimeError, match="over"):
        kept[0].put(b"k", b"late")
    assert found(active, "k").value == INT.dump(1)
