"""Assigns each replica to the replayer that applies its changelog to its store (rule `drain-target`).

A replica that has to catch up is restored by one of a few replayers, each with its own thread and reader. When it
has caught up, it moves to the single replayer that tails all replicas in sync, which costs next to nothing. A
promotion drains on its replica's current replayer. Meanwhile all other restores are paused, so that the drain does
not queue behind their backlog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from standby.errors import BrokenInvariant, Transient
from standby.kernel.ports import Changelog
from standby.kernel.replay.replayer import Replayed, Replayer, Rules
from standby.threads.worker import settle


class ReplayRouter:
    """Assigns the replicas of a job to replayers. Thread-safe."""

    def __init__(
        self, open_changelog: Callable[[], Changelog], rules: Rules, restore_threads: int, name: str
    ) -> None:
        """``restore_threads``: maximum number of replayers for replicas not in sync. ``name`` is the job's."""
        self._open_changelog = open_changelog
        self._name = name
        self._most = restore_threads
        self._rules = rules
        self._lock = threading.Lock()
        # The lock guards everything below. Commands about a replica are also put into inboxes under the lock, so
        # that no command overtakes the replica on its way to another replayer.
        self._on: dict[int, tuple[Replayed, Replayer]] = {}
        self._draining: set[Replayed] = set()
        self._restoring: list[Replayer] = []
        self._tail = self._new_replayer("tail")

    def add(self, replica: Replayed) -> None:
        """Replay this replica, starting at its store's position; no effect if it is being replayed already."""
        with self._lock:
            found = self._on.get(replica.partition)
            if found is None:
                self._put(replica, self._restoring_replayer())
            elif found[0] is not replica:
                raise BrokenInvariant(f"partition {replica.partition} is replayed into another store already")

    def remove(self, replica: Replayed) -> Future[None]:
        """Stop a replay; once the future is done, the replay no longer uses the store."""
        done: Future[None] = Future()
        self._remove(replica, done)
        return done

    def drain(self, replica: Replayed, target: int) -> Future[None]:
        """Replay up to ``target`` as fast as possible, then stop; the future is done after both.

        The future fails when the replay ends for another reason.
        """
        done: Future[None] = Future()
        self._drain(replica, target, done)
        return done

    def close(self) -> None:
        """Stop everything; does not wait."""
        with self._lock:
            for each in (self._tail, *self._restoring):
                each.close()

    # ---- for the replayers; see `standby.kernel.replay.replayer.Router` ----

    def may_restore(self) -> bool:
        """Return whether replicas that are not being drained may be restored now."""
        return not self._draining

    def ended(self, replica: Replayed) -> None:
        """Take note that the replica's store is no longer in use."""
        with self._lock:
            del self._on[replica.partition]
            if replica in self._draining:
                self._draining.discard(replica)
                if not self._draining:
                    self._wake()

    def leaves(self, replica: Replayed) -> bool:
        """Return whether the replica now belongs on another replayer. One that is being drained stays."""
        is_on_tail = self._on[replica.partition][1] is self._tail
        return replica.target is None and replica.is_restoring is is_on_tail

    def hand_over(self, replica: Replayed) -> None:
        """Take over a replica that a replayer has released."""
        with self._lock:
            self._put(replica, self._restoring_replayer() if replica.is_restoring else self._tail)

    # ---- with the lock ----

    def _put(self, replica: Replayed, replayer: Replayer) -> None:
        self._on[replica.partition] = (replica, replayer)
        replayer.put(lambda: replayer.add(replica))

    def _restoring_replayer(self) -> Replayer:
        """Return the replayer with the fewest restores; a new one is preferred to a busy one."""
        busy = [replayer for _, replayer in self._on.values()]
        best = min(self._restoring, key=busy.count, default=None)
        if best is None or (best in busy and len(self._restoring) < self._most):
            best = self._new_replayer(f"restore-{len(self._restoring)}")
            self._restoring.append(best)
        return best

    def _wake(self) -> None:
        for each in self._restoring:
            each.wake()

    # ---- commands that may have to follow a replica to another replayer ----

    def _remove(self, replica: Replayed, done: Future[None]) -> None:
        def act(replayer: Replayer) -> None:
            if replayer.remove(replica):
                settle(done)
            else:
                self._remove(replica, done)

        if not self._tell(replica, act):
            settle(done)

    def _drain(self, replica: Replayed, target: int, done: Future[None]) -> None:
        def act(replayer: Replayer) -> None:
            if not replayer.drain(replica, target, done):
                self._drain(replica, target, done)

        if not self._tell(replica, act, is_drain=True):
            settle(done, error=Transient("the replay has ended"))

    def _tell(self, replica: Replayed, act: Callable[[Replayer], None], *, is_drain: bool = False) -> bool:
        """Run ``act`` on the replica's replayer; return False if it has none."""
        with self._lock:
            found, replayer = self._on.get(replica.partition, (None, self._tail))
            if found is not replica:
                return False
            if is_drain:
                self._draining.add(replica)
            replayer.put(lambda: act(replayer))
            return True

    def _new_replayer(self, name: str) -> Replayer:
        return Replayer(self._open_changelog, self._rules, self, f"{self._name}-{name}")
