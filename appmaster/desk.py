"""Where any candidate answers clients from: cluster info, queued changes and their results.

Everything is read from one part of ZooKeeper's tree that watches keep fresh. Who leads also makes the queued
changes, on a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from appmaster import discovery, requests
from appmaster.adapters.kazoo_requests import KazooRequests, outlived, queued, request_of
from appmaster.adapters.kazoo_tree import WatchedTree
from appmaster.inbox import Inbox
from appmaster.records import RequestRecord
from appmaster.requests import Present
from standby import naming
from standby.errors import BadConfiguration, Fenced, StandfastError, Transient, Unavailable

_log: Final = logging.getLogger(__name__)

#: What is kept of the cluster's tree; nothing of it grows with clients, and nothing with tasks.
_PATTERNS: Final = (
    "candidates/*",
    "cells/*",
    "containers/*",
    "controller",
    "excluded",
    "jobs/*",
    "jobs/*/status",
    "requests/*",
)

#: Between two attempts at what ZooKeeper did not take, seconds.
_RETRY_SECONDS: Final = 0.5

#: How long a question waits for a look at ZooKeeper that is certainly of now, seconds; less than a client waits.
_FRESH_SECONDS: Final = 2.0

#: When nothing at all happens, seconds: requests are looked at by watches.
_IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Looked:
    """There may be something new."""


@dataclass(frozen=True, slots=True)
class _Led:
    epoch: int
    is_heard: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class _Closed:
    pass


class Desk:
    """One candidate's; ``client`` is a started kazoo client that stays its owner's.

    ``wall_ms`` gives Unix milliseconds; ``fenced`` is called, on the desk's thread, when another leads; ``more`` is
    what else belongs into the cluster's info, as JSON-ready data.
    """

    def __init__(
        self,
        client: Any,
        cluster: str,
        me: str,
        wall_ms: Callable[[], int],
        fenced: Callable[[str], None],
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._more = more
        self._cluster = cluster
        self._me = me
        self._wall_ms = wall_ms
        self._fenced = fenced
        self._tree = WatchedTree(client, naming.cluster_path(cluster), _PATTERNS)
        self._requests = KazooRequests(client, cluster)
        self._inbox: Inbox[_Looked | _Led | _Closed] = Inbox()
        self._epoch = 0
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)

    # ---- what any thread may ask ----

    def info(self) -> dict[str, Any]:
        """Return the cluster's info (`appmaster.discovery.info`); raises `Transient` before it was ever read."""
        nodes = self._tree.nodes
        if not nodes and not self._tree.is_complete:
            raise Transient("ZooKeeper has not been read yet")
        found = discovery.info(
            self._cluster, {path: each.data for path, each in nodes.items()}, self._wall_ms()
        )
        return {**found, **self._more(), "answered_by": self._me, "is_fresh": self._tree.is_complete}

    def leader(self) -> Mapping[str, Any] | None:
        """Return id, host and port of the candidate that leads; None while none does, as far as is known."""
        return discovery.leader({path: each.data for path, each in self._tree.nodes.items()})

    def queue(
        self, operation: str, arguments: Mapping[str, Any], submitter: str = "", request: str = ""
    ) -> str:
        """Return the id under which a change is queued; the same id again is the same change.

        Raises `BadConfiguration` for what no leader could make, `Transient`.
        """
        request = request or uuid.uuid4().hex
        requests.check(request, operation, arguments)
        self._requests.put(request, RequestRecord(operation, arguments, submitter, self._wall_ms()))
        return request

    def present(self, job: str, with_tasks: bool) -> Present | None:
        """Return a job as it is now, read with a sync; None when there is no such job. Raises `Transient`."""
        return self._requests.present(job, with_tasks=with_tasks)

    def seen(self, request: str) -> RequestRecord:
        """Return a request as far as this candidate has heard of it: nothing is asked of ZooKeeper.

        For whoever has no credentials. Raises `BadConfiguration` when it has not heard of it.
        """
        found = request_of(self._tree.nodes, request)
        if found is None:
            raise BadConfiguration(
                "there is no such request, or it was settled long ago, or it is not known here yet"
            )
        return found

    def result(self, request: str, wait_seconds: float = 0.0) -> RequestRecord:
        """Return a request as it stands, settled if that happens in time.

        Raises `BadConfiguration` when there is none of this id: never queued, or settled long ago.
        """

        def is_settled(nodes: Any) -> bool:
            found = request_of(nodes, request)
            return found is not None and found.state != "queued"

        self._tree.wait(is_settled, wait_seconds)
        found = request_of(self._tree.nodes, request)
        if found is None:
            # Queued a moment ago by another candidate, perhaps: then a sync shows it.
            found = request_of(self._tree.fresh(_FRESH_SECONDS), request)
        if found is None:
            raise BadConfiguration(f"there is no request {request}, or it was settled long ago")
        return found

    # ---- its life ----

    def start(self) -> None:
        """Begin."""
        self._tree.listen(lambda: self._inbox.post(_Looked()))
        self._tree.start()
        self._thread.start()

    def lead(self, epoch: int) -> None:
        """Make queued changes from now on, under ``epoch``; 0: no longer. Returns at once."""
        self._inbox.post(_Led(epoch))

    def rest(self) -> None:
        """Make what can be made now, and no more changes after that; what is queued still waits for another leadership.

        What waited for a job's end can be made when it has come, which may be the moment in which the last one ended:
        whoever rests looks then whether there is more to lead.
        """
        led = _Led(0)
        self._inbox.post(led)
        led.is_heard.wait()

    def close(self) -> None:
        """End."""
        self._inbox.post(_Closed())
        self._thread.join()
        self._tree.close()

    def _run(self) -> None:
        is_unfinished = False
        while True:
            events = self._inbox.drain(_RETRY_SECONDS if is_unfinished else _IDLE_SECONDS)
            for each in events:
                if isinstance(each, _Closed):
                    return
                if isinstance(each, _Led):
                    if self._epoch and not each.epoch:
                        self._settle_all()
                    self._epoch = each.epoch
                    each.is_heard.set()
            if self._epoch:
                is_unfinished = not self._settle_all()

    def _settle_all(self) -> bool:
        """Make the changes that wait, oldest first; return False when some of it is to be tried again.

        Behind one that has to wait, those of the same job wait too: their order is what was meant.
        """
        nodes = self._tree.nodes
        waiting: set[str] = set()
        try:
            for request, job in queued(nodes):
                if job in waiting:
                    continue
                try:
                    self._requests.settle(request, self._epoch)
                except Unavailable as error:
                    _log.info("request %s waits: %s", request, error)
                    waiting.add(job)
                else:
                    _log.info("request %s is settled", request)
            for request, version in outlived(nodes):
                self._requests.forget(request, version)
        except Fenced as error:
            self._epoch = 0
            self._fenced(str(error))
        except StandfastError as error:
            _log.warning("queued changes: %s", error)
            return False
        return not waiting
