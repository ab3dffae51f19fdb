"""Transactions that a real broker refuses or ends: records too large for a topic, and too many for the time."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.cimpl import NewTopic

from standby.model import Phase, Role
from tests.fakes import ledger_job
from tests.kernel_lab import Lab
from tests.topics import make_topics

LIMIT = 20_000

#: One that the input takes, and the outputs do not.
LARGE = b"raise" + bytes(2 * LIMIT)


def lab_of(bootstrap: str, directory: Path, **config: str) -> tuple[Lab, str, str]:
    """Return a lab of a job with one more output, and topics that take pieces of `LIMIT` bytes only."""
    name = uuid.uuid4().hex[:10]
    extra, dead = f"extra-{name}", f"dead-{name}"
    lab = Lab(bootstrap, directory, 1, **{"task.dead.letter": dead, **config})
    topics = [NewTopic(each, 1, 1, config={"max.message.bytes": str(LIMIT)}) for each in (extra, dead)]
    make_topics(bootstrap, topics)
    return lab, extra, dead


def copying(extra: str) -> Any:
    """Return the ledger's step, that sends large values on as well."""

    def step(rows: Any, state: Any, out: Any) -> None:
        ledger_job.step(rows, state, out)
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            if value == LARGE:
                out.emit(key, value, extra)

    return step


def with_outputs(lab: Lab, extra: str) -> None:
    """Add an output, which the judge does not look at."""
    out = lab.definition.config["task.outputs"]
    msgspec.structs.force_setattr(
        lab.definition, "config", {**lab.definition.config, "task.outputs": f"{out},{extra}"}
    )


def assert_exact(lab: Lab, extra: str) -> None:
    out = lab.definition.config["task.outputs"].partition(",")[0]
    msgspec.structs.force_setattr(lab.definition, "config", {**lab.definition.config, "task.outputs": out})
    lab.assert_exact()


@pytest.mark.parametrize("on_error", ["skip", "dead-letter", "fail"])
def test_a_record_whose_output_the_broker_refuses_is_handled_like_any_that_fails(
    kafka_bootstrap: str, tmp_path: Path, on_error: str
) -> None:
    lab, extra, dead = lab_of(kafka_bootstrap, tmp_path, **{"task.on.error": on_error})
    with_outputs(lab, extra)
    lab.name(0, 1)
    lab.produce(30)
    lab.poison(LARGE)
    if on_error != "fail":
        lab.produce(30)
    with lab.local("host-a", step=copying(extra)) as container:
        container.want(0, Role.ACTIVE, 1)
        if on_error == "fail":
            container.await_phase(Phase.FAILED)
            (failed,) = container.statuses().values()
            assert failed.detail.startswith(
                f"poison: input {lab.inputs[0]}[0], offsets [30, 31): RecordTooLarge"
            )
            assert f"{len(LARGE) + 8} bytes, key and value, is too large for {extra}" in failed.detail
            assert f"max.message.bytes is {LIMIT}" in failed.detail
        else:
            container.await_processed()
            container.await_all(lambda each: each.skipped == 1)
    assert_exact(lab, extra)
    assert lab.committed_records(extra) == []
    if on_error == "dead-letter":
        # It is too large for that topic as well.
        (letter,) = lab.messages(dead)
        assert letter.value() == LARGE[:1_024]
        headers: dict[str, Any] = dict(letter.headers() or ())
        assert headers["standfast-offset"] == b"30"
        assert headers["standfast-truncated"].endswith(b"value of %d bytes, 0 headers" % len(LARGE))


def test_a_batch_that_takes_longer_than_a_transaction_may_is_done_in_smaller_ones(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    """100 records come to 200,000 outputs, which take longer than a second, and a few of them do not."""
    lab, extra, _ = lab_of(
        kafka_bootstrap, tmp_path, **{"job.transaction.timeout.ms": "1000", "task.on.error": "skip"}
    )
    with_outputs(lab, extra)
    runs: list[int] = []

    def step(rows: Any, state: Any, out: Any) -> None:
        ledger_job.step(rows, state, out)
        runs.append(rows.num_rows)
        for offset in rows["_offset"].to_pylist():
            for number in range(2_000):
                out.emit(b"%d" % offset, b"%d" % number + bytes(100), extra)

    lab.name(0, 1)
    lab.produce(200)
    with lab.local("host-a", step=step) as container:
        container.want(0, Role.ACTIVE, 1)
        container.await_processed()
        container.await_all(lambda each: each.skipped == 0 and each.failures is None)
    assert max(runs) == 100
    assert_exact(lab, extra)
    found: dict[bytes, int] = {}
    for key, _ in lab.committed_records(extra):
        found[key] = found.get(key, 0) + 1
    assert found == {b"%d" % offset: 2_000 for offset in range(200)}
    assert lab.committed_offsets() == [200]
