"""Gets a replica's state: what is left on the disks, else a peer's copy, else nothing (rule `old-state`)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from standby.errors import CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.job import JobKernel
from standby.kernel.ports import OpenDatabase, Refused, SnapshotSource
from standby.kernel.probes import Probe
from standby.kernel.restore.fetch import Peers, Scratch
from standby.kernel.run import Run
from standby.kernel.store.directories import check_owners, make_private
from standby.kernel.store.places import by_room, free_bytes, open_found
from standby.kernel.store.store import TaskStore, open_empty, open_existing, read_side_file, wipe_store
from standby.replica.store.origin import BeginningLost, Origin, Position, check_state
from standby.replica.store.snapshot import Manifest, decode_manifest
from standby.replica.store.sources import Peer, Source, peers_of
from standby.shared.model import TaskId

_log: Final = logging.getLogger(__name__)

#: A source that says nothing for so long has gone; shorter where an active waits for its state.
_SILENCE_SECONDS: Final = 15.0
_SILENCE_URGENT_SECONDS: Final = 3.0

#: How often a source that breaks off is tried again while there is progress between.
_TRIES: Final = 3

#: For how long sources that are busy, or about to be ready, are waited for before the changelog is replayed.
_PATIENCE_SECONDS: Final = 300.0

_BETWEEN_ROUNDS_SECONDS: Final = 0.5

#: For how long a giver that gives as many copies as it may lets us stand in line before the others are asked again.
#: Well below the silence after which it is given up.
_IN_LINE_SECONDS: Final = 5.0

#: Room that must be left on a disk behind a copy.
_SPARE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Begun:
    """A copy that was lent to us and is not complete here: its giver goes on where it broke off."""

    container: str
    manifest: Manifest
    directory: Path


class _DiskFailed(Unavailable):
    """This host's own disk does not take what is fetched."""


class Restore:
    """Opens one replica's state; `open` runs on the replica's worker, `hurry` on any thread."""

    def __init__(
        self, job: JobKernel, task: TaskId, is_urgent: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        """``is_urgent``: whether an active waits for it; ``tell`` takes what is going on, in a few words."""
        self._job = job
        self._clock = job.environment.clock
        self._task = task
        self._is_urgent = is_urgent
        self._tell = tell
        self._begun: _Begun | None = None
        self._source: SnapshotSource | None = None
        self._lock = threading.Lock()
        self._new_look = threading.Event()
        self._last = Source.LOCAL
        self._refusals: dict[int, str] = {}
        self._distrusts_peers = False
        self._patience_seconds = 0.0
        self._full: set[Path] = set()
        """Places whose disk did not take what was fetched."""

    def open(self, run: Run) -> TaskStore:
        """Return the state, open.

        Raises `Transient` when it is worth another try (and when the run was cancelled), `BeginningLost` when only
        another replica could give it, `Unavailable` when no disk of this host does.
        """
        started = self._clock.monotonic()
        # Before anything is looked at: state of a changelog that was made again is left as it is. And before the
        # bounds: the question for the topic's id waits until the job's new client is connected, while a look for
        # leaders may be lost then, and librdkafka repeats it after 3 s only (6 of 150 tries).
        self._job.identity.changelog_id()
        bounds = self._bounds()
        with self._opening:
            store = open_found(self._directories, partial(self._open_existing, bounds))
        if store is not None:
            return self._opened(store, Source.LOCAL, 0, started)
        store = self._from_peers(run)
        if store is not None:
            return store
        self._check(run)
        for place in self._directories:
            # What was fetched in vain would only take room from what is restored now.
            Scratch(place).discard()
        failure: Unavailable | None = None
        for place in by_room(self._directories):
            try:
                with self._opening:
                    make_private(place)
                    store = open_empty(place, self._origin, bounds, *self._means)
            except (Transient, BeginningLost):
                raise
            except Unavailable as error:
                _log.warning("%s: %s", self._task, error)
                failure = error
            else:
                return self._opened(store, Source.CHANGELOG, 0, started)
        assert failure is not None, "there is a place, or an error before"
        raise failure

    def hurry(self) -> None:
        """Look again at once where the state may come from: the replica is to become active.

        What is fetched at this moment is cut off: its giver may be the active that was just lost, and silent.
        If it lives, the next look finds it again and goes on where it broke off.
        """
        with self._lock:
            self._new_look.set()
            if self._source is not None:
                self._source.interrupt()
        peers = self._job.environment.peers
        if peers is not None:
            peers.slots.wake()

    def state_lost(self) -> None:
        """Take note that what was opened last did not do: a peer's copy is not fetched twice then."""
        self._distrusts_peers = self._last in (Source.STANDBY, Source.ACTIVE)

    # ---- peers ----

    def _from_peers(self, run: Run) -> TaskStore | None:
        peers = self._job.environment.peers
        if peers is None or not self._is_worth_it():
            return None
        give_up = self._clock.monotonic() + _PATIENCE_SECONDS
        # At first whoever gives at once is looked for; only when all are busy one stands in line.
        self._patience_seconds = 0.0
        self._full.clear()
        while True:
            began = self._clock.monotonic()
            self._new_look.clear()
            try:
                store, is_soon = self._ask_all(peers, run)
            except _DiskFailed as error:
                _log.warning("%s: no copy is fetched: %s", self._task, error)
                return None
            if store is not None:
                return store
            if self._new_look.is_set():
                continue
            if not is_soon or self._is_urgent() or self._clock.monotonic() > give_up:
                return None
            self._tell("waiting for a replica that can give its state")
            if self._patience_seconds and self._clock.monotonic() - began < _BETWEEN_ROUNDS_SECONDS:
                # Those that are about to be ready let nobody stand in line.
                run.pause(_BETWEEN_ROUNDS_SECONDS)
            self._check(run)
            self._patience_seconds = _IN_LINE_SECONDS

    def _ask_all(self, peers: Peers, run: Run) -> tuple[TaskStore | None, bool]:
        """Return the state of the first peer that gives it, and whether one of them may give it in a moment."""
        is_soon = False
        for peer in self._candidates(peers):
            self._check(run)
            if self._new_look.is_set():
                break
            try:
                return self._from(peer, peers, run), is_soon
            except _DiskFailed:
                raise
            except Refused as error:
                is_soon |= error.is_soon
                if self._refusals.get(peer.copy) != str(error):
                    # Once, not in every round.
                    self._refusals[peer.copy] = str(error)
                    _log.info("%s: copy %d gives nothing: %s", self._task, peer.copy, error)
            except StandfastError as error:
                self._check(run)
                if self._new_look.is_set():
                    break
                self._job.environment.restores.failed(self._task.job, peer.kind)
                _log.warning("%s: nothing from copy %d: %s", self._task, peer.copy, error)
        return None, is_soon

    def _is_worth_it(self) -> bool:
        """Return whether a copy is to be preferred to replaying the changelog."""
        first, end = self._bounds()
        if first > 0:
            # There is nothing else: the changelog has not all of the state any more.
            return True
        least = self._job.config.peer_min_records
        return 0 <= least <= end and not self._distrusts_peers

    def _candidates(self, peers: Peers) -> tuple[Peer, ...]:
        """Return whom to ask, the one first that a copy was begun from."""
        try:
            record = self._job.environment.records.read(self._task)
        except Transient as error:
            _log.warning("%s: whom to fetch from is not known: %s", self._task, error)
            return ()
        begun = self._begun.container if self._begun is not None else None
        return tuple(sorted(peers_of(record, peers.container), key=lambda each: each.container != begun))

    def _from(self, peer: Peer, peers: Peers, run: Run) -> TaskStore:
        """Return the state, fetched from one peer; raises what went wrong."""
        started = self._clock.monotonic()
        address = peers.directory.find(peer.container)
        if address is None or not address.port:
            raise Unavailable(f"{peer.container} is not registered, or does not give its state")
        self._take_slot(peers, run)
        try:
            silence = _SILENCE_URGENT_SECONDS if self._is_urgent() else _SILENCE_SECONDS
            source = peers.open_source(address, silence)
            with self._lock:
                self._source = source
                if self._new_look.is_set():
                    # It was hurried before there was anything to cut off.
                    source.interrupt()
            try:
                with run.cutting_off(source.interrupt):
                    store, size = self._fetch(source, peer, peers, run)
            finally:
                with self._lock:
                    self._source = None
                source.close()
        finally:
            peers.slots.give_back()
        return self._opened(store, peer.kind, size, started)

    def _take_slot(self, peers: Peers, run: Run) -> None:
        """Wait until one fetch more may run here; an active that waits for its state waits for no other."""

        def is_off() -> bool:
            return run.is_cancelled() or self._new_look.is_set()

        limit = sys.maxsize if self._is_urgent() else self._job.config.peer_max_concurrent
        with run.cutting_off(peers.slots.wake):
            if not peers.slots.take(limit, is_off):
                raise Transient("called off")

    def _fetch(self, source: SnapshotSource, peer: Peer, peers: Peers, run: Run) -> tuple[TaskStore, int]:
        """Return the state and how many bytes were fetched for it."""
        begun = self._begun if self._begun and self._begun.container == peer.container else None
        tries, size = 0, 0
        while True:
            begun = self._begun = begun or self._lent(source, peer)
            manifest, place = begun.manifest, begun.directory
            scratch = Scratch(place)
            try:
                with scratch.locked():
                    self._bring(source, manifest, scratch, peers, run)
                    source.release(manifest.lease)
                    self._begun = None
                    self._check_manifest(manifest)
                    with self._opening:
                        wipe_store(place, self._job.environment.open_database)
                    scratch.install(manifest)
            except CorruptState:
                self._begun = None
                source.release(manifest.lease)
                raise
            except Refused as error:
                # The copy was taken back meanwhile; a new one shares most of its files.
                _log.info("%s: %s", self._task, error)
                begun, self._begun = None, None
            except Transient as error:
                if self._new_look.is_set() or run.is_cancelled():
                    raise
                _log.info("%s: copy %d broke off: %s", self._task, peer.copy, error)
                begun = self._begun
            except Unavailable as error:
                # Another disk may take it.
                _log.warning("%s: no copy can be put into %s: %s", self._task, place, error)
                begun, self._begun = None, None
                scratch.clear()
                source.release(manifest.lease)
                self._full.add(place)
            else:
                size += scratch.fetched_bytes
                # The end is asked for now: an active has gone on while the state was fetched.
                bounds = self._bounds()
                with self._opening:
                    store = self._open_existing(bounds, place)
                assert store is not None, "it was installed"
                return store, size
            size += scratch.fetched_bytes
            tries = 0 if scratch.fetched_bytes else tries + 1
            if tries >= _TRIES:
                raise Transient("it breaks off again and again")
            if run.pause(0.05 * 2**tries):
                raise Transient("called off")

    def _bring(
        self, source: SnapshotSource, manifest: Manifest, scratch: Scratch, peers: Peers, run: Run
    ) -> None:
        bound = self._job.config.peer_max_bytes_per_second
        total = manifest.total_bytes

        def wait(amount: int) -> None:
            # An active that waits for its state is worth more than an even load.
            seconds = 0.0 if self._is_urgent() else peers.rate_limiter.take(amount, bound)
            until = self._clock.monotonic() + seconds
            while (left := until - self._clock.monotonic()) > 0:
                if run.pause(left):
                    raise Transient("called off")

        def tell() -> None:
            done = f"{scratch.done_bytes / 1e6:.1f} of {total / 1e6:.1f} MB"
            self._tell(f"fetching state from {self._giver(manifest)}: {done}")

        tell()
        scratch.fetch(source, manifest, wait, tell)

    def _giver(self, manifest: Manifest) -> str:
        return f"the {manifest.role.value} at epoch {manifest.epoch}"

    def _lent(self, source: SnapshotSource, peer: Peer) -> _Begun:
        """Return a new copy, when that is of use and there is room for it."""
        manifest = decode_manifest(source.take(self._task, self._job.definition.run, self._patience_seconds))
        try:
            self._check_manifest(manifest)
            return _Begun(peer.container, manifest, self._place(manifest))
        except StandfastError:
            source.release(manifest.lease)
            raise

    def _check_manifest(self, manifest: Manifest) -> None:
        """Raise `CorruptState` when the copy would not pass for left-over state."""
        origin = manifest.origin
        first, end = self._bounds()
        position = Position(origin.offset, origin.caught_up_ms)
        check_state(origin, self._origin, position, end, self._job.environment.clock.now_ms())
        if origin.offset < first:
            raise CorruptState(f"it is at {origin.offset}, and the changelog begins at {first}")

    def _place(self, manifest: Manifest) -> Path:
        """Return the state's final place, on a disk that has room for it; rather where a part of it was fetched to."""
        begun = {each: Scratch(each).held_bytes for each in self._directories}
        for each in sorted(by_room(self._directories), key=lambda each: -begun[each]):
            # What was fetched before takes no more room: it is used again, or deleted.
            room = (free_bytes(each) or 0) + begun[each]
            if each not in self._full and room >= manifest.total_bytes + _SPARE_BYTES:
                return each
        raise _DiskFailed(f"no disk of this host has room for {manifest.total_bytes} bytes")

    # ---- what it is opened with ----

    @property
    def _directories(self) -> tuple[Path, ...]:
        return self._job.directories(self._task)

    @property
    def _opening(self) -> threading.Lock:
        return self._job.environment.opening

    @property
    def _origin(self) -> Origin:
        return self._job.origin(self._task)

    @property
    def _means(self) -> tuple[int, OpenDatabase, Probe]:
        environment = self._job.environment
        return environment.clock.now_ms(), environment.open_database, environment.probe

    def _bounds(self) -> tuple[int, int]:
        return self._job.broker.changelog_bounds(self._task.partition)

    def _open_existing(self, bounds: tuple[int, int], place: Path) -> TaskStore | None:
        check_owners(place)
        self._job.identity.check_known(read_side_file(place))
        return open_existing(place, self._origin, bounds, *self._means)

    def _opened(self, store: TaskStore, source: Source, size: int, started: float) -> TaskStore:
        seconds = self._clock.monotonic() - started
        self._last = source
        self._job.environment.restores.opened(self._task.job, source, size, seconds)
        _log.info(
            "%s: state from %s at offset %d in %s: %d bytes fetched, %.2f s",
            *(self._task, source.value, store.position.offset, store.directory, size, seconds),
        )
        return store

    def _check(self, run: Run) -> None:
        if run.is_cancelled():
            raise Transient(f"{self._task}: called off")
