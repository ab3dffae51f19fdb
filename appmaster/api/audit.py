"""Who asked for which change: entries of the event log that name the caller by its certificate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from appmaster.eventlog.entries import Asked, EntryKind, LogEntry, written
from standby.shared.clock import Clock
from standby.shared.roles import Caller, PeerRole

_log: Final = logging.getLogger("appmaster.audit")

#: Between two entries of what one role was refused, seconds: whoever may not could go on to ask.
_REFUSED_SECONDS: Final = 10.0


class Auditor:
    """Appends an entry for each call that asks for a change, and some of those that were refused for their role.

    ``append`` takes an entry (docs/events.md), ``epoch`` gives that of this candidate's leadership. Any thread may
    call.
    """

    def __init__(
        self,
        append: Callable[[dict[str, Any]], None],
        clock: Clock,
        epoch: Callable[[], int],
        candidate: str,
        host: str,
    ) -> None:
        self._append = append
        self._clock = clock
        self._epoch = epoch
        self._candidate = candidate
        self._host = host
        self._lock = threading.Lock()
        self._refused: dict[PeerRole, tuple[float, int]] = {}

    def __call__(self, caller: Caller, operation: str, about: Mapping[str, Any], said: str) -> None:
        """Tell that ``caller`` asked for ``operation`` and what was said to it; ``about`` holds no secret."""
        before = None
        if caller.role is PeerRole.CONTAINER:
            before = self._refused_before(caller.role)
            if before is None:
                return
        details = Asked(
            caller.name,
            caller.role.value,
            operation,
            {name: value for name, value in about.items() if name != "job"},
            said,
            self._candidate,
            before,
        )
        job = about.get("job")
        _log.info("%s asked for %s of %s: %s", caller, operation, job or "the cluster", said)
        entry = LogEntry(EntryKind.ASKED, details, job=job if isinstance(job, str) else None, host=self._host)
        self._append(written(entry, self._clock.now_ms(), self._epoch()))

    def _refused_before(self, role: PeerRole) -> int | None:
        """Return how many refusals were passed over since the last entry; None: this one is, too."""
        with self._lock:
            at, count = self._refused.get(role, (-_REFUSED_SECONDS, 0))
            now = self._clock.monotonic()
            if now - at < _REFUSED_SECONDS:
                self._refused[role] = (at, count + 1)
                return None
            self._refused[role] = (now, 0)
            return count
