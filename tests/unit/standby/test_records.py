"""What lies in ZooKeeper survives being written and read, and what does not fit is named."""

from __future__ import annotations

import json

import pytest

from standby.errors import BadConfiguration
from standby.model import TaskId, TaskRecord
from standby.records import (
    ContainerRecord,
    ControllerRecord,
    decode_container,
    decode_controller,
    decode_task,
    encode,
    encode_task,
)

CONTROLLER = ControllerRecord("c-1", "127.0.0.11", 4711, 3)
CONTAINER = ContainerRecord("container_1", "anywhere_0", 1, "h", 1, 2, 3, 1, "0.1.0", ("/logs",))
TASK = TaskRecord(TaskId("fl\u00fcge", "main", 3), 1, 9, {0: "c0", 1: "c1"}, {0: "h0"}, (0, 1), True, "d7")


def test_each_record_comes_back_as_it_was() -> None:
    assert decode_controller(encode(CONTROLLER), "p") == CONTROLLER
    assert decode_container(encode(CONTAINER), "p") == CONTAINER
    assert decode_task(encode_task(TASK), "p") == TASK


def test_every_body_has_a_version() -> None:
    for data in (encode(CONTROLLER), encode(CONTAINER), encode_task(TASK)):
        assert json.loads(data)["version"] == 1


def test_a_later_versions_fields_are_passed_over() -> None:
    body = json.loads(encode(CONTROLLER)) | {"version": 2, "mood": "good"}
    assert decode_controller(json.dumps(body).encode(), "p").epoch == 3


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"candidate": 1}', b"\xff"])
def test_what_is_no_record_is_named_with_its_path(data: bytes) -> None:
    with pytest.raises(BadConfiguration, match=r"^/standfast/x/controller: "):
        decode_controller(data, "/standfast/x/controller")
