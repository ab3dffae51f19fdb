"""The steps of `benchmarks.steps` with Spark's own state, until standard input ends.

A Structured Streaming query from Kafka to Kafka with ``applyInPandasWithState`` on the RocksDB state store (with
changelog checkpoints, on the local disk), as a user of PySpark would write it without standfast. Its state is
exactly-once, its Kafka sink at-least-once, and there is no standby.

With ``--realtime`` it is a query without state in Spark's real-time mode, which forwards each record unchanged: from
Python that mode has no state (4.3).

With ``--rehearse`` it is the spare of a running process: session, Python workers and Kafka's classes are warm, because
the same query has run over a few separate records. It then writes ``ready``, and waits for a line.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from benchmarks import spark_steps

_REHEARSED: Final = 4_000
_REHEARSED_KEYS: Final = 1_000
_REHEARSED_BATCHES: Final = 20

#: Spark ends a Python worker that has been idle for a minute.
_KEEP_WARM_SECONDS: Final = 20.0


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "input", "output", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--local", type=Path, required=True, help="Spark's own directory, on the local disk")
    parser.add_argument("--connector", required=True, help="class path of Spark's Kafka connector")
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--step", choices=sorted(spark_steps.STEPS), required=True)
    parser.add_argument("--batch", type=int, required=True, help="most records of a micro-batch")
    parser.add_argument(
        "--rehearse", nargs=2, metavar=("INPUT", "OUTPUT"), help="empty topics for the rehearsals of a spare"
    )
    parser.add_argument("--realtime", action="store_true", help="in real-time mode, without state")
    arguments = parser.parse_args()
    session = _session(arguments)
    if arguments.rehearse:
        _stand_by(session, arguments)
    threading.Thread(target=_end, daemon=True).start()
    if arguments.realtime:
        query = _passing_on(session, arguments)
    else:
        query = _query(
            session, arguments, arguments.input, arguments.output, arguments.state, arguments.batch
        )
    query.awaitTermination()


def _session(arguments: argparse.Namespace) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    arguments.local.mkdir(parents=True, exist_ok=True)
    settings = {
        # In real-time mode each partition has a task that does not end.
        "spark.master": f"local[{arguments.partitions + 1}]" if arguments.realtime else "local[*]",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": arguments.connector,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(arguments.local),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(arguments.partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.appName("steady")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _query(
    session: SparkSession, arguments: argparse.Namespace, source: str, sink: str, checkpoint: str, batch: int
) -> StreamingQuery:
    """Return the query, started."""
    rows = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", batch)
        .load()
    )
    results = (
        rows.select("key", "value")
        .groupBy("key")
        .applyInPandasWithState(
            spark_steps.STEPS[arguments.step],
            "key binary, value binary",
            "s binary",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )
    return (
        results.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .start()
    )


def _passing_on(session: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Return the query in real-time mode, started."""
    rows = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    # pyspark's type hints do not have it yet.
    in_real_time: Any = rows.select("key", "value").writeStream.trigger
    query: StreamingQuery = (
        in_real_time(realTime="5 minutes")
        .format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.output)
        .option("checkpointLocation", arguments.state)
        .outputMode("update")
        .start()
    )
    return query


def _stand_by(session: SparkSession, arguments: argparse.Namespace) -> None:
    """Wait for a line, and keep everything warm until then."""
    rows: Any = session.range(_REHEARSED).selectExpr(
        f"CAST(CONCAT('key-', LPAD(id % {_REHEARSED_KEYS}, 12, '0')) AS BINARY) AS key",
        "CAST(REPEAT('-', 100) AS BINARY) AS value",
    )
    (
        rows.write.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.rehearse[0])
        .save()
    )
    _rehearse(session, arguments, _REHEARSED_BATCHES)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    called = threading.Event()

    def keep_warm() -> None:
        while not called.wait(_KEEP_WARM_SECONDS):
            _rehearse(session, arguments, 1)

    # On another thread, so that a running rehearsal never delays the call.
    threading.Thread(target=keep_warm, daemon=True).start()
    line = sys.stdin.readline()
    called.set()
    if not line:
        os._exit(0)


def _rehearse(session: SparkSession, arguments: argparse.Namespace, batches: int) -> None:
    """Run the query over all records of the rehearsal, without a checkpoint, in about this number of batches."""
    source, sink = arguments.rehearse
    with tempfile.TemporaryDirectory(dir=arguments.local) as checkpoint:
        query = _query(session, arguments, source, sink, checkpoint, _REHEARSED // batches)
        query.processAllAvailable()
        query.stop()


def _end() -> None:
    sys.stdin.read()
    # A running query is not needed any more; it is killed with the session.
    os._exit(0)


if __name__ == "__main__":
    main()
