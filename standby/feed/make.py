"""Creates the feed of a job (`task.feed`)."""

from __future__ import annotations

import contextlib
import math
import sys
from pathlib import Path

from standby.adapters.spark.rehearsals import RehearsalNotes
from standby.cluster import CODE_DIRECTORY
from standby.config import JobConfig
from standby.feed.input_feed import Transforming, mark_nothing
from standby.feed.plain import PlainFeed, check_plain_transform
from standby.ports import Feed, FindLender, find_nobody
from standby.shared.wire import JobDefinition


def make_feed(
    config: JobConfig,
    job: JobDefinition,
    code: Path = Path(CODE_DIRECTORY),
    transforming: Transforming = mark_nothing,
    find_lender: FindLender = find_nobody,
    notes: RehearsalNotes | None = None,
) -> Feed:
    """Return the feed that ``config`` requires, not started yet: the plain one, unless Spark has a transform to run.

    ``code`` has the job's modules, which Spark's Python workers need. The plain feed does not use it, and marks its
    transforms with ``transforming``. ``find_lender`` finds who runs those of Spark until it is warm here.
    ``notes`` of its rehearsals outlive the process. Raises `BadConfiguration` when `task.transform` cannot be used.
    """
    if not config.needs_spark:
        return PlainFeed(config, job, transforming)
    # Imported late: Spark takes long to import, and is not needed on a machine without Java.
    from standby.feed.spark import SparkFeed

    return SparkFeed(config, job, code, find_lender, notes)


def check_transform(
    config: JobConfig, code: Path = Path(CODE_DIRECTORY), within_seconds: float = math.inf
) -> None:
    """Raise `BadConfiguration` unless a feed could run the job's `task.transform`; reads no input.

    For a Spark job this starts a JVM, plans the function over a stream without Kafka and stops the JVM
    again (some seconds); the job's modules must be importable (`standby.feed.functions.job_code`). Raises
    `Unavailable` when this machine cannot run the JVM now, or not within ``within_seconds``. What the function prints
    goes to standard error: the result of the command is on standard output.
    """
    with contextlib.redirect_stdout(sys.stderr):
        if not config.needs_spark:
            check_plain_transform(config, within_seconds)
        else:
            from standby.feed.spark import check_spark_transform

            check_spark_transform(config, code, within_seconds)
