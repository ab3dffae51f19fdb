"""What is particular to the Spark feed: its plans, Python workers and JVM."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from standby.config import JobConfig, parse
from standby.errors import BadConfiguration
from standby.feed.functions import job_code
from standby.feed.make import check_transform, make_feed
from standby.ports import Feed, TaskBatch
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS
from tests.topics import make_topics

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent

at = Offsets.of


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A container's working directory with the job's modules in `code`, importable as in a container."""
    source = tmp_path_factory.mktemp("job")
    shutil.copy(HERE / "spark_feed_job.py", source)
    # Without annotations, from which pyspark would try to infer the kind of the function.
    (source / "spark_feed_shared.py").write_text(
        "def twice(value):\n    return value + value\n"
        "def fail(value):\n    raise LookupError(f'no such plane: {value}')\n",
        encoding="utf-8",
    )
    with job_code(source, ["spark_feed_job.py", "spark_feed_shared.py"]) as directory:
        yield directory


def configuration(kafka_bootstrap: str, topic: str, transform: str = "unchanged", **more: str) -> JobConfig:
    return parse(
        {
            "job.name": "spark-feed",
            "task.inputs": topic,
            "task.step": "none:none",
            "kafka.bootstrap.servers": kafka_bootstrap,
            "zookeeper.connect": "unused:1",
            "task.transform": f"spark_feed_job:{transform}",
            **more,
        }
    )


def definition(tasks: int = 1) -> JobDefinition:
    return JobDefinition(
        name="spark-feed", run="r", config={}, changelog="c", group="spark-feed", tasks=tasks
    )


@pytest.fixture(scope="module")
def make(kafka_bootstrap: str, code: Path) -> Iterator[Callable[..., Feed]]:
    """Builds feeds that share one JVM, which ends with the module."""
    feeds: list[Feed] = []

    def build(topic: str, transform: str = "unchanged", **changes: Any) -> Feed:
        config = dataclasses.replace(configuration(kafka_bootstrap, topic, transform), **changes)
        feed = make_feed(config, definition(), code)
        feeds.append(feed)
        return feed

    yield build
    for feed in feeds:
        feed.close()


@pytest.fixture(scope="module", autouse=True)
def _one_jvm(make: Callable[..., Feed], kafka_bootstrap: str) -> None:
    """Starts the shared JVM, so that checks of transforms need not start one each."""
    make(filled_topic(kafka_bootstrap, 1)).warm()


def filled_topic(
    kafka_bootstrap: str, records: int, value: str = '{{"a": [{0}], "n": 1}}', partitions: int = 1
) -> str:
    """Return a new topic with so many records in each of its partitions."""
    topic = f"spark-{uuid.uuid4().hex[:12]}"
    make_topics(kafka_bootstrap, [NewTopic(topic, partitions, 1)])
    for each in range(partitions):
        produce(kafka_bootstrap, topic, [value.format(number) for number in range(records)], each)
    return topic


def produce(kafka_bootstrap: str, topic: str, values: list[str], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), b"key-%d" % (number % 7), partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0


TASK = TaskId("spark-feed", "main", 0)


class Deliveries:
    def __init__(self) -> None:
        self.batches: list[TaskBatch] = []
        self.came = threading.Event()

    def __call__(self, batches: tuple[TaskBatch, ...]) -> None:
        self.batches += batches
        self.came.set()

    def wait_for(self, feed: Feed, end: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.batches or self.batches[-1].end.total < end:
            assert time.monotonic() < deadline
            assert not feed.wait(0), repr(feed.failure)
            self.came.wait(LOOK_SECONDS)
            self.came.clear()

    def column(self, name: str) -> list[Any]:
        return [value for batch in self.batches for value in batch.rows.column(name).to_pylist()]


def test_transforms_that_treat_each_row_by_itself_are_accepted_and_run(
    kafka_bootstrap: str, code: Path, make: Callable[..., Feed]
) -> None:
    check_transform(configuration(kafka_bootstrap, "unread", "row_by_row"), code)
    feed, seen = make(filled_topic(kafka_bootstrap, 5), "row_by_row"), Deliveries()
    feed.start({TASK: at(0)}, seen)
    seen.wait_for(feed, 5)
    assert seen.column("a") == [1, 2, 3, 4]
    assert seen.column("_offset") == [1, 2, 3, 4]
    assert seen.column("name") == ["one"] * 4
    feed.stop()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("counts", "an aggregation: its state would end with each micro-batch"),
        ("distinct", r"dropDuplicates\(\) or distinct\(\)"),
        ("deduplicates", r"dropDuplicates\(\) or distinct\(\)"),
        ("deduplicates_late", r"dropDuplicatesWithinWatermark\(\)"),
        ("limits", r"limit\(\)"),
        ("joins_itself", "joins the stream with itself"),
        ("unites", "union of the stream with itself"),
        ("sorts", "a sort: its result depends on where a micro-batch ends"),
        ("groups_in_pandas", r"applyInPandas\(\)"),
        ("drops_offset", "returns no column '_offset'"),
        ("widens_task", "returns '_task' as bigint; it must stay int"),
        ("other_table", "does not come from the one it was given"),
        ("nothing", "returned a NoneType, not a DataFrame"),
        ("fails", "raised LookupError: no dictionary"),
        ("unknown_column", "raised AnalysisException.*tail"),
        ("absent", "has no function 'absent'"),
    ],
)
def test_other_transforms_are_refused_before_anything_is_deployed(
    kafka_bootstrap: str, code: Path, name: str, said: str
) -> None:
    with pytest.raises(BadConfiguration, match=said):
        check_transform(configuration(kafka_bootstrap, "unread", name), code)


def test_a_feed_refuses_them_as_well(kafka_bootstrap: str, make: Callable[..., Feed]) -> None:
    feed = make(filled_topic(kafka_bootstrap, 3), "deduplicates")
    with pytest.raises(BadConfiguration, match="dropDuplicates"):
        feed.start({TASK: at(0)}, Deliveries())
    assert feed.wait(0)


def test_sparks_python_workers_find_the_jobs_modules(kafka_bootstrap: str, make: Callable[..., Feed]) -> None:
    feed, seen = make(filled_topic(kafka_bootstrap, 3, "v{0}"), "python_functions"), Deliveries()
    feed.start({TASK: at(0)}, seen)
    seen.wait_for(feed, 3)
    assert seen.column("value") == [b"v0v0", b"v1v1", b"v2v2"]
    feed.stop()


@pytest.mark.parametrize(
    ("transform", "kind", "said"),
    [
        ("raises_in_worker", "PythonException", "no such plane: "),
        ("refuses_a_value", "NumberFormatException", "CAST_INVALID_INPUT"),
    ],
)
def test_an_exception_of_the_users_function_is_reported_as_it_is(
    kafka_bootstrap: str, make: Callable[..., Feed], transform: str, kind: str, said: str
) -> None:
    feed, seen = make(filled_topic(kafka_bootstrap, 3, "v{0}"), transform), Deliveries()
    feed.start({TASK: at(0)}, seen)
    assert feed.wait(PATIENCE_SECONDS)
    assert type(feed.failure).__name__ == kind
    assert said in str(feed.failure)
    assert seen.batches == []


def test_what_deliver_raises_is_reported_even_when_it_is_no_ordinary_exception(
    kafka_bootstrap: str, make: Callable[..., Feed]
) -> None:
    leaving = SystemExit(3)

    def deliver(_: tuple[TaskBatch, ...]) -> None:
        raise leaving

    feed = make(filled_topic(kafka_bootstrap, 3))
    feed.start({TASK: at(0)}, deliver)
    assert feed.wait(PATIENCE_SECONDS)
    assert feed.failure is leaving


def test_many_starts_leave_nothing_behind(kafka_bootstrap: str, make: Callable[..., Feed]) -> None:
    feed = make(filled_topic(kafka_bootstrap, 2, "v{0}"))

    def count() -> tuple[int, int, int]:
        processes = [Path("/proc", str(pid)) for pid in (feed.child_pids[0], os.getpid())]
        jvms, own = (len(list((each / "fd").iterdir())) for each in processes)
        return threading.active_count(), jvms, own

    counts = []
    rounds = 25
    for round_number in range(rounds):
        seen = Deliveries()
        feed.start({TASK: at(0)}, seen)
        seen.wait_for(feed, 2)
        feed.stop()
        if round_number in (4, rounds - 1):
            counts.append(count())
    (threads, *before), (threads_later, *later) = counts
    assert threads_later <= threads + 2
    # Each opens some of its own; one that is left by each start would be more.
    for descriptors, descriptors_later in zip(before, later, strict=True):
        assert descriptors_later < descriptors + rounds - 5


def test_an_empty_input_is_no_hindrance_to_warming(kafka_bootstrap: str, make: Callable[..., Feed]) -> None:
    topic = filled_topic(kafka_bootstrap, 0)
    feed, seen = make(topic, "row_by_row"), Deliveries()
    feed.warm()
    assert feed.is_warm
    feed.start({TASK: at(0)}, seen)
    produce(kafka_bootstrap, topic, ['{"a": [7], "n": 0}'])
    seen.wait_for(feed, 1)
    assert seen.column("name") == ["zero"]
    feed.stop()
