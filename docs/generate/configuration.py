"""docs/configuration.md: the table of configuration keys that also does the checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from standby.config import OWNED_BY_KERNEL, REMOVED, Key, keys
from standby.config.keys import Applies

_HEAD = """\
# Configuration

A job file is YAML; keys are nested or dotted, as one likes, and `standfast submit --set key=value` puts
one on top. A list is written as YAML's, `[a, b]`, or as one plain name; with `--set` its items are parted by
commas. A wrong key or value is refused at submit, all of them in one message, and so is a key that is written twice.

A value is what its key says, never what it looks like, in the job file and with `--set` alike. Text is taken as it is
written, quoted or not: topic `0012`, password `0123`, time zone `+10:30`, name `off`. So is every `kafka.*` and
`spark.*` setting. Numbers and truth values follow YAML 1.2's core rules: `300`, `0o17`, `0x1F`; `true`, `True` or
`TRUE`, and `false` alike. Anything else is refused there (`1_000`, `1e3`, `yes`), and so are values with a tag
(`!!int`), and `null` or `~`, not in quotes, for text. A key with nothing behind it is not given.

This page is generated from the declarations in `standby/config` that the checks follow from: `python -m docs.generate`.

Keys that begin with `kafka.` go, without the prefix, to every Kafka client as librdkafka settings (and,
translated, to Spark's source); those that begin with `spark.` go to the Spark session. Refused, because
exactly-once rests on them: {owned}. At submit one client of each kind
that the job will make is made with these settings; no broker is asked for that. What one of them refuses is said with
the setting, its value and librdkafka's rule. A transactional producer has most rules: `kafka.message.timeout.ms` and
`kafka.delivery.timeout.ms` must not be above `job.transaction.timeout.ms`, for one.

A secret among them (`kafka.sasl.password`, `kafka.ssl.key.password`, `spark.hadoop.fs.s3a.secret.key`, …) may be
given by a file: `kafka.sasl.password.file: /etc/standfast/kafka-password`. The file has the value alone, in UTF-8; it
has to be at the same absolute path on every host and where commands are given, readable by the user that containers
run as, and not by everybody. A process reads it whenever it makes a client; what is connected already keeps the value
that it connected with until it starts anew. What a JVM or a process's environment is given may have secrets, too:
`spark.driver.extraJavaOptions`, `spark.executorEnv.*`.

Values of `kafka.*` and `spark.*` settings show as `***` in every output, but for those that are known to be harmless:
names, paths, choices and figures, by a list in `standby/security/disclosure.py`. `--set` takes these alone, since
everybody on a machine can read a command's arguments; write the others into the job file.

The column *of* says for what a key holds: for one job; for one run of it, from submit to delete, since state and
offsets rest on it; or for the cluster, whose processes serve several jobs: a job that joins a running cluster gives
such a key as the cluster has it, or not at all.

The last column says what a change takes while the job runs (`standfast update`): nothing (live: the leader
alone acts on it), containers started anew one after the other (restart), or more than an update (fixed: state,
offsets or the YARN application rest on it).
"""

_TABLE: Final = """
## {title}

| key | default | allowed | meaning | of | change |
|---|---|---|---|---|---|
"""

_REMOVED: Final = """
## Keys of former versions

A job file that names one of these is refused. What is recorded of jobs and clusters may have them; they change nothing.

| key | now |
|---|---|
"""

#: Beginnings of names, and under which heading their keys stand; the longest that fits decides.
_SECTIONS: Final[Mapping[str, str]] = {
    "cluster.": "The job",
    "job.": "The job",
    "task.": "Input, processing, output",
    "job.locality.": "Placement",
    "job.host-affinity.": "Placement",
    "yarn.racks": "Placement",
    "yarn.host.": "Placement",
    "job.hotstandby.": "Hot standbys",
    "job.state.": "State",
    "job.restore.": "State",
    "job.changelog.": "State",
    "job.transaction.": "State",
    "cluster-manager.": "Containers",
    "yarn.container.": "Containers",
    "yarn.": "YARN and the application masters",
    "appmaster.": "YARN and the application masters",
    "code.": "Code",
    "job.modules": "Code",
    "job.python": "Code",
    "kafka.": "Servers",
    "zookeeper.": "Servers",
}

_CHANGE: Final[Mapping[Applies, str]] = {"live": "live", "start": "restart", "never": "fixed"}


def page() -> str:
    """Return the whole page, Markdown."""
    owned = ", ".join(f"`{each}`" for each in sorted(OWNED_BY_KERNEL))
    sections: dict[str, list[str]] = {title: [] for title in _SECTIONS.values()}
    for key, each in keys():
        sections[_section(key.name)].append(_row(key, each))
    tables = [_TABLE.format(title=title) + _lines(rows) for title, rows in sections.items()]
    removed = [f"| `{name}` | {now} |" for name, now in sorted(REMOVED.items())]
    return _HEAD.format(owned=owned) + "".join(tables) + _REMOVED + _lines(removed)


def _lines(rows: list[str]) -> str:
    return "".join(f"{each}\n" for each in rows)


def _section(name: str) -> str:
    """Return the heading of a key; raises LookupError when none of `_SECTIONS` is for it."""
    fits = [each for each in _SECTIONS if name.startswith(each)]
    if not fits:
        raise LookupError(f"{name}: no heading for it; add the beginning of its name to _SECTIONS")
    return _SECTIONS[max(fits, key=len)]


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
        "int": _number(key),
        "str": "text",
    }.get(kind, "list")
    if key.choices:
        allowed = ", ".join(key.choices)
    doc = key.doc + (f" Example: `{key.example}`." if key.example else "")
    return f"| `{key.name}` | {default} | {allowed} | {doc} | {key.scope} | {_CHANGE[key.applies]} |"


def _number(key: Key) -> str:
    """Return in words what numbers a key takes, and in which unit."""
    bounds = f"≥ {key.minimum}" if key.maximum is None else f"{key.minimum} to {key.maximum}"
    return f"whole number {bounds}" + (f", {key.unit}" if key.unit else "")
