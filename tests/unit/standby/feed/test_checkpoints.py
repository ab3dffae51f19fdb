from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from standby.feed import checkpoints


def test_only_the_checkpoints_of_dead_processes_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_IN_MEMORY", tmp_path)
    own = checkpoints.new_checkpoint()
    assert own.parent == tmp_path
    own.mkdir()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = tmp_path / own.name.replace(own.name.split("-")[2], str(child.pid))
    left.mkdir()
    (left / "offsets").write_text("0", encoding="ascii")
    (tmp_path / "somebody-elses").mkdir()
    checkpoints.sweep_checkpoints()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([own.name, "somebody-elses"])


def test_without_a_place_in_memory_it_is_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_IN_MEMORY", tmp_path / "absent")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert checkpoints.new_checkpoint().parent == tmp_path
