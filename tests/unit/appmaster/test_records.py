"""What the masters keep in ZooKeeper is read by masters of the release before and after."""

from __future__ import annotations

import json

import pytest

from appmaster.planning.state.model import JobModel, JobSpec, propose
from appmaster.planning.state.reasons import FailureReason, Reason
from appmaster.records import ModelRecord, StatusRecord, decode, encode, failure_of, model_of, model_record
from standby.shared.model import ProcessorId

PROCESSOR = ProcessorId("j", "main", 0)
POISON = Reason(FailureReason.POISON, "poison: j/main.0 failed 3 times")


def parked() -> JobModel:
    return propose("j", JobSpec("main", 2, 1, 1)).parking(PROCESSOR, POISON)


def test_why_a_processor_is_parked_comes_back_as_it_was_written() -> None:
    data = encode(model_record(parked(), "main"))
    model = model_of(decode(data, "/model", ModelRecord), 3)
    assert model.processors[PROCESSOR].parked == POISON
    assert json.loads(data)["processors"][0]["parked"] == POISON.detail, "as masters before it read it"


def test_a_processor_that_a_former_master_parked_stays_so() -> None:
    body = json.loads(encode(model_record(parked(), "main")))
    del body["processors"][0]["parked_for"]
    model = model_of(decode(json.dumps(body).encode(), "/model", ModelRecord), 3)
    assert model.processors[PROCESSOR].parked == Reason(FailureReason.OTHER, POISON.detail)


def test_status_of_a_former_master_is_read() -> None:
    body = json.loads(encode(StatusRecord("failed", ("too often",), failure=FailureReason.TOO_OFTEN.value)))
    assert body.pop("failure") == "too-often"
    found = decode(json.dumps(body).encode(), "/status", StatusRecord)
    assert failure_of(found.failure, found.reasons[0]) == Reason(FailureReason.OTHER, "too often")


@pytest.mark.parametrize(
    ("kind", "failure"), [("topic", FailureReason.TOPIC), ("of-next-year", FailureReason.OTHER)]
)
def test_failure_of_a_later_master_is_one_without_a_name(kind: str, failure: FailureReason) -> None:
    assert failure_of(kind, "why") == Reason(failure, "why")
