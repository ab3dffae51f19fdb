"""How a change of a running job is applied: by the leader alone, by a new revision, or by a new start. Pure.

A revision is what a container loads once: the job's code and the keys that `standby.config.keys.ConfigKey.applies`
calls ``start``. Its number only rises, even when the job returns to an earlier revision: containers and records
distinguish revisions by the number alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from appmaster.records import JobRecord
from standby.config import Applies, keys, names, parse, shown, written
from standby.errors import BadConfiguration, StandfastError
from standby.shared.wire import JobDefinition

#: Number of earlier revisions that are kept, besides the one that runs: containers may still run them, and a rollback
#: can return to the latest.
KEPT: Final = 4

#: Keys that state and offsets depend on: not even a new start of the same run may change them.
OF_THE_RUN: Final = frozenset(names("run"))


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value is to change."""

    key: str
    before: str
    after: str
    applies: Applies

    def __str__(self) -> str:
        before, after = self.shown
        return f"{self.key}: {before or '(nothing)'} → {after or '(nothing)'}"

    @property
    def shown(self) -> tuple[str, str]:
        """The values as people and logs may see them, without secrets."""
        return shown(self.key, self.before), shown(self.key, self.after)


@dataclass(frozen=True, slots=True)
class Update:
    """What an update changes, and the job's record after it."""

    differences: tuple[Difference, ...]
    is_new_code: bool
    record: JobRecord

    @property
    def is_new_revision(self) -> bool:
        """Whether containers have to be replaced for it."""
        return self.is_new_code or any(each.applies == "start" for each in self.differences)

    @property
    def is_nothing(self) -> bool:
        """Whether the job is already as requested."""
        return not self.differences and not self.is_new_code

    def described(self) -> tuple[str, ...]:
        """Return the changes as lines for people."""
        lines = [f"{each} ({'live' if each.applies == 'live' else 'restart'})" for each in self.differences]
        if self.is_new_code:
            lines.append("the job's modules have changed (restart)")
        return tuple(lines)


def is_active(record: JobRecord, revision: JobDefinition) -> bool:
    """Return whether containers may load a revision of a job: its code is distributed, or it has none."""
    return not revision.code or revision.revision <= record.activated


def requested_settings(record: JobRecord) -> Mapping[str, str]:
    """Return the flat configuration as it is requested now."""
    return record.settings or record.definition.config


def basis_of(record: JobRecord) -> str:
    """Return a digest of what an update compares with: two records have the same one if both give the same update."""
    definition = record.definition
    compared = (
        definition.run,
        definition.revision,
        definition.code,
        sorted(requested_settings(record).items()),
    )
    return hashlib.sha256(msgspec.json.encode(compared)).hexdigest()


def compare(present: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return the keys whose values differ in effect, in the order of their declaration.

    A default that is written out equals one that is left out. Raises `BadConfiguration` if either configuration is
    invalid.
    """
    old, new = parse(present), parse(wanted)
    found = [
        Difference(key.name, written(before), written(after), key.applies)
        for key, field in keys()
        for before, after in ((getattr(old, field.name), getattr(new, field.name)),)
        if before != after and not (key.name == "cluster.name" and old.cluster == new.cluster)
    ]
    for prefix, before, after in (("kafka.", old.kafka, new.kafka), ("", old.spark, new.spark)):
        found += [
            Difference(f"{prefix}{name}", before.get(name, ""), after.get(name, ""), "start")
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
    return tuple(found)


def update(record: JobRecord, wanted: Mapping[str, str], code: str) -> Update:
    """Return what has to change for a running job to become as ``wanted``, with the bundle of code called ``code``.

    Raises `BadConfiguration` naming every key that cannot change while the job runs, and what to do instead.
    """
    differences = compare(requested_settings(record), wanted)
    refuse_fixed(differences)
    definition = record.definition
    found = Update(differences, code != definition.code, record)
    if found.is_nothing:
        return found
    if not found.is_new_revision:
        return Update(differences, False, replace(record, settings=dict(wanted)))
    new = replace(definition, config=dict(wanted), revision=_next_revision(record), code=code)
    return Update(differences, found.is_new_code, _revised(record, new, {}))


def refuse_fixed(differences: Iterable[Difference]) -> None:
    """Raise `BadConfiguration` naming every difference that a running job cannot accept, and what to do instead."""
    fixed = [each for each in differences if each.applies == "never"]
    if not fixed:
        return
    lines = [f"{each}: {_remedy(each.key)}" for each in fixed]
    raise BadConfiguration("a running job cannot change this; nothing was changed:\n  " + "\n  ".join(lines))


def refuse_another_run(present: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise `BadConfiguration` if a job's offsets belong to another input than the requested one."""
    for each in compare(present, wanted):
        if each.key == "task.inputs":
            raise BadConfiguration(f"{each}: {_remedy(each.key)}")


def rollback(record: JobRecord, active_revisions: Iterable[int]) -> JobRecord:
    """Return the job's record for a return to the revision before the present one.

    ``active_revisions`` are, for each task, the highest revision that an active was given. The result has the former
    code and configuration under a new number; keys that apply live stay as they are requested now, and added tasks
    stay. Raises `StandfastError` if the present revision has been active and has another `task.stores.version`: its
    state may be in a form that the former code cannot read.
    """
    definition = record.definition
    if not record.former:
        raise BadConfiguration(
            f"{definition.name} has no earlier revision to return to; it was submitted as revision "
            f"{definition.revision}, which runs now"
        )
    old = record.former[0]
    new_config, old_config = parse(definition.config), parse(old.config)
    has_committed = any(each >= definition.revision for each in active_revisions)
    if has_committed and new_config.stores_version != old_config.stores_version:
        now, before = (each.stores_version or "not set" for each in (new_config, old_config))
        kept = f"task.stores.version: {now}" if new_config.stores_version else "no task.stores.version"
        raise StandfastError(
            f"revision {definition.revision} of {definition.name} has been active, and may have written state that "
            f"revision {old.revision} cannot read: task.stores.version is {now} now and was {before}. Use "
            f"`standfast update` with code that can read it and with {kept}"
        )
    settings = _with_live_keys(old.config, requested_settings(record))
    parse(settings)
    returned = replace(old, revision=_next_revision(record), tasks=definition.tasks, topics=definition.topics)
    return _revised(record, returned, {} if settings == dict(old.config) else settings)


def grown(record: JobRecord, tasks: int) -> JobRecord:
    """Return the job's record with as many tasks as its input has partitions, but never fewer than before."""

    def more(definition: JobDefinition) -> JobDefinition:
        return replace(definition, tasks=max(definition.tasks, tasks))

    return replace(record, definition=more(record.definition), former=tuple(map(more, record.former)))


def codes(record: JobRecord) -> frozenset[str]:
    """Return the digests of the bundles that a job's kept revisions name."""
    return frozenset(each.code for each in (record.definition, *record.former) if each.code)


def _next_revision(record: JobRecord) -> int:
    return max(each.revision for each in (record.definition, *record.former)) + 1


def _revised(record: JobRecord, definition: JobDefinition, settings: Mapping[str, str]) -> JobRecord:
    # It is led until the new one is active, and live keys may have changed since it was made.
    present = replace(record.definition, config=dict(requested_settings(record)))
    former = (present, *record.former)
    # Any number of revisions may wait for their code to be distributed: until then the newest active one runs.
    leads = next((each for each in former if is_active(record, each)), None)
    kept = tuple(each for number, each in enumerate(former) if number < KEPT or each is leads)
    return replace(record, definition=definition, former=kept, settings=dict(settings))


def _with_live_keys(config: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return ``config`` with the keys that apply live as in ``asked``."""
    live = {key.name for key, _ in keys() if key.applies == "live"}
    kept = {name: value for name, value in config.items() if name not in live}
    return {**kept, **{name: value for name, value in asked.items() if name in live}}


def _remedy(key: str) -> str:
    if key in ("job.name", "cluster.name"):
        return "that is another job; submit it"
    if key in OF_THE_RUN:
        return "state and offsets depend on it; `standfast delete` the job and submit it again"
    return "`standfast submit --update` stops the job and starts it with the change; its state is kept"
