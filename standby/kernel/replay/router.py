"""Decides which replayer applies the changelog of which replica to its store (rule `drain-target`).

A replica that has to catch up is restored by one of a few replayers, each with a thread and a reader of its own. When
it has caught up it moves to the one replayer that tails all those in sync, which costs next to nothing. A promotion
drains where its replica is, and all restores that nobody waits for stand still meanwhile: it must not stand in line
behind their backlog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from standby.errors import BrokenInvariant, Transient
from standby.kernel.ports import Changelog
from standby.kernel.replay.replayer import Replayed, Replayer, Rules
from standby.threads.worker import settle

__all__ = ["ReplayRouter", "Replayed"]


class ReplayRouter:
    """Assigns the replicas of a job to replayers; from any thread."""

    def __init__(
        self, open_changelog: Callable[[], Changelog], rules: Rules, restore_threads: int, name: str
    ) -> None:
        """``restore_threads``: most replayers at work on replicas that are not in step; ``name`` is the job's."""
        self._open_changelog = open_changelog
        self._name = name
        self._most = restore_threads
        self._rules = rules
        self._lock = threading.Lock()
        # All below is guarded by it; what a replayer is told of a replica is put into its inbox under it, too, so that
        # nothing overtakes the replica on its way to another replayer.
        self._on: dict[int, tuple[Replayed, Replayer]] = {}
        self._draining: set[Replayed] = set()
        self._restoring: list[Replayer] = []
        self._tail = self._new_replayer("tail")

    def add(self, replica: Replayed) -> None:
        """Replay this replica from its store's position on; nothing changes when it is being replayed."""
        with self._lock:
            found = self._on.get(replica.partition)
            if found is None:
                self._put(replica, self._restoring_replayer())
            elif found[0] is not replica:
                raise BrokenInvariant(f"partition {replica.partition} is replayed into another store already")

    def remove(self, replica: Replayed) -> Future[None]:
        """Stop a replay; once the future is done, nothing of it touches the store any more."""
        done: Future[None] = Future()
        self._remove(replica, done)
        return done

    def drain(self, replica: Replayed, target: int) -> Future[None]:
        """Replay up to ``target`` as fast as can be, then stop; the future is done when both have happened.

        It fails when the replay ends otherwise.
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
        """Return whether replicas that nobody waits for may be restored now."""
        return not self._draining

    def ended(self, replica: Replayed) -> None:
        """Hear that nothing touches the replica's store any more."""
        with self._lock:
            del self._on[replica.partition]
            if replica in self._draining:
                self._draining.discard(replica)
                if not self._draining:
                    self._wake()

    def leaves(self, replica: Replayed) -> bool:
        """Return whether the replica belongs on another replayer by now; one that is drained stays where it is."""
        is_on_tail = self._on[replica.partition][1] is self._tail
        return replica.target is None and replica.is_restoring is is_on_tail

    def hand_over(self, replica: Replayed) -> None:
        """Take a replica that a replayer does not have any more."""
        with self._lock:
            self._put(replica, self._restoring_replayer() if replica.is_restoring else self._tail)

    # ---- with the lock ----

    def _put(self, replica: Replayed, replayer: Replayer) -> None:
        self._on[replica.partition] = (replica, replayer)
        replayer.put(lambda: replayer.add(replica))

    def _restoring_replayer(self) -> Replayer:
        """Return the replayer with the fewest restores; a new one rather than one that is busy."""
        busy = [replayer for _, replayer in self._on.values()]
        best = min(self._restoring, key=busy.count, default=None)
        if best is None or (best in busy and len(self._restoring) < self._most):
            best = self._new_replayer(f"restore-{len(self._restoring)}")
            self._restoring.append(best)
        return best

    def _wake(self) -> None:
        for each in self._restoring:
            each.wake()

    # ---- what may have to follow a replica to another replayer ----

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
        """Have ``act`` run on the replica's replayer; return False when it is on none."""
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
