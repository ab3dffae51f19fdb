"""kill -9 within RocksDB's own writes and flushes: position and rows always match."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from standby.kernel.ports import Profile
from tests.fakes.store_child import KEYS, key, opened, value
from tests.kernel_lab import ROOT
from tests.patience import PATIENCE_SECONDS, STRIKE_SECONDS


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.parametrize("profile", Profile)
def test_the_position_is_that_of_the_rows_wherever_a_write_was_cut(
    tmp_path: Path, profile: Profile, kills: int
) -> None:
    """One store, killed again and again; what it had once on its disk it never loses."""
    moments, found, told = random.Random(3), [0], 0
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.store_child", str(tmp_path / "store"), profile.value],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        with process.stdout as lines:
            # Not before some batches are through; then at any moment of the work.
            for _ in range(5):
                told = int(lines.readline())
            time.sleep(moments.uniform(0, STRIKE_SECONDS))
            process.kill()
            process.wait(PATIENCE_SECONDS)
            told = max([told, *(int(line) for line in lines.read().splitlines()[:-1])])
        store = opened(tmp_path / "store", profile)
        position = store.position.offset
        assert found[-1] <= position <= told + 2
        values = set(store.get_many([key(each) for each in range(KEYS)]))
        assert values == ({value(position)} if position else {None}), f"position {position}"
        store.close()
        found.append(position)
    assert found[-1] > 0, "nothing ever came to the disk"
