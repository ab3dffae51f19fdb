"""When a child process counts as dead."""

from __future__ import annotations

import subprocess
from unittest.mock import Mock

import psutil
import pytest

from standby.kernel.children import Children, EndedChild
from tests.floods import descriptors


def test_a_child_is_dead_when_it_is_gone_and_not_when_it_cannot_be_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        pids, before, later = (child.pid,), Children(), Children()
        assert before.dead(pids) is None
        with descriptors(0):
            seen = [each.dead(pids) for each in (before, later)]
        assert seen == [None, None]
        child.kill()
        # Its status is collected by somebody else between two looks at it.
        monkeypatch.setattr(psutil.Process, "status", Mock(side_effect=psutil.NoSuchProcess(child.pid)))
        assert [each.dead(pids) for each in (before, later)] == [EndedChild(child.pid, None)] * 2
