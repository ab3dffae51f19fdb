"""How a task's state is kept, copied and replayed."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import LEAST_PEER_BYTES, MOST_BYTES, MOST_RETENTION_MS, key


@dataclass(frozen=True, kw_only=True)
class StateKeys:
    """How a task's state is kept, copied and replayed."""

    peer_min_records: int = key(
        "job.restore.peer.min.records",
        "Length of a task's changelog from which on a new replica fetches a copy of another replica's state instead "
        "of replaying it; -1: never, unless the changelog no longer contains the whole state.",
        50_000,
        minimum=-1,
        maximum=1_000_000_000_000,
        unit="records",
    )
    peer_max_bytes_per_second: int = key(
        "job.restore.peer.max.bytes.per.second",
        "Maximum rate at which a container sends state to others, and at which it fetches state; 0: no limit. At a "
        "lower rate than the least one, copies would be given up as silent.",
        268_435_456,
        minimum=0,
        least=LEAST_PEER_BYTES,
        maximum=MOST_BYTES,
        unit="bytes/s",
    )
    peer_max_concurrent: int = key(
        "job.restore.peer.max.concurrent",
        "Maximum number of copies of state that a container sends at once, and that it fetches at once.",
        2,
        minimum=1,
        maximum=1_000,
    )
    restore_threads: int = key(
        "job.restore.threads",
        "Maximum number of changelogs that a container replays in parallel for the job's copies that are not in sync "
        "yet; all those in sync are followed by one additional thread.",
        4,
        minimum=1,
        maximum=256,
    )
    restore_max_bytes_per_second: int = key(
        "job.restore.max.bytes.per.second",
        "Maximum rate at which a container replays changelog records for the job's copies that are not in sync yet; "
        "0: no limit. A promotion is never slowed down by it.",
        0,
        minimum=0,
        maximum=MOST_BYTES,
        unit="bytes/s",
    )
    changelog_replication: int = key(
        "job.changelog.replication.factor",
        "Replication factor of the changelog topic; -1: the brokers' default.",
        -1,
        minimum=-1,
        maximum=32_767,
        scope="run",
    )
    changelog_min_in_sync: int = key(
        "job.changelog.min.insync.replicas",
        "How many replicas of the changelog must have a record before it counts as written; -1: 2 if it has three or "
        "more, otherwise 1.",
        -1,
        minimum=-1,
        maximum=32_767,
    )
    changelog_delete_retention_ms: int = key(
        "job.changelog.delete.retention.ms",
        "How long tombstones are kept; older left-over state is not used, or deleted keys would come back.",
        86_400_000,
        minimum=60_000,
        maximum=MOST_RETENTION_MS,
        unit="ms",
        scope="run",
    )
    transaction_timeout_ms: int = key(
        "job.transaction.timeout.ms",
        "Age at which the broker aborts a dead active's open transaction, unless it is fenced before: for this long, "
        "plus up to the broker's own clean-up interval, readers of its outputs are blocked if no replica takes over. "
        "A transaction that takes longer is aborted too, so keep it above the time that a batch needs to be written.",
        5_000,
        minimum=1_000,
        maximum=86_400_000,
        unit="ms",
    )
