"""Applications as YARN's client shows them, each in the states that a test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from skein.exceptions import SkeinError


class Applications:
    """YARN, in which each application comes to its states one after the other, and stays in the last one."""

    def __init__(self, final_status: str = "SUCCEEDED", diagnostics: str = "", **states: str) -> None:
        self.states = {name: each.split() for name, each in states.items()}
        self.submitted: list[Any] = []
        self.killed: list[str] = []
        self._final_status, self._diagnostics = final_status, diagnostics

    def submit(self, specification: Any) -> str:
        """Submit the one application that there is."""
        self.submitted.append(specification)
        return next(iter(self.states))

    def application_report(self, application: str) -> Any:
        """Return what is known of an application at this moment."""
        if application not in self.states:
            raise SkeinError(f"no {application}")
        states = self.states[application]
        state = states.pop(0) if len(states) > 1 else states[0]
        return SimpleNamespace(
            id=application,
            name=f"standfast-c-{application[-1]}",
            state=state,
            final_status=self._final_status,
            diagnostics=self._diagnostics,
            host="N/A" if state == "ACCEPTED" else "h1",
            tracking_url="",
            start_time=None,
            finish_time=None,
        )

    def get_applications(self, states: tuple[str, ...]) -> list[Any]:
        """Return the applications that are in one of these states."""
        found = map(self.application_report, self.states)
        return [each for each in found if each.state in states]

    def kill_application(self, application: str) -> None:
        """End an application."""
        self.killed.append(application)
        self.states[application] = ["KILLED"]
