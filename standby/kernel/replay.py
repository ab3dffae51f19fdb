"""Applies the changelogs of a job's replicas to their stores, on tracks (design 4.3).

A replica that is not in step is restored on one of a few tracks, each with a thread and a reader of its own; when it
has caught up, it changes to the one track that tails all those in step, which costs next to nothing. A promotion
drains where its replica is, and all restores that nobody waits for stand still meanwhile: it must not stand in line
behind their backlog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from standby.errors import BrokenLaw, Transient
from standby.kernel.ends import Ends
from standby.kernel.lane import settle
from standby.kernel.ports import Broker
from standby.kernel.probes import Probe
from standby.kernel.track import Replayed, Rules, Track

__all__ = ["Replay", "Replayed"]


class Replay:
    """Puts the replicas of a job on tracks; from any thread."""

    def __init__(
        self,
        broker: Broker,
        ends: Ends,
        lag_bound_ms: int,
        clock: Callable[[], int],
        probe: Probe,
        name: str,
        *,
        restore_threads: int = 1,
        restore_bytes_per_second: int = 0,
        check_topic: Callable[[], object] = lambda: None,
    ) -> None:
        """``restore_threads``: most tracks at work on replicas that are not in step.

        ``restore_bytes_per_second``: most of what these may replay, together; 0: no bound. ``check_topic`` is
        `standby.kernel.identity.Identity.changelog_id`: a replica that the changelog has nothing for may not be wiped
        when that was made again.
        """
        self._broker = broker
        self._name = name
        self._most = restore_threads
        self._rules = Rules(ends, lag_bound_ms, clock, probe, restore_bytes_per_second, check_topic)
        self._lock = threading.Lock()
        # All below is guarded by it; what a track is told of a replica is put into its inbox under it, too, so that
        # nothing overtakes the replica on its way to another track.
        self._on: dict[int, tuple[Replayed, Track]] = {}
        self._draining: set[Replayed] = set()
        self._restoring: list[Track] = []
        self._tail = self._new_track("tail")

    def add(self, replica: Replayed) -> None:
        """Replay this replica from its store's position on; nothing changes when it is being replayed."""
        with self._lock:
            found = self._on.get(replica.partition)
            if found is None:
                self._put(replica, self._restoring_track())
            elif found[0] is not replica:
                raise BrokenLaw(f"partition {replica.partition} is replayed into another store already")

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

    # ---- for the tracks; see `standby.kernel.track.Junction` ----

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
        """Return whether the replica belongs on another track by now; one that is drained stays where it is."""
        is_on_tail = self._on[replica.partition][1] is self._tail
        return replica.target is None and replica.is_restoring is is_on_tail

    def hand_over(self, replica: Replayed) -> None:
        """Take a replica that a track does not have any more."""
        with self._lock:
            self._put(replica, self._restoring_track() if replica.is_restoring else self._tail)

    # ---- with the lock ----

    def _put(self, replica: Replayed, track: Track) -> None:
        self._on[replica.partition] = (replica, track)
        track.put(lambda: track.add(replica))

    def _restoring_track(self) -> Track:
        """Return the track with the fewest restores; a new one rather than one that is busy."""
        busy = [track for _, track in self._on.values()]
        best = min(self._restoring, key=busy.count, default=None)
        if best is None or (best in busy and len(self._restoring) < self._most):
            best = self._new_track(f"restore-{len(self._restoring)}")
            self._restoring.append(best)
        return best

    def _wake(self) -> None:
        for each in self._restoring:
            each.wake()

    # ---- what may have to follow a replica to another track ----

    def _remove(self, replica: Replayed, done: Future[None]) -> None:
        def act(track: Track) -> None:
            if track.remove(replica):
                settle(done)
            else:
                self._remove(replica, done)

        if not self._tell(replica, act):
            settle(done)

    def _drain(self, replica: Replayed, target: int, done: Future[None]) -> None:
        def act(track: Track) -> None:
            if not track.drain(replica, target, done):
                self._drain(replica, target, done)

        if not self._tell(replica, act, is_drain=True):
            settle(done, error=Transient("the replay has ended"))

    def _tell(self, replica: Replayed, act: Callable[[Track], None], *, is_drain: bool = False) -> bool:
        """Have ``act`` run on the replica's track; return False when it is on none."""
        with self._lock:
            found, track = self._on.get(replica.partition, (None, self._tail))
            if found is not replica:
                return False
            if is_drain:
                self._draining.add(replica)
            track.put(lambda: act(track))
            return True

    def _new_track(self, name: str) -> Track:
        return Track(self._broker.open_changelog, self._rules, self, f"{self._name}-{name}")
