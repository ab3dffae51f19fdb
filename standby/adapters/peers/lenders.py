"""Finds containers that lend a job's transform, and has them run it (`standby.process.lending`)."""

from __future__ import annotations

import json
import logging
import queue
import threading
import urllib.parse
from collections.abc import Collection, Iterable
from http import HTTPStatus
from typing import Final, Protocol

from standby.adapters.peers.connection import REFUSAL_BYTES, PeerClient
from standby.adapters.tls import Context
from standby.errors import StandfastError, Transient
from standby.ports import PeerDirectory, PeerRefused
from standby.replica.lenders import asked_tasks, holders
from standby.shared.clock import REAL, Clock
from standby.shared.model import TaskId, TaskRecord
from standby.shared.peers import TRANSFORMS_ROUTE, PeerAddress
from standby.shared.wire import JobDefinition

_log: Final = logging.getLogger(__name__)

#: Number of tasks whose holders are looked up, and of containers that are asked at once.
_MOST_TASKS: Final = 16
_MOST_ASKED: Final = 8

#: A container that is alive says within milliseconds whether it lends its transform.
_ASK_SECONDS: Final = 1.0

#: How long a container without actives is waited for, at most, when one with actives has offered its transform, and
#: in relation to the time that this took: all are asked at once.
_IDLE_SECONDS: Final = 0.1
_IDLE_TIMES: Final = 1.0

#: Time-out for the rows of a batch: the own session will be warm soon.
_ANSWER_SECONDS: Final = 5.0

#: Sent by a container that feeds nothing itself.
IDLE: Final = "idle"


class LenderDirectory(PeerDirectory, Protocol):
    """Where lenders are found."""

    def known(self, tasks: Iterable[TaskId]) -> list[TaskRecord]:
        """Return the records of these tasks that can be read, perhaps not the newest ones. Raises `Transient`."""
        ...


class HttpLender(PeerClient):
    """A `standby.ports.TransformLender`."""

    def __init__(self, context: Context, address: PeerAddress, job: JobDefinition) -> None:
        super().__init__(context, address, _ANSWER_SECONDS)
        query = urllib.parse.urlencode({"run": job.run, "revision": job.revision})
        self._path = f"/{TRANSFORMS_ROUTE}/{urllib.parse.quote(job.name, safe='')}?{query}"

    def is_idle(self) -> bool:
        """Return whether the container feeds nothing itself.

        Raises `PeerRefused` when it does not lend the transform now, and `Transient`.
        """
        return bool(json.loads(self._ask("GET", None))[IDLE])

    def run(self, rows: bytes) -> bytes:
        """Return the transformed rows; see `TransformLender.run`."""
        try:
            # A lender that is gone or refuses already has nothing to do with the rows.
            self._ask("GET", None)
        except Transient as error:
            raise PeerRefused(str(error), is_soon=True) from error
        return self._ask("POST", rows)

    def _ask(self, method: str, body: bytes | None) -> bytes:
        with self._connected() as connection:
            connection.request(method, self._path, body=body)
            response = connection.getresponse()
            answer = response.read()
            if response.status == HTTPStatus.OK:
                return answer
        raise self._refused(response.status, answer[:REFUSAL_BYTES])


class Lenders:
    """The containers that may lend a transform to this one."""

    def __init__(
        self, container: str, directory: LenderDirectory, context: Context, clock: Clock = REAL
    ) -> None:
        """``container`` is this one, which does not ask itself."""
        self._container = container
        self._directory = directory
        self._context = context
        self._clock = clock

    def find(self, job: JobDefinition, tasks: Collection[TaskId]) -> HttpLender | None:
        """Return a container that lends the transform now, preferably one without actives; None: there is none.

        ``tasks`` are some of the job's. All containers are asked at once, so that one on a silent host delays nothing.
        """
        try:
            records = self._directory.known(asked_tasks(tasks, job.tasks, _MOST_TASKS))
        except Transient as error:
            _log.info("%s: nobody can be asked for the transform: %s", job.name, error)
            return None
        names = holders(records, self._container)[:_MOST_ASKED]
        search = _Search(self._directory, self._context, job)
        for each in names:
            threading.Thread(target=search.ask, args=(each,), name="lender", daemon=True).start()
        return search.first(len(names), self._clock)


class _Search:
    """One search for a lender. `ask` runs on a thread for each container."""

    def __init__(self, directory: LenderDirectory, context: Context, job: JobDefinition) -> None:
        self._directory = directory
        self._context = context
        self._job = job
        self._answers: queue.SimpleQueue[tuple[HttpLender, bool] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._asked: list[HttpLender] = []
        self._is_over = False

    def ask(self, container: str) -> None:
        """Put the container's answer into the queue; None: it does not lend."""
        lender = self._lender(container)
        answer = None if lender is None else _answer_of(lender)
        with self._lock:
            if not self._is_over:
                self._answers.put(answer)
            elif answer is not None:
                answer[0].close()

    def first(self, awaited: int, clock: Clock) -> HttpLender | None:
        """Return the first lender that is idle, or the first one if none is soon; give up all others."""
        chosen: HttpLender | None = None
        offered: list[HttpLender] = []
        began = clock.monotonic()
        end = began + _ASK_SECONDS
        while awaited and (left := end - clock.monotonic()) > 0:
            try:
                answer = self._answers.get(timeout=clock.pace(left))
            except queue.Empty:
                continue
            awaited -= 1
            if answer is None:
                continue
            lender, is_idle = answer
            offered.append(lender)
            if is_idle:
                chosen = lender
                break
            chosen = chosen or lender
            now = clock.monotonic()
            end = min(end, now + min(_IDLE_SECONDS, _IDLE_TIMES * (now - began)))
        with self._lock:
            self._is_over = True
            while not self._answers.empty():
                if (answer := self._answers.get()) is not None:
                    offered.append(answer[0])
        for each in self._asked:
            if each is not chosen:
                each.interrupt()
        for each in offered:
            if each is not chosen:
                each.close()
        return chosen

    def _lender(self, container: str) -> HttpLender | None:
        """Return what can be asked, and is interrupted when the search is over; None: nothing."""
        try:
            address = self._directory.find(container)
        except StandfastError as error:
            _log.debug("%s cannot be asked: %s", container, error)
            return None
        with self._lock:
            if address is None or self._is_over:
                return None
            lender = HttpLender(self._context, address, self._job)
            self._asked.append(lender)
            return lender


def _answer_of(lender: HttpLender) -> tuple[HttpLender, bool] | None:
    """Return the lender and whether it is idle; None, and closed, if it does not lend."""
    try:
        return lender, lender.is_idle()
    except Transient as error:
        _log.debug("%s lends nothing: %s", lender, error)
        lender.close()
        return None
