"""Records that follow reports: claims, in-sync sets, failures of user code. Pure.

One write covers all tasks of a cohort, and writes of in-sync sets are rate-limited: in-sync sets only rank replicas,
the data is protected by the changelog (rule `in-sync-rank`).
"""

from __future__ import annotations

from dataclasses import replace

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.state.actions import DecisionKind, Facts, WriteRecords
from appmaster.planning.state.reasons import DecisionBasis, Reason
from standby.shared.model import InputFailures, Phase, ReplicaId, ReplicaStatus, Role, TaskRecord


def raise_epochs(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the write that raises epochs above what containers have seen, and changes nothing else.

    Offsets may have been committed under those epochs, so an active of the task needs a higher one (rule
    `epoch-check`).
    """
    ahead = turn.view.ahead

    def edit(record: TaskRecord) -> TaskRecord:
        seen = ahead.get(record.task, 0)
        return replace(record, epoch=seen + 1) if seen > record.epoch else record

    highest = max(ahead.get(task, 0) for task in cohort.tasks)
    reason = f"a container has seen epoch {highest}: the records are older than the running containers"
    return turn.decide(cohort, DecisionKind.RAISE, Reason(DecisionBasis.OTHER, reason), edit)


def follow(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the write of what has changed, if it is due; else None."""
    if cohort.record.active is None:
        return None
    records: dict[object, TaskRecord] = {}
    kind = DecisionKind.IN_SYNC
    failures: list[tuple[InputFailures, str]] = []
    for each in cohort.recorded:
        record = each.record
        status = _of_active(turn, cohort, record)
        if not record.claimed and status is not None and status.phase is Phase.ACTIVE:
            record = replace(record, claimed=True)
            kind = DecisionKind.CLAIMED
        found = _failures(turn, record, status)
        if found != record.failures:
            record = replace(record, failures=found)
            kind = DecisionKind.FAILURES if kind is DecisionKind.IN_SYNC else kind
            if found is not None:
                failures.append((found, status.traceback if status is not None else ""))
        records[record.task] = replace(record, in_sync=_in_sync(turn, cohort, record))
    interval = cohort.job.policy.in_sync_interval_ms
    last = turn.view.in_sync_ms.get(cohort.processor, -interval)
    if kind is DecisionKind.IN_SYNC and turn.view.now_ms - last < interval:
        return None
    changed = [each for each in cohort.recorded if records[each.record.task] != each.record]
    if not changed:
        return None
    reason = ", ".join(
        f"{each.record.task}: in sync {list(records[each.record.task].in_sync)}" for each in changed
    )
    if failures:
        reason = "; ".join(
            f"{each.count} times at input offset {each.offset}: {each.reason}" for each, _ in failures
        )
    facts = Facts()
    if failures:
        worst, traceback = max(failures, key=lambda each: each[0].count)
        facts = Facts(count=worst.count, offset=worst.offset, traceback=traceback or None)
    return turn.decide(
        cohort, kind, Reason(DecisionBasis.OTHER, reason), lambda record: records[record.task], facts=facts
    )


def _of_active(turn: Turn, cohort: Cohort, record: TaskRecord) -> ReplicaStatus | None:
    """Return the active's status under the present epoch, as its container reports it; None without a report."""
    assert record.active is not None
    holder = turn.holder(cohort, record.active)
    status = holder.statuses.get(ReplicaId(record.task, record.active)) if holder is not None else None
    return status if status is not None and status.epoch == record.epoch else None


def _failures(turn: Turn, record: TaskRecord, status: ReplicaStatus | None) -> InputFailures | None:
    """Return the failures at the committed offset: the reported ones, or the recorded ones until it advances."""
    known = record.failures
    if status is None:
        return known
    reported = status.failures
    if reported is not None:
        if known is None or reported.offset != known.offset or reported.count > known.count:
            return reported
        if reported.topic != known.topic:
            # The topic of the several inputs that is processed now: a crash will be attributed to it.
            return replace(known, topic=reported.topic)
        return known
    passed = (
        known is not None and status.input_committed is not None and status.input_committed > known.offset
    )
    return None if passed else known


def _in_sync(turn: Turn, cohort: Cohort, record: TaskRecord) -> tuple[int, ...]:
    """Return the copies in sync: the active, and each standby within the lag policy.

    A standby of unknown lag (the broker is unavailable) keeps its status. A standby that no container holds any more
    is removed and returns only when it has caught up under the present epoch. While the active is lost, no standby is
    removed for its lag: a transaction that the active left open hides the changelog's end until the active is fenced.
    """
    is_lost = record.active is not None and turn.holder(cohort, record.active) is None
    members = {record.active} if record.active is not None else set[int]()
    for copy in record.placed:
        holder = turn.holder(cohort, copy)
        if copy == record.displaced:
            # It is being stopped as planned: its status at the beginning of that counts.
            members.update({copy} & set(record.in_sync))
            continue
        if copy == record.active or holder is None:
            continue
        status = holder.statuses.get(ReplicaId(record.task, copy))
        if status is not None and status.epoch != record.epoch:
            status = None
        was_in = copy in record.in_sync
        if status is None or status.role is not Role.STANDBY:
            is_in = was_in
        elif status.phase is Phase.TAILING:
            lag = status.lag_ms
            is_in = was_in if lag is None else lag <= cohort.job.policy.lag_time_ms
        else:
            # Restoring: it was in sync only if it has merely reopened under this epoch, which it reports soon.
            is_in = False
        if is_in or (is_lost and was_in):
            members.add(copy)
    return tuple(sorted(members))
