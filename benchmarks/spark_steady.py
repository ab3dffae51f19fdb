"""The steps of `benchmarks.steps` with Spark's own state, until standard input ends.

A Structured Streaming query from Kafka to Kafka with ``applyInPandasWithState`` over the RocksDB state store (with
changelog checkpoints, on the local disk): what a user of PySpark has without standfast. Its state is exactly
once; its Kafka sink is at least once, and nothing stands by.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from benchmarks import spark_steps
from embedded.jars import classpath


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "input", "output", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--step", choices=sorted(spark_steps.STEPS), required=True)
    parser.add_argument("--batch", type=int, required=True, help="most records of a micro-batch")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.master": "local[*]",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, classpath("spark-kafka"))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
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
    session = builder.getOrCreate()
    step = spark_steps.STEPS[arguments.step]
    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .load()
    )
    results = (
        source.select("key", "value")
        .groupBy("key")
        .applyInPandasWithState(
            step, "key binary, value binary", "s binary", "update", GroupStateTimeout.NoTimeout
        )
    )
    query = (
        results.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.output)
        .option("checkpointLocation", arguments.state)
        .outputMode("update")
        .start()
    )
    threading.Thread(target=_end, daemon=True).start()
    query.awaitTermination()


def _end() -> None:
    sys.stdin.read()
    # Whatever runs is of no use any more; its session is killed with it.
    os._exit(0)


if __name__ == "__main__":
    main()
