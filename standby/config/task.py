"""What a task reads, runs and writes, and what becomes of records on which its code fails."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import FUNCTION, STORE, TOPIC, key


@dataclass(frozen=True, kw_only=True)
class TaskKeys:
    """What a task reads, runs and writes, and what becomes of records on which its code fails."""

    inputs: tuple[str, ...] = key(
        "task.inputs",
        "Input topics. Several must have equally many partitions: task n reads partition n of each, so records "
        "of one key meet in one task where all topics are keyed and partitioned alike.",
        form=TOPIC,
        scope="run",
        distinct=True,
    )
    outputs: tuple[str, ...] = key(
        "task.outputs", "Output topics; the first is the default of `Output.emit`.", (), form=TOPIC
    )
    transform: str = key(
        "task.transform",
        "`module:function`, DataFrame → DataFrame on the streaming DataFrame; empty: rows pass as they are.",
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
        "What reads the input: Spark, or the plain reader without a JVM.",
        "spark",
        choices=("spark", "plain"),
    )
    input_headers: bool = key(
        "task.input.headers",
        "Whether the rows have the column `headers`, with what the records have beside key and value.",
        False,
    )
    batch_max_records: int = key(
        "task.batch.max.records",
        "Most input records in one micro-batch, all tasks of a container together. The first batches have 2,500 at "
        "most; the bound grows while they are quick. When one takes over a second it falls, to 2,500 if need be, "
        "unless smaller batches get far less done.",
        40_000,
        minimum=1,
        unit="records",
    )
    batch_max_bytes: int = key(
        "task.batch.max.bytes",
        "Most bytes of input in one micro-batch, all tasks of a container together; one record there is in any case. "
        "With Spark, whose source counts records only, it is kept to by the mean size of the records before, and the "
        "first batch has 100 at most. Rows are in memory several times: raise it with `spark.driver.memory` and "
        "`cluster-manager.container.memory.mb` only.",
        33_554_432,
        minimum=1,
        unit="bytes",
    )
    on_error: str = key(
        "task.on.error",
        "What becomes of an input record on which the job's own code fails again and again: `fail` ends the job "
        "(or parks the processor), `skip` leaves the record out, `dead-letter` writes it to `task.dead.letter`.",
        "fail",
        choices=("fail", "skip", "dead-letter"),
    )
    error_limit: int = key(
        "task.on.error.limit",
        "Most records of one task that are left out within an hour; more fail the job: the code is wrong, not "
        "the data. -1: no bound.",
        100,
        minimum=-1,
    )
    dead_letter: str = key(
        "task.dead.letter",
        "Topic for records that were given up, with their error and offset; needed for `dead-letter`.",
        "",
        form=TOPIC,
    )
    input_lost: str = key(
        "task.input.lost",
        "What becomes of a task whose next input was deleted before it was processed (its topic's retention is too "
        "short): `fail` ends it, `skip` goes on at the first record that is left; the log and the records given "
        "up tell how many offsets are missing.",
        "fail",
        choices=("fail", "skip"),
    )
