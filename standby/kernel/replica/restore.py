"""Obtains a replica's state: left-over state on local disks, else a peer's copy, else empty (rule `old-state`)."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from standby.errors import CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.cancel_scope import CancelScope
from standby.kernel.job import JobKernel
from standby.kernel.ports import OpenDatabase, SnapshotSource
from standby.kernel.probes import Probe
from standby.kernel.restore.fetch import Peers, Scratch
from standby.kernel.store.directories import check_owners, content_bytes
from standby.kernel.store.places import by_free_space, free_bytes, open_found
from standby.kernel.store.store import TaskStore, condemn_state, open_empty, open_existing, wipe_store
from standby.ports import PeerRefused
from standby.replica.store.origin import DATABASE, BeginningLost, Origin, Position, check_state
from standby.replica.store.snapshot import Manifest, decode_manifest
from standby.replica.store.sources import Peer, StateSource, peers_of
from standby.shared.model import TaskId

_log: Final = logging.getLogger(__name__)

#: A source is considered lost after this long without data. Shorter when an active is waiting for its state.
_SILENCE_SECONDS: Final = 15.0
_SILENCE_URGENT_SECONDS: Final = 3.0

#: Attempts in a row without progress, after which a source that disconnects is given up.
_TRIES: Final = 3

#: How long to wait for sources that are busy or almost ready, before the changelog is replayed instead.
_PATIENCE_SECONDS: Final = 300.0

_BETWEEN_ROUNDS_SECONDS: Final = 0.5

#: How often the progress of a fetch is told: each change of it is a report on all replicas of the container.
_TELL_SECONDS: Final = 2.0

#: How long to queue at a provider that has reached its limit of copies, before the other peers are asked again. Well
#: below the silence after which a source is considered lost.
_IN_LINE_SECONDS: Final = 5.0

#: Free space that must remain on a disk after a copy has been placed there.
_SPARE_BYTES: Final = 64 << 20

#: How long a copy that found no room is taken to need as much.
_NEED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Begun:
    """A copy that was lent to this replica and is not complete yet: the fetch resumes where it was interrupted."""

    container: str
    manifest: Manifest
    directory: Path


@dataclass(frozen=True, slots=True)
class _Need:
    """What a copy needed for which no disk of this host had room."""

    least_bytes: int
    until: float
    """Monotonic time until which it is taken to need as much."""
    text: str


class _DiskFailed(Unavailable):
    """The local disk cannot take the data that is fetched."""


class _NotOpened(Transient):
    """A complete copy is in place, but the changelog cannot be read at the moment; the next attempt finds the copy."""


class Restore:
    """Opens one replica's state. `open` runs on the replica's worker; `hurry` may be called from any thread."""

    def __init__(
        self, job: JobKernel, task: TaskId, is_urgent: Callable[[], bool], tell: Callable[[str, bool], None]
    ) -> None:
        """``is_urgent``: whether an active is waiting for the state.

        ``tell`` receives a short text about what is done, and whether that brings the state nearer.
        """
        self._job = job
        self._clock = job.environment.clock
        self._task = task
        self._is_urgent = is_urgent
        self._tell = tell
        self._begun: _Begun | None = None
        self._source: SnapshotSource | None = None
        self._lock = threading.Lock()
        self._new_look = threading.Event()
        self._last = StateSource.LOCAL
        self._refusals: dict[int, str] = {}
        self._distrusts_peers = False
        #: Whether the task's record could not be read at the last attempt.
        self._is_record_away = False
        self._patience_seconds = 0.0
        self._full: set[Path] = set()
        """Directories whose disk failed to take fetched data."""
        self._need: _Need | None = None
        self._bad_peers: set[str] = set()
        """Containers whose copy failed its checks."""
        self._refused: set[Path] = set()
        """Directories whose state failed its checks, until another state is open. A later check might pass: a state
        past the changelog's end is no longer that when the changelog has grown."""

    def open(self, run: CancelScope) -> TaskStore:
        """Return the opened state.

        Raises `Transient` when a retry may succeed (and when the run was cancelled), `BeginningLost` when only
        another replica has the whole state, and `Unavailable` when no disk of this host is usable.
        """
        started = self._clock.monotonic()
        # The topic id is checked before any state is opened, because state of a recreated changelog must not be
        # touched. It is also checked before the bounds: this request waits until the job's new client is connected.
        # A lookup of partition leaders may be lost at that moment, and librdkafka repeats it only after 3 s (6 of
        # 150 tries).
        self._job.identity.changelog_id()
        bounds = self._bounds()
        with self._opening:
            store = open_found(self._directories, partial(self._open_existing, bounds))
        if store is not None:
            return self._opened(store, StateSource.LOCAL, 0, started)
        store = self._from_peers(run)
        if store is not None:
            return store
        self._check(run)
        self._discard_fetches()
        failure: StandfastError | None = None
        for place in by_free_space(self._directories):
            try:
                with self._opening:
                    check_owners(place)
                    store = open_empty(place, self._origin, bounds, *self._means)
            except (Transient, BeginningLost):
                raise
            except (Unavailable, CorruptState) as error:
                # The database is new and yet broken: wiping it would not help, so the disk is the cause.
                _log.warning("%s: %s", self._task, error)
                failure = error
            else:
                return self._opened(store, StateSource.CHANGELOG, 0, started)
        assert failure is not None, "there is a place, or an error before"
        raise Unavailable(str(failure)) from failure

    def hurry(self) -> None:
        """Look for a source again at once: the replica is to become active.

        A running fetch is interrupted: its provider may be the active that was just lost. If the provider is alive, the
        next attempt finds it again and resumes the fetch.
        """
        with self._lock:
            self._new_look.set()
            if self._source is not None:
                self._source.interrupt()
        peers = self._job.environment.peers
        if peers is not None:
            peers.slots.wake()

    def state_lost(self) -> None:
        """Record that the state opened last was unusable. If it was a peer's copy, none is fetched again."""
        self._distrusts_peers = self._last in (StateSource.STANDBY, StateSource.ACTIVE)

    # ---- peers ----

    def _from_peers(self, run: CancelScope) -> TaskStore | None:
        peers = self._job.environment.peers
        if peers is None or not self._is_worth_it():
            return None
        give_up = self._clock.monotonic() + _PATIENCE_SECONDS
        # The first round only looks for a peer that can give at once. Later rounds queue at busy peers.
        self._patience_seconds = 0.0
        self._full.clear()
        self._bad_peers.clear()
        while True:
            began = self._clock.monotonic()
            self._new_look.clear()
            try:
                self._check_room()
                store, is_soon = self._ask_all(peers, run)
            except _DiskFailed as error:
                if self._bounds()[0] > 0:
                    self._discard_fetches()
                    raise BeginningLost(
                        f"{error}; it cannot be restored from {self._origin.topic}-{self._task.partition}, which has "
                        "lost its beginning (docs/troubles.md)"
                    ) from error
                _log.warning("%s: no copy is fetched: %s", self._task, error)
                return None
            if store is not None:
                return store
            if self._new_look.is_set():
                continue
            if not is_soon or self._is_urgent() or self._clock.monotonic() > give_up:
                return None
            self._tell("waiting for a replica that can give its state", False)
            if self._patience_seconds and self._clock.monotonic() - began < _BETWEEN_ROUNDS_SECONDS:
                # Peers that are almost ready do not queue requests.
                run.pause(_BETWEEN_ROUNDS_SECONDS)
            self._check(run)
            self._patience_seconds = _IN_LINE_SECONDS

    def _ask_all(self, peers: Peers, run: CancelScope) -> tuple[TaskStore | None, bool]:
        """Return the state from the first peer that gives it, and whether a peer may be able to give it soon.

        Raises `Transient` if it is not known which peers have the state, and nothing else has it.
        """
        is_soon = False
        try:
            candidates = self._candidates(peers)
        except Transient as error:
            if self._bounds()[0] > 0:
                raise
            if not self._is_record_away:
                self._is_record_away = True
                _log.warning("%s: cannot determine which peers to fetch state from: %s", self._task, error)
            # ZooKeeper's outages are short, and a replay of the whole changelog may take hours.
            return None, True
        self._is_record_away = False
        for peer in candidates:
            self._check(run)
            if self._new_look.is_set():
                break
            try:
                return self._from(peer, peers, run), is_soon
            except (_DiskFailed, _NotOpened):
                raise
            except PeerRefused as error:
                is_soon |= error.is_soon
                if self._refusals.get(peer.copy) != str(error):
                    # Log a refusal once, not in every round.
                    self._refusals[peer.copy] = str(error)
                    _log.info("%s: copy %d does not give its state: %s", self._task, peer.copy, error)
            except StandfastError as error:
                self._check(run)
                if self._new_look.is_set():
                    break
                if isinstance(error, CorruptState):
                    self._bad_peers.add(peer.container)
                self._job.environment.restores.failed(self._task.job, peer.kind)
                _log.warning("%s: fetching state from copy %d failed: %s", self._task, peer.copy, error)
        return None, is_soon

    def _discard_fetches(self) -> None:
        """Delete what incomplete fetches have left: it only takes up disk space that a restore needs."""
        for place in self._directories:
            Scratch(place).discard()

    def _is_worth_it(self) -> bool:
        """Return whether to fetch a copy instead of replaying the changelog."""
        first, end = self._bounds()
        if first > 0:
            # A copy is the only source: the changelog no longer contains the whole state.
            return True
        least = self._job.config.peer_min_records
        return 0 <= least <= end and not self._distrusts_peers

    def _candidates(self, peers: Peers) -> tuple[Peer, ...]:
        """Return the peers to ask. The peer of an incomplete fetch comes first. Raises `Transient`."""
        record = self._job.environment.records.read(self._task)
        begun = self._begun.container if self._begun is not None else None
        usable = [each for each in peers_of(record, peers.container) if each.container not in self._bad_peers]
        return tuple(sorted(usable, key=lambda each: each.container != begun))

    def _from(self, peer: Peer, peers: Peers, run: CancelScope) -> TaskStore:
        """Return the state, fetched from one peer. Raises the error of a failed fetch."""
        started = self._clock.monotonic()
        address = peers.directory.find(peer.container)
        if address is None:
            raise Unavailable(f"{peer.container} is not registered")
        self._take_slot(peers, run)
        try:
            is_urgent = self._is_urgent()
            silence = _SILENCE_URGENT_SECONDS if is_urgent else _SILENCE_SECONDS
            source = peers.open_source(address, silence, is_urgent=is_urgent)
            with self._lock:
                self._source = source
                if self._new_look.is_set():
                    # `hurry` was called before there was a source to interrupt.
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

    def _take_slot(self, peers: Peers, run: CancelScope) -> None:
        """Wait until another fetch may run in this container. A fetch for an active never waits."""

        def is_off() -> bool:
            return run.is_cancelled() or self._new_look.is_set()

        limit = sys.maxsize if self._is_urgent() else self._job.config.peer_max_concurrent
        with run.cutting_off(peers.slots.wake):
            if not peers.slots.take(limit, is_off):
                raise Transient("cancelled")

    def _fetch(
        self, source: SnapshotSource, peer: Peer, peers: Peers, run: CancelScope
    ) -> tuple[TaskStore, int]:
        """Return the state, and the number of bytes fetched for it."""
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
                    self._refused.discard(place)
                    scratch.install(manifest)
            except CorruptState:
                self._begun = None
                source.release(manifest.lease)
                raise
            except PeerRefused as error:
                # The provider has withdrawn the copy meanwhile. A new copy shares most of its files.
                _log.info("%s: %s", self._task, error)
                begun, self._begun = None, None
            except Transient as error:
                if self._new_look.is_set() or run.is_cancelled():
                    raise
                _log.info("%s: fetching from copy %d was interrupted: %s", self._task, peer.copy, error)
                begun = self._begun
            except Unavailable as error:
                # Another disk may have room.
                _log.warning("%s: a fetched copy cannot be stored in %s: %s", self._task, place, error)
                begun, self._begun = None, None
                scratch.clear()
                source.release(manifest.lease)
                self._full.add(place)
            else:
                return self._open_fetched(place), size + scratch.fetched_bytes
            size += scratch.fetched_bytes
            tries = 0 if scratch.fetched_bytes else tries + 1
            if tries >= _TRIES:
                raise Transient("it is interrupted repeatedly")
            if run.pause(0.05 * 2**tries):
                raise Transient("cancelled")

    def _open_fetched(self, place: Path) -> TaskStore:
        try:
            # Read the end again: an active has continued to write while the state was fetched.
            bounds = self._bounds()
            with self._opening:
                store = self._open_existing(bounds, place)
        except Transient as error:
            raise _NotOpened(str(error)) from error
        assert store is not None, "it was installed"
        return store

    def _bring(
        self, source: SnapshotSource, manifest: Manifest, scratch: Scratch, peers: Peers, run: CancelScope
    ) -> None:
        bound = self._job.config.peer_max_bytes_per_second
        total = manifest.total_bytes

        def wait(amount: int) -> None:
            # The bandwidth limit does not apply to an active that is waiting for its state.
            seconds = 0.0 if self._is_urgent() else peers.rate_limiter.take(amount, bound)
            until = self._clock.monotonic() + seconds
            with run.cutting_off(self._new_look.set):
                while (left := until - self._clock.monotonic()) > 0:
                    if self._new_look.wait(self._clock.pace(left)):
                        raise Transient("interrupted")

        told_at = -math.inf

        def tell() -> None:
            nonlocal told_at
            now = self._clock.monotonic()
            if now - told_at < _TELL_SECONDS:
                return
            told_at = now
            done = f"{scratch.done_bytes / 1e6:.1f} of {total / 1e6:.1f} MB"
            self._tell(f"fetching state from {self._provider(manifest)}: {done}", True)

        tell()
        scratch.fetch(source, manifest, wait, tell)

    def _provider(self, manifest: Manifest) -> str:
        return f"the {manifest.role.value} at epoch {manifest.epoch}"

    def _lent(self, source: SnapshotSource, peer: Peer) -> _Begun:
        """Request a new copy; return it if it is usable and a disk has room for it."""
        manifest = decode_manifest(source.take(self._task, self._job.definition.run, self._patience_seconds))
        try:
            self._check_manifest(manifest)
            return _Begun(peer.container, manifest, self._place(manifest))
        except StandfastError:
            source.release(manifest.lease)
            raise

    def _check_manifest(self, manifest: Manifest) -> None:
        """Raise `CorruptState` when the copy would fail the checks of left-over state."""
        origin = manifest.origin
        first, end = self._bounds()
        position = Position(origin.offset, origin.caught_up_ms)
        check_state(origin, self._origin, position, end, self._job.environment.clock.now_ms())
        if origin.offset < first:
            raise CorruptState(
                f"it is at offset {origin.offset}, before the beginning of the changelog at {first}"
            )

    def _place(self, manifest: Manifest) -> Path:
        """Return the final directory for the state: on a disk with room, preferably where a fetch has begun."""
        rooms = self._rooms()
        least = manifest.total_bytes + _SPARE_BYTES
        for each, room in rooms.items():
            if room >= least:
                return each
        # A replay would delete the refused state as well; without the changelog's beginning, only a replacement does.
        if self._bounds()[0] == 0:
            for each, room in rooms.items():
                if each in self._refused and room + content_bytes(each / DATABASE) >= least:
                    with self._opening:
                        wipe_store(each, self._job.environment.open_database)
                    self._refused.discard(each)
                    return each
        host, disks = self._job.environment.host, ", ".join(self._job.state_dirs)
        said = (
            f"no disk of host {host} has room for a copy of the state: {_rounded_up(least)} must be free in one of "
            f"{disks}"
        )
        self._need = _Need(least, self._clock.monotonic() + _NEED_SECONDS, said)
        raise _DiskFailed(said)

    def _rooms(self) -> dict[Path, int]:
        """Return the bytes that each directory has for a copy, the ones first where a fetch has begun."""
        begun = {each: Scratch(each).held_bytes for each in self._directories}
        places = sorted(by_free_space(self._directories), key=lambda each: -begun[each])
        # Data of an earlier fetch needs no further room: it is reused or deleted.
        return {each: (free_bytes(each) or 0) + begun[each] for each in places if each not in self._full}

    def _check_room(self) -> None:
        """Raise `_DiskFailed` if no disk has the room yet that the only source of the state needed a moment ago.

        A peer makes a copy to say how much it needs, and flushes its state's memory to its disk for that.
        """
        need = self._need
        if need is None or self._clock.monotonic() >= need.until or self._bounds()[0] == 0:
            return
        if all(room < need.least_bytes for room in self._rooms().values()):
            raise _DiskFailed(need.text)

    # ---- parameters for opening the state ----

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
        if place in self._refused:
            raise CorruptState(f"{place}: its state was refused before")
        try:
            return open_existing(place, self._origin, bounds, *self._means)
        except CorruptState:
            self._refused.add(place)
            raise

    def _opened(self, store: TaskStore, source: StateSource, size: int, started: float) -> TaskStore:
        for each in self._refused - {store.directory}:
            try:
                condemn_state(each)
            except Unavailable as error:
                _log.warning("%s: the refused state stays on its disk: %s", self._task, error)
        self._refused.clear()
        seconds = self._clock.monotonic() - started
        self._last = source
        self._job.environment.restores.opened(self._task.job, source, size, seconds)
        _log.info(
            "%s: state from %s at offset %d in %s: %d bytes fetched, %.2f s",
            *(self._task, source.value, store.position.offset, store.directory, size, seconds),
        )
        return store

    def _check(self, run: CancelScope) -> None:
        if run.is_cancelled():
            raise Transient(f"{self._task}: cancelled")


def _rounded_up(size: int) -> str:
    """Return a size with two digits: that of a state that is written to is another one at each attempt."""
    unit = 10 ** max(0, len(str(size)) - 2)
    rounded = -(-size // unit) * unit
    return f"{rounded / 1e9:g} GB" if rounded >= 1_000_000_000 else f"{rounded / 1e6:g} MB"
