"""What the event log has about a job's containers that YARN no longer lists: their hosts, and tracebacks.

A NodeManager serves the logs of a container of an ended application for as long as it keeps them
(``yarn.nodemanager.log.retain-seconds``, or wherever they are aggregated to), but only if asked for it by its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from appmaster.adapters.node_logs import Log
from appmaster.leadership.yarn_ids import application_of

#: An application that runs for months has had many containers: only the last ones are asked for.
_MOST_CONTAINERS: Final = 20

#: Number of the last different tracebacks that are shown.
_MOST_TRACEBACKS: Final = 5


@dataclass
class JobHistory:
    """Containers and tracebacks of a job, from the entries of the event log, oldest first."""

    hosts: dict[str, str] = field(default_factory=dict)
    """Container → the host where it ran; including masters."""
    tracebacks: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Traceback → the last entry that has it."""

    def applications(self, most: int) -> list[str]:
        """Return the last applications that containers belonged to, at most ``most``."""
        found = dict.fromkeys(application_of(each) for each in reversed(self.hosts))
        return list(reversed(list(found)[:most]))

    def of(self, applications: Iterable[str], container: str | None) -> JobHistory:
        """Return what is known about containers of ``applications``; only of ``container``, unless that is None."""
        wanted = set(applications)

        def is_meant(each: str) -> bool:
            return container in (None, each) and application_of(each) in wanted

        return JobHistory(
            {each: host for each, host in self.hosts.items() if is_meant(each)},
            {text: each for text, each in self.tracebacks.items() if is_meant(each["container"])},
        )

    def missing(self, found: Iterable[Log]) -> dict[str, str]:
        """Return the last containers of which no log was found, with their hosts."""
        known = {each.container for each in found}
        missing = [each for each in self.hosts.items() if each[0] not in known]
        return dict(missing[-_MOST_CONTAINERS:])

    def logs(self, found: Iterable[Log]) -> list[Log]:
        """Return the last tracebacks of containers whose own logs were not found."""
        known = {each.container for each in found}
        logs = [
            Log(each["container"], each["host"], f"traceback kept by the event log ({each['kind']})", text)
            for text, each in self.tracebacks.items()
            if each["container"] not in known
        ]
        return logs[-_MOST_TRACEBACKS:]


def read_history(entries: Iterable[Mapping[str, Any]], job: str) -> JobHistory:
    """Return what a cluster's event log has about a job's containers, and about masters."""
    found = JobHistory()
    for each in entries:
        container, host = each["container"], each["host"]
        if not container or not host or each["job"] not in (None, job):
            continue
        found.hosts.setdefault(container, host)
        traceback = (each["data"] or {}).get("traceback")
        if traceback:
            # The newest comes last.
            found.tracebacks.pop(traceback, None)
            found.tracebacks[traceback] = each
    return found
