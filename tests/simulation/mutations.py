"""Planted bugs: each breaks one rule while its context lasts, to show that an invariant detects it.

Each is with the invariants that may detect it, and with the faults that it takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from appmaster import driver
from appmaster.eventlog.derive import derive
from appmaster.eventlog.entries import LogEntry
from appmaster.leadership.election import lease_ms
from appmaster.leadership.lease import Lease
from appmaster.planning.containers import detect
from appmaster.planning.fold import changes
from appmaster.planning.fold.apply import apply
from appmaster.planning.placement import spread
from appmaster.planning.placement.turn import Turn
from appmaster.planning.plan import plan
from appmaster.planning.requests import spares
from appmaster.planning.requests.needs import Need
from appmaster.planning.requests.spares import SpareShare
from appmaster.planning.rules import failover, rebalance, table
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Action
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import Processor, Slot, SpareSlotId
from appmaster.planning.state.reasons import HandoverMotive
from appmaster.planning.state.view import ClusterView, Container, Presence, Rebalancing, Recorded
from standby.feeding import core as feeding_core
from standby.feeding import members
from standby.feeding.events import Observed
from standby.feeding.state import FeedingState
from standby.replica import claim
from standby.shared import wire
from standby.shared.model import InputFailures, Offsets, ReplicaId, TaskId, TaskRecord
from tests.simulation import leader as leaders
from tests.simulation import replica as replicas
from tests.simulation.kafka import Log
from tests.simulation.leader import Candidate
from tests.simulation.replica import Active, HeldReplica
from tests.simulation.zookeeper import SESSION_MS, ZooKeeper

Plant = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Mutation:
    """A planted bug."""

    plant: Plant
    """Returns the context in which it is there."""
    invariants: tuple[str, ...]
    """Those that may detect it."""
    faults: tuple[str, ...]
    """The only ones of the stories in which one of them must; (): any."""


#: Every planted bug by its name.
MUTATIONS: Final[dict[str, Mutation]] = {}


def planted(*invariants: str, faults: tuple[str, ...] = ()) -> Callable[[Plant], Plant]:
    """Return what adds a function to the planted bugs, by its name with dashes."""

    def add(plant: Plant) -> Plant:
        MUTATIONS[plant.__name__.replace("_", "-")] = Mutation(plant, invariants, faults)
        return plant

    return add


@contextmanager
def swapped(owner: Any, name: str, value: object) -> Iterator[None]:
    """Have ``owner.name`` be ``value`` for a while."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def swapped_everywhere(original: object, name: str, value: object) -> Iterator[None]:
    """Have ``value`` in place of ``original`` in every module that imported it by ``name``."""
    owners = [each for each in list(sys.modules.values()) if getattr(each, name, None) is original]
    with ExitStack() as stack:
        for each in owners:
            stack.enter_context(swapped(each, name, value))
        yield


@planted("no_write_of_a_deposed_leader", faults=("stop before a write", "kill a container"))
def no_epoch_check() -> AbstractContextManager[None]:
    return swapped(ZooKeeper, "is_current", lambda self, epoch: True)


@planted("orders_only_from_acknowledged_records")
def order_before_record() -> AbstractContextManager[None]:
    original = Candidate._carry_out

    def carry_out(self: Candidate, action: Action, view: ClusterView) -> None:
        if isinstance(action, todo.WriteRecords):
            written = tuple(
                Recorded(each.record, 0 if each.expected_version is None else each.expected_version + 1)
                for each in action.changes
            )
            self.post(happened.RecordsWritten(action.decision, written, self._now()))
        original(self, action, view)

    return swapped(Candidate, "_carry_out", carry_out)


@planted("silence_is_the_others_fault", faults=("stop the leader", "kill a container"))
@contextmanager
def own_pause_is_their_silence() -> Iterator[None]:
    """With a long `cluster.leader.timeout.ms`: by default a lease ends in such a pause, which hides the bug."""
    with (
        swapped(leaders, "LEADER_TIMEOUT_MS", SESSION_MS),
        swapped(leaders, "LEASE_MS", lease_ms(SESSION_MS)),
        swapped(driver, "STALL_MS", 1 << 60),
    ):
        yield


@planted("planned_stops_are_no_failures", faults=("lose a NodeManager", "upgrade"))
@contextmanager
def planned_stop_is_a_failure() -> Iterator[None]:
    given_back: dict[str, Container] = {}
    mistaken: dict[int, ClusterView] = {}

    def mutated(view: ClusterView, event: Event) -> ClusterView:
        if isinstance(event, happened.Started) and isinstance(event.action, todo.ReleaseContainer):
            known = view.containers[event.action.container]
            given_back[known.skein_id] = replace(known, presence=Presence.LIVE)
        if isinstance(event, happened.ContainerCompleted) and event.skein_id in given_back:
            dead = given_back.pop(event.skein_id)
            view = replace(view, containers={**view.containers, dead.id: dead})
            mistaken[id(event)] = view
        return apply(view, event)

    def told(view: ClusterView, event: Event, after: ClusterView) -> Iterable[LogEntry]:
        return derive(mistaken.pop(id(event), view), event, after)

    with swapped(driver, "apply", mutated), swapped(driver, "derive", told):
        yield


@planted(
    "no_older_epoch_after_a_newer_claim",
    faults=("stop before the fence", "stop before the fence", "kill a container"),
)
def no_check_of_committed_epoch() -> AbstractContextManager[None]:
    return swapped(claim, "check_committed", lambda committed, task, epoch: None)


@planted("state_has_all_before", faults=("hang a transaction", "kill a container"))
def drain_to_stable_end() -> AbstractContextManager[None]:
    return swapped(replicas, "drain_target", lambda ends: ends[1])


@planted("copies_on_different_hosts")
def no_same_host_check() -> AbstractContextManager[None]:
    return swapped(Turn, "_copies_on", lambda self, cohort, but: {})


@planted(
    "an_active_starts_after_the_standby_there_has_stopped", faults=("lose a host", "stop before closing")
)
def start_before_stop() -> AbstractContextManager[None]:
    """Policy ``restart``: the active is started although the standby there has not said that it stopped."""
    return swapped_everywhere(failover.has_stopped, "has_stopped", lambda *_: True)


@planted("whole_at_the_end", faults=("break streams", "cut a host off"))
def no_resend() -> AbstractContextManager[None]:
    original = Candidate._send

    def send(self: Candidate, container: str, incarnation: int, message: wire.Down) -> None:
        if isinstance(message, wire.Assignment):
            said: dict[str, object] = self.__dict__.setdefault("_said", {})
            if said.get(container) == message.replicas:
                return
            said[container] = message.replicas
        original(self, container, incarnation, message)

    return swapped(Candidate, "_send", send)


@planted("new_active_new_epoch", faults=("kill a container",))
def promotion_keeps_epoch() -> AbstractContextManager[None]:
    original = plan

    def mutated(view: ClusterView) -> tuple[Action, ...]:
        return tuple(
            replace(action, changes=tuple(_with_old_epoch(view, each) for each in action.changes))
            if isinstance(action, todo.WriteRecords)
            else action
            for action in original(view)
        )

    return swapped(driver, "plan", mutated)


def _with_old_epoch(view: ClusterView, change: todo.RecordWrite) -> todo.RecordWrite:
    old = view.records.get(change.record.task)
    if old is None or old.record.active is None or change.record.active is None:
        return change
    return replace(change, record=replace(change.record, epoch=old.record.epoch))


@planted("state_has_all_before", faults=("lose answers of Kafka",))
def store_before_commit() -> AbstractContextManager[None]:
    original = HeldReplica._produce

    def produce(self: HeldReplica, active: Active, changes: list[int]) -> object:
        if self.store is not None:
            self.store.value = changes[-1]
        return original(self, active, changes)

    return swapped(HeldReplica, "_produce", produce)


@planted(
    "no_older_epoch_after_a_newer_claim",
    "every_record_once",
    "state_has_all_before",
    faults=("stop a container", "cut a host off"),
)
def no_fence() -> AbstractContextManager[None]:
    return swapped(Log, "_check_producer", lambda self, producer: None)


@planted("every_record_once", "state_has_all_before", faults=("kill a container",))
def input_from_memory() -> AbstractContextManager[None]:
    """The input goes on where this process left it, not where the committed offset says."""

    def first_offsets(committed: list[claim.Committed | None], *_: object) -> Offsets:
        return Offsets(tuple(max(0, each.offset - 1) if each is not None else 0 for each in committed))

    return swapped(claim, "first_offsets", first_offsets)


@planted("every_record_once", "state_has_all_before", faults=("kill a container",))
def feed_from_memory() -> AbstractContextManager[None]:
    """A feed begins where its tasks stood when they joined."""

    def observed(state: FeedingState, event: Observed) -> FeedingState:
        seen = members.observed(state, event)
        before = {
            task: replace(seen.members[task], committed=each.committed)
            for task, each in state.members.items()
        }
        return replace(seen, members=before)

    return swapped(feeding_core, "observed", observed)


@planted("only_what_ran_alone_is_blamed", faults=("fault of the job's code", "kill a process"))
def everybody_is_blamed() -> AbstractContextManager[None]:
    """An end of a process counts for each active that it held, whatever it ran and whatever ended it."""

    def crashed(view: ClusterView, container: Container, _: object, actives: Sequence[TaskId]) -> ClusterView:
        crashes = dict(view.crashes)
        for task in actives:
            status = container.statuses.get(ReplicaId(task, view.assigned[container.id][task]))
            if status is not None and status.input_committed is not None:
                crashes[task] = InputFailures(status.input_committed, 1)
        return replace(view, crashes=crashes)

    return swapped(changes, "_crashed", crashed)


@planted("a_promotion_that_hangs_is_given_up", faults=("hang a promotion", "kill a container"))
def nothing_is_stuck() -> AbstractContextManager[None]:
    stages = tuple(each for each in table.STAGES if each.name != "active stuck")
    return swapped(table, "STAGES", stages)


def _could_move(view: ClusterView, job: Job, known: Rebalancing) -> bool:
    """Return whether a hand-over would spread actives, without regard to other changes under way."""
    is_led = job.is_led and view.now_ms >= known.not_before_ms
    return is_led and bool(spread.next_steps(spread.stands_of(view, job)))


@planted("moves_between_copies_in_sync", faults=("kill a container",))
def moves_to_any_copy() -> AbstractContextManager[None]:
    """Actives are handed over to copies that are not in sync or not warm to spread them."""

    def options(
        view: ClusterView, job: Job, model: Processor, record: TaskRecord, records: object
    ) -> dict[str, int]:
        holders = {copy: view.holder(name) for copy, name in record.placed.items() if copy != record.active}
        return {spread.place_of(job, each): copy for copy, each in holders.items() if each is not None}

    def ready(turn: Turn, job: Job, step: spread.Step) -> Container | None:
        task = turn.view.job_tasks(step.processor)[0]
        return turn.view.holder(turn.view.records[task].record.placed.get(step.copy))

    @contextmanager
    def planted() -> Iterator[None]:
        with (
            swapped(spread, "_options", options),
            swapped(rebalance, "_ready", ready),
            swapped(rebalance, "_may", _could_move),
        ):
            yield

    return planted()


@planted("one_move_at_a_time", faults=("kill a container",))
def moves_together() -> AbstractContextManager[None]:
    """Several actives are handed over at the same time to spread them."""

    original = rebalance.due

    def due(turn: Turn) -> Iterator[Job]:
        moves = [
            each for each in turn.view.handovers.values() if each.reason.kind is HandoverMotive.REBALANCE
        ]
        for name, known in turn.view.rebalancing.items() if moves else ():
            if _could_move(turn.view, turn.view.jobs[name], known):
                yield turn.view.jobs[name]
        yield from original(turn)

    return swapped(rebalance, "due", due)


@planted("whole_at_the_end: actives are at", faults=("kill a container",))
def never_moves() -> AbstractContextManager[None]:
    stages = tuple(each for each in table.STAGES if each.name != "spread")
    return swapped(table, "STAGES", stages)


@planted(
    "no_leader_acts_on_a_lease_that_is_over",
    faults=("stop the leader for long", "stop the leader for long", "kill a container"),
)
def no_lease() -> AbstractContextManager[None]:
    return swapped(Lease, "is_valid", property(lambda self: True))


@planted("acts_end_before_another_leads", faults=("cut the leader off",))
def lease_of_a_session() -> AbstractContextManager[None]:
    """A leader acts until its session could end, although another may lead long before."""
    return swapped(leaders, "LEASE_MS", lease_ms(SESSION_MS))


@planted("a_disk_is_waited_for", faults=("slow a disk",))
def disks_are_not_waited_for() -> AbstractContextManager[None]:
    """A process that waits for its disk is lost as soon as one that is short of processor time."""
    return swapped(detect, "_DISK_TIMES", 1)


@planted("spares_stand_in_on_other_hosts", faults=("kill a container", "lose a host"))
def spares_anywhere() -> AbstractContextManager[None]:
    """A slot takes a spare container wherever it is."""

    def chosen(turn: Turn, need: Need) -> Container | None:
        found = [each for each in turn.spares(need.job) if each.presence is Presence.LIVE]
        return next((each for each in found if each.id not in turn.taken), None)

    return swapped(spares, "_best", chosen)


@planted("spares_delay_no_other_request", faults=("kill a container", "lose a host"))
def spares_first() -> AbstractContextManager[None]:
    """Spare containers are requested whatever else lacks a container."""
    original = spares.share

    def share(turn: Turn, needed: Mapping[Slot, Need]) -> SpareShare:
        with swapped(spares, "_is_whole", lambda turn, job: bool(job.model.processors)):
            return original(turn, {})

    return swapped(spares, "share", share)


@planted("replacements_by_spares_are_counted", "spares_hold_nothing", faults=("kill two containers",))
def spares_filled_unsaid() -> AbstractContextManager[None]:
    """Spare containers are given copies like any other that is free."""

    def all_free(self: Turn) -> list[Container]:
        return [each for each in self.view.containers.values() if self.view.is_free(each)]

    @contextmanager
    def planted() -> Iterator[None]:
        with swapped(Turn, "_all_free", all_free), swapped(spares, "take", lambda turn, needed: iter(())):
            yield

    return planted()


@planted("whole_at_the_end", faults=("kill a container",))
def spares_not_made_up_for() -> AbstractContextManager[None]:
    """No spare container is requested once the job has had one."""
    original = spares._vacant

    def vacant(turn: Turn, job: Job, count: int) -> list[SpareSlotId]:
        return original(turn, job, count) if turn.view.decisions < 40 else []

    return swapped(spares, "_vacant", vacant)
