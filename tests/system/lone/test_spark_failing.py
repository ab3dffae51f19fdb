"""Records on which a Spark plan fails, or would: its error names neither task nor record, and yet they are found."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from standby.config import JobConfig
from standby.feed.make import make_feed
from standby.ports import Feed
from standby.shared.model import Phase
from standby.shared.wire import JobDefinition
from tests.kernel_lab import Lab
from tests.topics import make_topics

pytestmark = pytest.mark.spark


@pytest.fixture
def start_lab(kafka_bootstrap: str, tmp_path: Path) -> Callable[..., tuple[Lab, str]]:
    def start(transform: str, on_error: str, **more: str) -> tuple[Lab, str]:
        dead = f"dead-{uuid.uuid4().hex[:10]}"
        lab = Lab(
            kafka_bootstrap,
            tmp_path,
            3,
            **{
                "task.feed": "spark",
                "task.transform": f"tests.system.lone.spark_failing_job:{transform}",
                "task.batch.max.records": "1000",
                "task.on.error": on_error,
                **({"task.dead.letter": dead} if on_error == "dead-letter" else {}),
                # The workers find the transform's module where this process does.
                "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3]),
                **more,
            },
        )
        make_topics(kafka_bootstrap, [NewTopic(dead, 3, 1)])
        return lab, dead

    return start


def spark(config: JobConfig, definition: JobDefinition) -> Feed:
    return make_feed(config, definition, Path("no-code"))


def test_what_ends_a_plan_s_worker_is_found_by_halves_and_left_out(
    start_lab: Callable[..., tuple[Lab, str]],
) -> None:
    lab, dead = start_lab("kills_its_worker", "dead-letter")
    with lab.local("host-a", make_feed=spark) as container:
        lab.promote(container, 0, 1)
        lab.produce(300)
        container.await_processed()
        lab.produce(90)
        lab.poison(b"poison")
        lab.produce(90)
        lab.poison(b"poison")
        lab.produce(90)
        container.await_processed()
        container.await_all(lambda each: each.skipped == (2 if each.replica.task.partition == 0 else 0))
        assert all(each.failures is None for each in container.statuses().values())
    assert lab.committed_records(dead) == [(b"0/poison", b"poison")] * 2
    lab.assert_exact()


def test_a_plan_that_fails_ends_its_task_alone(start_lab: Callable[..., tuple[Lab, str]]) -> None:
    lab, _ = start_lab("raises_in_worker", "fail")
    with lab.local("host-a", make_feed=spark) as container:
        lab.promote(container, 0, 1)
        lab.produce(60)
        container.await_processed()
        lab.poison(b"poison")
        container.await_all(
            lambda each: each.phase is (Phase.FAILED if each.replica.task.partition == 0 else Phase.ACTIVE)
        )
        (detail,) = (each.detail for each in container.statuses().values() if each.phase is Phase.FAILED)
        assert detail.startswith(
            f"poison: input {lab.definition.config['task.inputs']}[0], offsets [20, 21): "
        )
        assert "no such plane: poison" in detail
        (raised,) = (each.traceback for each in container.statuses().values() if each.phase is Phase.FAILED)
        assert raised.splitlines()[-1] == "LookupError: no such plane: poison"
        assert "spark_failing_job.py" in raised
        assert "in _raise" in raised
        assert not any(other in raised for other in ("worker.py", "org.apache", "py4j")), raised
        lab.produce(60)
        ends = [records[-1][0] + 1 for records in lab.input]
        container.await_all(
            lambda each: (
                each.replica.task.partition == 0 or each.input_committed == ends[each.replica.task.partition]
            )
        )


def test_a_backlog_of_large_records_leaves_the_jvm_its_memory(
    start_lab: Callable[..., tuple[Lab, str]],
) -> None:
    """360 MB wait for a heap of 512 MB: as one batch, which their number would allow, they would be called poison."""
    lab, _ = start_lab("refuses_a_value", "fail", **{"task.batch.max.records": "40000"})
    lab.produce(24_000, padding=b"x" * 15_000)
    with lab.local("host-a", make_feed=spark) as container:
        lab.promote(container, 0, 1)
        container.await_processed()
        assert all(each.failures is None for each in container.statuses().values())
    lab.assert_exact()
