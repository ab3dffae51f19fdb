"""Keeps a candidate running inside its Skein application: ``python -m appmaster.supervisor``.

The application must not end with the candidate's process, for YARN would take all its containers with
it (design 2). A candidate that crashes is started again, sooner after a long life than after a short
one; a candidate that was deposed comes back as a follower at once.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Final

from standby.errors import BadConfiguration, Unavailable

_log = logging.getLogger("appmaster.supervisor")

#: Exit statuses of a candidate that the supervisor knows (others are crashes).
FINISHED: Final = 0
RESIGNED: Final = 75

#: A life longer than this was a good one: the back-off starts anew, seconds.
_GOOD_LIFE: Final = 30.0
_FIRST_BACKOFF: Final = 0.2
_LONGEST_BACKOFF: Final = 10.0

#: So many short lives in a row end the attempt: YARN's next one may get another host.
_MOST_SHORT_LIVES: Final = 12


def supervise(command: list[str]) -> int:
    """Run ``command`` again and again until it finishes; return the exit status for YARN."""
    ending = threading.Event()
    child: subprocess.Popen[bytes] | None = None

    def end(signum: int, frame: FrameType | None) -> None:
        ending.set()
        if child is not None:
            child.send_signal(signum)

    signal.signal(signal.SIGTERM, end)
    short_lives = 0
    while not ending.is_set():
        born = time.monotonic()
        child = subprocess.Popen(command)
        status = child.wait()
        lived = time.monotonic() - born
        if status == FINISHED:
            return FINISHED
        if status == BadConfiguration.exit_status:
            # Nothing that another try in the same place could mend.
            return status
        if ending.is_set():
            return status
        # A server that is away is nobody's crash loop: another attempt of YARN's would find it no better,
        # and would cost all containers, which go on working meanwhile.
        is_crash = status != Unavailable.exit_status
        short_lives = 0 if lived > _GOOD_LIFE else short_lives + is_crash
        if short_lives > _MOST_SHORT_LIVES:
            _log.critical("the candidate ended %d times in a row within %g s", short_lives, _GOOD_LIFE)
            return status if status > 0 else 1
        backoff = min(_FIRST_BACKOFF * 2**short_lives, _LONGEST_BACKOFF)
        wait = 0.0 if status == RESIGNED else backoff
        _log.error("the candidate ended with %d after %.1f s; again in %.1f s", status, lived, wait)
        ending.wait(wait)
    return FINISHED


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout
    )
    sys.exit(supervise([sys.executable, "-m", "appmaster"]))
