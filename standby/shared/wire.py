"""The messages between a container and the leader: one bidirectional gRPC stream, JSON bodies.

A container sends :class:`Hello` first, then :class:`Heartbeat` every
``job.hotstandby.heartbeat.interval.ms`` and a :class:`Report` at once whenever a replica changes
its phase. The leader answers with :class:`Assignment`, which always contains everything that the container is to
hold, and is repeated until the reports match it, so a lost or duplicated message is harmless.

The encoding is msgspec's JSON: readable in a capture, checked on decoding, and open for later
fields (unknown fields are ignored, new ones need a default).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from standby.errors import BadConfiguration
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import Leftover, ReplicaStatus, TopicIdentity, Wanted

#: Incremented when a message changes incompatibly; the leader orders a container of another version to exit.
PROTOCOL = 1

#: Full gRPC method name of the only stream.
METHOD = "/standfast.Control/Stream"


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """Introduction of a container: the first message of each stream."""

    protocol: int
    container: str
    """YARN container id."""
    skein_id: str
    """Its id in the cell's Skein application, such as ``anywhere_3``."""
    cell: int
    incarnation: int
    """Creation transaction id (czxid) of its znode ``/containers/<container>``."""
    host: str
    """``NM_HOST``: the one identity of a host."""
    port: int
    """Its TCP port, which accepts connections while the process is alive."""
    http_port: int
    """Prometheus metrics."""
    pid: int
    controller_epoch: int
    """Highest controller epoch that it has obeyed; an older leader must not serve it."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """Everything it holds."""
    leftovers: tuple[Leftover, ...] = ()
    """Usable state on its host's disks that no process holds."""
    revisions: Mapping[str, int] = {}
    """Job → the only revision that this process can run: code is loaded once per process."""


class Heartbeat(msgspec.Struct, tag="heartbeat", frozen=True):
    """A sign of life."""

    sequence: int


class Report(msgspec.Struct, tag="report", frozen=True):
    """The current status of all replicas of a container.

    Sent on each change of a phase, when lag crosses the in-sync bound, and every few seconds.
    """

    number: int
    """The last :attr:`Assignment.number` that it has started to execute; 0 before the first."""
    replicas: tuple[ReplicaStatus, ...]
    warm: bool = False
    """Whether its pipeline is warm: a promotion would not wait for class loading."""
    rss_bytes: int = 0
    """Resident memory of the process and its children."""
    revisions: Mapping[str, int] = {}
    """Like `Hello.revisions`."""
    is_leaving: bool = False
    """Whether the process is asked to end, and waits until its actives are handed over."""


class JobDefinition(msgspec.Struct, frozen=True):
    """What a container needs to know about a job: its run, its validated configuration, its topics."""

    name: str
    run: str
    """Run id: changes only when a deleted job is created again."""
    config: Mapping[str, str]
    """Flat configuration, the input of `standby.config.parse`."""
    changelog: str
    """Name of the changelog topic of its only stage; partition n belongs to task n."""
    group: str
    """Consumer group that carries the committed input offsets."""
    tasks: int
    """Number of input partitions."""
    revision: int = 1
    """Incremented by each change of code or configuration that requires a restart of containers. Definitions with
    the same run and revision are equivalent for a container, whatever else differs."""
    code: str = ""
    """Digest (SHA-256, hexadecimal) of the bundle with the job's modules; empty: a job of an earlier release, whose
    application ships its modules into `standby.cluster.CODE_DIRECTORY`."""
    topics: Mapping[str, TopicIdentity] = {}
    """Topic → the identity that the run has recorded: for inputs, changelog, outputs and dead letters."""

    def __repr__(self) -> str:
        # Without the configuration: it contains Kafka's passwords, and representations are logged.
        return f"JobDefinition({self.name!r}, {self.run!r}, revision={self.revision}, code={self.code!r})"


class Assignment(msgspec.Struct, tag="assignment", frozen=True):
    """Everything that one container is to hold."""

    controller_epoch: int
    """Refused when lower than one that the container has obeyed before."""
    incarnation: int
    """Refused unless it is the container's incarnation."""
    number: int
    """Incremented with each new content within one controller epoch; a resend repeats it."""
    replicas: tuple[Wanted, ...]
    jobs: tuple[JobDefinition, ...]
    """Definitions of every job in `replicas`, and of those to keep warm."""


class Exit(msgspec.Struct, tag="exit", frozen=True):
    """The container is not needed, or no longer: close everything orderly and end the process."""

    controller_epoch: int
    reason: str
    purge: bool = False
    """Whether the job is deleted, so that its local state must be removed, too."""


Up = Hello | Heartbeat | Report
Down = Assignment | Exit


class Entry(msgspec.Struct, frozen=True):
    """A container process's entry for its witness, which adds how the process ended (`ProcessEnd`)."""

    ran: tuple[Ran, ...]
    child: int | None


_encoder = msgspec.json.Encoder()
_end: msgspec.json.Decoder[ProcessEnd] = msgspec.json.Decoder(ProcessEnd)
_up: msgspec.json.Decoder[Up] = msgspec.json.Decoder(Up)
_down: msgspec.json.Decoder[Down] = msgspec.json.Decoder(Down)


def encode(message: Up | Down) -> bytes:
    """Return the message as bytes for the stream."""
    return _encoder.encode(message)


def decode_up(data: bytes) -> Up:
    """Return the container's message in ``data``.

    Raises `BadConfiguration` when it is invalid: the peer uses another protocol.
    """
    try:
        return _up.decode(data)
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"not a message of protocol {PROTOCOL} from a container: {error}") from error


def decode_down(data: bytes) -> Down:
    """Return the leader's message in ``data``. Raises like `decode_up`."""
    try:
        return _down.decode(data)
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"not a message of protocol {PROTOCOL} from a leader: {error}") from error


def encode_entry(ran: tuple[Ran, ...], child: int | None) -> bytes:
    """Return the encoded entry of a container's process for its witness."""
    return _encoder.encode(Entry(ran, child))


def decode_end(data: bytes) -> ProcessEnd | None:
    """Return a witness's report; None when ``data`` is not one."""
    try:
        return _end.decode(data)
    except msgspec.MsgspecError:
        return None
