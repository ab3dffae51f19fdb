"""A standby equals its active, whatever is in the state, and what is said of its lag is true."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.replica.store.keys import prefix
from standby.replica.store.origin import DATABASE
from standby.shared.model import Phase, ReplicaStatus, Role
from tests.fakes.copy_job import STORE, checksum
from tests.kernel_lab import CLUSTER, Lab
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS

Record = tuple["bytes | None", "bytes | None"]


def odd_ones() -> Iterator[Record]:
    large = random.Random(8).randbytes(1 << 20)
    yield b"large", large
    yield b"large, rewritten", large
    yield b"large, rewritten", large[::-1]
    yield b"large, deleted", large
    yield b"large, deleted", None
    yield b"", b"the empty key"
    yield b"the empty value", b""
    yield b"never there", None
    yield b"there and gone", b"x"
    yield b"there and gone", None
    yield b"gone and back", b"x"
    yield b"gone and back", None
    yield b"gone and back", b"y"
    yield b"\x00", b"\x00"
    yield b"\xff" * 40, b"\xff"
    yield "Schlüssel ☃".encode(), "Wert ☃".encode()


def many(keys: int, rewrites: int) -> Iterator[Record]:
    for number in range(keys):
        yield b"%08d" % number, b"value %d" % number
    for number in range(rewrites):
        yield b"rewritten", b"%d" % number
    for number in range(0, keys, 10):
        yield b"%08d" % number, None


@pytest.mark.timeout(15 * PATIENCE_SECONDS)
@pytest.mark.parametrize(
    ("keys", "rewrites"),
    [(20_000, 20_000), pytest.param(5_000_000, 1_000_000, marks=pytest.mark.soak)],
)
def test_a_standby_equals_its_active_whatever_is_in_the_state(
    kafka_bootstrap: str, tmp_path: Path, keys: int, rewrites: int
) -> None:
    most_seconds = 5 * PATIENCE_SECONDS
    lab = Lab(
        kafka_bootstrap,
        tmp_path,
        tasks=1,
        **{
            "task.step": "tests.fakes.copy_job:step",
            "task.stores": STORE,
            "task.batch.max.records": "20000",
        },
    )
    model: dict[bytes, bytes] = {}

    def noted(records: Iterator[Record]) -> Iterator[Record]:
        for key, value in records:
            if value is None:
                model.pop(key or b"", None)
            else:
                model[key or b""] = value
            yield key, value

    with lab.local("host-a") as active, lab.local("host-b") as standby:
        lab.promote(active, 0, 1)
        standby.want(1, Role.STANDBY, 1)
        standby.await_phase(Phase.TAILING)
        lab.write(noted(odd_ones()))
        lab.write(noted(many(keys, rewrites)))
        ((_, end),) = connect(CLUSTER, parse(lab.definition.config), lab.definition).input_bounds(0)
        active.await_all(lambda each: each.input_committed == end, most_seconds)
        # One that comes late reads all of it from the changelog.
        with lab.local("host-c") as late:
            late.want(2, Role.STANDBY, 1)
            for each in (standby, late):
                each.await_all(lambda one: one.phase is Phase.TAILING and one.lag_records == 0, most_seconds)
    (task,) = lab.task_ids
    found = [checksum(lab.state_of(host, task) / DATABASE) for host in ("host-a", "host-b", "host-c")]
    assert found[0][0] == len(model)
    assert found == [found[0]] * 3
    assert checksum_of(model) == found[0][1]


def checksum_of(model: dict[bytes, bytes]) -> str:
    """Return the digest that a database with the model's content has."""
    digest = hashlib.blake2b(digest_size=16)
    for key, value in sorted((prefix(STORE) + key, value) for key, value in model.items()):
        digest.update(b"%d %d " % (len(key), len(value)) + key + value)
    return digest.hexdigest()


@dataclass(frozen=True)
class Sample:
    """What a replica said of itself, and what the broker said right after."""

    at: float
    status: ReplicaStatus
    end: int


def test_lag_is_what_the_broker_says_at_all_times(kafka_bootstrap: str, tmp_path: Path) -> None:
    """Of an active and its standby, over commits, an open transaction, an aborted one, and an idle tail.

    What is reported lies between what was true when the end was asked for and what is true now.
    """
    lab = Lab(kafka_bootstrap, tmp_path, tasks=1)
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    samples: list[Sample] = []

    def watch(times: int) -> None:
        for _ in range(times):
            at = time.monotonic()
            statuses = [*active.statuses().values(), *standby.statuses().values()]
            end = broker.changelog_ends((0,))[0]
            samples.extend(Sample(at, each, end) for each in statuses)
            time.sleep(LOOK_SECONDS)

    with lab.local("host-a") as active, lab.local("host-b") as standby:
        lab.promote(active, 0, 1)
        standby.want(1, Role.STANDBY, 1)
        active.await_phase(Phase.ACTIVE)
        standby.await_phase(Phase.TAILING)
        # With nothing but a claim in the changelog first.
        for each in (active, standby):
            each.await_all(lambda each: (each.lag_records, each.lag_ms) == (0, 0) and (each.applied or 0) > 0)
        with lab.load(20, per_second=50):
            watch(100)
        active.await_processed()
        # As of a writer that was fenced, and dies in a transaction.
        dead = Producer(
            {"bootstrap.servers": kafka_bootstrap, "transactional.id": f"dead-{lab.definition.name}"}
        )
        dead.init_transactions(PATIENCE_SECONDS)
        dead.begin_transaction()
        for _ in range(3):
            dead.produce(lab.definition.changelog, b"late", prefix(STORE) + b"k", 0)
        assert dead.flush(PATIENCE_SECONDS) == 0
        # The standby cannot pass them, and says so, in seconds too.
        standby.await_all(lambda each: each.lag_records == 3)
        watch(75)
        standby.await_all(lambda each: each.lag_records == 3 and (each.lag_ms or 0) >= 1_000)
        dead.abort_transaction(PATIENCE_SECONDS)
        with lab.load(20, per_second=50):
            watch(50)
        active.await_processed()
        # The tail is a transaction's marker, which may still be on its way; nothing of it is lag, then and later.
        standby.await_all(
            lambda each: each.applied == each.end == broker.changelog_ends((0,))[0] and each.lag_ms == 0
        )
        idle_since = time.monotonic()
        watch(75)
    broker.close()
    records = [each.offset() or 0 for each in lab.messages(lab.definition.changelog)]
    ends = [(each.at, each.end) for each in samples]
    for sample in samples:
        check(sample, ends, records)
        if sample.at >= idle_since:
            status = sample.status
            assert (status.lag_records, status.lag_bytes, status.lag_ms) == (0, 0, 0)
    for role in Role:
        assert sum(each.status.role is role and each.status.end is not None for each in samples) > 40


def check(sample: Sample, ends: Sequence[tuple[float, int]], records: Sequence[int]) -> None:
    """Fail unless the broker's own ends, and the offsets of the committed records, bear the status out."""

    def end_before(seconds: float) -> int:
        """Return where the changelog ended so long before the sample; what is younger may not be known yet."""
        return max((end for at, end in ends if at <= sample.at - seconds), default=0)

    status = sample.status
    if status.end is None:
        return
    # The end is asked for every half second, and the answer takes a moment.
    patience = 1.5
    assert status.applied is not None
    assert status.lag_ms is not None
    assert status.lag_records == status.end - status.applied
    assert status.end <= sample.end
    if status.lag_bytes is not None and status.record_bytes is not None:
        assert status.lag_bytes == status.lag_records * status.record_bytes
    if status.role is Role.ACTIVE:
        # No other process may write: beyond what it applied there are markers, and what was never committed.
        assert (status.lag_records, status.lag_ms) == (0, 0)
        assert not [each for each in records if status.applied <= each < end_before(patience)]
    else:
        assert status.end >= end_before(patience)
        # It had all there was so long ago.
        assert status.applied >= end_before(patience + status.lag_ms / 1000)
