"""Key look-ups over HTTP, on the port with mutual TLS (`standby.shared.peers`).

``GET /state/<job>/<store>?key=<text>`` (or ``hex=<bytes>``), with ``role=active|standby``, ``partition=<n>`` and
``max_lag_ms=<n>`` optionally; docs/state.md describes the answer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from standby.errors import BadConfiguration
from standby.kernel.reads import Declined, LookupRequest, LookupResult, look_up
from standby.kernel.replica.runner import ReplicaRunner
from standby.shared.model import Role
from standby.shared.peers import PeerAnswer, PeerRequest, refusal


class Lookups:
    """Answers look-ups in the replicas of a container."""

    def __init__(self, held: Callable[[], Iterable[ReplicaRunner]], clock: Callable[[], int]) -> None:
        """``clock`` returns Unix milliseconds."""
        self._held = held
        self._clock = clock

    def answer(self, request: PeerRequest) -> PeerAnswer:
        """Return the answers of the replicas here; on the connection's thread."""
        if request.method != "GET":
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "state can only be read here")
        try:
            question = _question(request)
        except BadConfiguration as error:
            return refusal(HTTPStatus.BAD_REQUEST, str(error))
        ours = [each for each in self._held() if each.replica.id.task.job == question.job]
        stores = ours[0].job.config.stores if ours else ()
        if ours and question.store not in stores:
            return refusal(
                HTTPStatus.NOT_FOUND,
                f"{question.job} has no store {question.store}; it has {', '.join(stores)}",
            )
        said = list(look_up(question, ours, self._clock))
        body = {
            "job": question.job,
            "store": question.store,
            "answers": [_found(each) for each in said if isinstance(each, LookupResult)],
            "declined": [{**_replica(each), "why": each.why} for each in said if isinstance(each, Declined)],
        }
        return PeerAnswer(HTTPStatus.OK, json.dumps(body).encode() + b"\n")


def _question(request: PeerRequest) -> LookupRequest:
    """Return what is asked; raises `BadConfiguration` naming the parameter that is wrong."""
    path, query = request.path, request.query
    if len(path) != 3:
        raise BadConfiguration("the path has the form /state/<job>/<store>")
    unknown = set(query) - {"key", "hex", "role", "partition", "max_lag_ms"}
    if unknown:
        raise BadConfiguration(f"{', '.join(sorted(unknown))}: no such parameter")
    if ("key" in query) == ("hex" in query):
        raise BadConfiguration("give one of key and hex")
    try:
        key = bytes.fromhex(query["hex"]) if "hex" in query else query["key"].encode()
    except ValueError as error:
        raise BadConfiguration(f"hex: {error}") from error
    try:
        role = Role(query.get("role", Role.ACTIVE.value))
    except ValueError as error:
        raise BadConfiguration("role: active or standby") from error
    return LookupRequest(
        path[1], path[2], key, role, _number(query, "partition"), _number(query, "max_lag_ms")
    )


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise BadConfiguration(f"{name}: {text!r} is not a whole number")
    return int(text)


def _replica(said: LookupResult | Declined) -> dict[str, Any]:
    replica = said.replica
    return {"task": str(replica.task), "partition": replica.task.partition, "copy": replica.copy}


def _found(said: LookupResult) -> dict[str, Any]:
    return {
        **_replica(said),
        "run": said.run,
        "role": said.role.value,
        "phase": said.phase.value,
        "epoch": said.epoch,
        "applied": said.applied,
        "lag_ms": said.lag_ms,
        "found": said.value is not None,
        "value": None if said.value is None else base64.b64encode(said.value).decode(),
    }
