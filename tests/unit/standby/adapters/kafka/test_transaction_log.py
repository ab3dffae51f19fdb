"""The partition of a transactional id, and records of the coordinator's log, as Kafka's own classes have them."""

from __future__ import annotations

import struct

from standby.adapters.kafka.transaction_log import _state_in, partition_of


def test_partition_is_that_of_javas_hash() -> None:
    # By Java's String.hashCode; the last but one is the least number of all.
    hashes = {"": 0, "a": 97, "standfast": 2_036_908_338, "polygenelubricants": 0, "𝄞": 1_772_394}
    for name, hashed in hashes.items():
        assert partition_of(name, 50) == hashed % 50, name


def test_a_value_of_the_first_version() -> None:
    value = struct.pack(">hqhib", 0, 7, 1, 5_000, 3) + struct.pack(">i", 2)
    for topic, numbers in ((b"out", (0, 2)), (b"changelog", (1,))):
        value += struct.pack(">h", len(topic)) + topic
        value += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    found = _state_in(value + struct.pack(">qq", 1, 1))
    assert found is not None
    assert (found.status, found.places) == (3, frozenset({("out", 0), ("out", 2), ("changelog", 1)}))


def test_a_value_of_the_flexible_version() -> None:
    value = struct.pack(">hqhib", 1, 7, 1, 5_000, 2) + b"\3"
    for topic, numbers in ((b"out", (0, 2)), (b"changelog", (1,))):
        value += bytes([len(topic) + 1]) + topic
        # One unknown tagged field.
        value += bytes([len(numbers) + 1]) + struct.pack(f">{len(numbers)}i", *numbers) + b"\1\7\2ab"
    found = _state_in(value + struct.pack(">qq", 1, 1) + b"\0")
    assert found is not None
    assert (found.status, found.places) == (2, frozenset({("out", 0), ("out", 2), ("changelog", 1)}))


def test_what_is_not_known_is_passed_over() -> None:
    for value in (None, b"", b"\0\7" + bytes(30), struct.pack(">hqhibi", 0, 7, 1, 5, 2, 9)):
        assert _state_in(value) is None, value
