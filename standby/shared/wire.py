"""The messages between a container and the leader: one bidirectional gRPC stream, JSON bodies.

A container sends :class:`Hello` first, then :class:`Heartbeat` every
``job.hotstandby.heartbeat.interval.ms`` and a :class:`Report` at once whenever a replica changes
its phase. The leader answers with :class:`Assignment`, always all that the
container is to hold, repeated until the reports match it, so a lost or doubled message does no harm.

The encoding is msgspec's JSON: readable in a capture, checked on decoding, and open for later
fields (unknown fields are ignored, new ones need a default).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

import msgspec

from standby.errors import BadConfiguration
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import Fault, Leftover, Phase, ReplicaStatus, TopicIdentity, Wanted

#: Raised when a message changes incompatibly; the leader tells a container of another version to exit.
PROTOCOL = 1

#: Full gRPC method name of the one stream.
METHOD = "/standfast.Control/Stream"


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """A container introduces itself: first message of each stream."""

    protocol: int
    container: str
    """YARN container id."""
    skein_id: str
    """The id under which the cell's Skein knows it, such as ``anywhere_3``."""
    cell: int
    incarnation: int
    """Creation transaction id (czxid) of its znode ``/containers/<container>``."""
    host: str
    """``NM_HOST``: the one identity of a host."""
    port: int
    """Its own TCP port, which accepts as long as the process lives."""
    http_port: int
    """Prometheus metrics."""
    pid: int
    controller_epoch: int
    """Highest controller epoch it has obeyed; an older leader must not serve it."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """Everything it holds."""
    leftovers: tuple[Leftover, ...] = ()
    """Usable state on its host's disks, held by nobody."""
    revisions: Mapping[str, int] = {}
    """Job → revision of it that this process runs, and can run: code is loaded once in a process."""


class Heartbeat(msgspec.Struct, tag="heartbeat", frozen=True):
    """A sign of life."""

    sequence: int


class Report(msgspec.Struct, tag="report", frozen=True):
    """The present status of all replicas of a container.

    Sent on each change of a phase, when lag crosses the in-sync bound, and every few seconds.
    """

    number: int
    """The last :attr:`Assignment.number` it has begun to carry out; 0 before the first."""
    replicas: tuple[ReplicaStatus, ...]
    warm: bool = False
    """Whether its pipeline is warm: a promotion would not wait for class loading."""
    rss_bytes: int = 0
    """Resident memory of the process and its children."""
    revisions: Mapping[str, int] = {}
    """As `Hello.revisions`."""


class JobDefinition(msgspec.Struct, frozen=True):
    """What a container needs to know of a job: its run, its validated configuration, its topics."""

    name: str
    run: str
    """Run id: changes when a deleted job is created again, never else."""
    config: Mapping[str, str]
    """Flat configuration, as `standby.config.parse` takes it."""
    changelog: str
    """Name of the changelog topic of its (one) stage; partition n belongs to task n."""
    group: str
    """Consumer group that carries the committed input offsets."""
    tasks: int
    """Number of input partitions."""
    revision: int = 1
    """Raised by each change of code or configuration that a container has to be started anew for. Definitions
    with the same run and revision are the same to a container, whatever else differs."""
    code: str = ""
    """Digest (SHA-256, hexadecimal) of the bundle with the job's modules; empty: the one that YARN brought."""
    topics: Mapping[str, TopicIdentity] = {}
    """Topic → what the run has recorded of it: of inputs, changelog, outputs and dead letters."""

    def __repr__(self) -> str:
        # Without the configuration: Kafka's passwords are in it, and a representation comes into logs.
        return f"JobDefinition({self.name!r}, {self.run!r}, revision={self.revision}, code={self.code!r})"


class Assignment(msgspec.Struct, tag="assignment", frozen=True):
    """All that one container is to hold."""

    controller_epoch: int
    """Refused when lower than one the container obeyed before."""
    incarnation: int
    """Refused unless it is the container's own."""
    number: int
    """Rises with each new content within one controller epoch; a resend repeats it."""
    replicas: tuple[Wanted, ...]
    jobs: tuple[JobDefinition, ...]
    """Definitions of every job that `replicas` names, and of those to keep warm."""


class Exit(msgspec.Struct, tag="exit", frozen=True):
    """The container is not wanted (any more): close everything in order and end the process."""

    controller_epoch: int
    reason: str
    purge: bool = False
    """The job is deleted: remove its local state too."""


Up = Hello | Heartbeat | Report
Down = Assignment | Exit


class Entry(msgspec.Struct, frozen=True):
    """What a container's process leaves for its witness, which adds to it how the process ended (`ProcessEnd`)."""

    ran: tuple[Ran, ...]
    child: int | None


#: What details begin with → what a replica failed of, as containers of releases without `ReplicaStatus.fault` say it.
_FAULTS: Final = {
    "poison": Fault.POISON,
    "poison-limit": Fault.POISON_LIMIT,
    "topic made again": Fault.CHANGED_TOPIC,
}

_encoder = msgspec.json.Encoder()
_end: msgspec.json.Decoder[ProcessEnd] = msgspec.json.Decoder(ProcessEnd)
_up: msgspec.json.Decoder[Up] = msgspec.json.Decoder(Up)
_down: msgspec.json.Decoder[Down] = msgspec.json.Decoder(Down)


def encode(message: Up | Down) -> bytes:
    """Return the message as bytes for the stream."""
    return _encoder.encode(message)


def decode_up(data: bytes) -> Up:
    """Return the container's message in ``data``.

    Raises `BadConfiguration` when it is none: the peer speaks another protocol.
    """
    try:
        message = _up.decode(data)
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"not a message of protocol {PROTOCOL} from a container: {error}") from error
    if isinstance(message, Heartbeat) or all(each.phase is not Phase.FAILED for each in message.replicas):
        return message
    return msgspec.structs.replace(message, replicas=tuple(_with_fault(each) for each in message.replicas))


def _with_fault(status: ReplicaStatus) -> ReplicaStatus:
    """Return a status with the fault that a container of an earlier release has in its detail alone."""
    if status.phase is not Phase.FAILED or status.fault is not Fault.OTHER:
        return status
    said = _FAULTS.get(status.detail.partition(": ")[0])
    return status if said is None else dataclasses.replace(status, fault=said)


def decode_down(data: bytes) -> Down:
    """Return the leader's message in ``data``; raises as `decode_up`."""
    try:
        return _down.decode(data)
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"not a message of protocol {PROTOCOL} from a leader: {error}") from error


def encode_entry(ran: tuple[Ran, ...], child: int | None) -> bytes:
    """Return what a container's process leaves for its witness."""
    return _encoder.encode(Entry(ran, child))


def decode_end(data: bytes) -> ProcessEnd | None:
    """Return what a witness says; None when ``data`` is nothing that one would say."""
    try:
        return _end.decode(data)
    except msgspec.MsgspecError:
        return None
