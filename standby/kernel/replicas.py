"""The replicas of a container: implements `standby.ports.Replicas`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration, StandfastError, Transient
from standby.kernel.children import Children
from standby.kernel.environment import Environment
from standby.kernel.job import JobKernel
from standby.kernel.loaded_code import LoadedCode, key_of
from standby.kernel.replica.runner import ReplicaRunner, RunResult
from standby.kernel.restore.snapshots import NotNow, Offer
from standby.kernel.strays import StateInUse
from standby.ports import LentTransform
from standby.replica.lifecycle import RUNNING, TAKING_OVER, Order, Signal, opened, step
from standby.replica.reconcile import reconcile
from standby.shared.model import Fault, Phase, ReplicaId, ReplicaStatus, Role, TaskId, Wanted
from standby.shared.wire import JobDefinition
from standby.threads.worker import Worker

_log: Final = logging.getLogger(__name__)

#: How often the conductor checks conditions that no event reports.
_TICK_SECONDS: Final = 0.1

#: How long a replica may take to stop, in addition to a commit's time, before the process must end.
_HALT_GRACE_SECONDS: Final = 10.0


class LocalReplicas:
    """Holds the assigned replicas; see `standby.ports.Replicas`.

    One thread, the conductor, owns all lifecycles: it receives events, steps the lifecycle table, and passes effects
    to the threads of the replicas and jobs. It never blocks on any of them.
    """

    def __init__(self, environment: Environment, on_change: Callable[[], None]) -> None:
        """``on_change`` is called on the conductor's thread when there is something new to report."""
        self._environment = environment
        self._clock = environment.clock
        self._on_change = on_change
        self._conductor = Worker("conductor", self._turn, failed=self._give_up)
        # Only ever replaced as a whole, because other threads read it.
        self._held: Mapping[ReplicaId, ReplicaRunner] = {}
        self._jobs: Mapping[str, JobKernel] = {}
        self._assignment: tuple[Wanted, ...] = ()
        self._definitions: Mapping[str, JobDefinition] = {}
        #: Each job that is being closed, and since when.
        self._closing_jobs: dict[str, tuple[JobKernel, float]] = {}
        self._codes = LoadedCode(environment.load_code, self._post_loaded, self._clock.monotonic)
        self._children = Children()
        self._prepared: frozenset[ReplicaId] = frozenset()
        self._look_at = 0.0
        self._broken: str | None = None
        self._is_closing = False
        self._is_empty = threading.Event()
        #: Whether something must be reported to the leader in this turn.
        self._has_changed = False
        self._conductor.start()

    # ---- the port ----

    def obey(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, JobDefinition]) -> None:
        """Make ``assignment`` the complete set of replicas held; does not block."""
        if not self._is_closing:
            self._conductor.put(partial(self._take_assignment, tuple(assignment), dict(jobs)))

    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        """Return the current status of every replica held, including closed ones until the next `obey`."""
        return {each: held.status() for each, held in self._held.items()}

    def note_reported(self, statuses: tuple[ReplicaStatus, ...]) -> None:
        """Record that a report with these statuses has left the process. Thread-safe."""
        for each in statuses:
            held = self._held.get(each.replica)
            if held is not None:
                held.note_reported(each)

    def held(self) -> tuple[ReplicaRunner, ...]:
        """Return every replica held. Thread-safe."""
        return tuple(self._held.values())

    @property
    def is_warm(self) -> bool:
        """Whether a promotion would find a warm pipeline now; False without any job."""
        jobs = self._jobs.values()
        return bool(jobs) and all(job.pipeline.is_warm for job in jobs)

    @property
    def revisions(self) -> Mapping[str, int]:
        """Job → revision that this process has loaded."""
        return self._codes.revisions

    @property
    def broken(self) -> str | None:
        """Why the whole container must end; None while it need not."""
        return self._broken

    def known(self) -> StateInUse:
        """Return the tasks that are held here, and the runs and directories of the known jobs. Thread-safe."""
        runs = {name: definition.run for name, definition in self._definitions.items()}
        places = {each.task: held.place() for each, held in self._held.items()}
        named = () if self._environment.state_dirs else (job.config.state_dirs for job in self._jobs.values())
        return StateInUse(places, runs, tuple(Path(each) for dirs in named for each in dirs))

    def offer(self, task: TaskId, run: str) -> Offer:
        """Return what is needed to copy a task's state for a peer. Raises `NotNow`. Thread-safe."""
        for held in self._held.values():
            if held.replica.id.task == task and held.job.definition.run == run:
                return held.offer()
        raise NotNow(f"{task} of run {run} is not held here")

    def lent(self, job: str, run: str, revision: int) -> LentTransform:
        """Return a job's transform, to be run for another container. Raises `NotNow`. Thread-safe."""
        ours = self._jobs.get(job)
        if ours is None or (ours.definition.run, ours.definition.revision) != (run, revision):
            raise NotNow(f"revision {revision} of run {run} of {job} does not run here")
        if not ours.pipeline.is_lending:
            raise NotNow(f"{job} is not warm here", is_soon=True)
        is_idle = all(each.replica.role is Role.STANDBY for each in self._held.values())
        return LentTransform(ours.pipeline.lend, is_idle)

    def close(self, deadline_seconds: float) -> bool:
        """Close everything within the deadline; return whether that succeeded."""
        self._is_closing = True
        self._conductor.put(partial(self._take_assignment, (), {}))
        return self._is_empty.wait(deadline_seconds)

    # ---- the conductor ----

    def _give_up(self, error: BaseException) -> None:
        _log.error("the conductor cannot go on", exc_info=error)
        self._break(f"the conductor cannot go on: {type(error).__name__}: {error}")
        self._conductor.end()

    def _turn(self) -> None:
        self._has_changed = False
        has_come = self._conductor.wait(self._clock.pace(_TICK_SECONDS))
        self._conductor.catch_up()
        changed = self._has_changed
        now = self._clock.monotonic()
        if now >= self._look_at or not has_come:
            # Checked by the clock as well, because commands may arrive continuously.
            self._look_at = now + _TICK_SECONDS
            changed |= self._look()
        changed |= self._settle()
        self._tell_jobs()
        changed |= self._look_at_preparations()
        if changed:
            self._on_change()
        self._end_if_done()

    def _take_assignment(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, JobDefinition]) -> None:
        self._assignment, self._definitions = assignment, jobs
        self._codes.keep(jobs)
        replicas = {each.replica for each in assignment}
        gone = [
            each
            for each, held in self._held.items()
            if held.replica.phase is Phase.CLOSED and each not in replicas
        ]
        self._drop(gone)
        self._has_changed |= bool(gone)

    def _take_result(self, result: RunResult) -> None:
        held = result.held
        counted = held.judge(result.run, result.signal)
        if counted is None:
            return
        order = Order(held.replica.id, counted, held.replica.epoch)
        has_moved = self._step(held, order, result.detail, result.fault)
        # The leader counts failures across replicas, so it must be informed before the next one ends the process.
        self._has_changed |= has_moved or counted is Signal.INPUT_FAILED

    def _take_loaded(self, definition: JobDefinition, error: StandfastError | None) -> None:
        self._codes.ended(definition, error)
        wanted = self._definitions.get(definition.name)
        is_final = error is not None and not isinstance(error, Transient)
        if is_final and wanted is not None and key_of(wanted) == key_of(definition):
            self._break(f"job {definition.name}: {error}")
        self._has_changed |= error is None

    def _settle(self) -> bool:
        """Apply every order that is due now; return whether a phase has changed."""
        self._settle_jobs()
        changed = False
        assignment = tuple(each for each in self._assignment if self._is_current(each))
        for order in reconcile(assignment, {each: held.replica for each, held in self._held.items()}):
            held = self._held.get(order.replica)
            if held is not None:
                changed |= self._step(held, order, "")
            elif order.replica.task.job in self._jobs:
                replica, effects = opened(order)
                held = ReplicaRunner(replica, self._jobs[order.replica.task.job], self._post)
                self._held = {**self._held, order.replica: held}
                held.move(replica, effects)
                changed = True
        return changed

    def _step(self, held: ReplicaRunner, order: Order, detail: str, fault: Fault = Fault.OTHER) -> bool:
        replica, effects = step(held.replica, order)
        return held.move(replica, effects, detail, fault)

    def _post(self, result: RunResult) -> None:
        """Enqueue a result. Thread-safe."""
        self._conductor.put(partial(self._take_result, result))

    def _post_loaded(self, definition: JobDefinition, error: StandfastError | None) -> None:
        """Enqueue the end of an attempt to load code. Thread-safe."""
        self._conductor.put(partial(self._take_loaded, definition, error))

    def _drop(self, replicas: list[ReplicaId]) -> None:
        for each in replicas:
            self._held[each].end()
        self._held = {each: held for each, held in self._held.items() if each not in replicas}

    # ---- jobs ----

    def _is_current(self, wish: Wanted) -> bool:
        """Return whether the job of ``wish`` is running here, in the wanted run."""
        job = self._jobs.get(wish.replica.task.job)
        return job is not None and self._is_same_run(job)

    def _is_same_run(self, job: JobKernel) -> bool:
        definition = self._definitions.get(job.definition.name)
        return definition is not None and definition.run == job.definition.run

    def _settle_jobs(self) -> None:
        """Start new jobs; end those that are no longer wanted, once their replicas are closed."""
        for name, job in tuple(self._jobs.items()):
            if self._is_same_run(job):
                # A container can adopt any new definition of the same revision; it cannot change the revision.
                if self._codes.may_run(self._definitions[name]):
                    job.definition = self._definitions[name]
            else:
                ours = [each for each, held in self._held.items() if held.job is job]
                if all(self._held[each].replica.phase is Phase.CLOSED for each in ours):
                    self._drop(ours)
                    self._jobs = {each: other for each, other in self._jobs.items() if other is not job}
                    # Where another job uses them, too, they are seen again at the next look.
                    self._children.forget(job.pipeline.child_pids)
                    self._closing_jobs[name] = job, self._clock.monotonic()
                    # A thread of its own: it may wait for code of the job, and others must not wait for that.
                    closer = Worker(f"{name}-closer").start()
                    closer.put(partial(self._close_job, job))
                    closer.close()
        for name, definition in self._definitions.items():
            if name not in self._jobs and name not in self._closing_jobs and self._broken is None:
                self._begin_job(definition)

    def _begin_job(self, definition: JobDefinition) -> None:
        """Start a job if this process may run it and has its code; called again when the wait is over."""
        if not (self._codes.may_run(definition) and self._codes.is_loaded(definition)):
            return
        try:
            self._jobs = {**self._jobs, definition.name: JobKernel(self._environment, definition)}
        except BadConfiguration as error:
            self._break(f"job {definition.name}: {error}")

    def _close_job(self, job: JobKernel) -> None:
        try:
            job.close()
        finally:
            self._conductor.put(partial(self._closing_jobs.pop, job.definition.name))

    def _tell_jobs(self) -> None:
        """Pass to each job the tasks that are becoming active, and the partitions to watch."""
        paused = {each.replica for each in self._assignment if each.is_paused}
        for each, held in self._held.items():
            held.pause(is_paused=each in paused)
        for job in self._jobs.values():
            ours = [held.replica for held in self._held.values() if held.job is job]
            # Includes replicas that are still opening, and those that are claimed and will join soon.
            expected = [each.id.task for each in ours if each.role is Role.ACTIVE and each.phase in RUNNING]
            job.pipeline.expect(expected)
            self._prepare_next(job)
            actives = [each.id.task.partition for each in ours if each.phase is Phase.ACTIVE]
            replayed = [
                each.id.task.partition
                for each in ours
                # Actives are included: the leader compares whether Kafka answers them and their standbys.
                if each.phase in (Phase.RESTORING, Phase.TAILING, *TAKING_OVER, Phase.ACTIVE)
            ]
            job.watch(replayed, actives)

    def _prepare_next(self, job: JobKernel) -> None:
        """Prepare the job's standbys that will be made active soon."""
        marked = {each.replica for each in self._assignment if each.is_next and each.role is Role.STANDBY}
        for held in self._held.values():
            if held.job is job:
                replica = held.replica
                is_standby = replica.phase in (Phase.RESTORING, Phase.TAILING)
                held.is_next = replica.id in marked and is_standby
                if held.is_next:
                    held.prepare()

    def _look_at_preparations(self) -> bool:
        """Return whether the set of prepared replicas has changed; the leader waits for it."""
        before = self._prepared
        self._prepared = frozenset(each for each, held in self._held.items() if held.is_prepared())
        return self._prepared != before

    # ---- conditions that no event reports ----

    def _look(self) -> bool:
        """Check for stuck work and dead children; return whether a phase has changed."""
        changed = False
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        for held in self._held.values():
            held.flush_if_due(now_ms)
            config = held.job.config
            if held.is_stuck(now, config.progress_timeout_ms / 1000):
                detail = f"input is waiting, but nothing was committed for {config.progress_timeout_ms} ms"
                order = Order(held.replica.id, Signal.FAILED, held.replica.epoch)
                changed |= self._step(held, order, detail)
            if held.is_hanging(now, held.job.way_seconds):
                self._break(
                    f"{held.replica.id}: {held.replica.phase.value} for more than {held.job.way_seconds:.0f} s, and no "
                    "further, though Kafka answers"
                )
            since = held.halting_since
            if since is not None and now - since > held.job.commit_seconds + _HALT_GRACE_SECONDS:
                pipeline = held.job.pipeline
                if pipeline.child_pids:
                    self._environment.marks.hang_in_child(
                        held.replica.id.task.job, has_run=pipeline.has_run_in_child
                    )
                self._break(f"{held.replica.id} did not stop within {now - since:.0f} s", may_be_code=True)
            closing = held.closing_since
            if closing is not None and now - closing > held.job.way_seconds:
                # The disk does not answer: only the end of the process releases the state on it.
                self._break(f"{held.replica.id} did not close its state within {now - closing:.0f} s")
        for name, job in self._jobs.items():
            job.ownership.look(
                held.active
                for held in self._held.values()
                if held.job is job and held.replica.phase is Phase.ACTIVE and held.active is not None
            )
            if job.pipeline.broken is not None:
                self._break(f"job {name}: {job.pipeline.broken}")
            dead = self._children.dead(job.pipeline.child_pids)
            if dead is not None:
                self._environment.marks.lose_child(name, dead.status, has_run=job.pipeline.has_run_in_child)
                self._break(f"child process {dead.pid} is dead", may_be_code=True)
        self._look_at_closing_jobs(now)
        for held in self._held.values():
            if held.broken is not None:
                self._break(held.broken)
        return changed

    def _look_at_closing_jobs(self, now: float) -> None:
        for name, (job, began) in self._closing_jobs.items():
            if name in self._definitions and now - began > job.way_seconds:
                # Only the end of the process lets the next run of the job begin here.
                self._break(f"job {name} did not close within {now - began:.0f} s")

    def _break(self, reason: str, *, may_be_code: bool = False) -> None:
        """Make the container end. ``may_be_code``: a job's code may be the cause."""
        if self._broken is None:
            if not may_be_code:
                self._environment.marks.forget()
            _log.error("the container must end: %s", reason)
            self._broken = reason
            self._on_change()

    def _end_if_done(self) -> None:
        if self._is_closing and not self._held and not self._jobs and not self._closing_jobs:
            self._codes.close()
            self._conductor.end()
            self._is_empty.set()
