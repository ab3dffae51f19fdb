"""Messages of containers of an earlier release."""

from __future__ import annotations

import json
from dataclasses import replace

from standby.shared import wire
from standby.shared.model import Fault, Phase, ReplicaId, ReplicaStatus, Role, TaskId

FAILED = ReplicaStatus(ReplicaId(TaskId("j", "main", 0), 1), Role.ACTIVE, Phase.FAILED, 3)


def of_earlier_release(status: ReplicaStatus) -> ReplicaStatus:
    """Return what a leader hears when a container that knows no `ReplicaStatus.fault` reports ``status``."""
    body = json.loads(wire.encode(wire.Report(1, (status,))))
    del body["replicas"][0]["fault"]
    heard = wire.decode_up(json.dumps(body).encode())
    assert isinstance(heard, wire.Report)
    return heard.replicas[0]


def test_fault_of_a_replica_is_in_the_detail_of_an_earlier_release() -> None:
    for detail, fault in {
        "poison: input in[0], offsets [10, 11): ValueError": Fault.POISON,
        "poison-limit: 2 records were given up within an hour": Fault.POISON_LIMIT,
        "topic made again: input in was deleted and created again": Fault.CHANGED_TOPIC,
        "poisonous: it only sounds like that": Fault.OTHER,
        "step raised ValueError": Fault.OTHER,
    }.items():
        assert of_earlier_release(replace(FAILED, detail=detail)).fault is fault, detail
    running = replace(FAILED, phase=Phase.RESTORING, detail="poison: as it was")
    assert of_earlier_release(running).fault is Fault.OTHER, "it has not failed"


def test_fault_that_is_told_counts() -> None:
    status = replace(FAILED, detail="poison: of the limit", fault=Fault.POISON_LIMIT)
    assert wire.decode_up(wire.encode(wire.Report(1, (status,)))) == wire.Report(1, (status,))
