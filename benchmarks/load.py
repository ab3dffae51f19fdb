"""Writes a benchmark's input: ``python -m benchmarks.load``, a separate process.

Keys have 16 bytes and are evenly distributed; each stays in its partition. The first 8 bytes of a value are the time at
which the record was due (Unix nanoseconds), so a slow generator does not make a latency look better. It ends when all
records are written, or earlier at the end of its standard input.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from confluent_kafka import Producer

from benchmarks import meter

_TICK_SECONDS: Final = 0.01
_AT_ONCE: Final = 10_000
_MOST_WAITING: Final = 200_000
_MOST_WAITING_BYTES: Final = 64 << 20
_STAMP: Final = struct.Struct(">q")
_NOISE: Final = random.Random(2).randbytes(1 << 16)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the given number of records, evenly over time, or as fast as possible with ``--rate 0``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0, help="records a second")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--first-key", type=int, default=0, help="number of the first key")
    parser.add_argument(
        "--in-order", action="store_true", help="one key after the other rather than by chance"
    )
    parser.add_argument("--value-bytes", type=int, default=100)
    arguments = parser.parse_args(argv)
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20 if arguments.rate == 0 else 1,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 2 * _MOST_WAITING,
        }
    )
    ended = threading.Event()
    threading.Thread(target=_listen, args=(ended,), daemon=True).start()
    writer = _Writer(producer, arguments)
    latest = 0.0
    for due, amount in ticks(arguments.records, arguments.rate):
        if arguments.rate:
            left = due - time.monotonic()
            latest = max(latest, -left)
            ended.wait(max(0.0, left))
        if ended.is_set():
            break
        writer.write(amount)
    if producer.flush(300):
        raise RuntimeError("the broker did not take every record")
    meter.answer(
        {
            "records": sum(writer.written.values()),
            "by_partition": {str(each): number for each, number in sorted(writer.written.items())},
            "most_late_seconds": latest,
        }
    )
    return 0


def _listen(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def ticks(records: int, rate: float) -> Iterator[tuple[float, int]]:
    """Yield when, on the monotonic clock, how many records are due, from now on."""
    begin, done, number = time.monotonic(), 0, 0
    while done < records:
        number += 1
        upto = min(records, round(rate * number * _TICK_SECONDS) if rate else done + _AT_ONCE)
        if upto > done:
            yield begin + number * _TICK_SECONDS, upto - done
        done = upto


class _Writer:
    def __init__(self, producer: Producer, arguments: argparse.Namespace) -> None:
        self._producer = producer
        self._topic: str = arguments.topic
        self._partitions: int = arguments.partitions
        self._first, self._keys = arguments.first_key, arguments.keys
        self._order = count() if arguments.in_order else None
        self._bytes: int = arguments.value_bytes
        self._most = min(_MOST_WAITING, _MOST_WAITING_BYTES // self._bytes)
        self.written: Counter[int] = Counter()
        """Partition → records."""

    def write(self, amount: int) -> None:
        stamp = _STAMP.pack(time.time_ns())
        parts: dict[int, list[dict[str, bytes]]] = {}
        for _ in range(amount):
            drawn = random.randrange(self._keys) if self._order is None else next(self._order) % self._keys
            number = self._first + drawn
            at = number * 37 % (len(_NOISE) - self._bytes)
            message = {"key": b"key-%012d" % number, "value": stamp + _NOISE[at : at + self._bytes - 8]}
            parts.setdefault(number % self._partitions, []).append(message)
        while len(self._producer) > self._most:
            self._producer.poll(0.05)
        for partition, messages in parts.items():
            if self._producer.produce_batch(self._topic, messages, partition=partition) != len(messages):
                raise RuntimeError("the producer did not take every record")
            self.written[partition] += len(messages)
        self._producer.poll(0)


if __name__ == "__main__":
    sys.exit(main())
