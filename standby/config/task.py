"""What a task reads, runs and writes, and what becomes of records on which its code fails."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import FUNCTION, STORE, TOPIC, key


@dataclass(frozen=True, kw_only=True)
class TaskKeys:
    """What a task reads, runs and writes, and what becomes of records on which its code fails."""

    inputs: tuple[str, ...] = key(
        "task.inputs",
        "Input topics. Several topics must have the same number of partitions: task n reads partition n of each, so "
        "records of one key meet in one task if all topics are keyed and partitioned alike.",
        form=TOPIC,
        scope="run",
        distinct=True,
    )
    outputs: tuple[str, ...] = key(
        "task.outputs",
        "Output topics, none of them an input; the first is the default of `Output.emit`.",
        (),
        form=TOPIC,
    )
    transform: str = key(
        "task.transform",
        "`module:function`, DataFrame → DataFrame, with `task.feed: plain` pyarrow.Table → pyarrow.Table, which "
        "processes each row by itself (docs/inputs.md); empty: rows are passed on unchanged.",
        "",
        form=FUNCTION,
        example="flights:clean",
    )
    step: str = key(
        "task.step",
        "`module:function`, the keyed state function called with the rows of one task, in offset order.",
        form=FUNCTION,
        example="flights:totals",
    )
    stores: tuple[str, ...] = key(
        "task.stores",
        "Names of the task's state stores.",
        ("default",),
        form=STORE,
        scope="run",
        distinct=True,
    )
    feed: str = key(
        "task.feed",
        "What runs the job's transform: Spark, or the container's own process, without a JVM. Change it together with "
        "`task.transform`. Without a transform there is nothing to run, and no JVM.",
        "spark",
        choices=("spark", "plain"),
    )
    input_headers: bool = key(
        "task.input.headers",
        "Whether the rows have the column `headers` with the records' headers.",
        False,
    )
    batch_max_records: int = key(
        "task.batch.max.records",
        "Maximum number of input records in one micro-batch, for all tasks of a container together. The first batches "
        "have at most 2,500; the limit grows while they are fast. After a batch of more than a second the limit "
        "decreases, down to 2,500, unless smaller batches have a much lower throughput.",
        40_000,
        minimum=1,
        maximum=10_000_000,
        unit="records",
    )
    batch_max_bytes: int = key(
        "task.batch.max.bytes",
        "Maximum size of the input of one micro-batch, for all tasks of a container together; it has at least one "
        "record. Rows are in memory several times: raise it only together with "
        "`spark.driver.memory` and `cluster-manager.container.memory.mb`.",
        33_554_432,
        minimum=1,
        maximum=1_073_741_824,
        unit="bytes",
    )
    commit_interval_ms: int = key(
        "task.commit.interval.ms",
        "Least time from the beginning of a micro-batch to that of the next one, unless it had as many records or "
        "bytes as it may have. Each is committed in one transaction for each task with input, so a longer interval "
        "costs less processor time in containers and brokers, and outputs are visible later. 0: the next one begins "
        "at once.",
        0,
        minimum=0,
        maximum=10_000,
        unit="ms",
    )
    on_error: str = key(
        "task.on.error",
        "How an input record is handled on which the job's own code fails repeatedly: `fail` ends the job (or parks "
        "the processor), `skip` skips the record, `dead-letter` writes it to `task.dead.letter`.",
        "fail",
        choices=("fail", "skip", "dead-letter"),
    )
    error_limit: int = key(
        "task.on.error.limit",
        "Maximum number of records of one task that are skipped within an hour; more fail the job: the code is wrong, "
        "not the data. -1: no limit.",
        100,
        minimum=-1,
        maximum=1_000_000,
    )
    dead_letter: str = key(
        "task.dead.letter",
        "Topic for records that were given up, with their error and offset; required for `dead-letter`.",
        "",
        form=TOPIC,
    )
    input_lost: str = key(
        "task.input.lost",
        "How a task is handled whose next input was deleted before it was processed (its topic's retention is too "
        "short): `fail` ends it, `skip` continues at the first remaining record; the log and the reported given-up "
        "records show how many offsets are missing.",
        "fail",
        choices=("fail", "skip"),
    )
