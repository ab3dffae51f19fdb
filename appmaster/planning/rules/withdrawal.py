"""The withdrawal of a processor's tasks, temporary or for good. Pure."""

from __future__ import annotations

from dataclasses import replace

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.state.actions import DecisionKind, WriteRecords
from appmaster.planning.state.reasons import DecisionBasis, FailureReason, Reason
from standby.shared.model import TaskRecord


def withdraw(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the record without an active: the first step of a kill (rule `writer-id`), and of parking.

    The epoch rises, so that no container can claim the task afterwards, whatever it was about to do.
    """
    if cohort.record.active is None and not cohort.record.placed:
        return None
    parked = cohort.job.model.processors[cohort.processor].parked

    def edit(record: TaskRecord) -> TaskRecord:
        for copy in record.placed:
            record = turn.remembered(cohort, record, copy)
        epoch = record.epoch + (record.active is not None)
        return replace(
            record, active=None, epoch=epoch, placed={}, moving={}, displaced=None, in_sync=(), failures=None
        )

    kind = DecisionKind.PARK if parked and cohort.job.is_led else DecisionKind.UNDEPLOY
    return turn.decide(cohort, kind, _basis(parked or cohort.job.failure), edit)


def _basis(failure: Reason[FailureReason] | None) -> Reason[DecisionBasis]:
    if failure is None:
        return Reason(DecisionBasis.UNDEPLOYED)
    return Reason(
        DecisionBasis.POISON if failure.kind is FailureReason.POISON else DecisionBasis.OTHER, str(failure)
    )
