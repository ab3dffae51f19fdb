"""Two containers, one job, its leader, and faults in any order; in the end everything must be whole and exact."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from standby.kernel.ports import WriterLost
from standby.replica.claim import decode_commit
from standby.replica.store.keys import COMMIT, OWN, POSITION
from standby.replica.store.origin import decode_position
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, TaskId, Wanted
from standby.shared.naming import transactional_id
from tests.fakes.feed import MemoryFeed
from tests.fakes.kafka import Partition, offsets_of
from tests.kernel_faults import (
    ADMITTED,
    AGAIN,
    ANEW,
    ENDS,
    FEED_POINTS,
    QUIET,
    WRITES,
    Crash,
    Damage,
    Fault,
    LeftOut,
    Lost,
    Mine,
    Unanswered,
    World,
)
from tests.memory_lab import MemoryContainer
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS

#: The phases of replicas that the leader has to decide about.
_ENDED: Final = (Phase.FAILED, Phase.FENCED)


@dataclass
class Strike:
    """Where a producer is to be lost."""

    write: str
    left: int
    """How many reach this point until one is lost: the last of them."""
    thread: str = ""
    """Only threads with this in their names count."""
    behind: frozenset[object] = frozenset()
    """They count only after these markers were omitted."""

    def is_ahead(self, skipped: Collection[object]) -> bool:
        return not self.behind.isdisjoint(skipped)


class Play:
    """The leader and the faults of one example."""

    def __init__(self, directory: Path, world: World) -> None:
        self.world, self.lab = world, world.lab(directory)
        self.copies = dict.fromkeys(self.lab.tasks, 0)
        self.epochs = dict.fromkeys(self.lab.tasks, 1)
        #: Tasks that the leader has seen active, as their records say.
        self._claimed: set[TaskId] = set()
        #: What was suffered, and what came of it: see `told`.
        self._suffered: list[Fault] = []
        self._story: list[str] = []
        self._lock = threading.Lock()
        self.mines: list[Mine] = []
        #: Stores that had something else than what was committed.
        self._wrong: list[str] = []
        self._strikes: list[Strike] = []
        #: Copies whose container has ended, which the leader does not know yet.
        self._crashed: set[int] = set()
        #: Tasks that may fail with lost records, because markers were omitted.
        self._may_lose: set[TaskId] = set()
        #: Input that could not be read at some time: task and offset.
        self._damaged: set[tuple[int, int]] = set()
        self._looks = 0
        self.stepped_down: set[int] = set()
        """Copies that have found out by themselves that they are succeeded."""
        self.has_lost = False
        """Whether some task had failed in the end with lost records."""
        self.left_out: set[tuple[int, int]] = set()
        """Input that was given up: task and offset."""
        for each in WRITES:
            setattr(self.lab.kafka, each, partial(self._strike, each))
        self.feeds: list[MemoryFeed] = []
        self.containers = [self.container(0), self.container(1)]

    def container(self, copy: int) -> MemoryContainer:
        return self.lab.container("ab"[copy], probe=self._pass, script=self._lay_mines)

    def _lay_mines(self, feed: MemoryFeed) -> None:
        self.feeds.append(feed)
        feed.on_look, feed.on_start, warm = (partial(self._pass, each) for each in FEED_POINTS)
        feed.on_warm = lambda _: warm()

    def _pass(self, point: str) -> None:
        name = threading.current_thread().name
        with self._lock:
            mine = next(
                (each for each in self.mines if each.point == point and name.startswith(each.thread)), None
            )
            if mine is None:
                return
            self.mines.remove(mine)
            self._tell_story(f"{name} is hit by {mine}")
        if not self.world.may_lose:
            # Before anything is done about the error. An active is ahead where a marker is left out.
            self._wrong += self._wrong_stores()
        raise mine.error(mine.told)

    def _strike(self, write: str) -> None:
        self._pass(write)
        name = threading.current_thread().name
        with self._lock:
            due = [
                each
                for each in self._strikes
                if each.write == write and each.thread in name and not each.is_ahead(self.lab.kafka.skipped)
            ]
            for each in due:
                each.left -= 1
            self._strikes = [each for each in self._strikes if each.left]
            if all(each.left for each in due):
                return
            self._tell_story(f"{name} is lost at {write}")
        raise WriterLost(f"lost at {write}")

    # ---- the leader ----

    @property
    def active(self) -> MemoryContainer:
        return self.containers[self.copies[self.lab.tasks[0]]]

    def tell(self, *, is_next: bool = False, to: Collection[int] = (0, 1)) -> None:
        """Write the records, and send the containers their assignments."""
        for task, copy in self.copies.items():
            self.lab.records.name(task, copy, self.epochs[task], claimed=task in self._claimed)
        for copy in to:
            self.containers[copy].obey(
                Wanted(ReplicaId(task, copy), role, self.epochs[task], is_next and role is Role.STANDBY)
                for task, active in self.copies.items()
                for role in [Role.ACTIVE if active == copy else Role.STANDBY]
            )

    def decide(self, moved: Collection[TaskId] = (), *, is_told: bool = True) -> None:
        """Raise the epochs of all tasks, or of those in ``moved``; otherwise only their next actives learn of it."""
        for task in moved or self.copies:
            self.epochs[task] += 1
        for task in moved:
            self.copies[task] = 1 - self.copies[task]
        self.tell(to=(0, 1) if is_told else {self.copies[each] for each in moved})

    def notice(self, crashed: Collection[int]) -> None:
        """Restart containers that have ended, and place their actives elsewhere."""
        if crashed:
            for each in crashed:
                self.containers[each] = self.container(each)
            self._crashed.difference_update(crashed)
            moved = [task for task, copy in self.copies.items() if copy in crashed]
            self.decide(moved) if moved else self.tell()

    # ---- the story ----

    def told(self) -> str:
        """Return the call that replays it, as far as thread scheduling allows, and what was seen."""
        known = (
            f"{each.replica}: {each.phase.name} at {each.epoch}, {each.detail}" for each in self._statuses()
        )
        return "\n".join([f"play_through({self._suffered}, {self.world})", *self._story, *known])

    def _tell_story(self, what: str) -> None:
        actives = ", ".join(
            f"{task}: copy {copy} at {self.epochs[task]}" for task, copy in self.copies.items()
        )
        self._story.append(f"{what} (actives: {actives})")

    # ---- how it stands ----

    def await_whole(self) -> None:
        """Wait until all input is processed and the standbys are in sync, except for tasks that have lost records."""
        assert self.gets_on(10), "replicas end again and again"

    def gets_on(self, decisions: int) -> bool:
        """Return whether everything is whole after some decisions of the leader about ended replicas."""
        self.notice({*self._crashed})
        self.tell()
        for _ in range(decisions):
            self.active.eventually(self._has_settled)
            if not self._has_ended():
                return True
            # The end of a replica may be reported after the decision that its cause led to.
            self.decide()
        return False

    def _has_settled(self) -> bool:
        self._looks += 1
        if self.world.may_lose and self._looks % 100 == 0:
            # A hanging transaction of one task in an output, which delays another's way to active, is ended
            # by its next commit there.
            self.lab.produce(10 * self.world.tasks)
        return self._is_whole() or self._has_ended()

    def is_committed(self) -> bool:
        """Return whether the present actives have committed all input."""
        ends = self.lab.ends()
        at_end = {
            each.replica.task
            for each in self._statuses()
            if each.phase is Phase.ACTIVE
            and each.epoch == self.epochs[each.replica.task]
            and each.input_committed == ends[each.replica.task.partition]
        }
        return at_end == self.copies.keys()

    def await_outcome(self, mine: Mine, expected: str, opened: int) -> None:
        """Wait until this has come of a mine, without any decision of the leader's.

        That is an end which is reported, or else that all is whole and exact again. ``opened`` is how many databases
        had been opened before.
        """

        def seen() -> str:
            if any(each.phase in _ENDED and mine.told in each.detail for each in self._statuses()):
                return ENDS
            way = AGAIN if len(self.lab.disk.profiles) == opened else ANEW
            return way if self._is_whole() else ""

        # What is whole may still be about to learn of the error.
        self.active.eventually(lambda: not self.mines and seen() in (expected, ENDS))
        assert seen() == expected
        if expected != ENDS:
            self._wrong += self._wrong_stores()
            self.judge()

    def _wrong_stores(self) -> list[str]:
        """Return the open stores that differ from what is committed below their positions (rule `commit-first`)."""
        wrong = []
        for path, database in tuple(self.lab.disk.open_ones.items()):
            content = database.content()
            found, partition = content.pop(POSITION, None), int(path.parent.name.rpartition(".")[2])
            content.pop(OWN, None)
            if found is not None:
                position = decode_position(found).offset
                committed = dict(self.lab.kafka.committed_records("changelog", partition, position))
                expected = {key: value for key, value in committed.items() if value is not None}
                if content != expected:
                    wrong.append(f"{path} at {position}: {content}, but committed is {expected}")
        return wrong

    def lost(self) -> set[TaskId]:
        """Return the tasks that have failed with lost records."""
        told = {
            each.replica.task: each.detail
            for each in self._statuses()
            if each.phase is Phase.FAILED and any(admitted in each.detail for admitted in ADMITTED)
        }
        assert told.keys() <= self._may_lose, told
        return {*told}

    def _statuses(self) -> list[ReplicaStatus]:
        statuses = [status for each in self.containers for status in each.statuses()]
        self._claimed.update(each.replica.task for each in statuses if each.phase is Phase.ACTIVE)
        return statuses

    def _is_whole(self) -> bool:
        lost, ends = self.lost(), self.lab.ends()
        if lost:
            self._end_outputs_of(lost)
        # Replicas of former epochs have not been informed yet.
        statuses = [each for each in self._statuses() if each.epoch == self.epochs[each.replica.task]]
        known = {each.replica: each for each in statuses}
        for task in self.copies.keys() - lost:
            active = known.get(ReplicaId(task, self.copies[task]))
            standby = known.get(ReplicaId(task, 1 - self.copies[task]))
            if active is None or standby is None or standby.phase is not Phase.TAILING:
                return False
            if standby.applied != len(self.lab.kafka.logs["changelog", task.partition]):
                return False
            if active.phase is not Phase.ACTIVE or active.input_committed != ends[task.partition]:
                return False
        return True

    def _has_ended(self) -> bool:
        lost = self.lost()
        return any(
            each.phase in _ENDED
            and each.epoch == self.epochs[each.replica.task]
            and each.replica.task not in lost
            for each in self._statuses()
        )

    def _end_outputs_of(self, lost: Collection[TaskId]) -> None:
        """Abort their hanging transactions in outputs, as an operator has to if other tasks wait for them."""
        names = {transactional_id("cluster", each) for each in lost}
        with self.lab.kafka.lock:
            for (name, (topic, _)), left in self.lab.kafka.left_open.items():
                if name in names and topic == "out":
                    for each in left:
                        each.outcome = False

    # ---- the faults ----

    def suffer(self, fault: Fault) -> None:
        before = {*self._crashed}
        self._suffered.append(fault)
        self._tell_story(repr(fault))
        self._carry_out(fault)
        self.notice(before & self._crashed)
        if fault not in QUIET:
            # All in one batch, if the feed is at the end.
            with self.lab.kafka.lock:
                self.lab.produce(7)

    def rest(self) -> None:
        """Cancel all faults that have not hit yet, and make everything whole."""
        kafka = self.lab.kafka
        with self._lock:
            self._strikes.clear()
            self.mines.clear()
        with kafka.lock:
            kafka.unanswered.clear()
            kafka.damaged.clear()
            kafka.skipped.clear()
        self.notice({*self._crashed})
        self.decide()
        self.await_whole()
        if self.world.may_lose:
            # A commit of each task to each partition of the output ends hanging transactions there.
            self.lab.produce(10 * self.world.tasks)
            self.await_whole()

    def judge(self) -> None:
        """Fail unless everything is exact, or each error was reported."""
        assert not self._wrong, self._wrong
        seen = {
            (int(key.partition(b"/")[0]), int(value.split()[1]))
            for place in tuple(self.lab.kafka.logs)
            if place[0] == "out"
            for key, value in self.lab.kafka.committed_records(*place)
            if b"also" not in key and value
        }
        for task in self.lab.tasks:
            records = self.lab.kafka.committed_records("changelog", task.partition)
            epochs = [decode_commit(value or b"").epoch for key, value in records if key == COMMIT]
            assert epochs == sorted(epochs), (
                f"{task}: a former active has committed after a later one: {epochs}"
            )
        self.left_out = self._damaged - seen if self.world.on_error == "skip" else set()
        lost = self.lost()
        self.has_lost = bool(lost)
        self.lab.assert_exact(self.left_out, lost=lost)

    def _carry_out(self, fault: Fault) -> None:
        match fault:
            case Mine():
                with self._lock:
                    self.mines.append(fault)
            case Lost(write, number):
                with self._lock:
                    self._strikes.append(Strike(write, number))
            case Unanswered(question, times):
                with self.lab.kafka.lock:
                    self.lab.kafka.unanswered[question] += times
            case Crash(is_active, lost):
                copy = self.containers.index(self.active)
                self._crash(copy if is_active else 1 - copy, lost)
            case Damage():
                self._damage(fault)
            case LeftOut():
                self._leave_out(fault)
            case str():
                self._act(fault)

    def _act(self, fault: str) -> None:
        copy = self.containers.index(self.active)
        acts: dict[str, Callable[[], object]] = {
            "hand over": lambda: self.decide([*self.copies]),
            "hand over unannounced": lambda: self.decide([*self.copies], is_told=False),
            "hand over one task": lambda: self.decide([self.lab.tasks[-1]]),
            "prepare a hand-over": lambda: self.tell(is_next=True),
            "claim again": self.decide,
            "broker away": lambda: self._be_away(self.lab.kafka),
            "records away": lambda: self._be_away(self.lab.records),
            "restart the standby": lambda: self._restart(1 - copy),
            "restart the active": lambda: self._restart(copy),
            "mend": self.lab.kafka.damaged.clear,
            "step down": lambda: self._await_step_down(1 - copy),
            "a moment": lambda: time.sleep(LOOK_SECONDS),
            "get on": lambda: self.gets_on(1),
            "rest": self.rest,
        }
        acts[fault]()

    def _await_step_down(self, copy: int) -> None:
        """Give a former active input until it has found out by itself that it is succeeded."""
        former = self.containers[copy]

        def has_found_out() -> bool:
            with self.lab.kafka.lock:
                self.lab.produce(self.world.tasks)
            return former.are(Phase.FENCED)

        former.eventually(has_found_out)
        self.stepped_down.add(copy)

    def _be_away(self, what: object) -> None:
        what.is_away = True  # type: ignore[attr-defined]
        time.sleep(2 * LOOK_SECONDS)  # for work to run into it; there is nothing to wait for
        what.is_away = False  # type: ignore[attr-defined]

    def _restart(self, copy: int) -> None:
        if copy not in self._crashed:
            self.containers[copy].close()
        self._crashed.discard(copy)
        self.containers[copy] = self.container(copy)
        self.tell()

    def _crash(self, copy: int, lost: int) -> None:
        if copy not in self._crashed:
            self._crashed.add(copy)
            self.containers[copy].crash(lost)

    def _damage(self, damage: Damage) -> None:
        kafka, number = self.lab.kafka, damage.task % self.world.tasks
        where = (damage.topic, number)
        with kafka.lock:
            start = max(0, len(kafka.logs[where]) - damage.back)
            offsets = range(start, start + damage.records)
            kafka.damaged |= {(where, each) for each in offsets}
            if damage.topic == "in":
                self._damaged |= {(number, each) for each in offsets}

    def _leave_out(self, fault: LeftOut) -> None:
        task = self.lab.tasks[fault.task % self.world.tasks]
        name = transactional_id("cluster", task)
        skipped = frozenset((name, self._place(task, each)) for each in fault.places)
        self._may_lose.update(self.lab.tasks if self.world.outputs else {task})
        with self.lab.kafka.lock:
            self.lab.kafka.skipped |= skipped
        if fault.lost is not None:
            with self._lock:
                behind = skipped if fault.is_behind else frozenset()
                self._strikes.append(Strike(fault.lost.write, fault.lost.number, str(task), behind))

    def _place(self, task: TaskId, place: str) -> Partition:
        if place == "offsets":
            return offsets_of(transactional_id("cluster", task))
        topic, _, partition = place.partition("-")
        return topic, int(partition) if partition and self.world.outputs else task.partition


@contextmanager
def playing(world: World) -> Iterator[Play]:
    """Yield a started play; in the end, without further faults, everything must be whole and exact."""
    with tempfile.TemporaryDirectory() as directory:
        play = Play(Path(directory), world)
        try:
            play.tell()
            play.lab.produce(10)
            yield play
            play.rest()
            play.judge()
            for each in play.containers:
                assert each.replicas.broken is None
                each.close()
        except Exception as error:
            raise AssertionError(play.told()) from error
        finally:
            for each in play.containers:
                each.replicas.close(PATIENCE_SECONDS)
