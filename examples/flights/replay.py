"""Replays the flights into Kafka: ``python -m examples.flights.replay [--rate R] [--rows N]``."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.flights.source import Raw, flights
from standby.errors import StandfastError, Unavailable

INPUT_TOPIC: Final = "flights"
OUTPUT_TOPICS: Final = ("flight-delays", "unassigned-flights")

_SLICE_SECONDS: Final = 0.02

#: The time-out for the creation of the topics.
_TOPIC_SECONDS: Final = 30.0


def create_topics(bootstrap: str, partitions: int) -> None:
    """Create the job's topics, with timestamps set by the broker; raises `KafkaException`."""
    # The broker sets the time of every record, so latencies and gaps can be computed from the topics alone.
    stamped = {"message.timestamp.type": "LogAppendTime"}
    topics = [
        NewTopic(name, num_partitions=partitions, config=stamped) for name in (INPUT_TOPIC, *OUTPUT_TOPICS)
    ]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for future in client.create_topics(topics, request_timeout=_TOPIC_SECONDS).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def replay(
    bootstrap: str, records: Iterable[Raw], rate: Callable[[], float], stop: threading.Event
) -> Iterator[int]:
    """Produce ``records`` at ``rate()`` records per second, yielding the number passed to the producer so far.

    Yields after each slice of 20 ms. Ends after the last record, or early if ``stop`` is set; every record passed
    to the producer has then reached the broker. Raises `KafkaException` or `TimeoutError` if one could not.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    settings = {"enable.idempotence": True, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    waiting = iter(records)
    count, allowance, last = 0, 0.0, time.monotonic()
    is_over = False
    while not is_over and not failed and not stop.wait(_SLICE_SECONDS):
        now = time.monotonic()
        # After a stall of this process the rate is kept, not the schedule, so there is no burst.
        allowance = min(allowance + (now - last) * rate(), rate() * 0.2 + 1)
        last = now
        while allowance >= 1 and not is_over:
            record = next(waiting, None)
            if record is None:
                is_over = True
            else:
                producer.produce(INPUT_TOPIC, record.value, record.key, on_delivery=delivered)
                count, allowance = count + 1, allowance - 1
        producer.poll(0)
        yield count
    left = producer.flush(30)
    if failed:
        raise KafkaException(failed[0])
    if left:
        raise TimeoutError(f"{left} records did not reach the broker within 30 s")
    yield count


def main(argv: Sequence[str] | None = None) -> int:
    """Create missing topics and replay at the given rate; return the exit status.

    It is 0, 2 for wrong arguments, 3 if the data set or Kafka cannot be used, or 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights.replay", description=__doc__.partition(":")[0]
    )
    parser.add_argument(
        "--kafka", default=os.environ.get("STANDFAST_KAFKA"), help="default: $STANDFAST_KAFKA"
    )
    parser.add_argument("--rate", type=_rate, default=2_000, help="records per second (default: %(default)s)")
    parser.add_argument(
        "--rows", type=_count, default=None, help="default: all 336,776; 0 creates the topics only"
    )
    parser.add_argument(
        "--partitions", type=_count, default=4, help="of topics that are missing (default: 4)"
    )
    arguments = parser.parse_args(argv)
    if not arguments.kafka:
        parser.error("--kafka: missing, and STANDFAST_KAFKA is not set")
    if not arguments.partitions:
        parser.error("--partitions: at least 1 is needed")
    try:
        # First the data: without it no topic is created.
        records = flights(arguments.rows)
        create_topics(arguments.kafka, arguments.partitions)
        for count in replay(arguments.kafka, records, lambda: arguments.rate, threading.Event()):
            sys.stdout.write(f"\r{count:,} flights")
            sys.stdout.flush()
        sys.stdout.write("\n")
    except StandfastError as error:
        return _failed(str(error), error.exit_status)
    except (KafkaException, TimeoutError) as error:
        return _failed(
            f"Kafka at {arguments.kafka} cannot be used: {_reason(error)}", Unavailable.exit_status
        )
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    return 0


def _failed(text: str, status: int) -> int:
    sys.stderr.write(f"replay: {text}\n")
    return status


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(error)


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate < float("inf"):
        raise ValueError(text)
    return rate


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    sys.exit(main())
