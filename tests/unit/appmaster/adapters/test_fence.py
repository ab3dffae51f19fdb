"""The fence of a job with many tasks."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from appmaster.adapters.kafka import fence
from standby.adapters.kafka import clients
from standby.config import parse
from standby.errors import Transient
from tests.fakes.jobs import JOB
from tests.patience import PATIENCE_SECONDS

CONFIG = parse({**JOB, "task.inputs": "input"})


class Producers:
    """Producers of which that with the id ``refused`` fails, and the others hang until they may go on."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.tried: list[str] = []
        self.goes_on = threading.Event()

    def make(self, settings: dict[str, Any], **_: object) -> Any:
        return Producer(self, settings["transactional.id"])


class Producer:
    def __init__(self, lab: Producers, own_id: str) -> None:
        self._lab = lab
        self._id = own_id

    def init_transactions(self, timeout_seconds: float) -> None:
        self._lab.tried.append(self._id)
        if self._id == self._lab.refused:
            raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        self._lab.goes_on.wait(PATIENCE_SECONDS)
        self._lab.goes_on.set()  # a fence that waits for all of them is to fail the test, not to hang

    def poll(self, timeout_seconds: float) -> int:
        return 0


def fence_all(lab: Producers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FENCE", replace(clients.FENCE, library=lab.make))
    fence(CONFIG, tuple(f"t{each}" for each in range(100)))


def test_failure_is_reported_at_once_and_no_other_task_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Producers(refused="t0")
    with pytest.raises(Transient, match="t0 could not be fenced"):
        fence_all(lab, monkeypatch)
    lab.goes_on.set()
    for each in threading.enumerate():
        if each.name.startswith("fence"):
            each.join(PATIENCE_SECONDS)
    assert len(lab.tried) <= 9, "eight at once, and one in the place of that which failed"


def test_every_task_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Producers()
    lab.goes_on.set()
    fence_all(lab, monkeypatch)
    assert set(lab.tried) == {f"t{each}" for each in range(100)}
