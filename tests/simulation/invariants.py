"""The invariants of the whole system, checked against the actual state; the planner has its own in addition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from appmaster.eventlog.entries import EntryKind, LogEntry, RegisteredData
from appmaster.planning.state import actions as todo
from appmaster.planning.state.model import Slot, SpareSlotId
from appmaster.planning.state.reasons import HandoverMotive, Loss, Reason
from appmaster.planning.state.view import ClusterView, RequestState
from standby.replica.lifecycle import ENDED as LIFE_ENDED
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import Phase, ReplicaId, Role, SlotId, TaskId, TaskRecord, Wanted
from standby.shared.records import ControllerRecord
from tests.simulation.job import POLICY
from tests.simulation.leader import LEASE_MS
from tests.simulation.process import HEARD_MS
from tests.simulation.replica import WAY_MS
from tests.simulation.yarn import RUNNING

if TYPE_CHECKING:
    from tests.simulation.container import Container
    from tests.simulation.leader import Candidate
    from tests.simulation.world import World

#: In the name of a spare container's slot, and of no other.
SPARE: Final = ":spare-"

#: How long a container must have been running and within reach before its loss for silence is a mistake.
AUDIBLE_MS = 2_600

#: How long a container may wait for its disk at least: twice the time-out of heartbeats, less their interval.
DISK_MS = 2 * POLICY.heartbeat_timeout_ms - HEARD_MS


@dataclass
class Invariants:
    """Watches a world; raises `BrokenInvariant` at the event that breaks an invariant."""

    world: World
    ordered: dict[tuple[TaskId, int], list[TaskRecord]] = field(default_factory=dict)
    """Task and epoch → every version of its record that was ever durable."""
    losses: list[LogEntry] = field(default_factory=list)
    """What leaders said of containers that they lost."""
    activated_ms: dict[tuple[TaskId, int], int] = field(default_factory=dict)
    """Task and epoch → when the epoch was durable."""
    actives: dict[tuple[TaskId, int], int] = field(default_factory=dict)
    blamed: Counter[Ran] = field(default_factory=Counter)
    """Task and offset → how many processes ended of themselves, or may have, while it ran there alone."""

    spares: set[str] = field(default_factory=set)
    """Containers that came as spare ones, and that no slot has taken as far as leaders said."""
    taken: Counter[str] = field(default_factory=Counter)
    """Container → how often leaders said that a slot took it."""

    # ---- records ----

    def written(self, old: TaskRecord | None, new: TaskRecord) -> None:
        """Check a record that is becoming durable."""
        check = self.world.clock.check
        self._blaming(new)
        self.world.clock.tell(
            "record: {} active {} epoch {} placed {} in sync {}",
            *(new.task, new.active, new.epoch, dict(new.placed), new.in_sync),
        )
        if old is not None:
            check(new.epoch >= old.epoch, "epochs_never_fall", "{}: {} to {}", new.task, old.epoch, new.epoch)
        if new.active is not None:
            active = self.actives.setdefault((new.task, new.epoch), new.active)
            check(
                active == new.active,
                "one_active_of_an_epoch",
                "{} at {}: {} and {}",
                *(new.task, new.epoch, active, new.active),
            )
        self.ordered.setdefault((new.task, new.epoch), []).append(new)
        self.activated_ms.setdefault((new.task, new.epoch), self.world.clock.now_ms)
        # Only what this write adds is judged: one decision may write the records of a processor one by one.
        before = set(_places(old)) if old is not None else set()
        places = _places(new)
        self._filled({container for _, container in set(places) - before})
        for copy, where in places:
            for other, there in places:
                # Policy restart: the displaced copy may still be there, stopped.
                if other != copy and (copy, where) not in before and new.displaced not in (copy, other):
                    check(
                        not self._share_a_host(where, there),
                        "copies_on_different_hosts",
                        "{}: copies {} and {} in {} and {}",
                        *(new.task, copy, other, where, there),
                    )

    def _filled(self, containers: set[str]) -> None:
        """Check that what is placed in a spare container was said, and so counted, as a replacement by it."""
        self.world.clock.check(
            not containers & self.spares,
            "replacements_by_spares_are_counted",
            "{} are filled as spare containers",
            containers & self.spares,
        )

    def _share_a_host(self, one: str, other: str) -> bool:
        """Return whether two containers are on one host, alive or not: the next leader may expect both."""
        a, b = self.world.containers.get(one), self.world.containers.get(other)
        return a is not None and b is not None and a is not b and a.host is b.host

    def _counts(self, container: Container) -> bool:
        """Return whether a container lives as YARN has it: reality's orphans are not the planner's to place."""
        listed = self.world.yarn.listed.get(container.skein_id)
        return (
            container.is_alive
            and listed is not None
            and listed.state == RUNNING
            and container.name not in self.world.dismissed
        )

    # ---- blame ----

    def ended(self, end: ProcessEnd) -> None:
        """Take note of how a process ended."""
        if len(end.ran) == 1 and not end.is_from_outside:
            self.blamed.update(end.ran)

    def _blaming(self, record: TaskRecord) -> None:
        """Check that a task is blamed for no more ends of processes than it may have brought about."""
        failures = record.failures
        if failures is not None:
            self.world.clock.check(
                failures.count <= self.blamed[Ran(record.task, failures.offset)],
                "only_what_ran_alone_is_blamed",
                "{}: {} failures at {}",
                *(record.task, failures.count, failures.offset),
            )

    # ---- leaders ----

    def deposed(self, leader: ControllerRecord) -> None:
        """Check that a leader whose record another candidate has just seized may not act any more."""
        former = next((each for each in self.world.candidates if each.name == leader.candidate), None)
        self.world.clock.check(
            former is None or not former.lease.is_valid,
            "acts_end_before_another_leads",
            "{} of epoch {} is deposed within its lease",
            *(leader.candidate, leader.epoch),
        )

    def acting(self, leader: Candidate, action: todo.Action) -> None:
        """Check that a leader does nothing in the world once another may have led for longer than a lease.

        One that was deposed for its silence has no lease (`deposed`); one whose session has expired may have.
        """
        if isinstance(action, todo.PrepareHandover) and action.reason.kind is HandoverMotive.REBALANCE:
            self._spreading(leader, action)
        if isinstance(action, todo.TakeSpare):
            self._taking(leader, action)
        elif isinstance(action, todo.RequestContainer):
            self._requesting(leader, action)
        zookeeper = self.world.zookeeper
        is_outward = isinstance(
            action, (todo.SendAssignment, todo.SendExit, todo.RequestContainer, todo.ReleaseContainer)
        )
        self.world.clock.check(
            not is_outward
            or zookeeper.is_current(leader.epoch)
            or self.world.clock.now_ms - zookeeper.elected_ms < LEASE_MS,
            "no_leader_acts_on_a_lease_that_is_over",
            "{} of epoch {} does {}",
            *(leader.name, leader.epoch, type(action).__name__),
        )

    def _spreading(self, leader: Candidate, action: todo.PrepareHandover) -> None:
        """Check that actives are spread by one hand-over at a time, to copies in sync and warm by the leader's view."""
        view, check = leader.view, self.world.clock.check
        others = [
            each
            for each, known in view.handovers.items()
            if known.reason.kind is HandoverMotive.REBALANCE and each != action.processor
        ]
        others += [
            each
            for each, known in view.failovers.items()
            if known.reason is HandoverMotive.REBALANCE and view.holder(known.to) is not None
        ]
        check(
            not others, "one_move_at_a_time", "{} moves {} beside {}", leader.name, action.processor, others
        )
        container = view.containers[action.container]
        for task in view.job_tasks(action.processor):
            record = view.records[task].record
            status = container.statuses.get(ReplicaId(task, action.to_copy))
            check(
                action.to_copy in record.in_sync
                and record.placed.get(action.to_copy) == action.container
                and status is not None
                and (status.phase, status.epoch) == (Phase.TAILING, record.epoch)
                and container.is_warm,
                "moves_between_copies_in_sync",
                "{} moves {} to copy {}, which is {}",
                *(leader.name, task, action.to_copy, status),
            )

    # ---- spare containers ----

    def _taking(self, leader: Candidate, action: todo.TakeSpare) -> None:
        """Check that no slot takes a spare container on the host of another copy of its tasks."""
        if not isinstance(action.slot, SlotId):
            return
        for task in leader.view.job_tasks(action.slot.processor):
            recorded = leader.view.records.get(task)
            for copy, container in _places(recorded.record) if recorded is not None else ():
                other = self.world.containers.get(container)
                self.world.clock.check(
                    copy in (action.slot.copy, recorded.record.displaced if recorded else None)
                    or other is None
                    or not self._counts(other)
                    or not self._share_a_host(action.container, container),
                    "spares_stand_in_on_other_hosts",
                    "{} has {} taken for {}, beside copy {} in {}",
                    *(leader.name, action.container, action.slot, copy, container),
                )

    def _requesting(self, leader: Candidate, action: todo.RequestContainer) -> None:
        """Check that no spare container is requested while anything else is that is needed, or a copy has no place.

        A copy that is held is only wished elsewhere, until its container there starts.
        """
        if not isinstance(action.slot, SpareSlotId):
            return
        view = leader.view
        others = [
            each.slot
            for each in view.requests.values()
            if not isinstance(each.slot, SpareSlotId)
            and (each.state is RequestState.GRANTED or not _is_held(view, each.slot))
        ]
        wanted = 1 + self.world.job.standbys
        homeless = [
            task
            for task, each in view.records.items()
            if sum(view.holder(name) is not None for name in each.record.placed.values())
            < min(wanted, view.jobs[task.job].model.copies)
        ]
        self.world.clock.check(
            not (others or homeless),
            "spares_delay_no_other_request",
            "{} requests {} although {} are requested and {} lack a copy",
            *(leader.name, action.slot, others, homeless),
        )

    # ---- orders ----

    def ordering(self, leader: Candidate, action: todo.SendAssignment) -> None:
        """Check that an assignment says what some durable record says."""
        for each in action.replicas:
            self.world.clock.check(
                self._is_recorded(each, action.container),
                "orders_only_from_acknowledged_records",
                "{} tells {} to hold {} as {} at {}",
                *(leader.name, action.container, each.replica, each.role.value, each.epoch),
            )

    def _is_recorded(self, replica: Wanted, container: str) -> bool:
        copy = replica.replica.copy
        return any(
            container in (record.placed.get(copy), record.moving.get(copy))
            and (record.active == copy and record.placed.get(copy) == container)
            == (replica.role is Role.ACTIVE)
            for record in self.ordered.get((replica.replica.task, replica.epoch), ())
        )

    def obeying(self, container: Container, assignment: tuple[Wanted, ...]) -> None:
        """Take note of what a container begins to carry out."""
        self.world.clock.tell(
            "{}: obeys {}",
            container.name,
            _Listed(tuple(f"{each.replica} {each.role.value} at {each.epoch}" for each in assignment)),
        )

        for each in assignment:
            if each.role is Role.ACTIVE:
                self.claiming(container, each.replica)

    # ---- claims ----

    def claiming(self, container: Container, replica: ReplicaId) -> None:
        """Check that nothing else on the host runs a copy of the task when one is ordered to claim it, or does.

        One that the record does not name any more is about to be fenced: it is reality's, not the leader's doing.
        """
        recorded = self.world.zookeeper.records.get(replica.task)
        record = recorded.record if recorded is not None else None
        if record is not None and (
            record.active != replica.copy or record.placed.get(replica.copy) != container.name
        ):
            return
        if not self._counts(container):
            # A leader that was deposed had it ended: YARN says so long before it is true.
            return
        for other in self.world.containers.values():
            if other is container or other.host is not container.host or not self._counts(other):
                continue
            for each, held in other.kernel.held.items():
                self.world.clock.check(
                    each.task != replica.task or held.replica.phase in LIFE_ENDED,
                    "an_active_starts_after_the_standby_there_has_stopped",
                    "{} claims in {}, {} is {} in {}",
                    *(replica, container.name, each, held.replica.phase.value, other.name),
                )

    def giving_up(self, container: Container, replica: ReplicaId) -> None:
        """Check that no task waits so long for a promotion that hangs while another copy could take over.

        As long as something else fails the leader may have other worries.
        """
        recorded = self.world.zookeeper.records.get(replica.task)
        if recorded is None or self.world.clock.now_ms - self.world.faults_until_ms < WAY_MS - 5_000:
            return
        for copy, where in recorded.record.placed.items():
            other = self.world.containers.get(where)
            held = other.kernel.held.get(ReplicaId(replica.task, copy)) if other is not None else None
            self.world.clock.check(
                copy == replica.copy
                or copy not in recorded.record.in_sync
                or other is None
                or not self._counts(other)
                or held is None
                or held.replica.phase is not Phase.TAILING,
                "a_promotion_that_hangs_is_given_up",
                "{} hangs in {}, copy {} in {} could take over",
                *(replica, container.name, copy, where),
            )

    # ---- judgements ----

    def declaring_lost(self, leader: Candidate, action: todo.DeclareLost) -> None:
        """Check that no container is taken for silent that could be heard."""
        container = self.world.containers.get(action.container)
        if container is None or action.reason.kind is not Loss.SILENT or not leader.hears(action.container):
            return
        self.world.clock.check(
            not container.is_within_reach
            or not leader.is_within_reach
            or self.world.clock.now_ms - container.running_since_ms < AUDIBLE_MS
            or self.world.now_cut_ms(container, leader) < AUDIBLE_MS,
            "silence_is_the_others_fault",
            "{} declares {} lost: {}",
            *(leader.name, action.container, action.reason),
        )
        since_ms = container.at_disk_since_ms
        waits_ms = (
            self.world.clock.now_ms - since_ms if container.is_alive and since_ms is not None else DISK_MS
        )
        self.world.clock.check(
            waits_ms >= DISK_MS
            or not leader.is_within_reach
            or self.world.now_cut_ms(container, leader) < waits_ms + HEARD_MS,
            "a_disk_is_waited_for",
            "{} declares {} lost, which has waited for its disk for {} ms: {}",
            *(leader.name, action.container, waits_ms, action.reason),
        )

    def told(self, leader: Candidate, entry: LogEntry) -> None:
        """Check what the leader says that happened."""
        if isinstance(entry.details, RegisteredData) and entry.container is not None:
            is_spare = SPARE in (entry.details.slot or "")
            (self.spares.add if is_spare else self.spares.discard)(entry.container)
        if entry.kind is EntryKind.SPARE_TAKEN and entry.container is not None:
            self.spares.discard(entry.container)
            self.taken[entry.container] += 1
        if entry.kind is EntryKind.CONTAINER_LOST and entry.container is not None:
            self.losses.append(entry)
            # An orphan that this leader sends away was lost under the one before: its roles are missed, and reported.
            reason = entry.reason
            was_lost_before = isinstance(reason, Reason) and reason.kind is Loss.GONE_BEFORE_TAKEOVER
            self.world.clock.check(
                was_lost_before or entry.container not in leader.dismissed,
                "planned_stops_are_no_failures",
                "{} counts {} as lost: {}",
                *(leader.name, entry.container, entry.reason),
            )
            leader.lost.add(entry.container)
        is_failure = entry.kind in _FAILURES or (
            entry.kind is EntryKind.CONTAINER_GONE and entry.container in leader.lost
        )
        leader.failures += is_failure

    def turned(self, leader: Candidate, before: ClusterView) -> None:
        """Check that no budget was spent on what was not a failure."""
        held = [
            each.id
            for each in leader.view.containers.values()
            if each.is_spare and (leader.view.assigned.get(each.id) or each.binding)
        ]
        self.world.clock.check(not held, "spares_hold_nothing", "{} places copies in {}", leader.name, held)
        failures, leader.failures = leader.failures, 0
        spent = _spent(leader.view) - _spent(before)
        self.world.clock.check(
            spent <= failures,
            "planned_stops_are_no_failures",
            "{} spent {} of the budgets on {} failures",
            *(leader.name, spent, failures),
        )


def _places(record: TaskRecord) -> tuple[tuple[int, str], ...]:
    return (*record.placed.items(), *record.moving.items())


def _is_held(view: ClusterView, slot: Slot) -> bool:
    """Return whether a slot is one of copies that all have a container."""
    return isinstance(slot, SlotId) and all(
        view.holder(each.record.placed.get(slot.copy)) is not None
        for each in map(view.records.get, view.job_tasks(slot.processor))
        if each is not None
    )


#: Entries that tell of failures which spend a budget.
_FAILURES: Final = (EntryKind.LAUNCH_FAILED, EntryKind.REQUEST_CANCELLED)


def _spent(view: ClusterView) -> int:
    return sum(len(each.failures_ms) for each in view.attempts.values())


@dataclass(frozen=True)
class _Listed:
    """Joined only when somebody reads the story."""

    items: tuple[str, ...]

    def __format__(self, spec: str) -> str:
        return ", ".join(self.items) or "nothing"
