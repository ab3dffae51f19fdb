"""What the event log keeps of a job's containers that YARN lists no more: where they ran, and what was raised there.

A NodeManager answers for a container of an application that has ended for as long as it keeps the logs
(``yarn.nodemanager.log.retain-seconds``, or wherever they are aggregated to), but it has to be asked for it by its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from appmaster.adapters.node_logs import Log
from appmaster.leadership.yarn_ids import application_of

#: An application that runs for months has had many containers: only its last ones are asked for.
_MOST_CONTAINERS: Final = 20

#: Of the last different tracebacks so many are shown.
_MOST_TRACEBACKS: Final = 5


@dataclass
class Kept:
    """Containers and tracebacks of a job, from the entries of the event log, oldest first."""

    hosts: dict[str, str] = field(default_factory=dict)
    """Container → the host where it ran; masters among them."""
    tracebacks: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Traceback → the last entry that has it."""

    def applications(self, most: int) -> list[str]:
        """Return the last applications that containers were of, at most so many."""
        found = dict.fromkeys(application_of(each) for each in reversed(self.hosts))
        return list(reversed(list(found)[:most]))

    def of(self, applications: Iterable[str], container: str | None) -> Kept:
        """Return what is kept of containers of ``applications``; of one ``container`` only, unless that is None."""
        wanted = set(applications)

        def is_meant(each: str) -> bool:
            return container in (None, each) and application_of(each) in wanted

        return Kept(
            {each: host for each, host in self.hosts.items() if is_meant(each)},
            {text: each for text, each in self.tracebacks.items() if is_meant(each["container"])},
        )

    def missing(self, found: Iterable[Log]) -> dict[str, str]:
        """Return the last containers of which no log was found, with their hosts."""
        known = {each.container for each in found}
        missing = [each for each in self.hosts.items() if each[0] not in known]
        return dict(missing[-_MOST_CONTAINERS:])

    def logs(self, found: Iterable[Log]) -> list[Log]:
        """Return the last tracebacks of containers whose own logs could not be found."""
        known = {each.container for each in found}
        logs = [
            Log(each["container"], each["host"], f"traceback kept by the event log ({each['kind']})", text)
            for text, each in self.tracebacks.items()
            if each["container"] not in known
        ]
        return logs[-_MOST_TRACEBACKS:]


def kept(entries: Iterable[Mapping[str, Any]], job: str) -> Kept:
    """Return what entries of a cluster's event log tell of a job's containers, and of masters."""
    found = Kept()
    for each in entries:
        container, host = each["container"], each["host"]
        if not container or not host or each["job"] not in (None, job):
            continue
        found.hosts.setdefault(container, host)
        traceback = (each["data"] or {}).get("traceback")
        if traceback:
            # The newest last.
            found.tracebacks.pop(traceback, None)
            found.tracebacks[traceback] = each
    return found
