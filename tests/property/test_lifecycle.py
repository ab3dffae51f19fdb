"""Whatever is said to a replica, and in whatever order its work answers, the rules hold."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from standby.replica.lifecycle import (
    ORDERS,
    RUNNING,
    TAKING_OVER,
    Effect,
    Order,
    Replica,
    Signal,
    opened,
    step,
)
from standby.replica.reconcile import reconcile
from standby.shared.model import Phase, ReplicaId, Role, TaskId, Wanted
from tests.examples import examples

ID = ReplicaId(TaskId("job", "main", 0), 0)

orders = st.builds(
    Order,
    replica=st.just(ID),
    signal=st.sampled_from(sorted(Signal)),
    epoch=st.integers(0, 6),
    role=st.sampled_from(Role),
)


@given(st.lists(orders, max_size=40))
def test_any_sequence_is_legal_and_epochs_never_fall(sequence: list[Order]) -> None:
    replica, _ = opened(Order(ID, Signal.OPEN, 0, Role.STANDBY))
    store_open = True  # or being opened
    for order in sequence:
        after, effects = step(replica, order)
        assert after.epoch >= replica.epoch
        if order.epoch < replica.epoch:
            assert (after, effects) == (replica, ())
        for effect in effects:
            if effect in (Effect.CLOSE_STORE, Effect.WIPE_STORE):
                store_open = False
            elif effect is Effect.OPEN_STORE:
                assert not store_open, "a store would be opened twice"
                store_open = True
            elif effect in (Effect.REPLAY, Effect.TAKE_OVER, Effect.OPEN_INPUT):
                assert store_open, f"{effect} on a closed store"
        assert store_open == (after.phase in RUNNING)
        replica = after


class Container(RuleBasedStateMachine):
    """A replica with a runtime that carries effects out one by one, under a leader that changes its mind."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: tuple[Wanted, ...] = ()
        self.held: dict[ReplicaId, Replica] = {}
        self.owed: deque[Effect] = deque()
        self.epoch = 1
        self.is_store_open = False
        self.is_input_open = False

    def settle(self) -> None:
        for order in reconcile(self.wanted, self.held):
            if order.replica not in self.held:
                self.held[ID], effects = opened(order)
            else:
                self.held[ID], effects = step(self.held[ID], order)
            self.take(effects)

    def take(self, effects: tuple[Effect, ...]) -> None:
        if Effect.HALT in effects:
            # A halt calls off whatever has not begun yet.
            self.owed = deque(each for each in self.owed if each is Effect.HALT)
        self.owed.extend(effects)

    @rule(role=st.sampled_from(Role))
    def want_at_a_newer_epoch(self, role: Role) -> None:
        self.epoch += 1
        self.wanted = (Wanted(ID, role, self.epoch),)
        self.settle()

    @rule(role=st.sampled_from(Role))
    def repeat_an_old_wish(self, role: Role) -> None:
        if self.held and self.epoch > 1:
            before = dict(self.held)
            self.wanted = (Wanted(ID, role, min(self.epoch, self.held[ID].epoch) - 1),)
            self.settle()
            assert self.held == before

    @rule()
    def want_nothing(self) -> None:
        self.wanted = ()
        self.settle()

    @rule(answers=st.lists(st.sampled_from(sorted(set(Signal) - ORDERS)), max_size=3))
    def work(self, answers: list[Signal]) -> None:
        """Carry out the next effect, and then hear of anything that such work may answer."""
        if self.owed:
            match self.owed.popleft():
                case Effect.HALT:
                    self.is_input_open = False
                case Effect.OPEN_STORE:
                    assert not self.is_store_open
                    self.is_store_open = True
                    self.hear(Signal.OPENED)
                case Effect.CLOSE_STORE:
                    assert not self.is_input_open, "the store is closed under an open input"
                    self.is_store_open = False
                    self.hear(Signal.RELEASED)
                case Effect.WIPE_STORE:
                    assert not self.is_input_open
                    self.is_store_open = False
                case Effect.OPEN_INPUT:
                    assert self.is_store_open
                    self.is_input_open = True
                case _:
                    assert self.is_store_open
        for signal in answers:
            if signal not in (Signal.OPENED, Signal.RELEASED):
                self.hear(signal)

    def hear(self, signal: Signal) -> None:
        if self.held:
            self.held[ID], effects = step(self.held[ID], Order(ID, signal, self.held[ID].epoch))
            self.take(effects)
            self.settle()

    @invariant()
    def a_closed_replica_holds_nothing_once_its_work_is_done(self) -> None:
        if self.held and not self.owed and self.held[ID].phase not in RUNNING:
            assert not self.is_store_open
            assert not self.is_input_open

    def teardown(self) -> None:
        """Left alone, and with work that succeeds, the replica comes to what is wanted of it."""
        self.epoch += 1
        self.wanted = (Wanted(ID, Role.ACTIVE, self.epoch),)
        self.settle()
        for _ in range(30):
            if self.owed:
                self.work([])
            phase = self.held[ID].phase
            if phase in TAKING_OVER and not self.owed:
                self.hear(
                    {
                        Phase.FENCING: Signal.WRITER_FENCED,
                        Phase.DRAINING: Signal.DRAINED,
                        Phase.CLAIMING: Signal.CLAIMED,
                    }[phase]
                )
        assert self.held[ID].phase is Phase.ACTIVE
        assert self.is_input_open


TestContainer = Container.TestCase
TestContainer.settings = settings(max_examples=examples(40), stateful_step_count=30)
