"""A standby equals its active, whatever is in the state (B8), and what is said of its lag is true (B15)."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from standby.adapters.confluent_kafka import connect
from standby.config import parse
from standby.model import Phase, ReplicaStatus, Role
from standby.replica.keys import prefix
from standby.replica.origin import DATABASE
from tests.fakes.copy_job import STORE, checksum
from tests.kernel_lab import CLUSTER, IS_LONG, Lab

#: As the acceptance list has them with ``STANDFAST_LONG=1``: 5 M keys, one of them rewritten 1 M times.
KEYS = 5_000_000 if IS_LONG else 20_000
REWRITES = 1_000_000 if IS_LONG else 20_000

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


def many() -> Iterator[Record]:
    for number in range(KEYS):
        yield b"%08d" % number, b"value %d" % number
    for number in range(REWRITES):
        yield b"rewritten", b"%d" % number
    for number in range(0, KEYS, 10):
        yield b"%08d" % number, None


@pytest.mark.timeout(1800)
def test_a_standby_equals_its_active_whatever_is_in_the_state(kafka_bootstrap: str, tmp_path: Path) -> None:
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

    lab.name(0, 1)
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        active.want(0, Role.ACTIVE, 1)
        standby.want(1, Role.STANDBY, 1)
        standby.await_phase(Phase.TAILING)
        lab.write(noted(odd_ones()))
        lab.write(noted(many()))
        ((_, end),) = connect(CLUSTER, parse(lab.definition.config), lab.definition).input_bounds(0)
        active.await_all(lambda each: each.input_committed == end, 600 if IS_LONG else 60)
        # One that comes late reads all of it from the changelog.
        with lab.local("host-c") as late:
            late.want(2, Role.STANDBY, 1)
            for each in (standby, late):
                each.await_all(
                    lambda one: one.phase is Phase.TAILING and one.lag_records == 0, 600 if IS_LONG else 60
                )
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


def test_lag_is_the_end_less_what_is_applied_at_all_times(kafka_bootstrap: str, tmp_path: Path) -> None:
    """What is reported lies between what was true when it was asked for and what is true now."""
    lab = Lab(kafka_bootstrap, tmp_path, tasks=1)
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    history: list[tuple[float, int]] = []
    samples = 0

    def look() -> ReplicaStatus | None:
        (status,) = standby.statuses().values()
        history.append((time.monotonic(), broker.changelog_ends((0,))[0]))
        return status if status.end is not None else None

    lab.name(0, 1)
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        active.want(0, Role.ACTIVE, 1)
        standby.want(1, Role.STANDBY, 1)
        active.await_phase(Phase.ACTIVE)
        standby.await_phase(Phase.TAILING)
        # An empty changelog first.
        standby.await_all(lambda each: (each.applied, each.end, each.lag_ms) == (0, 0, 0), 5)
        with lab.load(20, 0.02):
            until = time.monotonic() + 2
            while time.monotonic() < until:
                status = look()
                if status is None:
                    continue
                samples += 1
                assert status.applied is not None
                assert status.end is not None
                assert status.lag_records == status.end - status.applied
                assert status.end <= history[-1][1]
                # The end is asked for every half second, and the answer takes a moment.
                old = [end for at, end in history if at < history[-1][0] - 1.5]
                assert status.end >= (old[-1] if old else 0)
                if status.lag_bytes is not None and status.record_bytes is not None:
                    assert status.lag_bytes == status.lag_records * status.record_bytes
        active.await_processed()
        end = broker.changelog_ends((0,))[0]
        # The tail is a transaction's marker; nothing of it is lag.
        standby.await_all(lambda each: each.applied == each.end == end and each.lag_ms == 0, 5)
        (status,) = standby.statuses().values()
        assert (status.lag_records, status.lag_bytes, status.lag_ms) == (0, 0, 0)
        assert status.record_bytes is not None
    assert samples > 20
    broker.close()
