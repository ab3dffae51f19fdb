"""What lies in ZooKeeper survives being written and read, and what does not fit is named."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from standby.errors import BadConfiguration
from standby.shared.model import TaskId, TaskRecord
from standby.shared.records import (
    ContainerRecord,
    ControllerRecord,
    decode_task,
    decoded,
    encode,
    encode_task,
)
from tests.cases import case

CONTROLLER = ControllerRecord("c-1", "127.0.0.11", 4711, 3)
CONTAINER = ContainerRecord("container_1", "anywhere_0", 1, "h", 1, 2, 3, 1, "0.1.0", ("/logs",))
TASK = TaskRecord(TaskId("fl\u00fcge", "main", 3), 1, 9, {0: "c0", 1: "c1"}, {0: "h0"}, (0, 1), True, "d7")


def test_each_record_comes_back_as_it_was() -> None:
    assert decoded(encode(CONTROLLER), "p", ControllerRecord) == CONTROLLER
    assert decoded(encode(CONTAINER), "p", ContainerRecord) == CONTAINER
    assert decode_task(encode_task(TASK), "p") == TASK


#: Threads of a new process that all decode as the first one.
_AT_ONCE = """
import sys, threading
from appmaster import records as desired
from standby.shared import records as records
sys.setswitchinterval(1e-6)
gate = threading.Barrier(8)
def decode():
    gate.wait()
    {expression}
threads = [threading.Thread(target=decode) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
"""


def test_many_threads_may_be_the_first_to_decode() -> None:
    """All tasks of a container do when it is promoted; nearly each such process was ended by SIGSEGV."""
    for expression in (
        f"records.decode_task({encode_task(TASK)!r}, 'p')",
        f"records.decoded({encode(CONTROLLER)!r}, 'p', records.ControllerRecord)",
        "desired.decode(b'{\"hosts\": {}}', 'p', desired.DrainedRecord)",
    ):
        script = _AT_ONCE.replace("{expression}", expression)
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, b""), expression


def test_every_body_has_a_version_and_a_later_ones_fields_are_passed_over() -> None:
    for data in (encode(CONTROLLER), encode(CONTAINER), encode_task(TASK)):
        assert json.loads(data)["version"] == 1
    body = json.loads(encode(CONTROLLER)) | {"version": 2, "mood": "good"}
    assert decoded(json.dumps(body).encode(), "p", ControllerRecord).epoch == 3


def test_what_is_no_record_is_named_with_its_path() -> None:
    for data in (b"", b"{}", b"[]", b'{"candidate": 1}', b"\xff"):
        with case(data), pytest.raises(BadConfiguration, match=r"^/standfast/x/controller: "):
            decoded(data, "/standfast/x/controller", ControllerRecord)
