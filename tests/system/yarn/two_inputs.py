"""Input for a counting job that reads two topics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.meanwhile import meanwhile
from tests.system.yarn.counting import CountingJob, Pair

#: How often records are sent while input flows.
SENDS_PER_SECOND = 10


def pairs(topic: str, task: int, begin: int) -> list[Pair]:
    """Return some records; a key keeps to its input and its task."""
    return [(f"{topic} {task} {each % 5}".encode(), b"value %d" % each) for each in range(begin, begin + 10)]


@contextmanager
def flow(job: CountingJob, also: str) -> Iterator[None]:
    """Have records come to both inputs of every task for the time of the block, fewer to ``also``."""

    def work(done: threading.Event) -> None:
        begin = 0
        while not done.wait(1 / SENDS_PER_SECOND):
            for task in range(job.partitions):
                job.produce(task, pairs(job.topic, task, begin))
                if begin % 30 == 0:
                    job.produce(task, pairs(also, task, begin), topic=also)
            begin += 10

    with meanwhile(work):
        yield
