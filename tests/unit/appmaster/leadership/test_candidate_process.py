"""What becomes of a candidate's process."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_SECONDS

_PROGRAM = """
import threading, time
from appmaster.__main__ import end_with_thread

def die():
    raise LookupError("what nobody thought of")

threading.excepthook = end_with_thread
threading.Thread(target=die, name="records").start()
time.sleep(60)
"""


def test_a_thread_that_dies_ends_the_candidate() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "records: unexpected error" in done.stderr
    assert "what nobody thought of" in done.stderr
