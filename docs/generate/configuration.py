"""docs/configuration.md: the table of configuration keys that also does the checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from standby.config import OWNED_BY_KERNEL, ConfigKey, keys
from standby.config.keys import Applies
from standby.feed.rules.settings import REFUSED, SESSION

_HEAD = """\
# Configuration

For authors and operators of jobs: every key of a job file, its default, and what a change of it takes. This page is
generated from the declarations in `standby/config`, which also define the checks: `python -m docs.generate`.

## The job file

A job file is YAML. Keys may be nested or dotted. `standfast submit --set key=value` overrides a key of the file. A
list is written as in YAML, `[a, b]`, or as a single name; with `--set` its items are separated by commas. At submit,
all wrong keys and values are refused in one message, and so is a key that occurs twice.

The key determines the type of a value, in the job file and with `--set` alike. Text is taken literally, quoted or not:
topic `0012`, password `0123`, time zone `+10:30`, name `off`. The same holds for every `kafka.*` and `spark.*`
setting. Numbers and booleans follow the core schema of YAML 1.2: `300`, `0o17`, `0x1F`; `true`, `True` or `TRUE`, and
`false` in the same way. Other forms are refused there (`1_000`, `1e3`, `yes`), and so are values with a tag (`!!int`),
and an unquoted `null` or `~` for text. A key without a value counts as not set.

The column *of* shows what a key belongs to:

- *job*: one job;
- *run*: one run of a job, from submit to delete, because state and offsets depend on it;
- *cluster*: the cluster, whose processes serve several jobs. A job that joins a running cluster sets such a key to the
  cluster's value, or omits it. On a pool this holds for the settings of `standfast init`
  ([keys on a pool](standalone.md#keys-on-a-pool)).

The column *change* shows what a change takes while the job runs (`standfast update`):

- *live*: nothing; only the leader acts on the key;
- *restart*: containers are restarted one after the other;
- *fixed*: an update is not enough, because state, offsets or the YARN application depend on the key.

## Kafka and Spark settings

Keys that begin with `kafka.` are passed, without the prefix, to every Kafka client as librdkafka settings. Keys that
begin with `spark.` are passed to the Spark session. These settings are refused, because exactly-once depends on them:
{owned}.

At submit, one client of each kind that the job will use is created with these settings, without contacting a broker.
If a client refuses a setting, the message has the setting, its value and librdkafka's rule. A transactional producer
has the most rules: for example, `kafka.message.timeout.ms` and `kafka.delivery.timeout.ms` must not exceed
`job.transaction.timeout.ms`.

A secret among these settings (`kafka.sasl.password`, `kafka.ssl.key.password`, `spark.hadoop.fs.s3a.secret.key`, …)
may be in a file: `kafka.sasl.password.file: /etc/standfast/kafka-password`. The file contains only the value, in
UTF-8. It must have the same absolute path on every host and on the machine where commands are run. The containers'
user must be able to read it, and other users must not. A process reads the file whenever it creates a client; a
connected client keeps its value until the process restarts. Settings of a JVM or of a process environment may also
contain secrets: `spark.driver.extraJavaOptions`, `spark.executorEnv.*`.

Values of `kafka.*` and `spark.*` settings are shown as `***` in every output, except those known to be harmless:
names, paths, choices and numbers, by a list in `standby/security/disclosure.py`. `--set` accepts only these, because
everybody on a machine can read a command's arguments. Write the others into the job file.

The Spark session of a container is local to it: `spark.master` is `local[N]`, with N = the container's cores, but at
least 2. These settings have other defaults than Spark's, and a job may change them: {session}.

These are refused:

{refused}
"""

_TABLE: Final = """
## {title}

| key | default | allowed | meaning | of | change |
|---|---|---|---|---|---|
"""

#: Beginnings of names, and under which heading their keys stand; the longest that fits decides.
_SECTIONS: Final[Mapping[str, str]] = {
    "cluster.": "The job",
    "cluster.leader.": "YARN and the application masters",
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
    session = ", ".join(f"`{name}={value}`" for name, value in SESSION.items())
    refused = "\n".join(f"- `{name}`: {why}" + "." for name, why in REFUSED.items())
    return _HEAD.format(owned=owned, session=session, refused=refused) + "".join(tables)


def _lines(rows: list[str]) -> str:
    return "".join(f"{each}\n" for each in rows)


def _section(name: str) -> str:
    """Return the heading of a key; raises LookupError when none of `_SECTIONS` is for it."""
    fits = [each for each in _SECTIONS if name.startswith(each)]
    if not fits:
        raise LookupError(f"{name}: no heading for it; add the beginning of its name to _SECTIONS")
    return _SECTIONS[max(fits, key=len)]


def _row(key: ConfigKey, field: dataclasses.Field[Any]) -> str:
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


def _number(key: ConfigKey) -> str:
    """Return in words what numbers a key takes, and in which unit."""
    bounds = f"≥ {key.minimum}" if key.maximum is None else f"{key.minimum} to {key.maximum}"
    if key.least is not None:
        bounds = f"{key.minimum}, or {key.least} to {key.maximum}"
    return f"whole number {bounds}" + (f", {key.unit}" if key.unit else "")
