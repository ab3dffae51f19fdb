"""What a configuration key is, and how one is declared: everything about it in one place. Pure.

A key is a dataclass field of one of the classes in this package, made by `key`. The class says who has its value:

==================  ===================================================================
`PlannerKeys`       the planner, in its `Policy`
`ClusterKeys`       each process of a cluster from its start on, in its `ClusterConfig`
every other class   whoever has the job's `JobConfig`, as the leader and its containers
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

#: For what a key's value holds: for one ``job``, its present and its future revisions; for one ``run`` of it, since
#: state and offsets rest on it; for the ``cluster``, whichever job a process of it serves.
Scope = Literal["job", "cluster", "run"]

#: What a change of a key takes while the job runs: nothing but the leader's knowing (``live``), containers
#: started anew one by one (``start``), or at least a new start of the job (``never``).
Applies = Literal["live", "start", "never"]

#: In what a number is given; empty: it counts something, which the key's name says.
Unit = Literal["", "ms", "s", "bytes", "bytes/s", "MiB", "records"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a value looks like: for the check, and in words for whoever gave another one."""

    pattern: re.Pattern[str]
    words: str


NAME: Final = Form(naming.NAME, naming.NAME_WORDS)
#: Kafka's own rule for topic names, kept for jobs and clusters because topics are named after them.
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
class Key:
    """One documented key of the job file."""

    name: str
    doc: str
    unit: Unit = ""
    scope: Scope = "job"
    applies: Applies = "start"
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    form: Form | None = None
    """Of the value, or of each item of a list."""
    distinct: bool = False
    """Whether a list may have no item twice."""
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
    choices: tuple[str, ...] = (),
    form: Form | None = None,
    distinct: bool = False,
    example: str = "",
) -> Any:
    """Return a dataclass field that carries its key; required when there is no default.

    A change takes containers started anew unless ``applies`` says otherwise. Keys of a cluster or a run never change
    while the job runs; raises ValueError for one that is to.
    """
    if scope != "job" and applies is not None:
        raise ValueError(f"{name}: a key of the {scope} never changes while the job runs")
    change: Applies = applies or ("start" if scope == "job" else "never")
    declared = Key(name, doc, unit, scope, change, minimum, maximum, choices, form, distinct, example)
    return field(default=default, metadata={"key": declared})
