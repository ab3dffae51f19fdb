"""How the actives of a job are spread over hosts, and which hand-over spreads them more evenly. Pure.

*Even* is the least sum of squares of actives per place that the existing copies permit, since an active can only change
places with its own standbys. A place is a host; in a mixed job it is a container, since the containers share the job's
work. This is the semi-matching of Harvey, Ladner, Lovász and Tamir (2003): a spread is even if and only if there is no
*path* from a place to one with at least two actives less. Each step of a path leads from the place of an active to the
place of one of its standbys.

Each hand-over lowers the pair (sum of squares, length of the shortest path) in lexicographic order, so the actives
never oscillate. If the shortest path has one step, that step lowers the sum. Otherwise the last step of the path is
made: the sum stays the same, and the rest of the path is a shorter path (rule `calm-moves`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from appmaster.planning.state.job import Job
from appmaster.planning.state.model import Processor
from appmaster.planning.state.view import ClusterView, Container, Presence
from standby.shared.model import ProcessorId, TaskRecord


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a processor is active, and which other places it could be active in."""

    processor: ProcessorId
    place: str
    options: Mapping[str, int] = field(default_factory=dict)
    """Place → the copy in sync there."""


@dataclass(frozen=True, slots=True)
class Step:
    """A hand-over that makes the spread more even, or is the last step of a path that does."""

    processor: ProcessorId
    copy: int
    source: str
    target: str


# ---- from the view ----


def stands_of(view: ClusterView, job: Job, *, is_asked: bool = False) -> list[Stand]:
    """Return where the processors of a job are active.

    A processor has no options if its tasks are placed differently, if it is changing, or if an operator chose its
    active (`standfast handover`), unless ``is_asked``.
    """
    found: list[Stand] = []
    for processor, model in job.model.processors.items():
        if not model.parked:
            found += _stands(view, job, processor, model, is_asked=is_asked)
    return found


def _stands(
    view: ClusterView, job: Job, processor: ProcessorId, model: Processor, *, is_asked: bool
) -> Iterator[Stand]:
    # All records of a settled processor agree.
    tasks = model.tasks if processor in view.unsettled else model.tasks[:1]
    records = [view.records[each].record for each in tasks if each in view.records]
    places = {_place(view, job, each): each for each in records}
    is_still = (
        len(places) > 1
        or processor in view.handovers
        or any(each in view.writing for each in tasks)
        or any(each.moving or each.displaced is not None for each in records)
        or (not is_asked and any(each.is_chosen for each in records))
    )
    for place, record in places.items():
        if place:
            yield Stand(processor, place, {} if is_still else _options(view, job, model, record, records))


def _place(view: ClusterView, job: Job, record: TaskRecord) -> str:
    """Return the place of a task's active; empty if it has none."""
    holder = view.holder(record.placed.get(record.active)) if record.active is not None else None
    return place_of(job, holder) if holder is not None else ""


def place_of(job: Job, container: Container) -> str:
    """Return the place of a container: in a mixed job the container itself, else its host."""
    return container.id if job.model.is_mixed else container.host


def _options(
    view: ClusterView, job: Job, model: Processor, record: TaskRecord, records: Sequence[TaskRecord]
) -> dict[str, int]:
    found = {}
    for copy in model.copies:
        holder = view.holder(record.placed.get(copy))
        if (
            copy != record.active
            and holder is not None
            and holder.presence is Presence.LIVE
            and not view.must_leave(holder)
            and all(copy in each.in_sync and each.placed.get(copy) == holder.id for each in records)
        ):
            found[place_of(job, holder)] = copy
    return found


def active_processors(view: ClusterView, job: Job) -> Counter[str]:
    """Return host → the number of processors of a job that are active there; 0 for a host with only standbys."""
    found: Counter[str] = Counter()
    for processor, model in job.model.processors.items():
        hosts = set()
        for task in model.tasks if processor in view.unsettled else model.tasks[:1]:
            recorded = view.records.get(task)
            for copy, container in recorded.record.placed.items() if recorded is not None else ():
                holder = view.holder(container)
                if recorded is not None and holder is not None and holder.host:
                    found[holder.host] += 0
                    if copy == recorded.record.active:
                        hosts.add(holder.host)
        found.update(hosts)
    return found


# ---- the next hand-over ----


def next_steps(stands: Collection[Stand], crowd: Mapping[str, int] = {}) -> list[Step]:
    """Return the possible next hand-overs towards an even spread, the best first; none if the spread is even.

    ``crowd`` is the number of other jobs' actives per place. It decides only between steps that are otherwise equal:
    the best one leaves the place with the most of them for the place with the fewest.
    """
    counts = Counter(each.place for each in stands)
    counts.update(dict.fromkeys((place for each in stands for place in each.options), 0))
    between: dict[tuple[str, str], list[Step]] = {}
    for stand in stands:
        for place, copy in stand.options.items():
            step = Step(stand.processor, copy, stand.place, place)
            between.setdefault((stand.place, place), []).append(step)
    pairs = [each for each in between if counts[each[0]] - counts[each[1]] >= 2] or _last_of_paths(
        counts, between
    )
    pairs.sort(
        key=lambda pair: (
            counts[pair[1]] - counts[pair[0]],
            crowd.get(pair[1], 0) - crowd.get(pair[0], 0),
            pair,
        )
    )
    return [step for pair in pairs for step in sorted(between[pair], key=lambda each: each.processor)]


def _last_of_paths(counts: Mapping[str, int], between: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the last steps of the shortest paths from a place to one with two actives less, if no single step is one.

    Every place between the two has one active less than the first place; otherwise part of the path would be a shorter
    path.
    """
    after: dict[str, list[str]] = {}
    for source, target in sorted(between):
        after.setdefault(source, []).append(target)
    best: list[tuple[str, str]] = []
    shortest = len(counts)
    for most in sorted(set(counts.values()), reverse=True):
        reached = [place for place, count in counts.items() if count == most and place in after]
        seen = set(reached)
        for length in range(1, shortest + 1):
            last = [
                (source, target)
                for source in reached
                for target in after.get(source, ())
                if counts[target] == most - 2
            ]
            if last:
                best = last if length < shortest or not best else best + last
                shortest = length
                break
            reached = list(
                dict.fromkeys(
                    target
                    for source in reached
                    for target in after.get(source, ())
                    if counts[target] == most - 1 and target not in seen
                )
            )
            seen.update(reached)
            if not reached:
                break  # no further place can be reached
    return best
