"""The steps of `benchmarks.steps` with Quix Streams, in its own virtual environment, until standard input ends."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import Any

from quixstreams import Application

from benchmarks.gapjob import kept
from benchmarks.steps import EMPTY, NUMBER, PROFILE, amount_of, update


def count(value: bytes, state: Any) -> bytes:
    """Count the key's records."""
    before = state.get_bytes("n")
    number = 1 + (NUMBER.unpack(before)[0] if before is not None else 0)
    packed = NUMBER.pack(number)
    state.set_bytes("n", packed)
    return value[:8] + packed


def profile(value: bytes, state: Any) -> bytes:
    """Keep the profile of the key's values."""
    before = state.get_bytes("p")
    found = list(PROFILE.unpack(before)) if before is not None else list(EMPTY)
    update(found, amount_of(value))
    state.set_bytes("p", PROFILE.pack(*found))
    return value[:8] + NUMBER.pack(found[1])


def keep(value: bytes, state: Any) -> bytes:
    """Keep a count and the newest value."""
    after, result = kept(state.get_bytes("k"), value)
    state.set_bytes("k", after)
    return result


STEPS = {"count": count, "profile": profile, "keep": keep}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "group", "input", "output", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--step", choices=sorted(STEPS), required=True)
    parser.add_argument("--commit-seconds", type=float, required=True)
    arguments = parser.parse_args()
    app = Application(
        broker_address=arguments.bootstrap,
        consumer_group=arguments.group,
        state_dir=arguments.state,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=arguments.commit_seconds,
        loglevel="WARNING",
    )
    source = app.topic(arguments.input, key_deserializer="bytes", value_deserializer="bytes")
    sink = app.topic(arguments.output, key_serializer="bytes", value_serializer="bytes")
    app.dataframe(source).apply(STEPS[arguments.step], stateful=True).to_topic(sink)

    def end() -> None:
        sys.stdin.read()
        # Its own way to stop waits for more than a killed contestant is given.
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    app.run()


if __name__ == "__main__":
    main()
