"""What any candidate answers to clients: itself what every candidate knows, through the leader's answers the rest.

From Storm's highly available Nimbus: cluster info from anybody; what only the leader can do is refused by the
others, naming it. Changes of what is desired are queued by anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from appmaster.records import RequestRecord
from appmaster.requests import Present
from standby.errors import BadConfiguration, Unavailable

#: A call waits no longer than this for a result: its thread is one of a few. Clients ask again.
MOST_WAIT_SECONDS: Final = 1.0

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ClusterDesk(Protocol):
    """As `appmaster.desk.Desk`."""

    def info(self) -> Mapping[str, Any]:
        """Return the cluster's info."""
        ...

    def leader(self) -> Mapping[str, Any] | None:
        """Return id, host and port of who leads."""
        ...

    def queue(self, operation: str, arguments: Mapping[str, Any], submitter: str, request: str) -> str:
        """Return the id of a queued change."""
        ...

    def present(self, job: str, with_tasks: bool) -> Present | None:
        """Return a job as it is now; its actives' revisions ``with_tasks`` only."""
        ...

    def result(self, request: str, wait_seconds: float) -> RequestRecord:
        """Return a request as it stands, waiting a while until it is settled."""
        ...


class Reception:
    """Answers questions on any thread; ``leads`` says whether this candidate, called ``me``, is the leader."""

    def __init__(
        self, cluster: str, me: str, desk: ClusterDesk, leads: Callable[[], bool], answers: Answer
    ) -> None:
        self._cluster = cluster
        self._me = me
        self._desk = desk
        self._leads = leads
        self._answers = answers

    def __call__(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to one question; errors are `StandfastError` or in the answer itself."""
        if asked.get("cluster", self._cluster) != self._cluster:
            said = f"this is cluster {self._cluster}, not {asked['cluster']}"
            return {"error": said, "status": Unavailable.exit_status, "is_other": True}
        operation = asked.get("operation")
        if operation == "cluster":
            return self._desk.info()
        if operation == "job":
            present = self._desk.present(_text(asked, "job"), asked.get("with_tasks") is True)
            return {"present": msgspec.to_builtins(present) if present is not None else None}
        if operation == "queue":
            return self._queue(asked)
        if operation == "result":
            return shown(_text(asked, "id"), self._result(asked))
        if not self._leads():
            return self._refusal()
        return self._answers(asked)

    def _queue(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = asked.get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise BadConfiguration("arguments: not an object")
        request = self._desk.queue(
            _text(asked, "change"), arguments, str(asked.get("submitter", "")), str(asked.get("id", ""))
        )
        return {"id": request, "state": "queued"}

    def _result(self, asked: Mapping[str, Any]) -> RequestRecord:
        wait = asked.get("wait_seconds", 0.0)
        if not isinstance(wait, (int, float)):
            raise BadConfiguration(f"wait_seconds: {wait!r} is not a number")
        return self._desk.result(_text(asked, "id"), min(float(wait), MOST_WAIT_SECONDS))

    def _refusal(self) -> Mapping[str, Any]:
        leader = self._desk.leader()
        if leader is None:
            said = f"candidate {self._me} does not lead, and nobody else does at this moment"
        elif leader["candidate"] == self._me:
            # On both sides of a leadership: it has not taken over yet, or its lease is over.
            said = f"candidate {self._me} is recorded as leader, but cannot act as one at this moment"
        else:
            at = f"{leader['host']}:{leader['port']}"
            said = f"candidate {self._me} does not lead; {leader['candidate']} at {at} does"
        return {"error": said, "status": Unavailable.exit_status, "is_leader": False, "leader": leader}


def shown(request: str, record: RequestRecord) -> dict[str, Any]:
    """Return a request as clients see it."""
    return {
        "id": request,
        "operation": record.operation,
        "state": record.state,
        "said": record.said,
        "epoch": record.epoch,
        "revision": record.revision,
        "submitter": record.submitter,
        "at_ms": record.at_ms,
    }


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise BadConfiguration(f"{name}: missing in the question")
    return value
