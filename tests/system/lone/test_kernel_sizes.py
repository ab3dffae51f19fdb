"""A record of which something comes that the broker refuses, for it is too large for its topic."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka.cimpl import NewTopic

from standby.shared.model import Role
from tests.fakes import ledger_job
from tests.kernel_lab import Lab
from tests.topics import make_topics

LIMIT = 20_000

#: One that the input takes, and the outputs do not.
LARGE = b"raise" + bytes(2 * LIMIT)


def test_a_record_whose_output_the_broker_refuses_becomes_a_dead_letter(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    """One that is cut short, for it is too large for that topic as well."""
    name = uuid.uuid4().hex[:10]
    extra, dead = f"extra-{name}", f"dead-{name}"
    lab = Lab(kafka_bootstrap, tmp_path, 1, **{"task.on.error": "dead-letter", "task.dead.letter": dead})
    small = {"max.message.bytes": str(LIMIT)}
    make_topics(kafka_bootstrap, [NewTopic(each, 1, 1, config=small) for each in (extra, dead)])
    # One more output, which the judge does not look at.
    judged = lab.definition
    outputs = f"{judged.config['task.outputs']},{extra}"
    lab.definition = msgspec.structs.replace(judged, config={**judged.config, "task.outputs": outputs})

    def step(rows: Any, state: Any, out: Any) -> None:
        ledger_job.step(rows, state, out)
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            if value == LARGE:
                out.emit(key, value, extra)

    lab.name(0, 1)
    lab.produce(30)
    lab.poison(LARGE)
    lab.produce(30)
    with lab.local("host-a", step=step) as container:
        container.want(0, Role.ACTIVE, 1)
        container.await_processed()
        container.await_all(lambda each: each.skipped == 1)
    lab.definition = judged
    lab.assert_exact()
    assert lab.committed_records(extra) == []
    (letter,) = lab.messages(dead)
    assert letter.value() == LARGE[:1_024]
    headers: dict[str, Any] = dict(letter.headers() or ())
    assert headers["standfast-offset"] == b"30"
    assert headers["standfast-truncated"].endswith(b"value of %d bytes, 0 headers" % len(LARGE))
