"""docs/configuration.md, made from the table that also does the checks: ``python -m appmaster.cli.reference``."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from standby.config import OWNED_BY_KERNEL, Key, keys

_HEAD = """\
# Configuration

A job file is YAML; keys are nested or dotted, as one likes, and `standfast submit --set key=value` puts
one on top. A wrong key or value is refused at submit, all of them in one message. This page is
generated from the table in `standby/config.py` that does the checks: `python -m appmaster.cli.reference`.

Keys that begin with `kafka.` go, without the prefix, to every Kafka client as librdkafka settings (and,
translated, to Spark's source); those that begin with `spark.` go to the Spark session. Refused, because
exactly-once rests on them: {owned}.

The last column says what a change takes while the job runs (`standfast update`): nothing (live: the leader
alone acts on it), containers started anew one after the other (restart), or a job of its own (fixed: state,
offsets or the YARN application rest on it).

| key | default | allowed | meaning | change |
|---|---|---|---|---|
"""

_CHANGE = {"live": "live", "start": "restart", "never": "fixed"}


def render() -> str:
    """Return the page as Markdown."""
    owned = ", ".join(f"`{each}`" for each in sorted(OWNED_BY_KERNEL))
    rows = [_row(key, each) for key, each in keys()]
    return _HEAD.format(owned=owned) + "\n".join(rows) + "\n"


def _row(key: Key, field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        default = "required"
    elif field.default in ("", ()):
        default = "–"
    elif isinstance(field.default, tuple):
        default = f"`{','.join(field.default)}`"
    elif isinstance(field.default, bool):
        default = f"`{str(field.default).lower()}`"
    else:
        default = f"`{field.default}`"
    kind = str(field.type)
    allowed = {
        "bool": "true, false",
        "int": f"whole number ≥ {key.minimum}",
        "str": "text",
    }.get(kind, "list")
    if key.choices:
        allowed = ", ".join(key.choices)
    doc = key.doc + (f" Example: `{key.example}`." if key.example else "")
    return f"| `{key.name}` | {default} | {allowed} | {doc} | {_CHANGE[key.applies]} |"


if __name__ == "__main__":
    sys.stdout.write(render())
