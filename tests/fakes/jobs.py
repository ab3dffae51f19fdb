"""The smallest possible job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standby.config import JobConfig, parse

#: The keys that every job has to have. Nothing listens at its addresses, and no name has to be looked up for them.
JOB: Final = {
    "job.name": "job",
    "task.inputs": "in",
    "task.step": "m:f",
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "zookeeper.connect": "127.0.0.1:1",
}


def job_config(keys: Mapping[str, str] | None = None, /, **more: str) -> JobConfig:
    """Return the job with these keys besides; a dot in the name of one of ``more`` is two underscores."""
    named = {key.replace("__", "."): value for key, value in more.items()}
    return parse({**JOB, **(keys or {}), **named})
