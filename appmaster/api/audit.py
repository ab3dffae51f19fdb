"""The audit of changes: entries of the event log that name the caller by its certificate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from appmaster.eventlog.entries import AuditData, EntryKind, LogEntry, entry_document
from standby.shared.clock import Clock
from standby.shared.roles import Caller, PeerRole

_log: Final = logging.getLogger("appmaster.audit")

#: Minimum between two entries about refusals of one role, seconds: a caller that is refused could keep asking.
_REFUSED_SECONDS: Final = 10.0


class Auditor:
    """Appends an entry for each call that asks for a change, and for some calls that were refused for their role.

    ``append`` takes an entry (docs/events.md), ``epoch`` returns that of this candidate's leadership. Any thread may
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
        """Log that ``caller`` asked for ``operation``, and the answer ``said``; ``about`` must contain no secret."""
        before = None
        if caller.role is PeerRole.CONTAINER:
            before = self._refused_before(caller.role)
            if before is None:
                return
        details = AuditData(
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
        self._append(entry_document(entry, self._clock.now_ms(), self._epoch()))

    def _refused_before(self, role: PeerRole) -> int | None:
        """Return how many refusals were skipped since the last entry; None: this one is skipped, too."""
        with self._lock:
            at, count = self._refused.get(role, (-_REFUSED_SECONDS, 0))
            now = self._clock.monotonic()
            if now - at < _REFUSED_SECONDS:
                self._refused[role] = (at, count + 1)
                return None
            self._refused[role] = (now, 0)
            return count
