"""What is particular to the Spark feed: its plans, Python workers and JVM."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded.jars.cache import classpath
from standby.config import JobConfig, parse
from standby.errors import BadConfiguration, CorruptState
from standby.feed.functions import job_code
from standby.feed.make import check_transform, make_feed
from standby.ports import Feed, TaskBatch
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon
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


def configuration(kafka_bootstrap: str, topic: str, transform: str = "", **more: str) -> JobConfig:
    return parse(
        {
            "job.name": "spark-feed",
            "task.inputs": topic,
            "task.step": "none:none",
            "kafka.bootstrap.servers": kafka_bootstrap,
            "zookeeper.connect": "unused:1",
            **({"task.transform": f"spark_feed_job:{transform}"} if transform else {}),
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

    def build(topic: str, transform: str = "", **changes: Any) -> Feed:
        config = dataclasses.replace(configuration(kafka_bootstrap, topic, transform), **changes)
        feed = make_feed(config, definition(), classpath("spark-kafka"), code)
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


@pytest.mark.parametrize("is_bounded", [False, True])
def test_many_partitions_are_read_by_as_many_spark_tasks_as_run_at_a_time(
    kafka_bootstrap: str, make: Callable[..., Feed], is_bounded: bool
) -> None:
    partitions, records = 7, 20
    feed, seen = (
        make(filled_topic(kafka_bootstrap, records, "{0}", partitions), "tells_who_reads"),
        Deliveries(),
    )
    tasks = [TaskId("spark-feed", "main", each) for each in range(partitions)]
    feed.start(dict.fromkeys(tasks, at(0)), seen, dict.fromkeys(tasks, at(records)) if is_bounded else None)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen.column("_offset")) < partitions * records:
        assert time.monotonic() < deadline
        seen.came.wait(LOOK_SECONDS)
        seen.came.clear()
    feed.stop()
    assert set(seen.column("read_by")) == {0, 1}
    for task in tasks:
        values = [
            value for each in seen.batches if each.task == task for value in each.rows["value"].to_pylist()
        ]
        assert values == [b"%d" % number for number in range(records)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("counts", "an aggregation: its state would lie in the query's checkpoint"),
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
def test_an_exception_of_the_users_function_is_told_as_it_is(
    kafka_bootstrap: str, make: Callable[..., Feed], transform: str, kind: str, said: str
) -> None:
    feed, seen = make(filled_topic(kafka_bootstrap, 3, "v{0}"), transform), Deliveries()
    feed.start({TASK: at(0)}, seen)
    assert feed.wait(PATIENCE_SECONDS)
    assert type(feed.failure).__name__ == kind
    assert said in str(feed.failure)
    assert seen.batches == []


def test_what_deliver_raises_is_told_even_when_it_is_no_ordinary_exception(
    kafka_bootstrap: str, make: Callable[..., Feed]
) -> None:
    leaving = SystemExit(3)

    def deliver(_: tuple[TaskBatch, ...]) -> None:
        raise leaving

    feed = make(filled_topic(kafka_bootstrap, 3))
    feed.start({TASK: at(0)}, deliver)
    assert feed.wait(PATIENCE_SECONDS)
    assert feed.failure is leaving


def test_records_that_vanish_under_a_running_feed_end_it(
    kafka_bootstrap: str, make: Callable[..., Feed]
) -> None:
    topic = filled_topic(kafka_bootstrap, 10, "v{0}")
    entered, leave = threading.Event(), threading.Event()

    def deliver(_: tuple[TaskBatch, ...]) -> None:
        entered.set()
        assert leave.wait(PATIENCE_SECONDS)

    feed = make(topic, batch_max_records=10)
    feed.start({TASK: at(0)}, deliver)
    assert entered.wait(PATIENCE_SECONDS)
    produce(kafka_bootstrap, topic, [f"v{number}" for number in range(10, 30)])
    where = TopicPartition(topic, 0, 20)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.delete_records([where])[where].result(PATIENCE_SECONDS)
    leave.set()
    assert feed.wait(PATIENCE_SECONDS)
    assert isinstance(feed.failure, CorruptState)
    assert "position 10 is below the first record, 20" in str(feed.failure)


def test_a_release_of_spark_that_refuses_the_internal_option_is_only_slower(
    kafka_bootstrap: str,
    make: Callable[..., Feed],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from standby.adapters.spark import query as pyspark_query
    from standby.adapters.spark.session import Spark

    refused = {**pyspark_query._ASYNC_PROGRESS, "asyncProgressTrackingCheckpointIntervalMs": "often"}
    monkeypatch.setattr(pyspark_query, "_ASYNC_PROGRESS", refused)
    feed, seen = make(filled_topic(kafka_bootstrap, 5, "v{0}")), Deliveries()
    with caplog.at_level(logging.WARNING):
        feed.start({TASK: at(2)}, seen)
    seen.wait_for(feed, 5)
    assert "refuses asynchronous progress tracking" in caplog.text
    assert seen.batches[0].start == at(2)
    assert seen.column("value") == [b"v2", b"v3", b"v4"]
    feed.stop()
    assert Spark._shared is not None
    Spark._shared.has_async_progress = True


def test_many_starts_leave_nothing_behind(kafka_bootstrap: str, make: Callable[..., Feed]) -> None:
    feed = make(filled_topic(kafka_bootstrap, 2, "v{0}"))

    def count() -> tuple[int, int, int]:
        mine = list(Path("/dev/shm").glob(f"standfast-checkpoint-{os.getpid()}-*"))
        descriptors = Path("/proc", str(feed.child_pids[0]), "fd")
        return len(mine), threading.active_count(), len(list(descriptors.iterdir()))

    counts = []
    rounds = 25
    for round_number in range(rounds):
        seen = Deliveries()
        feed.start({TASK: at(0)}, seen)
        seen.wait_for(feed, 2)
        feed.stop()
        if round_number in (4, rounds - 1):
            counts.append(count())
    (checkpoints_before, threads, descriptors), (checkpoints, threads_later, descriptors_later) = counts
    assert checkpoints <= checkpoints_before
    assert threads_later <= threads + 2
    # The JVM opens some of its own; one that is left by each start would be more.
    assert descriptors_later < descriptors + rounds - 5


def test_a_start_that_was_prepared_for_begins_no_other_query(
    kafka_bootstrap: str, make: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginning one is most of what a promotion in place waits for."""
    from standby.feed.spark import SparkFeed

    feed, seen = make(filled_topic(kafka_bootstrap, 10, "v{0}")), Deliveries()
    assert isinstance(feed, SparkFeed)
    begin, begun = feed.begin, threading.Semaphore(0)

    def counted(*parts: Any) -> Any:
        begun.release()
        return begin(*parts)

    monkeypatch.setattr(feed, "begin", counted)
    feed.prepare({TASK: at(4)})
    assert begun.acquire(blocking=False)
    feed.start({TASK: at(6)}, seen)
    seen.wait_for(feed, 10)
    assert seen.column("value") == [b"v6", b"v7", b"v8", b"v9"]
    assert not begun.acquire(blocking=False)


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


def test_a_cancelled_rehearsal_goes_no_further(kafka_bootstrap: str, make: Callable[..., Feed]) -> None:
    feed = make(filled_topic(kafka_bootstrap, 2000))
    for delay in (0.0, 0.05, 0.15, 0.3):
        thread = threading.Thread(target=feed.warm)
        thread.start()
        thread.join(delay)
        feed.cancel_warm()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert not feed.is_warm, "the rest of the rehearsal was left out"
    feed.warm()
    assert feed.is_warm


# ---- with a JVM of their own: a process each ----


def child(kafka_bootstrap: str, topic: str, body: str) -> dict[str, Any]:
    """Run ``body`` in a process that has a cold feed called `feed`; return what it gives to `tell`."""
    script = f"""
import json, os, signal, sys, threading, time
from pathlib import Path
from embedded.jars.cache import classpath
from standby.config import parse
from standby.errors import *
from standby.feed.make import make_feed
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
config = parse({{"job.name": "child", "task.inputs": {topic!r}, "task.step": "none:none",
    "task.batch.max.records": "1000", "kafka.bootstrap.servers": {kafka_bootstrap!r}, "zookeeper.connect": "unused:1"}})
job = JobDefinition(name="child", run="r", config={{}}, changelog="c", group="child", tasks=1)
feed = make_feed(config, job, classpath("spark-kafka"))
task = TaskId("child", "main", 0)
patience = {PATIENCE_SECONDS}
def tell(**what): print("TOLD " + json.dumps(what), flush=True)
{body}
feed.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
        check=False,
    )
    told = [json.loads(line[5:]) for line in run.stdout.splitlines() if line.startswith("TOLD ")]
    assert run.returncode == 0, run.stdout + run.stderr
    return {name: value for each in told for name, value in each.items()}


def test_a_jvm_that_dies_ends_the_feed_and_hangs_nothing(kafka_bootstrap: str) -> None:
    told = child(
        kafka_bootstrap,
        filled_topic(kafka_bootstrap, 10),
        """
first = threading.Event()
feed.start({task: Offsets.of(0)}, lambda _: first.set())
assert first.wait(patience)
os.kill(feed.child_pids[0], signal.SIGKILL)
assert feed.wait(patience)
tell(failure=type(feed.failure).__name__, says=str(feed.failure), warm=feed.is_warm)
feed.stop()
for call in (feed.warm, lambda: feed.start({task: Offsets.of(0)}, print)):
    try:
        call()
    except Transient as error:
        tell(**{"later": str(error)})
""",
    )
    assert told["failure"] == "Transient"
    assert told["says"] == "Spark's JVM has died"
    assert "ended by SIGKILL while a query was begun" in told["later"]
    assert told["warm"] is False


def test_a_jvm_that_does_not_answer_is_ended(kafka_bootstrap: str) -> None:
    told = child(
        kafka_bootstrap,
        filled_topic(kafka_bootstrap, 10),
        """
import standby.feed.spark as module
feed.warm()
module._BEGIN_SECONDS = 2.0
os.kill(feed.child_pids[0], signal.SIGSTOP)
began = time.monotonic()
try:
    feed.start({task: Offsets.of(0)}, print)
except Transient as error:
    tell(seconds=time.monotonic() - began, says=str(error), gone=not Path("/proc", str(feed.child_pids[0])).exists())
""",
    )
    assert "did not answer within 2 s while a query was begun" in told["says"]
    assert told["gone"] is True
    assert told["seconds"] > 1.5


def test_a_killed_process_takes_its_jvm_along(kafka_bootstrap: str, tmp_path: Path) -> None:
    told_path = tmp_path / "pid"
    topic = filled_topic(kafka_bootstrap, 10)
    with pytest.raises(AssertionError):
        child(
            kafka_bootstrap,
            topic,
            f"""
feed.warm()
Path({str(told_path)!r}).write_text(str(feed.child_pids[0]))
os.kill(os.getpid(), signal.SIGKILL)
""",
        )
    jvm = Path("/proc", told_path.read_text())
    soon(lambda: not jvm.exists(), "the JVM is gone")
