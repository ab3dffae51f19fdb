"""A candidate's control API.

As with Storm's highly available Nimbus, any candidate returns the cluster's info and queues changes. Operations that
only the leader can answer or carry out are refused by the others, with the leader's address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from appmaster.changes.operations import KEPT_ARGUMENTS
from appmaster.changes.queue import ChangeQueue
from appmaster.records import ChangeRecord
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared.roles import Caller

#: A call waits no longer than this for a result, since its thread is one of a few; clients ask again.
MOST_WAIT_SECONDS: Final = 1.0

#: Operations that change nothing and are not audited.
READING: Final = frozenset({"cluster", "job", "result", "status", "explain"})

#: The parts of a call that the audit logs: no setting, which may be a secret.
HARMLESS: Final = KEPT_ARGUMENTS | {"id", "partition", "copy", "container", "processor"}

#: Answers what only the leader can answer.
ApiCall = Callable[[Mapping[str, Any]], Mapping[str, Any]]

Audit = Callable[[Caller, str, Mapping[str, Any], str], None]


@dataclass(frozen=True)
class ApiServer:
    """Answers questions on any thread."""

    cluster: str
    me: str
    """The id of this candidate."""
    changes: ChangeQueue
    leads: Callable[[], bool]
    """Returns whether this candidate is the leader."""
    leader_api: ApiCall
    audit: Audit = lambda caller, operation, about, said: None
    """Called for each call that asks for a change: caller, operation, what it is about, answer."""

    def __call__(self, caller: Caller, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to one question; errors are raised as `StandfastError` or are in the answer."""
        operation = str(asked.get("operation"))
        if operation in READING:
            return self._answered(caller, asked)
        about = {name: value for name, value in _about(asked).items() if name in HARMLESS}
        try:
            answer = self._answered(caller, asked)
        except StandfastError as error:
            self.audit(caller, _name(asked), about, str(error))
            raise
        if not answer.get("is_other") and answer.get("is_leader") is not False:
            said = str(answer.get("error") or answer.get("said") or answer.get("state") or "")
            self.audit(caller, _name(asked), about, said)
        return answer

    def _answered(self, caller: Caller, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked.get("cluster", self.cluster) != self.cluster:
            said = f"this is cluster {self.cluster}, not {asked['cluster']}"
            return {"error": said, "status": Unavailable.exit_status, "is_other": True}
        operation = asked.get("operation")
        if operation == "cluster":
            return self.changes.info()
        if operation == "job":
            present = self.changes.present(text_in(asked, "job"), asked.get("with_tasks") is True)
            return {"present": msgspec.to_builtins(present) if present is not None else None}
        if operation == "queue":
            return self._queue(caller, asked)
        if operation == "result":
            return change_document(text_in(asked, "id"), self._result(asked))
        if not self.leads():
            return self._refusal()
        return self.leader_api(asked)

    def _queue(self, caller: Caller, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = asked.get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise BadConfiguration("arguments: not an object")
        queued = self.changes.queue(
            text_in(asked, "change"), arguments, caller.name, str(asked.get("id", ""))
        )
        return {"id": queued, "state": "queued"}

    def _result(self, asked: Mapping[str, Any]) -> ChangeRecord:
        wait = asked.get("wait_seconds", 0.0)
        if not isinstance(wait, (int, float)):
            raise BadConfiguration(f"wait_seconds: {wait!r} is not a number")
        return self.changes.result(text_in(asked, "id"), min(float(wait), MOST_WAIT_SECONDS))

    def _refusal(self) -> Mapping[str, Any]:
        leader = self.changes.leader()
        if leader is None:
            said = f"candidate {self.me} does not lead, and there is no leader at the moment"
        elif leader["candidate"] == self.me:
            # At either end of a leadership: it has not taken over yet, or its lease is over.
            said = f"candidate {self.me} is recorded as leader, but cannot act as one at the moment"
        else:
            at = f"{leader['host']}:{leader['port']}"
            said = f"candidate {self.me} does not lead; {leader['candidate']} at {at} does"
        return {"error": said, "status": Unavailable.exit_status, "is_leader": False, "leader": leader}


def change_document(change: str, record: ChangeRecord) -> dict[str, Any]:
    """Return a queued change as clients see it."""
    return {
        "id": change,
        "operation": record.operation,
        "state": record.state,
        "said": record.said,
        "epoch": record.epoch,
        "revision": record.revision,
        "submitter": record.submitter,
        "at_ms": record.at_ms,
    }


def _name(asked: Mapping[str, Any]) -> str:
    """Return what a call asks for: the change that it queues, or else its operation."""
    operation = asked.get("operation")
    return str(asked.get("change", operation) if operation == "queue" else operation)


def _about(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a call, with that of the change that it queues."""
    # Nothing else is done with arguments: in another call they would only disguise it.
    arguments = asked.get("arguments") if asked.get("operation") == "queue" else None
    return {**asked, **(arguments if isinstance(arguments, Mapping) else {})}


def text_in(asked: Mapping[str, Any], name: str) -> str:
    """Return a text that a question must have; raises `BadConfiguration` if it is missing."""
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise BadConfiguration(f"{name}: missing in the question")
    return value
