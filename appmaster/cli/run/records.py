"""The records of a run: threads that follow its outputs and its event log, and one that writes its input."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.kafka import read_events
from appmaster.adapters.kafka_records import TopicRecord, TopicsReader, TopicWriter, key_and_value
from standby.config import KafkaSettings
from standby.errors import BadConfiguration, StandfastError, Unavailable

_POLL_SECONDS: Final = 0.2
_END_SECONDS: Final = 1.0
_AT_ONCE_BYTES: Final = 65_536

#: How often it is looked whether the event log is there by now, seconds.
_AGAIN_SECONDS: Final = 0.5


@contextmanager
def in_background(
    work: Callable[[threading.Event], None], name: str, say: Callable[[str], None]
) -> Iterator[None]:
    """Run ``work`` on a thread of its own while the block runs; its event is set at the end of the block."""
    over = threading.Event()

    def run() -> None:
        try:
            work(over)
        except StandfastError as error:
            say(f"warning: {error}")

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # One that waits for Kafka may take longer, and is not waited for.
        thread.join(_END_SECONDS)


def follow_outputs(
    settings: KafkaSettings, partitions: Mapping[str, int], show: Callable[[list[TopicRecord]], None]
) -> Callable[[threading.Event], None]:
    """Return work that shows what is committed to the outputs from now on."""
    reader = TopicsReader(settings, partitions)

    def work(over: threading.Event) -> None:
        try:
            while not over.is_set():
                show(reader.read(_POLL_SECONDS))
        finally:
            reader.close()

    return work


def follow_events(
    settings: KafkaSettings, topic: str, show: Callable[[Mapping[str, Any]], None]
) -> Callable[[threading.Event], None]:
    """Return work that shows the event log from its beginning, as soon as a master has made it."""

    def work(over: threading.Event) -> None:
        while not over.is_set():
            try:
                for each in read_events(settings, topic, follow=True, stop=over.is_set):
                    show(each)
            except Unavailable:
                over.wait(_AGAIN_SECONDS)

    return work


def write_input(
    settings: KafkaSettings, topic: str, source: str, say: Callable[[str], None]
) -> Callable[[threading.Event], None]:
    """Return work that writes the lines of a file to a topic, of standard input if it is called ``-``."""
    writer = TopicWriter(settings, topic)

    def work(over: threading.Event) -> None:
        count = 0
        try:
            with _opened(source) as descriptor:
                for key, value in key_and_value(_lines(descriptor, source, over)):
                    if over.is_set():
                        break
                    writer.write(key, value)
                    count += 1
        finally:
            while (left := writer.flush(_POLL_SECONDS)) and not over.is_set():
                pass
            say(f"{count - left - writer.refused:,} records of {source} are written to {topic}")
            if left or writer.refused:
                why = writer.why or "no broker has taken them yet"
                say(f"warning: {left + writer.refused:,} records of {source} are not in {topic}: {why}")

    return work


def check_input(source: str) -> None:
    """Raise `BadConfiguration` if a file, or standard input if it is called ``-``, cannot be read."""
    if source == "-":
        # None if the process was started without it (`<&-`).
        if sys.stdin is None:
            raise BadConfiguration("--input: -: standard input is closed")
        return
    with _refused(source):
        # Opening a pipe waits for its writer, and closing it again ends the writer.
        if not (stat.S_ISFIFO(Path(source).stat().st_mode) and os.access(source, os.R_OK)):
            with Path(source).open("rb"):
                pass


@contextmanager
def _opened(source: str) -> Iterator[int]:
    """Yield the descriptor of a file, or of standard input if it is called ``-``."""
    if source == "-":
        yield sys.stdin.fileno()
        return
    with _refused(source):
        # Without a wait for the writer of a pipe.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lines(descriptor: int, source: str, over: threading.Event) -> Iterator[bytes]:
    """Yield the lines of an open file until it ends, or until ``over`` is set.

    Not by a blocking read: a thread that waits in one, for a terminal or a pipe, would hold up the end of the process.
    """
    left = b""
    with _refused(source):
        while not over.is_set():
            if not select.select([descriptor], [], [], _POLL_SECONDS)[0]:
                continue
            part = os.read(descriptor, _AT_ONCE_BYTES)
            if not part:
                break
            *lines, left = (left + part).split(b"\n")
            yield from lines
    if left:
        yield left


@contextmanager
def _refused(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadConfiguration(f"--input: {source}: {error.strerror}") from error
