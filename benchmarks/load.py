"""Writes a benchmark's input: ``python -m benchmarks.load``, a process of its own beside the contestants.

Keys have 16 bytes, are drawn evenly, and each stays in its partition. Values have 100 bytes, of which the first
8 are the time at which the record was due (Unix nanoseconds): a generator that lags makes no latency look better.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import Producer

from benchmarks import meter

_TICK_SECONDS: Final = 0.01
_AT_ONCE: Final = 10_000
_VALUE_BYTES: Final = 100
_STAMP: Final = struct.Struct(">q")
_NOISE: Final = random.Random(2).randbytes(1 << 16)


def main(argv: Sequence[str] | None = None) -> int:
    """Write so many records, evenly over time, or as fast as it goes with ``--rate 0``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0, help="records a second")
    parser.add_argument("--keys", type=int, default=100_000)
    arguments = parser.parse_args(argv)
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20 if arguments.rate == 0 else 1,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 40 * _AT_ONCE,
        }
    )
    latest = 0.0
    for due, count in ticks(arguments.records, arguments.rate):
        if arguments.rate:
            latest = max(latest, -pause_until(due))
        _write(producer, arguments, count)
    if producer.flush(300):
        raise RuntimeError("the broker did not take every record")
    meter.answer({"records": arguments.records, "most_late_seconds": latest})
    return 0


def ticks(records: int, rate: float) -> Iterator[tuple[float, int]]:
    """Yield when, on the monotonic clock, how many records are due, from now on."""
    begin, done, number = time.monotonic(), 0, 0
    while done < records:
        number += 1
        upto = min(records, round(rate * number * _TICK_SECONDS) if rate else done + _AT_ONCE)
        if upto > done:
            yield begin + number * _TICK_SECONDS, upto - done
        done = upto


def pause_until(due: float) -> float:
    """Wait until ``due``; return how many seconds that was, below 0 when it has passed."""
    left = due - time.monotonic()
    if left > 0:
        time.sleep(left)
    return left


def _write(producer: Producer, arguments: argparse.Namespace, count: int) -> None:
    stamp = _STAMP.pack(time.time_ns())
    parts: dict[int, list[dict[str, bytes]]] = {}
    for _ in range(count):
        number = random.randrange(arguments.keys)
        at = number * 37 % (len(_NOISE) - _VALUE_BYTES)
        message = {"key": b"key-%012d" % number, "value": stamp + _NOISE[at : at + _VALUE_BYTES - 8]}
        parts.setdefault(number % arguments.partitions, []).append(message)
    for partition, messages in parts.items():
        place = 0
        while place < len(messages):
            place += producer.produce_batch(arguments.topic, messages[place:], partition=partition)
            producer.poll(0 if place == len(messages) else 0.05)


if __name__ == "__main__":
    sys.exit(main())
