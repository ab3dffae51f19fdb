"""docs/configuration.md, made from the table that also does the checks: ``python -m appmaster.cli.reference``."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from standby.config import OWNED_BY_KERNEL, Key, keys

_HEAD = """\
# Configuration

A job file is YAML; keys are nested or dotted, as one likes, and `standfast submit --set key=value` puts
one on top. A list is written as YAML's, `[a, b]`, or as one plain name; with `--set` its items are parted by
commas. A wrong key or value is refused at submit, all of them in one message, and so is a key that is written twice.
This page is generated from the table in `standby/config.py` that does the checks: `python -m appmaster.cli.reference`.

Keys that begin with `kafka.` go, without the prefix, to every Kafka client as librdkafka settings (and,
translated, to Spark's source); those that begin with `spark.` go to the Spark session. Refused, because
exactly-once rests on them: {owned}.

A secret among them (`kafka.sasl.password`, `kafka.ssl.key.password`, `spark.hadoop.fs.s3a.secret.key`, …) may be
given by a file: `kafka.sasl.password.file: /etc/standfast/kafka-password`. The file has the value alone, in UTF-8; it
has to be at the same absolute path on every host and where commands are given, readable by the user that containers
run as, and not by everybody. A process reads it whenever it makes a client; what is connected already keeps the value
that it connected with until it starts anew. With `--set` a secret is refused. Values of `kafka.*` and `spark.*`
settings show as `***` in every output, but for those that are known to be harmless.

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
