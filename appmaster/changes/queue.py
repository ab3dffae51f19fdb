"""A candidate's side of the queue of changes: it takes changes, returns their results, and has the cluster's info.

It reads a part of ZooKeeper's tree that is kept fresh by watches. The leader also makes the queued changes, on a
thread of its own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from appmaster import records as bodies
from appmaster.blame import describe_error, going_on, is_of_job
from appmaster.changes import cluster_info, operations
from appmaster.changes.operations import CurrentJob, NotYet
from appmaster.changes.ports import ChangeRecords, ClusterTree, Nodes
from appmaster.records import ChangeRecord
from standby.errors import BadConfiguration, Fenced, Transient, Unavailable
from standby.replica.failing import doubled_seconds
from standby.shared.clock import Clock
from standby.threads.worker import Worker

_log: Final = logging.getLogger(__name__)

#: The part of the cluster's tree that is kept; its size depends neither on the number of clients nor of tasks.
PATTERNS: Final = (
    "candidates/*",
    "cells/*",
    "containers/*",
    "controller",
    "drained",
    "jobs/*",
    "jobs/*/status",
    "changes/*",
)

#: Between two attempts at something that could not be done, seconds: at first, and at most. A change that waits for the
#: end of something is also tried when the tree changes.
_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 5.0

#: Between two log lines that say the same, seconds: at first, and at most.
_SAID_AGAIN_SECONDS: Final = 60.0
_SAID_SELDOM_SECONDS: Final = 3_600.0

#: Work in addition to the waiting changes; it is not an id of a change.
_REMOVAL: Final = "removing settled changes"

#: How long a question waits for a read of ZooKeeper that is certainly up to date, seconds; less than a client waits.
_FRESH_SECONDS: Final = 2.0

#: Between two turns without any event, seconds: watches announce new changes.
_IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Held:
    """Something that could not be done at the last attempt; times are monotonic seconds."""

    why: str
    tries: int
    """Failed attempts in a row."""
    again: float
    """When it is tried again."""
    is_awaited: bool
    """Whether it waits for something whose end changes the tree."""
    said: int
    """How often this reason was logged."""
    said_again: float
    """When the same reason is logged again."""


@dataclass
class ChangeQueue:
    """The queue of one candidate."""

    tree: ClusterTree
    """It has the nodes of `PATTERNS`, and is started and closed here."""
    records: ChangeRecords
    cluster: str
    me: str
    """The candidate's id."""
    clock: Clock
    fenced: Callable[[str], None]
    """Called, on the queue's thread, when another candidate leads."""
    more: Callable[[], Mapping[str, Any]] = dict
    """Returns further parts of the cluster's info, as JSON-ready data."""

    def __post_init__(self) -> None:
        self._worker = Worker("changes", self._turn, failed=going_on(_log.error, "changes"))
        self._epoch = 0
        self._held: dict[str, _Held] = {}
        self._has_tree_changed = False

    # ---- for any thread ----

    def info(self) -> dict[str, Any]:
        """Return the cluster's info (`appmaster.changes.cluster_info`); raises `Transient` before the first read."""
        # In this order: it may become complete in between, by nodes that are read then.
        is_fresh, nodes = self.tree.is_complete, self.tree.nodes
        if not nodes and not is_fresh:
            raise Transient("ZooKeeper has not been read yet")
        found = cluster_info.info(
            self.cluster, {path: each.data for path, each in nodes.items()}, self.clock.now_ms()
        )
        return {**found, **self.more(), "answered_by": self.me, "is_fresh": is_fresh}

    def leader(self) -> Mapping[str, Any] | None:
        """Return id, host and port of the candidate that leads; None while none is known to lead."""
        return cluster_info.leader({path: each.data for path, each in self.tree.nodes.items()})

    def queue(
        self, operation: str, arguments: Mapping[str, Any], submitter: str = "", change: str = ""
    ) -> str:
        """Return the id under which a change is queued; the same id again is the same change.

        Raises `BadConfiguration` for a change that no leader could make, and `Transient`.
        """
        change = change or uuid.uuid4().hex
        operations.check(change, operation, arguments)
        self.records.put(change, ChangeRecord(operation, arguments, submitter, self.clock.now_ms()))
        return change

    def present(self, job: str, with_tasks: bool) -> CurrentJob | None:
        """Return a job as it is now, read with a sync; None if there is no such job. Raises `Transient`."""
        return self.records.present(job, with_tasks=with_tasks)

    def seen(self, change: str) -> ChangeRecord:
        """Return a change as this candidate last saw it; nothing is asked of ZooKeeper.

        For callers without credentials. Raises `BadConfiguration` if it has not seen the change.
        """
        found = _change_of(self.tree.nodes, change)
        if found is None:
            raise BadConfiguration(
                "there is no such change, or it was settled long ago, or it is not known here yet"
            )
        return found

    def result(self, change: str, wait_seconds: float = 0.0) -> ChangeRecord:
        """Return a change as it stands, settled if that happens in time.

        Raises `BadConfiguration` if there is no change of this id: never queued, or settled long ago.
        """

        def is_settled(nodes: Any) -> bool:
            found = _change_of(nodes, change)
            return found is not None and found.state != "queued"

        self.tree.wait(is_settled, wait_seconds)
        found = _change_of(self.tree.nodes, change)
        if found is None:
            # Another candidate may have queued it a moment ago; a sync shows it.
            found = _change_of(self.tree.fresh(_FRESH_SECONDS), change)
        if found is None:
            raise BadConfiguration(f"there is no change {change}, or it was settled long ago")
        return found

    # ---- lifecycle ----

    def start(self) -> None:
        """Start reading, and the queue's thread."""
        self.tree.listen(lambda: self._worker.put(self._note_change))
        self.tree.start()
        self._worker.start()

    def lead(self, epoch: int) -> None:
        """Make queued changes from now on, under ``epoch``; 0: stop. Returns at once."""
        self._worker.put(lambda: self._take_lead(epoch))

    def rest(self) -> None:
        """Make what can be made now, and then stop; changes that are still queued wait for the next leader.

        A change that waited for a job's end can be made as soon as that job has ended, possibly in the moment in which
        the last job ended. The caller then has to check whether there is more to lead.
        """
        self._worker.submit(lambda: self._take_lead(0)).result()

    def close(self) -> None:
        """Stop, and wait for the thread's end."""
        self._worker.close()
        self._worker.join()
        self.tree.close()

    def _take_lead(self, epoch: int) -> None:
        if self._epoch and not epoch:
            with suppress(Transient):
                # What was queued a moment ago, or before this candidate had read what is queued.
                self.tree.fresh(_FRESH_SECONDS)
            self._settle_all(lambda _: True)
        self._epoch, self._held = epoch, {}

    def _note_change(self) -> None:
        self._has_tree_changed = True

    def _turn(self) -> None:
        self._worker.wait(self.clock.pace(self._pause_seconds()))
        self._worker.catch_up()
        if self._epoch and not self._worker.is_closed:
            now, has_changed = self.clock.monotonic(), self._has_tree_changed
            self._has_tree_changed = False
            self._settle_all(lambda held: held.again <= now or (has_changed and held.is_awaited))

    def _pause_seconds(self) -> float:
        """Return the time until something is to be tried again."""
        if not self._epoch or not self._held:
            return _IDLE_SECONDS
        return max(0.0, min(each.again for each in self._held.values()) - self.clock.monotonic())

    def _settle_all(self, is_due: Callable[[_Held], bool]) -> None:
        """Make the waiting changes, oldest first; of those that failed before, only the ones that are due.

        When a change has to wait, later changes of the same job wait, too, because their order matters. Raises errors
        that do not concern a single change.
        """

        def is_tried(what: str) -> bool:
            held = self._held.get(what)
            return held is None or is_due(held)

        nodes = self.tree.nodes
        changes = _queued(nodes)
        known = {_REMOVAL, *(change for change, _ in changes)}
        self._held = {what: held for what, held in self._held.items() if what in known}
        waiting: set[str] = set()
        try:
            for change, job in changes:
                if job not in waiting and not (is_tried(change) and self._is_settled(change)):
                    waiting.add(job)
            if is_tried(_REMOVAL):
                self._remove(_expired(nodes))
        except Fenced as error:
            self._epoch = 0
            self.fenced(str(error))

    def _is_settled(self, change: str) -> bool:
        """Return whether a change is settled now; one that cannot be made does not delay those of other jobs."""
        try:
            self.records.settle(change, self._epoch)
        except Unavailable as error:
            self._hold(change, str(error), is_awaited=isinstance(error, NotYet))
            return False
        except Exception as error:
            if not is_of_job(error):
                raise
            if self._hold(change, describe_error(error), error):
                self._tell(change, describe_error(error))
            return False
        self._held.pop(change, None)
        _log.info("change %s is settled", change)
        return True

    def _remove(self, changes: Iterable[tuple[str, int]]) -> None:
        """Remove settled changes; what fails now is tried again later."""
        try:
            for change, version in changes:
                self.records.forget(change, version)
        except Unavailable as error:
            self._hold(_REMOVAL, str(error))
        else:
            self._held.pop(_REMOVAL, None)

    def _hold(
        self, what: str, why: str, error: BaseException | None = None, *, is_awaited: bool = False
    ) -> bool:
        """Schedule another attempt, later each time; return whether the reason was logged now."""
        now, before = self.clock.monotonic(), self._held.get(what)
        tries = before.tries + 1 if before is not None else 1
        again = now + doubled_seconds(tries, _RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        if before is not None and before.why == why and now < before.said_again:
            self._held[what] = replace(before, tries=tries, again=again)
            return False
        said = before.said + 1 if before is not None and before.why == why else 1
        said_again = now + doubled_seconds(said, _SAID_AGAIN_SECONDS, _SAID_SELDOM_SECONDS)
        self._held[what] = _Held(why, tries, again, is_awaited, said, said_again)
        _log.log(
            logging.INFO if error is None else logging.ERROR,
            "%s waits, tried %d times: %s",
            what if what == _REMOVAL else f"change {what}",
            tries,
            why,
            exc_info=error if said == 1 else None,
        )
        return True

    def _tell(self, change: str, why: str) -> None:
        """Record why a change waits, for clients that ask for it."""
        try:
            self.records.hold_up(change, self._epoch, why)
        except Exception as error:
            if not is_of_job(error):
                raise
            _log.warning(
                "change %s: the reason why it waits could not be recorded: %s", change, describe_error(error)
            )


def _queued(nodes: Nodes) -> tuple[tuple[str, str], ...]:
    """Return id and job of the waiting changes, oldest first.

    The job is empty for a change that is about none, or that this version does not know.
    """
    return tuple((name, _job_of(record)) for name, _, record in _changes(nodes) if record.state == "queued")


def _job_of(record: ChangeRecord) -> str:
    if record.operation in operations.JOB_CHANGES:
        with suppress(BadConfiguration):
            return operations.job_of(record.operation, record.arguments)
    return ""


def _expired(nodes: Nodes) -> tuple[tuple[str, int], ...]:
    """Return id and version of the settled changes that are beyond the number to keep."""
    done = [(name, version) for name, version, record in _changes(nodes) if record.state != "queued"]
    return tuple(done[: max(0, len(done) - operations.KEPT)])


def _change_of(nodes: Nodes, change: str) -> ChangeRecord | None:
    """Return a change as it stands; None if there is none of this id."""
    path = f"changes/{change}"
    node = nodes.get(path)
    return bodies.decode(node.data, path, ChangeRecord) if node is not None else None


def _changes(nodes: Nodes) -> list[tuple[str, int, ChangeRecord]]:
    found = []
    for path, node in nodes.items():
        parent, _, name = path.partition("/")
        if parent == "changes":
            with suppress(BadConfiguration):
                found.append((node.created, name, node.version, bodies.decode(node.data, path, ChangeRecord)))
    return [(name, version, record) for _, name, version, record in sorted(found, key=lambda each: each[0])]
