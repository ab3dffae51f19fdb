"""A container that hardly gets to run goes on all the same: in smaller batches, and it says how far behind it is."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from standby.model import Phase, ReplicaId, Role
from tests.kernel_lab import Child, Lab
from tests.meanwhile import meanwhile
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.deaths import StartChild

#: In each of so many seconds ...
_TURN_SECONDS = 0.2
#: ... it gets so much of a processor: a twentieth, as with twenty threads for each.
_RUN_SECONDS = 0.01
_LOOK_SECONDS = 0.002

_RECORDS = 80_000


@contextlib.contextmanager
def starved(child: Child) -> Iterator[None]:
    """Take the processors away from a process, and from nobody else, for most of the time.

    What it gets is counted, not for how long it could run: on a busy machine that may be nothing.
    """

    def work(is_over: threading.Event) -> None:
        while not is_over.is_set():
            stop = time.monotonic() + _TURN_SECONDS
            enough = _processor_seconds(child.process.pid) + _RUN_SECONDS
            while _processor_seconds(child.process.pid) < enough and time.monotonic() < stop:
                is_over.wait(_LOOK_SECONDS)
            child.send(signal.SIGSTOP)
            is_over.wait(_TURN_SECONDS - _RUN_SECONDS)
            child.send(signal.SIGCONT)

    with meanwhile(work):
        yield


def _processor_seconds(pid: int) -> float:
    """Return for how long the threads of a process have run."""
    spent = 0
    for each in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # A thread may have ended.
        with contextlib.suppress(OSError):
            spent += int(each.read_text().split()[0])
    return spent / 1e9


@pytest.mark.soak
def test_output_goes_on_where_the_backlog_is_more_than_a_transaction_has_time_for(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(
        kafka_bootstrap,
        tmp_path,
        2,
        **{"job.transaction.timeout.ms": "5000", "task.batch.max.records": "40000"},
    )
    lab.name(0, 1)
    child = start_child(lab, "host-a")
    child.want(0, Role.ACTIVE, 1)
    child.await_phase(Phase.ACTIVE)
    since = {name: each.since_ms for name, each in child.statuses().items()}
    seen: dict[ReplicaId, list[int]] = {}
    behind_ms = [0]

    def is_done() -> bool:
        statuses = child.statuses()
        # No transaction has run out of time, so nobody was blamed, and nothing was claimed anew.
        assert {name: each.since_ms for name, each in statuses.items()} == since
        assert all(each.failures is None for each in statuses.values())
        for name, each in statuses.items():
            positions, position = seen.setdefault(name, [0]), each.input_committed or 0
            if position != positions[-1]:
                positions.append(position)
            behind_ms.append(each.input_lag_ms or 0)
        return sum(positions[-1] for positions in seen.values()) == _RECORDS

    with starved(child):
        lab.produce(_RECORDS)
        child.await_all(lambda _: is_done(), 2 * PATIENCE_SECONDS)
    batches = [later - before for positions in seen.values() for before, later in pairwise(positions)]
    # One that takes what there is has half of it, for some 10 s.
    assert max(batches) < _RECORDS / 4
    assert max(behind_ms) > 0
    child.await_all(lambda each: each.input_lag_ms == 0)
    lab.assert_exact()
    with capsys.disabled():
        print(
            f"\n  with a twentieth of a processor: batches of {batches} records, "
            f"up to {max(behind_ms) / 1000:.1f} s behind"
        )
