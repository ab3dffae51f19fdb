"""How a task's state is kept, copied and replayed."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import key


@dataclass(frozen=True, kw_only=True)
class StateKeys:
    """How a task's state is kept, copied and replayed."""

    peer_min_records: int = key(
        "job.restore.peer.min.records",
        "Length of a task's changelog from which on a new replica fetches a copy of another replica's state rather "
        "than replay it; -1: never, as long as the changelog has all of the state.",
        50_000,
        minimum=-1,
        unit="records",
    )
    peer_max_bytes_per_second: int = key(
        "job.restore.peer.max.bytes.per.second",
        "Most bytes a second that a container gives to others that fetch state, and most that it fetches; 0: no "
        "bound.",
        268_435_456,
        minimum=0,
        unit="bytes/s",
    )
    peer_max_concurrent: int = key(
        "job.restore.peer.max.concurrent",
        "Most copies of state that a container gives at once, and most that it fetches at once.",
        2,
        minimum=1,
    )
    restore_threads: int = key(
        "job.restore.threads",
        "Most changelogs that a container replays side by side for the job's copies that are not in sync yet; those "
        "in sync are followed by one thread more, however many they are.",
        4,
        minimum=1,
    )
    restore_max_bytes_per_second: int = key(
        "job.restore.max.bytes.per.second",
        "Most bytes of changelog records that a container replays a second for the job's copies that are not in sync "
        "yet; 0: no bound. A promotion is never slowed down by it.",
        0,
        minimum=0,
        unit="bytes/s",
    )
    changelog_replication: int = key(
        "job.changelog.replication.factor",
        "Replication factor of the changelog topic; -1: the brokers' default.",
        -1,
        minimum=-1,
        scope="run",
    )
    changelog_min_in_sync: int = key(
        "job.changelog.min.insync.replicas",
        "How many replicas of the changelog must have a record before it counts as written; -1: 2 where it has three "
        "or more, else 1.",
        -1,
        minimum=-1,
    )
    changelog_delete_retention_ms: int = key(
        "job.changelog.delete.retention.ms",
        "How long tombstones are kept; older left-over state is not used, or deleted keys would come back.",
        86_400_000,
        minimum=60_000,
        unit="ms",
        scope="run",
    )
    transaction_timeout_ms: int = key(
        "job.transaction.timeout.ms",
        "Age at which the broker aborts a dead active's open transaction, if nobody fences it before: for so long, "
        "and up to the broker's own clean-up interval more, readers of its outputs stand still when nobody takes "
        "over. A transaction that takes longer is aborted too, so keep it above the time a batch needs to be written.",
        5_000,
        minimum=1_000,
        unit="ms",
    )
