"""Keeps a candidate running inside its Skein application: ``python -m appmaster.supervisor``.

The application must not end with the candidate's process, because YARN would then end all its containers, which do not
need a candidate of their own cell: the leader asks their cell's Skein AM. So a candidate that crashes is started again
for ever, sooner after a long life than after a short one. Its record in ZooKeeper contains the number of its life and
how the last one ended. A deposed candidate comes back as a follower at once. Once the application's master, which
started the supervisor, is gone, no further life begins: YARN ends what is left of its container, though not always, and
the next attempt has its own candidate.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import Final

from standby.errors import BadConfiguration, Unavailable
from standby.process.lives import GOOD_LIFE_SECONDS, NOT_STARTED, backoff_seconds
from standby.shared.clock import REAL, Clock
from standby.threads.latch import Latch

_log = logging.getLogger("appmaster.supervisor")

#: Exit statuses of a candidate that the supervisor knows; all others are crashes.
FINISHED: Final = 0
RESIGNED: Final = 75
SUPERSEDED: Final = 76
MADE_WAY: Final = 77

#: The gRPC library reads this when it is loaded; otherwise it prints a line for each failed handshake of a stranger.
_QUIET: Final = {"GRPC_VERBOSITY": "ERROR"}

#: Variables with which a candidate learns the number of its life, and how the former one ended.
LIFE: Final = "STANDFAST_CANDIDATE_LIFE"
ENDED: Final = "STANDFAST_CANDIDATE_ENDED"

#: Variable with the id of the process with which the candidate has to end; not set where YARN ends it.
ENDS_WITH: Final = "STANDFAST_CANDIDATE_ENDS_WITH"


class Lives:
    """Decides whether a candidate is started again, and after how long, by how its lives ended."""

    def __init__(self) -> None:
        self.life = 1
        #: How the last life ended, for the next one.
        self.ended = ""
        self._short_lives = 0

    def wait_after(self, status: int, lived: float) -> float | None:
        """Return the seconds until the next life, or None if the attempt ends with this one."""
        if status in (FINISHED, SUPERSEDED, MADE_WAY):
            return None
        if status == BadConfiguration.exit_status and self.life == 1 and lived <= GOOD_LIFE_SECONDS:
            # Another try in the same place could not help, and nothing runs yet that would be lost. The same error in a
            # candidate that has followed for days is another matter.
            return None
        # An unavailable server does not count as a crash: it is asked again soon.
        is_crash = status not in (Unavailable.exit_status, RESIGNED)
        self._short_lives = 0 if lived > GOOD_LIFE_SECONDS else self._short_lives + is_crash
        wait = 0.0 if status == RESIGNED else backoff_seconds(self._short_lives)
        self.ended = f"{f'signal {-status}' if status < 0 else f'status {status}'} after {lived:.1f} s"
        _log.error(
            "life %d of the candidate ended with %s; starting it again in %.1f s", self.life, self.ended, wait
        )
        self.life += 1
        return wait


def supervise(command: list[str], clock: Clock = REAL, *, is_own_master: bool = False) -> int:
    """Run ``command`` repeatedly until it finishes; return the exit status for YARN.

    With ``is_own_master``, no other process ends what is left: the candidate ends with this process, and this process
    does not depend on the one that started it.
    """
    ending = Latch()
    child: subprocess.Popen[bytes] | None = None
    early: int | None = None

    def end(signum: int, frame: FrameType | None) -> None:
        nonlocal early
        ending.set()
        if child is not None:
            child.send_signal(signum)
        else:
            early = signum

    for each in (signal.SIGTERM, signal.SIGINT):
        # Ctrl-C reaches this process and the candidate alike.
        signal.signal(each, end)
    lives = Lives()
    master = os.getppid()
    status = RESIGNED
    while not ending.is_set():
        born = clock.monotonic()
        try:
            variables = {LIFE: str(lives.life), ENDED: lives.ended}
            if is_own_master:
                variables[ENDS_WITH] = str(os.getpid())
            child = subprocess.Popen(command, env={**_QUIET, **os.environ, **variables})
            if early is not None:
                # The signal came before the candidate was known here.
                child.send_signal(early)
            status = child.wait()
            child = None
        except OSError as error:
            if lives.life == 1:
                raise  # nothing runs yet that would be lost
            # The host is out of memory or processes, as may be when it has just ended the candidate for that reason.
            _log.error("the candidate could not be started: %s", error)
            status = NOT_STARTED
        if ending.is_set():
            return status
        wait = lives.wait_after(status, clock.monotonic() - born)
        if wait is None:
            return status
        ending.wait(clock.pace(wait))
        if os.getppid() != master and not is_own_master:
            _log.error("the application's master is gone: its candidate is not started again")
            return status
    return status


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout
    )
    sys.exit(supervise([sys.executable, "-m", "appmaster"]))
