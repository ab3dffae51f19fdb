"""One replica of the kernel in virtual time: the steps of its effects.

Mirrors `standby.kernel.replica.runner` and the folders `.active` and `.replay`: the lifecycle table, the decisions on
the way to active and those on feeding are the real ones. The threads are sequences of steps, executed in order, and a
crash or a stop of the process can come between any two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from standby.errors import Fenced, StandfastError, Transient, Unavailable
from standby.kernel.ports import WriterLost
from standby.replica import claim
from standby.replica.claim import Committed
from standby.replica.lifecycle import Effect, Replica, Signal
from standby.shared.model import Phase, ReplicaStatus, TaskRecord
from tests.simulation.kafka import Log
from tests.simulation.process import Call, Course, Runner, Until

if TYPE_CHECKING:
    from tests.simulation.kernel import Kernel

#: Lost claims in a row, without a single commit between, after which the replica stops by itself.
FENCES = 5

LAG_BOUND_MS = 2_000

#: After which a transaction that the broker does not answer is given up.
COMMIT_MS = 2_500

#: A replica that does not stop for so long ends its container; so does one whose way to active takes so long.
STOP_MS = 3_000
WAY_MS = 20_000

#: One way and back: Kafka, ZooKeeper.
KAFKA_HOP = (1, 8)
ZOOKEEPER_HOP = (1, 8)


class Run:
    """What effects of a replica belong together: called off together."""

    def __init__(self) -> None:
        self.is_cancelled = False


@dataclass
class Store:
    """A task's local state: the changelog position it was applied up to, and what it has seen of the input."""

    position: int = 0
    value: int = 0


@dataclass
class Active:
    """A claimed task."""

    producer: int
    committed: int
    metadata: str
    first_commit_ms: int | None = None


@dataclass
class Replay:
    """The reading of the changelog into the store."""

    run: Run
    told: Signal | None = None
    at_end_ms: int | None = None
    lag_ms: int | None = None
    target: int | None = None
    drained: list[Callable[[], None]] = field(default_factory=list)


class HeldReplica:
    """A replica's store and courses; `move` takes it on."""

    def __init__(self, replica: Replica, kernel: Kernel, log: Log) -> None:
        self.replica = replica
        self.kernel = kernel
        self.process = kernel.process
        self.clock = kernel.process.clock
        self.log = log
        self.detail = ""
        self.since_ms = self.clock.now_ms
        self.store: Store | None = None
        self.active: Active | None = None
        self.running_from: int | None = None
        """The input offset from which the job's code runs at this moment; None: it does not."""
        self.is_prepared = False
        self.replay: Replay | None = None
        self._entered: dict[Phase, int] = {}
        self._run = Run()
        self._lane: deque[tuple[Effect | None, Run]] = deque()
        self._is_busy = False
        self._fences = 0
        self._tries = 0

    # ---- the conductor's side ----

    def move(self, replica: Replica, effects: tuple[Effect, ...], detail: str = "") -> bool:
        """Take the replica's new value and begin its effects; return whether its phase has changed."""
        has_changed = replica.phase is not self.replica.phase
        if has_changed or detail:
            self.detail = detail
        if has_changed:
            self.since_ms = self.clock.now_ms
            self._entered = {
                **({} if replica.phase is Phase.FENCING else self._entered),
                replica.phase: self.since_ms,
            }
            self.clock.tell(
                "{}: {} {} at {} {}",
                self.process.name,
                replica.id,
                replica.phase.value,
                replica.epoch,
                detail,
            )
        self.replica = replica
        for effect in effects:
            if effect is Effect.HALT:
                self._run.is_cancelled = True
                self._run = Run()
                self._lane.append((None, self._run))
            else:
                self._lane.append((effect, self._run))
        self._next()
        return has_changed

    def judge(self, run: Run, signal: Signal) -> Signal | None:
        """Return what a result counts as; see `standby.kernel.replica.runner`."""
        if run is not self._run or run.is_cancelled:
            return None
        if signal is Signal.CAUGHT_UP and self.replica.phase is Phase.RESTORING:
            self._fences = self._tries = 0
        elif signal is Signal.WRITER_LOST:
            if self.active is not None:
                self._fences = self._fences + 1 if self.active.first_commit_ms is None else 0
            if self._fences >= FENCES:
                return Signal.FENCED
        return signal

    def status(self) -> ReplicaStatus:
        replica, store, active = self.replica, self.store, self.active
        applied = end = lag_ms = None
        if store is not None:
            applied = store.position
        if replica.phase is Phase.ACTIVE:
            end, lag_ms = applied, 0
        elif applied is not None and self.replay is not None and self._is_answered:
            end, lag_ms = max(self.log.stable_end, applied), self.replay.lag_ms
        has_input = replica.phase is Phase.ACTIVE and active is not None
        return ReplicaStatus(
            replica=replica.id,
            role=replica.role,
            phase=replica.phase,
            epoch=replica.epoch,
            applied=applied,
            end=end,
            lag_ms=lag_ms,
            input_committed=active.committed if has_input and active is not None else None,
            input_end=self.log.input_end if has_input and self._is_answered else None,
            is_cut_off=has_input and not self._is_answered,
            first_commit_ms=active.first_commit_ms if has_input and active is not None else None,
            since_ms=self.since_ms,
            entered=self._entered,
            detail=self.detail,
            is_prepared=self.is_prepared and replica.phase is Phase.TAILING,
        )

    @property
    def _is_answered(self) -> bool:
        return not (self.log.is_away or self.process.is_without_kafka)

    # ---- the lane ----

    def _next(self) -> None:
        if self._is_busy or not self._lane:
            return
        effect, run = self._lane.popleft()
        if effect is not None and run.is_cancelled:
            self._next()
            return
        self._is_busy = True
        course = self._course(effect, run)

        def done(error: StandfastError | None) -> None:
            self._is_busy = False
            if error is not None:
                self._failed(run, error)
            self._next()

        Runner(self.process, course, done).begin()

    def _failed(self, run: Run, error: StandfastError) -> None:
        if isinstance(error, WriterLost):
            self._fences += error.fenced
        signal = (
            Signal.FENCED
            if isinstance(error, Fenced)
            else Signal.WRITER_LOST
            if isinstance(error, Transient)
            else Signal.FAILED
        )
        self._post(run, signal, str(error))

    def _post(self, run: Run, signal: Signal, detail: str = "") -> None:
        self.kernel.result(self, run, signal, detail)

    def _course(self, effect: Effect | None, run: Run) -> Course:
        if effect is None:
            return self._halt()
        if effect is Effect.OPEN_STORE:
            return self._open(run)
        if effect is Effect.WIPE_STORE:
            return self._wipe()
        if effect is Effect.REPLAY:
            return self._begin_replay(run)
        if effect is Effect.TAKE_OVER:
            return self._take_over(run)
        if effect is Effect.OPEN_INPUT:
            return self._open_input(run)
        assert effect is Effect.CLOSE_STORE
        return self._close(run)

    def _halt(self) -> Course:
        if self.active is not None:
            self.kernel.feeding.leave(self.replica.id.task)
        self.active = None
        self.replay = None
        yield self.clock.between(1, 20)

    def _disk(self, least: int, most: int) -> int:
        return self.clock.between(least, most) * self.process.host.slowness

    def _open(self, run: Run) -> Course:
        task, host = self.replica.id.task, self.process.host
        yield self._disk(5, 40)
        while host.stores.get(task, self.process) is not self.process:
            # Somebody else has the database open: waited for, as the lock is.
            if run.is_cancelled:
                return
            yield self.clock.between(50, 300)
        if run.is_cancelled:
            return
        host.stores[task] = self.process
        position, value = host.disks.get(task, (0, 0))
        self.clock.check(
            position <= self.log.end,
            "position_within_changelog",
            "{}: {} of {}",
            task,
            position,
            self.log.end,
        )
        self.store = Store(position, value)
        self._post(run, Signal.OPENED)

    def _wipe(self) -> Course:
        self._give_store_back()
        self.process.host.disks.pop(self.replica.id.task, None)
        yield self._disk(2, 20)

    def _close(self, run: Run) -> Course:
        self.kernel.passed("closing")
        yield self._disk(2, 30)
        self.flush()
        self._give_store_back()
        self._post(run, Signal.RELEASED)

    def flush(self) -> None:
        """Put the store on the disk; a killed process leaves what was flushed last."""
        if self.store is not None:
            self.process.host.disks[self.replica.id.task] = (self.store.position, self.store.value)

    def damage(self) -> None:
        """Have the replica find its state damaged, where it is open."""
        if self.store is not None:
            self._post(self._run, Signal.STATE_LOST, "a damaged block")

    def _give_store_back(self) -> None:
        self.store = None
        if self.process.host.stores.get(self.replica.id.task) is self.process:
            del self.process.host.stores[self.replica.id.task]

    # ---- replay ----

    def _begin_replay(self, run: Run) -> Course:
        self._replay_on(run)
        yield 0

    def _replay_on(self, run: Run) -> Replay:
        if self.replay is None:
            self.replay = Replay(run)
            self.process.after(self.clock.between(2, 20), self._read, self.replay)
        self.replay.run = run
        return self.replay

    def _read(self, replay: Replay) -> None:
        """Apply a little of what is stable, then come again; or wait until there is more."""
        store, log = self.store, self.log
        if replay is not self.replay or store is None:
            return
        if not self._is_answered or self.process.host.is_cut:
            replay.lag_ms = None
            self.process.after(self.clock.between(50, 150), self._read, replay)
            return
        until = min(log.stable_end, store.position + 40)
        for entry in log.entries[store.position : until]:
            if entry is not None:
                store.value = entry
        store.position = max(store.position, until)
        self._judge(replay, store)
        if store.position < log.stable_end:
            self.process.after(self._disk(3, 12), self._read, replay)
        else:
            log.readers.append(lambda: self.process.after(self.clock.between(3, 40), self._read, replay))

    def _judge(self, replay: Replay, store: Store) -> None:
        if replay.target is not None and store.position >= replay.target:
            drained, replay.drained = replay.drained, []
            for each in drained:
                each()
            return
        now = self.clock.now_ms
        if store.position >= self.log.stable_end:
            replay.at_end_ms = now
        replay.lag_ms = now - replay.at_end_ms if replay.at_end_ms is not None else None
        is_in_sync = replay.lag_ms is not None and replay.lag_ms < LAG_BOUND_MS
        signal = Signal.CAUGHT_UP if is_in_sync else Signal.FELL_BEHIND
        if signal is not replay.told and (is_in_sync or replay.told is not None):
            replay.told = signal
            self._post(replay.run, signal)

    # ---- the one way to active (rule `one-way`) ----

    def _take_over(self, run: Run) -> Course:
        task, copy, epoch = self.replica.id.task, self.replica.id.copy, self.replica.epoch
        tries, self._tries = self._tries, self._tries + 1
        if tries:
            yield min(25 * 2**tries, 2_000)
            if run.is_cancelled:
                return
        replay = self._replay_on(run)
        record: TaskRecord = claim.check_record((yield self._read_record()), task, copy, epoch)
        self._pass(run, "record read")
        yield self.clock.between(1, 5)
        if self.kernel.hangs:
            yield from self._hang(run)
        producer: int = yield from self._ask(run, self._kafka(self.log.init, (2, 60)), 30_000)
        self._pass(run, "writer initialised")
        self._post(run, Signal.WRITER_FENCED)
        committed: Committed | None = yield from self._ask(run, self._kafka(self.log.read_committed), 5_000)
        claim.check_committed([committed], task, epoch)
        offset = claim.first_offsets([committed], record, "earliest", lambda: [(0, self.log.input_end)]).total
        self._pass(run, "offsets read")
        target = drain_target((yield self._kafka(self.log.read_ends)))
        while (yield self._kafka(self.log.read_ends))[1] < target:  # Transient ends this try
            yield self.clock.between(5, 60)
            self._pass(run)
        replay.target = target
        while self.store is not None and self.store.position < target:
            yield Until(replay.drained)
            self._pass(run)
        self._pass(run, "drained")
        self._post(run, Signal.DRAINED)
        self.replay = None
        active = Active(producer, offset, claim.claim_text(epoch, self.kernel.run_id))
        assert self.store is not None
        state = self.store.value
        yield self.clock.between(1, 5)
        yield from self._ask(run, self._kafka(lambda: self.log.produce(producer, [])), COMMIT_MS)
        self.kernel.claiming(self.replica.id)
        yield from self._ask(run, self._commit(active, offset, state, offset), COMMIT_MS)
        self._pass(run, "claimed")
        self.active = active
        self._tries = 0
        self._post(run, Signal.CLAIMED)

    def _hang(self, run: Run) -> Course:
        """Stand still for ever, in a call that nothing ends: the container gives itself up."""
        self.kernel.hangs = False
        self.clock.tell("{}: {} hangs", self.process.name, self.replica.id)
        begun_ms, halted_ms = self.clock.now_ms, 0
        while self.kernel.broken is None:
            yield 200
            now_ms = self.clock.now_ms
            halted_ms = halted_ms or (now_ms if run.is_cancelled else 0)
            if halted_ms and now_ms - halted_ms > STOP_MS:
                self.kernel.broken = f"{self.replica.id} did not stop"
            elif not halted_ms and now_ms - begun_ms > WAY_MS:
                self.kernel.giving_up(self.replica.id)
                self.kernel.broken = f"{self.replica.id} gets no further"
        yield Until([])

    def _ask(self, run: Run, call: Call, for_ms: int) -> Course:
        """Ask the broker; while it is away the client tries again, for so long."""
        begun_ms = self.clock.now_ms
        while True:
            try:
                answer = yield call
            except WriterLost:
                raise
            except Transient as error:
                self._pass(run)
                if self.clock.now_ms - begun_ms > for_ms:
                    raise WriterLost(str(error)) from error
                yield self.clock.between(50, 300)
                continue
            return answer

    def _read_record(self) -> Call:
        return Call(ZOOKEEPER_HOP, lambda: self.kernel.read_record(self.replica.id.task))

    def _produce(self, active: Active, changes: list[int]) -> Call:
        return self._kafka(lambda: self.log.produce(active.producer, changes))

    def _kafka(self, act: Callable[[], Any], hop_ms: tuple[int, int] = KAFKA_HOP) -> Call:
        """Return the call of a broker, which a process may be cut off from."""

        def ask() -> Any:
            if self.process.is_without_kafka:
                raise Transient("no broker can be reached")
            return act()

        return Call(hop_ms, ask)

    def _pass(self, run: Run, step: str = "") -> None:
        if step:
            self.kernel.passed(step)
        if run.is_cancelled:
            raise WriterLost("called off")

    def _commit(self, active: Active, start: int, state: int, end: int) -> Call:
        committed, log, who = Committed(end, active.metadata), self.log, self.process.name

        def commit() -> int | None:
            loses_answer = log.is_flaky and self.clock.happens(0.3)
            if loses_answer and self.clock.happens(0.5):
                raise WriterLost("lost on the way there")
            position = log.commit(active.producer, who, start, state, committed)
            if loses_answer:
                raise WriterLost("lost on the way back")
            return position

        return self._kafka(commit)

    # ---- active ----

    def _open_input(self, run: Run) -> Course:
        assert self.active is not None
        # The feed has a thread of its own: orders to halt do not wait for it.
        self.kernel.feeding.join(self, run, self.active)
        yield 0

    def input_ended(self, run: Run, signal: Signal, detail: str) -> None:
        self._post(run, signal, detail)

    def next_batch(self, start: int) -> tuple[int, int]:
        """Return the first offset of the batch that begins at ``start``, and its end."""
        return start, min(self.log.input_end, start + self.clock.between(1, 12))

    def commit_batch(self, run: Run, active: Active, start: int, end: int) -> Course:
        """Commit a batch of the task, and write what came of it."""
        self._check_not_over(run, active)
        assert self.store is not None
        state = self.store.value
        changes = [state + each + 1 for each in range(end - start)]
        yield from self._ask(run, self._produce(active, changes), COMMIT_MS)
        self.kernel.passed("before commit")
        yield self.clock.between(0, 3)
        position = yield from self._ask(run, self._commit(active, start, changes[-1], end), COMMIT_MS)
        self.kernel.passed("after commit")
        yield 0
        self._check_not_over(run, active)
        self._write(position, changes[-1])
        if active.first_commit_ms is None:
            active.first_commit_ms = self.clock.now_ms
        active.committed = end

    def _check_not_over(self, run: Run, active: Active) -> None:
        if self.is_over(run, active):
            raise WriterLost("given up")

    def is_over(self, run: Run, active: Active) -> bool:
        """Return whether the task is not to be fed any more, even if it still is."""
        return active is not self.active or run.is_cancelled or self.store is None

    def _write(self, position: int, value: int) -> None:
        if self.kernel.store_writes_fail:
            self.kernel.store_writes_fail = False
            raise Unavailable("the batch is committed, the store is not written")
        assert self.store is not None
        self.store.position, self.store.value = position, value


def drain_target(ends: tuple[int, int]) -> int:
    """Return up to where a changelog is to be replayed after the fence: its uncommitted end (rule `drain-target`)."""
    return ends[0]
