"""What the passes of one turn share: tasks grouped by placement, and what this turn has given away. Pure.

Tasks of one processor are placed together, but while a job's model changes some of them may still be elsewhere. A
*cohort* is a group of tasks that are placed alike; decisions are made per cohort. A settled processor is one cohort.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appmaster.planning.placement.fault_domains import FaultDomains, Relocation
from appmaster.planning.placement.loads import Loads
from appmaster.planning.state.actions import DecisionKind, Facts, PrepareHandover, RecordWrite, WriteRecords
from appmaster.planning.state.job import Job
from appmaster.planning.state.mappings import without
from appmaster.planning.state.model import Slot
from appmaster.planning.state.reasons import DecisionBasis, HandoverMotive, Reason
from appmaster.planning.state.view import (
    ClusterView,
    Container,
    ContainerRequest,
    Presence,
    Recorded,
    RequestState,
)
from locality.fit import Demand, Rest, fits
from locality.history import StateOnDisk, remember
from locality.hosts import HostInfo
from locality.question import Sibling
from standby.shared.model import (
    Phase,
    ProcessorId,
    ReplicaId,
    ReplicaStatus,
    Role,
    SlotId,
    TaskId,
    TaskRecord,
)

#: Most containers that are considered as the home of one copy.
_MOST_HOMES: Final = 4

#: How long something waits for a container to become warm, which takes it some 30 s on a busy host.
_WARM_MS: Final = 120_000

_NO_FACTS: Final = Facts()

#: The version of a task that has no record yet.
_NO_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Cohort:
    """Tasks of one processor that are placed alike."""

    job: Job
    processor: ProcessorId
    copies: tuple[int, ...]
    """The copies that the model asks for."""
    recorded: tuple[Recorded, ...]

    @property
    def record(self) -> TaskRecord:
        """The first task's record, whose placement is that of all its tasks."""
        return self.recorded[0].record

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """Its tasks."""
        return tuple(each.record.task for each in self.recorded)

    @property
    def restarts(self) -> bool:
        """Whether a lost active is started again (policy ``restart``).

        False for an active that the model has no slot for: it cannot be started again, so a standby takes over.
        """
        active = self.record.active
        return self.job.policy.restarts and (active is None or active in self.copies)


def is_current(job: Job, container: Container) -> bool:
    """Return whether a container runs the job's present revision, or has no code of the job yet."""
    return container.revisions.get(job.name, job.revision) == job.revision


def is_cold(job: Job, container: Container) -> bool:
    """Return whether a job's standbys warm up, and the container has not: to make one active costs some 10 s."""
    return job.policy.has_warm_standbys and not container.is_warm


def may_become_warm(job: Job, container: Container, now_ms: int) -> bool:
    """Return whether a container is cold and so young that something may wait until it is warm."""
    return is_cold(job, container) and now_ms - container.since_ms < _WARM_MS


def placement(record: TaskRecord) -> tuple[object, ...]:
    """Return the part of a record in which the tasks of a cohort are equal."""
    return (
        record.active,
        tuple(sorted(record.placed.items())),
        tuple(sorted(record.moving.items())),
        record.displaced,
    )


class Turn:
    """One turn's access to the view, and what the turn has decided so far."""

    def __init__(self, view: ClusterView) -> None:
        self.view: Final = view
        self.loads: Final = Loads(view)
        #: Containers that decisions of this turn fill.
        self.taken: set[str] = set()
        self.decided = 0
        #: Processors for which this turn has made a decision.
        self.touched: set[ProcessorId] = set()
        #: Job → the container that is replaced next (`appmaster.planning.placement.upgrade`).
        self.restarting: dict[str, str | None] = {}
        #: Mixed job → the container that it should give up (`appmaster.planning.placement.upgrade`).
        self.surplus: dict[str, Container | None] = {}
        #: Jobs for which that is unknown while a decision is being written.
        self.undecided: set[str] = set()
        #: Mixed job → whether copies lack a place (`appmaster.planning.placement.shared_containers`).
        self.lacking: dict[str, bool] = {}
        #: Jobs of which this turn writes a model, and processors for which it begins a hand-over.
        self.modelled: set[str] = set()
        self.handing_over: set[ProcessorId] = set()
        #: Job → how many hand-overs of it are being prepared.
        self.preparing = Counter(each.job for each in view.handovers)
        #: The next hand-over that spreads a job's actives (`appmaster.planning.rules.rebalance`).
        self.next_move: PrepareHandover | None = None
        #: See `appmaster.planning.placement.relocation`; None: not computed yet.
        self.relocations: dict[ProcessorId, Relocation] | None = None
        self.fault_domains: dict[tuple[str, ...], FaultDomains] = {}
        #: Standbys that move so that other copies find a place (`appmaster.planning.requests.room`).
        self.room: Mapping[ProcessorId, Relocation] = {}
        #: See `appmaster.planning.placement.pool_fit`.
        self.rests: dict[Demand, Mapping[str, Rest]] = {}
        #: See `appmaster.planning.placement.left_state`; None: not computed yet.
        self.leftovers: Mapping[TaskId, tuple[StateOnDisk, ...]] | None = None
        self._cohorts: dict[ProcessorId, tuple[Cohort, ...] | None] = {}
        self._unsettled: list[tuple[Job, ProcessorId]] | None = None
        self._homes: dict[ProcessorId, dict[int, Container]] = {}
        self._home_of: dict[str, SlotId | None] = {}
        self._free: list[Container] | None = None
        self._by_host: dict[str, list[Container]] | None = None
        self._hosts: dict[tuple[str, int], HostInfo] = {}
        self._by_job: dict[str, list[Container]] | None = None
        self._spares: dict[str, list[Container]] = {}
        self._idle: list[Container] | None = None
        self._by_slot: dict[Slot, list[Container]] | None = None
        self._requests: dict[Slot, ContainerRequest] | None = None
        self._highest_active: dict[str, int] = {}
        self._warming: dict[str, bool] = {}

    # ---- what is where ----

    def unsettled(self) -> Iterator[tuple[Job, ProcessorId]]:
        """Yield the processors that have something to do or to wait for, in order."""
        if self._unsettled is None:
            self._unsettled = [
                (job, processor)
                for processor in sorted({*self.view.unsettled, *self.room})
                if (job := self.view.jobs.get(processor.job)) is not None
                and processor in job.model.processors
            ]
        return iter(self._unsettled)

    def make_room(self, room: Mapping[ProcessorId, Relocation]) -> None:
        """Take note of what is to move so that other copies find a place; these processors are not settled then."""
        self.room, self._unsettled = room, None

    def cohorts(self, job: Job, processor: ProcessorId) -> tuple[Cohort, ...] | None:
        """Return a processor's tasks as cohorts; None while one of its records is being written."""
        if processor not in self._cohorts:
            self._cohorts[processor] = self._grouped(job, processor)
        return self._cohorts[processor]

    def only_cohort(self, job: Job, processor: ProcessorId) -> Cohort | None:
        """Return a processor's tasks; None if they are not placed alike, or one of its records is being written."""
        cohorts = self.cohorts(job, processor) or ()
        return cohorts[0] if len(cohorts) == 1 else None

    def _grouped(self, job: Job, processor: ProcessorId) -> tuple[Cohort, ...] | None:
        model = job.model.processors[processor]
        groups: dict[tuple[object, ...], list[Recorded]] = {}
        for task in model.tasks:
            if task in self.view.writing:
                return None
            recorded = self.view.records.get(task) or Recorded(TaskRecord(task, None, 0), _NO_VERSION)
            groups.setdefault(placement(recorded.record), []).append(recorded)
        return tuple(Cohort(job, processor, model.copies, tuple(each)) for each in groups.values())

    def holder(self, cohort: Cohort, copy: int) -> Container | None:
        """Return the container that holds a copy, if it may hold roles; else None."""
        return self.view.holder(cohort.record.placed.get(copy))

    def is_kept(self, cohort: Cohort, copy: int) -> bool:
        """Return whether a copy's slot is kept for a suspected container, which may come back with its state."""
        found = self.view.containers.get(cohort.record.placed.get(copy, ""))
        return found is not None and found.presence is Presence.SUSPECT

    def statuses(self, cohort: Cohort, copy: int, container: Container) -> Iterator[ReplicaStatus | None]:
        """Yield the reported status of each task's copy under the present epoch; None where there is none."""
        for each in cohort.recorded:
            status = container.statuses.get(ReplicaId(each.record.task, copy))
            yield status if status is not None and status.epoch == each.record.epoch else None

    def is_tailing(self, cohort: Cohort, copy: int, container: Container) -> bool:
        """Return whether the copy of every task there is a standby within the lag policy."""
        bound = cohort.job.policy.lag_time_ms
        return all(
            status is not None
            and status.role is Role.STANDBY
            and status.phase is Phase.TAILING
            and status.lag_ms is not None
            and status.lag_ms <= bound
            for status in self.statuses(cohort, copy, container)
        )

    def is_superseded(self, job: Job, container: Container) -> bool:
        """Return whether a container runs a revision that was replaced before it was ever active.

        A rollback was granted because that revision had committed nothing; it must not start to do so later.
        """
        revision = container.revisions.get(job.name, job.revision)
        if revision == job.revision:
            return False
        if job.name not in self._highest_active:
            recorded = (self.view.records.get(task) for task in job.model.tasks)
            self._highest_active[job.name] = max(
                (each.record.revision for each in recorded if each is not None), default=0
            )
        return 0 < self._highest_active[job.name] < revision < job.revision

    def home_of(self, container: str) -> SlotId | None:
        """Return the slot whose home a container is (`ClusterView.home`), computed once per turn."""
        if container not in self._home_of:
            self._home_of[container] = self.view.home(container)
        return self._home_of[container]

    def home(self, cohorts: Iterable[Cohort], slot: SlotId) -> Container | None:
        """Return the container in which a slot's tasks belong; None if there is none yet."""
        if slot.processor not in self._homes:
            self._homes[slot.processor] = self._all_homes(tuple(cohorts))
        return self._homes[slot.processor].get(slot.copy)

    def _all_homes(self, cohorts: tuple[Cohort, ...]) -> dict[int, Container]:
        """Return the home of each copy of a processor: the container with most of its tasks.

        Containers of the present revision come first. Two homes never share a host: otherwise copies of the tasks that
        come together there would. A process of a pool that does not take all of the processor's tasks is no home.
        """
        tasks = len(cohorts[0].job.model.processors[cohorts[0].processor].tasks)
        found: dict[str, tuple[int, Container]] = {}
        for cohort in cohorts:
            for copy, container in (*cohort.record.placed.items(), *cohort.record.moving.items()):
                holder = self.view.holder(container)
                if holder is None or 0 < holder.most_tasks < tasks:
                    continue
                if self.home_of(container) == SlotId(cohort.processor, copy):
                    found[container] = (copy, holder)
        ranked = sorted(found.values(), key=lambda each: self._rank(cohorts[0].job, each[1]))
        by_copy: dict[int, list[Container]] = {}
        for copy, holder in ranked:
            by_copy.setdefault(copy, []).append(holder)
        chosen = {copy: holders[0] for copy, holders in by_copy.items()}
        if len({each.host for each in chosen.values()}) == len(chosen):
            return chosen
        return _most_homes(by_copy, [holder.id for _, holder in ranked])

    def _rank(self, job: Job, container: Container) -> tuple[object, ...]:
        return (
            not is_current(job, container),
            -len(self.view.assigned.get(container.id, ())),
            container.id,
        )

    def hosts_of_copies(self, cohort: Cohort, but: int) -> dict[str, str]:
        """Return host → copy there, for every other copy of the tasks: placed, moving, or kept for a suspect.

        A container that YARN has ended, or that was told to exit, does not count.
        """
        return {host: label for host, (label, _) in self._copies_on(cohort, but).items()}

    def _copies_on(self, cohort: Cohort, but: int) -> dict[str, tuple[str, int]]:
        """Return host → copy there and that copy's cell, as `hosts_of_copies` does."""
        found: dict[str, tuple[str, int]] = {}
        for copy, container in (*cohort.record.placed.items(), *cohort.record.moving.items()):
            known = self.view.containers.get(container)
            if copy != but and known is not None and known.host:
                found[known.host] = f"{cohort.processor}#{copy}", known.cell
        active = cohort.record.active
        if cohort.record.displaced is not None and active is not None and active != but:
            # The active is about to start on the host where the standby is displaced.
            where = cohort.record.hosts.get(active, "")
            cell = next((each.cell for each in self.on_host(where)), 1)
            found[where] = f"{cohort.processor}#{active}", cell
        return found

    def siblings(self, cohorts: Sequence[Cohort], slot: SlotId) -> tuple[Sibling, ...]:
        """Return where the other copies of a slot's tasks are or are about to be, for the same-host check."""
        found: dict[str, tuple[str, int]] = {}
        for cohort in cohorts:
            displaced = cohort.record.displaced
            gone = f"{cohort.processor}#{displaced}" if displaced is not None else None
            others = self._copies_on(cohort, slot.copy)
            found.update({host: each for host, each in others.items() if each[0] != gone})
        for copy in cohorts[0].copies:
            request = self.request_at(SlotId(slot.processor, copy)) if copy != slot.copy else None
            if request is not None and request.host is not None and request.state is not RequestState.ASKING:
                found.setdefault(request.host, (str(request.slot), request.cell))
        return tuple(Sibling(label, self.host(host, cell)) for host, (label, cell) in found.items())

    def host(self, name: str, cell: int = 1) -> HostInfo:
        """Return what is known about a host, for one cell; a container may be on a host that was unknown before."""
        found = self._hosts.get((name, cell))
        if found is None:
            known = self.view.hosts.get(name) or self.view.described.get(name) or HostInfo(name)
            found = self._hosts[name, cell] = known if known.cell == cell else replace(known, cell=cell)
        return found

    def on_host(self, host: str) -> Sequence[Container]:
        """Return every container on a host."""
        if self._by_host is None:
            self._by_host = {}
            for each in self.view.containers.values():
                self._by_host.setdefault(each.host, []).append(each)
        return self._by_host.get(host, ())

    def of_job(self, job: Job) -> Sequence[Container]:
        """Return every container that serves a job, or was requested to; not its spare ones."""
        if self._by_job is None:
            self._by_job, self._spares = {}, {}
            for each in self.view.containers.values():
                owner = self.view.job_of(each)
                if owner is not None:
                    found = self._spares if each.is_spare else self._by_job
                    found.setdefault(owner.name, []).append(each)
        return self._by_job.get(job.name, ())

    def spares(self, job: Job) -> Sequence[Container]:
        """Return the spare containers of a job, whatever their presence."""
        self.of_job(job)
        return self._spares.get(job.name, ())

    def is_warming_up(self, job: Job) -> bool:
        """Return whether a container with a copy of the job is about to become warm. What can wait, waits for it."""
        if job.name not in self._warming:
            self._warming[job.name] = any(
                each.presence is Presence.LIVE
                and may_become_warm(job, each, self.view.now_ms)
                and self._has_copies(each)
                for each in self.of_job(job)
            )
        return self._warming[job.name]

    def _has_copies(self, container: Container) -> bool:
        """Return whether copies are placed in a container; one that is only moving there has its old container."""
        return any(
            self.view.records[task].record.placed.get(copy) == container.id
            for task, copy in self.view.assigned.get(container.id, {}).items()
        )

    # ---- containers to give away ----

    def free(self, job: Job) -> list[Container]:
        """Return the containers of a job in which nothing is placed, neither before nor by this turn."""
        return [each for each in self._all_free() if each.id not in self.taken and self._may_serve(each, job)]

    def free_at(self, job: Job, slot: Slot) -> list[Container]:
        """Return those of `free` that were requested for one slot."""
        if self._by_slot is None:
            self._by_slot = {}
            for each in self._all_free():
                if each.slot is not None:
                    self._by_slot.setdefault(each.slot, []).append(each)
        return [
            each
            for each in self._by_slot.get(slot, ())
            if each.id not in self.taken and self._may_serve(each, job)
        ]

    def idle(self, job: Job, is_idle: Callable[[Container], bool]) -> list[Container]:
        """Return those of `free` for which ``is_idle`` holds; it is called once per container and turn."""
        if self._idle is None:
            self._idle = [each for each in self._all_free() if is_idle(each)]
        return [each for each in self._idle if each.id not in self.taken and self._may_serve(each, job)]

    def _all_free(self) -> list[Container]:
        if self._free is None:
            # A spare container becomes one of them when a slot has taken it.
            self._free = [
                each
                for each in self.view.containers.values()
                if self.view.is_free(each) and not each.is_spare
            ]
        return self._free

    def _may_serve(self, container: Container, job: Job) -> bool:
        owner = self.view.job_of(container)
        if owner is None:
            # Otherwise its process has loaded the code of a job that is gone.
            return not container.revisions and fits(job.policy.demand, container.offer)
        return owner.name == job.name

    def request_at(self, slot: Slot) -> ContainerRequest | None:
        """Return the request for a slot; None if there is none."""
        if self._requests is None:
            self._requests = {each.slot: each for each in self.view.requests.values()}
        return self._requests.get(slot)

    def reserved_hosts(self, job: Job, slot: Slot) -> set[str]:
        """Return the hosts where a container was requested for a slot and serves nothing yet, or is requested."""
        request = self.request_at(slot)
        fresh = {each.host for each in self.free_at(job, slot) if not each.sent}
        return fresh | ({request.host} if request is not None and request.host else set())

    def take(self, container: Container) -> None:
        """Give a container away for this turn."""
        self.taken.add(container.id)

    # ---- decisions ----

    def decide(
        self,
        cohort: Cohort,
        kind: DecisionKind,
        reason: Reason[DecisionBasis] | Reason[HandoverMotive],
        edit: Callable[[TaskRecord], TaskRecord],
        *,
        container: Container | None = None,
        copy: int | None = None,
        facts: Facts = _NO_FACTS,
    ) -> WriteRecords | None:
        """Return the decision that changes each record of a cohort by ``edit``; None if that changes nothing."""
        decision = f"{self.view.epoch}-{self.view.decisions + 1 + self.decided}"
        changes = tuple(
            RecordWrite(replace(new, decision=decision), old.version if old.version != _NO_VERSION else None)
            for old in cohort.recorded
            for new in (self._with_revision(cohort.job, old.record, self._with_crash(edit(old.record))),)
            if new != old.record
        )
        if not changes:
            return None
        self.decided += 1
        self.touched.add(cohort.processor)
        if container is not None:
            self.take(container)
        return WriteRecords(
            decision,
            cohort.processor,
            changes,
            kind,
            reason,
            container.id if container is not None else "",
            copy,
            facts,
        )

    def _with_crash(self, record: TaskRecord) -> TaskRecord:
        crash = self.view.crashes.get(record.task)
        # A withdrawn task may be tried again: its failures do not count any more.
        return record if crash is None or record.active is None else replace(record, failures=crash)

    def _with_revision(self, job: Job, old: TaskRecord, new: TaskRecord) -> TaskRecord:
        """Return the new record with the revision that its active runs, if the decision changes the active.

        It is recorded before the active is informed, and never lowered: so it is known for good which revisions may
        have committed.
        """
        container = (
            self.view.containers.get(new.placed.get(new.active, "")) if new.active is not None else None
        )
        if new.epoch == old.epoch or container is None:
            return new
        return replace(new, revision=max(new.revision, container.revisions.get(job.name, job.revision)))

    def remembered(self, cohort: Cohort, record: TaskRecord, copy: int) -> TaskRecord:
        """Return the record with the host that a copy leaves added to its history."""
        host = record.hosts.get(copy, "")
        if not host:
            return record
        container = self.view.containers.get(record.placed.get(copy, ""))
        status = container.statuses.get(ReplicaId(record.task, copy)) if container is not None else None
        history = remember(
            record.history,
            host,
            self.view.wall(self.view.now_ms),
            status.applied if status is not None else None,
            expiry_ms=cohort.job.policy.locality_expiry_ms,
        )
        return replace(record, history=history)

    def placed(
        self, cohort: Cohort, record: TaskRecord, copy: int, container: Container, *, activates: bool
    ) -> TaskRecord:
        """Return the record with ``copy`` placed in ``container``; ``activates``: as the active, under a new epoch."""
        record = self.remembered(cohort, self.vacated(record, copy, container.host), copy)
        record = replace(
            record,
            placed={**record.placed, copy: container.id},
            hosts={**record.hosts, copy: container.host},
            moving=without(record.moving, copy),
            in_sync=tuple(each for each in record.in_sync if each != copy),
        )
        return activated(record, copy) if activates else record

    def vacated(self, record: TaskRecord, copy: int, host: str) -> TaskRecord:
        """Return the record, before ``copy`` goes to ``host``, without the other copies that are gone from there.

        The next leader may expect their containers again: a registration outlives its process, and a process may
        outlive its cell's AM. According to the records, two copies would then be on one host.
        """

        def is_gone(other: int, container: str) -> bool:
            return other != copy and container not in self.view.containers

        def was_there(other: int) -> bool:
            # The record does not name the host where the active was while a standby is displaced, and afterwards if
            # that was restored in its place.
            is_unknown = other == record.active and (
                record.displaced is not None or other not in record.hosts
            )
            return is_unknown or record.hosts.get(other) == host

        gone = {other for other, each in record.placed.items() if is_gone(other, each) and was_there(other)}
        return replace(
            record,
            placed={other: each for other, each in record.placed.items() if other not in gone},
            # No record names the host of a copy that is being filled.
            moving={other: each for other, each in record.moving.items() if not is_gone(other, each)},
            # A lost active stays a member of its in-sync set until another copy is active.
            in_sync=tuple(each for each in record.in_sync if each not in gone or each == record.active),
        )

    def dropped(self, cohort: Cohort, record: TaskRecord, copy: int) -> TaskRecord:
        """Return the record without a copy; its host is added to the history."""
        record = self.remembered(cohort, record, copy)
        return replace(
            record,
            placed=without(record.placed, copy),
            moving=without(record.moving, copy),
            in_sync=tuple(each for each in record.in_sync if each != copy),
        )


def _most_homes(by_copy: Mapping[int, Sequence[Container]], ranked: Sequence[str]) -> dict[int, Container]:
    """Return one container per copy, no two on one host, for as many copies as possible; then the best ranked."""
    copies = sorted(by_copy)
    best: tuple[int, list[int]] | None = None
    found: dict[int, Container] = {}
    for choice in itertools.product(*((*by_copy[copy][:_MOST_HOMES], None) for copy in copies)):
        chosen = {copy: each for copy, each in zip(copies, choice, strict=True) if each is not None}
        if len({each.host for each in chosen.values()}) < len(chosen):
            continue
        rank = (-len(chosen), sorted(ranked.index(each.id) for each in chosen.values()))
        if best is None or rank < best:
            best, found = rank, chosen
    return found


def activated(record: TaskRecord, copy: int, *, is_chosen: bool = False) -> TaskRecord:
    """Return the record in which ``copy`` is active under the next epoch; ``is_chosen``: by an operator."""
    stays = {each for each in record.in_sync if each != record.active}
    return replace(
        record,
        active=copy,
        epoch=record.epoch + 1,
        in_sync=tuple(sorted({*stays, copy})),
        is_chosen=is_chosen,
    )
