"""The giving side of a bootstrap: copies of this container's states, lent to peers that fetch them.

A copy is a RocksDB checkpoint, which consists of hard links. It is lent: the fetcher renews the lease with every
piece, and loses it when it goes silent, because disk space of the copy cannot be freed meanwhile. Everything runs on
the threads of the peers' connections, never on the control thread or where batches run.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import IO, Final

from standby.errors import StandfastError, Unavailable
from standby.kernel.replay.rate_limiter import RateLimiter
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.store.directories import make_private
from standby.replica.store.origin import DATABASE, Origin
from standby.replica.store.snapshot import Manifest, SnapshotFile
from standby.shared.clock import REAL, Clock
from standby.shared.model import Role, TaskId
from standby.shared.peers import URGENT, PeerAnswer, PeerRequest, refusal

_log: Final = logging.getLogger(__name__)

#: Directory beside those of the tasks, in which copies are made.
SNAPSHOTS: Final = ".snapshots"

#: Lock file, held by the process that lends the copy; if it is not locked, that process is gone.
LEASE: Final = "lease"

#: After this long without a request or transfer, the copy is withdrawn.
LEASE_SECONDS: Final = 30.0

#: Piece size: large enough that the interpreter's overhead is small.
_PIECE_BYTES: Final = 256 << 10

_MOST_DIGESTS: Final = 8192

_ENDS: Final = "the container ends"

#: Upper bound of a fetcher's waiting time, whatever it requests: the connection's thread is blocked meanwhile.
_MOST_PATIENCE_SECONDS: Final = 10.0


class NotNow(StandfastError):
    """The replica cannot give a copy of its state at present."""

    def __init__(self, message: str, *, is_soon: bool = False) -> None:
        super().__init__(message)
        self.is_soon = is_soon
        """Whether it may be able to soon."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A replica that can give a copy of its state now."""

    role: Role
    epoch: int
    directory: Path
    """The directory of its state."""
    checkpoint: Callable[[Path], Origin]
    """Creates the copy in a new directory on the same disk."""
    bytes_per_second: int
    """The job's limit; 0: no limit."""
    concurrent: int


#: Returns what a held replica of the task, in the given run, offers; raises `NotNow`.
FindOffer = Callable[[TaskId, str], Offer]


@dataclass(slots=True, eq=False)
class _Lent:
    """One copy."""

    directory: Path
    offer: Offer
    lock: IO[bytes]
    touched: float
    files: dict[str, int] = field(default_factory=dict)


class Snapshots:
    """Lends copies. `answer` is its route on the peers' port; thread-safe."""

    def __init__(self, find: FindOffer, restores: RestoreCounters, clock: Clock = REAL) -> None:
        self._find = find
        self._restores = restores
        self._clock = clock
        self._rate_limiter = RateLimiter(clock.monotonic)
        self._changed = threading.Condition()
        # Guards everything below.
        self._lent: dict[str, _Lent] = {}
        self._making = 0
        self._digests: dict[tuple[int, int, int, int], str] = {}
        self._is_closed = False
        self._reaper: threading.Thread | None = None

    def answer(self, request: PeerRequest) -> PeerAnswer:
        """Return the response to a peer: ``POST`` makes a copy, ``GET`` returns a file of it, ``DELETE`` ends it."""
        match request.method, request.path[1:]:
            case "POST", ():
                return self._make(request)
            case "GET", (lease, file):
                return self._give(lease, file, request)
            case "DELETE", (lease,):
                self._take_back(lease, "returned")
                return PeerAnswer(HTTPStatus.OK)
            case _:
                return refusal(HTTPStatus.NOT_FOUND, "POST, GET <lease>/<file> or DELETE <lease>")

    def close(self) -> None:
        """Withdraw every copy; nothing is lent any more."""
        with self._changed:
            self._is_closed = True
            leases = tuple(self._lent)
            self._changed.notify_all()
        for each in leases:
            self._take_back(each, _ENDS)

    @property
    def lent(self) -> int:
        """Number of copies that are lent now."""
        with self._changed:
            return len(self._lent)

    # ---- making ----

    def _make(self, request: PeerRequest) -> PeerAnswer:
        query = request.query
        try:
            task = TaskId(query["job"], query["stage"], int(query["partition"]))
            patience = min(int(query.get("patience_ms", "0")) / 1000, _MOST_PATIENCE_SECONDS)
            offer = self._find(task, query["run"])
        except (KeyError, ValueError) as error:
            return refusal(HTTPStatus.BAD_REQUEST, f"job, stage, partition and run are needed: {error!r}")
        except NotNow as error:
            # A temporary refusal is "unavailable", like that of a busy provider.
            status = HTTPStatus.SERVICE_UNAVAILABLE if error.is_soon else HTTPStatus.CONFLICT
            return refusal(status, str(error))
        until = self._clock.monotonic() + patience
        is_urgent = URGENT in query
        with self._changed:
            # A waiting fetcher is notified at once when a copy is returned; polling would take longer.
            while (
                not self._is_closed
                and not self._may_lend(offer, is_urgent=is_urgent)
                and (left := until - self._clock.monotonic()) > 0
            ):
                self._changed.wait(self._clock.pace(left))
            if self._is_closed or not self._may_lend(offer, is_urgent=is_urgent):
                return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "as many copies as allowed are lent")
            self._making += 1
        try:
            lease, manifest = self._lend(task, offer)
        finally:
            with self._changed:
                self._making -= 1
                self._changed.notify_all()
        _log.info("%s: a copy at offset %d is lent as %s", task, manifest.origin.offset, lease)
        return PeerAnswer(HTTPStatus.CREATED, self._digested(lease, manifest))

    def _may_lend(self, offer: Offer, *, is_urgent: bool) -> bool:
        return is_urgent or len(self._lent) + self._making < offer.concurrent

    def _lend(self, task: TaskId, offer: Offer) -> tuple[str, Manifest]:
        """Return the new lease and its manifest; the files have no digests yet."""
        lease = uuid.uuid4().hex
        directory = offer.directory.parent / SNAPSHOTS / lease
        started = self._clock.monotonic()
        lock: IO[bytes] | None = None
        try:
            make_private(directory)
            lock = (directory / LEASE).open("wb")
            fcntl.flock(lock, fcntl.LOCK_EX)
            origin = offer.checkpoint(directory / DATABASE)
            files = {each.name: each.stat().st_size for each in sorted((directory / DATABASE).iterdir())}
            with self._changed:
                if self._is_closed:
                    raise Unavailable(_ENDS)
                if self._reaper is None:
                    reaper = threading.Thread(target=self._reap, name="snapshots", daemon=True)
                    reaper.start()
                    self._reaper = reaper
                self._lent[lease] = _Lent(directory, offer, lock, self._clock.monotonic(), files)
                self._changed.notify_all()
        except BaseException as error:
            if lock is not None:
                lock.close()
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError):
                raise Unavailable(f"{directory}: {error}") from error
            raise
        self._restores.lent(task.job, self._clock.monotonic() - started)
        unknown = tuple(SnapshotFile(name, size, "") for name, size in files.items())
        return lease, Manifest(lease, origin, offer.role, offer.epoch, unknown)

    def _digested(self, lease: str, manifest: Manifest) -> Iterator[bytes]:
        """Yield the manifest once every digest is computed, preceded by a space per file.

        White space before JSON is ignored, and shows the fetcher that the provider is alive.
        """
        is_sent = False
        try:
            yield from self._summed_up(lease, manifest)
            is_sent = True
        finally:
            if not is_sent:
                self._take_back(lease, "its fetcher went away")

    def _summed_up(self, lease: str, manifest: Manifest) -> Iterator[bytes]:
        files = []
        for each in manifest.files:
            path = self._touch(lease).directory / DATABASE / each.name
            try:
                stat = path.stat()
                key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
                with self._changed:
                    digest = self._digests.get(key)
                if digest is None:
                    summed = hashlib.sha256()
                    for piece in _pieces(path, 0):
                        summed.update(piece)
                    self._touch(lease)
                    digest = summed.hexdigest()
                    if each.name.endswith(".sst"):
                        # SST files are written once, and shared by the database and all its copies.
                        self._remember(key, digest)
            except OSError as error:
                raise Unavailable(f"{path}: {error}") from error
            files.append(SnapshotFile(each.name, each.size, digest))
            yield b" "
        yield Manifest(lease, manifest.origin, manifest.role, manifest.epoch, tuple(files)).encode()

    def _remember(self, key: tuple[int, int, int, int], digest: str) -> None:
        with self._changed:
            if len(self._digests) >= _MOST_DIGESTS:
                self._digests.pop(next(iter(self._digests)))
            self._digests[key] = digest

    # ---- giving ----

    def _give(self, lease: str, file: str, request: PeerRequest) -> PeerAnswer:
        start = request.start
        try:
            lent = self._touch(lease)
        except Unavailable as error:
            return refusal(HTTPStatus.GONE, str(error))
        size = lent.files.get(file)
        if size is None:
            return refusal(HTTPStatus.NOT_FOUND, f"{file}: not a file of this copy")
        if start > size:
            return refusal(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"{file} has {size} bytes")
        headers = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        status = HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK
        pieces = self._metered(lease, lent.directory / DATABASE / file, start, size, URGENT in request.query)
        return PeerAnswer(status, pieces, "application/octet-stream", size - start, headers)

    def _metered(self, lease: str, path: Path, start: int, end: int, is_urgent: bool) -> Iterator[bytes]:
        left = end - start
        try:
            for read in _pieces(path, start):
                piece = read[:left]
                left -= len(piece)
                if not piece:
                    return
                offer = self._touch(lease).offer
                if not is_urgent:
                    self._clock.sleep(self._rate_limiter.take(len(piece), offer.bytes_per_second))
                yield piece
                self._restores.gave(len(piece))
        except OSError as error:
            raise Unavailable(f"{path}: {error}") from error

    def _touch(self, lease: str) -> _Lent:
        with self._changed:
            lent = self._lent.get(lease)
            if lent is None:
                raise Unavailable(f"{lease}: no such copy (or no longer)")
            lent.touched = self._clock.monotonic()
            return lent

    # ---- withdrawing ----

    def expire(self) -> float | None:
        """Withdraw copies that are no longer fetched; return the seconds until the next one is due."""
        with self._changed:
            now = self._clock.monotonic()
            over = [key for key, lent in self._lent.items() if now - lent.touched >= LEASE_SECONDS]
        for each in over:
            self._take_back(each, f"not fetched for {LEASE_SECONDS:.0f} s")
        with self._changed:
            return self._due()

    def _due(self) -> float | None:
        left = [lent.touched + LEASE_SECONDS - self._clock.monotonic() for lent in self._lent.values()]
        return max(0.0, min(left)) if left else None

    def _reap(self) -> None:
        while True:
            self.expire()
            with self._changed:
                if self._is_closed and not self._lent:
                    return
                # Computed again under the lock that the wait releases: no notification comes for a copy lent before
                # that.
                due = self._due()
                self._changed.wait(None if due is None else self._clock.pace(due))

    def _take_back(self, lease: str, why: str) -> None:
        with self._changed:
            lent = self._lent.pop(lease, None)
        if lent is not None:
            _log.info("the copy %s is withdrawn: %s", lease, why)
            # Delete before the lock is released: an unlocked directory counts as that of a dead process.
            shutil.rmtree(lent.directory, ignore_errors=True)
            lent.lock.close()
            with self._changed:
                self._changed.notify_all()


def _pieces(path: Path, start: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), start, 0, os.POSIX_FADV_SEQUENTIAL)
        file.seek(start)
        while piece := file.read(_PIECE_BYTES):
            yield piece
