"""A client of a running cluster: asks its candidates, over mutual TLS.

Any candidate reports the others and the leader, so a client that knows one running candidate needs no session with
ZooKeeper. It remembers them between commands; ZooKeeper is asked only if none of them answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec

from appmaster.adapters.credentials.keyring import Keyring, require
from appmaster.adapters.grpc import CALL
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.changes.operations import CurrentJob
from standby.adapters.channels import open_channel
from standby.adapters.tls import channel_options
from standby.ensemble import Tls
from standby.errors import StandfastError, Unavailable
from standby.shared.roles import PeerRole

#: A candidate that does not answer within this time is skipped, seconds; longer than it waits for a result.
_PATIENCE_SECONDS: Final = 3.0

#: Between two searches for a candidate while none answers, seconds.
_AGAIN_SECONDS: Final = 0.25

_OPTIONS: Final = [
    *channel_options(PeerRole.MASTER),
    # A status describes each replica, somewhat above 1 KB per task: gRPC's own 4 MiB suffice for less than 4,000 tasks.
    ("grpc.max_receive_message_length", 256 << 20),
]


#: How long a command waits for a leader to make a change: longer than a change of leader takes, seconds.
DECIDED_SECONDS: Final = 30.0


class ChangeRefused(StandfastError):
    """A change was refused, and will not be made."""


class StillQueued(StandfastError):
    """A change has not been made yet; the next leader makes it."""


class ClusterClient:
    """Asks a cluster's candidates; finds the new leader by itself after a change of leader.

    ``candidates`` are addresses (``host:port``) known beforehand, ``tls`` are the settings for ZooKeeper, if the
    environment does not have them.
    """

    def __init__(
        self,
        cluster: str,
        zookeeper: str,
        keyring: Keyring | None = None,
        candidates: Iterable[str] = (),
        tls: Tls | None = None,
    ) -> None:
        #: Its name.
        self.cluster = cluster
        ring = keyring or require(cluster)
        ring.expiry_warning()
        self._keys = ring.keys
        self._zookeeper = ZooKeeper(zookeeper, cluster, access=ring.access(tls=tls))
        self._is_connected = False
        self._channels: dict[str, grpc.Channel] = {}
        self._leader = ""
        # Clusters of one name may be on several ensembles.
        place = hashlib.sha256(f"{zookeeper}/{cluster}".encode()).hexdigest()[:16]
        self._memory = ring.directory / f"candidates-{place}.json"
        self._known: list[str] = [*candidates, *_remembered(self._memory)]

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""
        for each in tuple(self._channels.values()):
            each.close()
        if self._is_connected:
            self._zookeeper.close()

    @property
    def zookeeper(self) -> ZooKeeper:
        """The client's session with ZooKeeper, opened at the first use."""
        if not self._is_connected:
            self._zookeeper.connect()
            self._is_connected = True
        return self._zookeeper

    # ---- what any candidate answers ----

    def info(self) -> dict[str, Any]:
        """Return the cluster's info (`appmaster.changes.cluster_info`); raises `Unavailable` if none answers."""
        return self.call_any("cluster")

    def call_any(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Return the first candidate's answer to an operation that every candidate has; raises as `call`."""
        return _checked(self._ask_any({"operation": operation, **arguments}))

    def queue(self, change: str, **arguments: Any) -> str:
        """Return the id of a queued change (`appmaster.changes.operations.OPERATIONS`), whichever candidate leads.

        Raises `Unavailable` if no candidate takes it, `StandfastError` if it cannot be made.
        """
        # The id is the client's: sent a second time, to another candidate, it is the same change.
        queued = uuid.uuid4().hex
        self.call_any("queue", change=change, arguments=arguments, id=queued)
        return queued

    def present(self, job: str, *, with_tasks: bool = False) -> CurrentJob | None:
        """Return a job as it is now, None if there is no such job; its actives' revisions only ``with_tasks``.

        Any candidate is asked, or ZooKeeper if none answers: commands also read from a cluster that does not run.
        """
        try:
            found = self.call_any("job", job=job, with_tasks=with_tasks)["present"]
        except Unavailable:
            return self.zookeeper.changes.present(job, with_tasks=with_tasks)
        return msgspec.convert(found, CurrentJob) if found is not None else None

    def change(
        self, change: str, timeout_seconds: float = DECIDED_SECONDS, **arguments: Any
    ) -> dict[str, Any]:
        """Return a change that was queued and made; raises as `queue` and `result`."""
        return self.result(self.queue(change, **arguments), timeout_seconds)

    def result(self, queued: str, timeout_seconds: float) -> dict[str, Any]:
        """Return a settled change (`appmaster.api.server.change_document`).

        Candidates are asked until it is, or time is over.

        Raises `ChangeRefused`, or `StillQueued` if it is not settled in time.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                answer = self.call_any("result", id=queued, wait_seconds=left)
            except Unavailable:
                if left <= 0:
                    raise
                # The last candidate may be about to come back.
                time.sleep(_AGAIN_SECONDS)
                continue
            if answer["state"] == "done":
                return answer
            if answer["state"] == "refused":
                raise ChangeRefused(str(answer["said"]))
            if left <= 0:
                why = f" ({answer['said']})" if answer.get("said") else ""
                raise StillQueued(
                    f"change {queued} is still queued after {timeout_seconds:g} s{why}; the next leader makes it"
                )

    # ---- what only the leader answers ----

    def status(self) -> dict[str, Any]:
        """Return the leader's snapshot (`appmaster.api.snapshot`); raises `Unavailable` if there is no leader."""
        return self.call("status")

    def call(self, operation: str, timeout_seconds: float = 5.0, **arguments: Any) -> dict[str, Any]:
        """Return the leader's answer to ``operation``.

        Raises `Unavailable` if no leader can be reached, `StandfastError` with the leader's own error.
        """
        return _checked(self._ask_leader({"operation": operation, **arguments}, timeout_seconds))

    def _ask_leader(self, question: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
        said = ""
        # The most recent leader, then the one that the candidates name, then the one in ZooKeeper.
        for find in (self._latest, self._named, self._recorded):
            address = find()
            if not address:
                continue
            try:
                answer = self._ask(address, question, timeout_seconds)
            except grpc.RpcError as error:
                said = (
                    f"the leader of cluster {self.cluster} at {address} does not answer: {error.code().name}"
                )
                self._leader = ""
                continue
            if answer.get("is_leader") is False or answer.get("is_other"):
                said = str(answer["error"])
                self._leader = ""
                continue
            self._leader = address
            return answer
        raise Unavailable(said or f"cluster {self.cluster} has no leader now")

    def _latest(self) -> str:
        """Return the address of the leader that answered last."""
        return self._leader

    def _named(self) -> str:
        """Return the leader's address according to the known candidates; empty if none of them knows it."""
        stale = ""
        for address in tuple(self._known):
            answer = self._tried(address, {"operation": "cluster"})
            leader = answer.get("leader") if answer is not None else None
            if answer is None or not leader:
                continue
            found = f"{leader['host']}:{leader['port']}"
            if not _is_cut_off(answer):
                return found
            # A leader that is itself cut off still names itself.
            stale = stale or found
        return stale

    def _recorded(self) -> str:
        """Return the leader's address according to ZooKeeper."""
        leader = self.zookeeper.election.controller()
        if leader is None:
            return ""
        address = f"{leader.host}:{leader.port}"
        # This also learns the other candidates, for when this one is gone.
        self._tried(address, {"operation": "cluster"})
        return address

    def _ask_any(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first answer, preferably of a candidate that is not cut off from ZooKeeper."""
        cut_off: dict[str, Any] | None = None
        for address in tuple(self._known):
            answer = self._tried(address, question)
            if answer is not None and not _is_cut_off(answer):
                return answer
            cut_off = cut_off or answer
        if cut_off is not None:
            return cut_off
        candidates = self.zookeeper.registry.candidates()
        for each in candidates:
            answer = self._tried(f"{each.host}:{each.port}", question)
            if answer is not None:
                return answer
        raise Unavailable(f"no candidate of cluster {self.cluster} answers")

    def _tried(self, address: str, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a candidate's answer; None if there is none, or if it belongs to another cluster by now."""
        try:
            answer = self._ask(address, question, _PATIENCE_SECONDS)
        except grpc.RpcError:
            return None
        if answer.get("is_other"):
            return None
        if question["operation"] == "cluster" and "candidates" in answer:
            self._remember(address, answer)
        return answer

    def _remember(self, address: str, info: Mapping[str, Any]) -> None:
        known = [f"{each['host']}:{each['port']}" for each in info["candidates"]]
        # Those that are gone come last: a restarted one may come back at its old address.
        self._known = list(dict.fromkeys((address, *known, *self._known)))[:16]
        draft = self._memory.with_name(f".{self._memory.name}.{os.getpid()}")
        with suppress(OSError):
            draft.write_text(json.dumps(self._known))
            draft.replace(self._memory)

    def _ask(self, address: str, question: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
        channel = self._channels.get(address)
        if channel is None:
            channel = open_channel(address, self._keys.channel_credentials(), _OPTIONS)
            self._channels[address] = channel
        ask = channel.unary_unary(CALL, None, None)
        # Named in each question, because a remembered address may belong to another cluster by now.
        data = json.dumps({**question, "cluster": self.cluster}).encode()
        try:
            answer: dict[str, Any] = json.loads(ask(data, timeout=timeout_seconds, wait_for_ready=False))
        except grpc.RpcError:
            # The channel would wait longer and longer before it tried the address again.
            self._channels.pop(address).close()
            raise
        return answer


def _is_cut_off(answer: Mapping[str, Any]) -> bool:
    """Return whether the answering candidate cannot reach ZooKeeper: it says so, or its info is not fresh."""
    return answer.get("status") == Unavailable.exit_status or answer.get("is_fresh") is False


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" not in answer:
        return answer
    status = int(answer.get("status", 1))
    if status == Unavailable.exit_status:
        # A caller that waits for a candidate also waits for one that can answer.
        raise Unavailable(answer["error"])
    error = StandfastError(answer["error"])
    error.exit_status = status
    raise error


def _remembered(memory: Path) -> list[str]:
    try:
        known = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return []
    return [each for each in known if isinstance(each, str)] if isinstance(known, list) else []
