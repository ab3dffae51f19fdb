"""Declarations of configuration keys: everything about a key in one place. Pure.

A key is a dataclass field of one of the classes in this package, created by `key`. The class determines
which processes have its value:

==================  ===================================================================
`PlannerKeys`       the planner, in its `PlannerPolicy`
`ClusterKeys`       each process of a cluster from its start on, in its `ClusterConfig`
every other class   each process with the job's `JobConfig`, as the leader and containers
==================  ===================================================================

Checks, revisions, what a job has to agree with in a running cluster, and docs/configuration.md follow from the
declaration.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from standby.shared import naming

#: Scope of a key's value: a ``job``, including its future revisions; a ``run`` of it, because state and offsets
#: depend on it; or the ``cluster``, for all jobs that its processes serve.
Scope = Literal["job", "cluster", "run"]

#: What a change of a key requires while the job runs: only the leader (``live``), a rolling restart of containers
#: (``start``), or at least a new start of the job (``never``).
Applies = Literal["live", "start", "never"]

#: Unit of a number; empty: a count, as in the key's name.
Unit = Literal["", "ms", "s", "bytes", "bytes/s", "MiB", "records"]

#: Most milliseconds of a time-out, two weeks: they fit into the 32 bits of Kafka's clients and of ZooKeeper with room
#: for what is added to them, and into the seconds that a thread can wait.
MOST_MS: Final = 1_209_600_000

#: Most milliseconds for which something is kept: ten years.
MOST_RETENTION_MS: Final = 315_360_000_000

#: Most bytes of a file, or in a second: 1 TiB.
MOST_BYTES: Final = 1 << 40

#: Least bytes in a second for copies of state. Peers give each other up after seconds without any, and a piece has
#: 256 KiB.
LEAST_PEER_BYTES: Final = 1 << 20

#: Most MiB of a container: 16 TiB. YARN counts them in 32 bits.
MOST_MIB: Final = 1 << 24

#: Most containers of a job, without its spare ones, and most copies of its tasks, actives included: three times what a
#: leader is built for (docs/benchmarks.md, the planner). It decides about all jobs of its cluster on one thread, and
#: during a turn nothing is done about a failure of any job. The longest turn, when such a job is first placed, takes
#: 2 s of processor time; turns grow faster than the number of containers. A long turn does not cost the leader its
#: lead, because the lease is renewed on another thread.
MOST_CONTAINERS: Final = 3_000
MOST_COPIES: Final = 60_000


@dataclass(frozen=True, slots=True)
class Form:
    """The format of a value: a pattern for the check, and words for the error message."""

    pattern: re.Pattern[str]
    words: str


NAME: Final = Form(naming.NAME, naming.NAME_WORDS)
#: Kafka's rule for topic names; also for jobs and clusters, because topics are named after them.
TOPIC: Final = Form(
    re.compile(r"[A-Za-z0-9._-]{1,249}\Z"), "up to 249 letters, digits, dots, underscores and dashes"
)
FUNCTION: Final = Form(
    re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z"),
    "module:function, both by their Python names, as in flights:totals",
)
STORE: Final = Form(
    re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z"),
    "a letter, then up to 63 letters, digits, underscores and dashes",
)
PATH: Final = Form(re.compile(r"/"), "an absolute path")
OF_HOST: Final = Form(re.compile(r"[^=]+=."), "host=value")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A documented key of the job file."""

    name: str
    doc: str
    unit: Unit = ""
    scope: Scope = "job"
    applies: Applies = "start"
    minimum: int | None = None
    maximum: int | None = None
    """Most that may be asked for; what is recorded may be above it."""
    least: int | None = None
    """Least that may be asked for besides the minimum, which is no limit then; what is recorded may be below it."""
    choices: tuple[str, ...] = ()
    form: Form | None = None
    """Format of the value, or of each item of a list."""
    distinct: bool = False
    """Whether the items of a list must be distinct."""
    example: str = ""


def key(
    name: str,
    doc: str,
    default: Any = dataclasses.MISSING,
    *,
    unit: Unit = "",
    scope: Scope = "job",
    applies: Applies | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    least: int | None = None,
    choices: tuple[str, ...] = (),
    form: Form | None = None,
    distinct: bool = False,
    example: str = "",
) -> Any:
    """Return a dataclass field that carries its key; it is required when there is no default.

    A change requires a rolling restart unless ``applies`` is given. Keys of a cluster or a run never change while
    the job runs; raises ValueError if ``applies`` is given for one.
    """
    if scope != "job" and applies is not None:
        raise ValueError(f"{name}: a key of the {scope} never changes while the job runs")
    change: Applies = applies or ("start" if scope == "job" else "never")
    declared = ConfigKey(
        name, doc, unit, scope, change, minimum, maximum, least, choices, form, distinct, example
    )
    return field(default=default, metadata={"key": declared})
