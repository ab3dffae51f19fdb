"""Probes one of the cluster's hosts before anything of the job runs: a short application with one small container.

YARN decides which host it is; the other hosts are checked by the containers that start on them.
"""

from __future__ import annotations

import enum
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final

import msgspec

from appmaster.cli.launch import application, on_host
from appmaster.cli.launch.starting import TargetCluster
from appmaster.cli.shared import ended_applications, yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.waiting import PollResult, until
from standby.config import JobConfig
from standby.errors import BadConfiguration, Unavailable

#: How long the host may take to answer: longer than a container takes to start, even if the cluster is full.
_PROBE_SECONDS: Final = 30.0

#: Modules whose import covers everything that a container and a master need.
_MODULES: Final = (
    "appmaster.__main__",
    "standby.process.container",
    "standby.adapters.rocksdict",
    "standby.kernel.replicas",
)


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of a probe, as `appmaster.cli.launch.on_host` reports it."""

    host: str
    python: str
    standfast: str
    wrong: Sequence[str]


class ProbeTime(enum.Enum):
    """When a submit probes a host."""

    NEVER = "never"
    FIRST = "first"
    """Before anything is changed."""
    BESIDE = "beside"
    """While topics, records and applications are created, all of which can be undone."""


def probe_time(is_wanted: bool | None, cluster: TargetCluster, *, is_check: bool) -> ProbeTime:
    """Return when a submit into ``cluster`` probes a host.

    ``is_wanted``: whether `--probe` or `--no-probe` was given; ``is_check``: whether nothing is submitted.
    """
    is_new = cluster.present is None
    by_default = is_check or is_new
    if cluster.has_others or not (by_default if is_wanted is None else is_wanted):
        return ProbeTime.NEVER
    # What is left of a run, and the end of applications that still run, cannot be undone.
    return ProbeTime.BESIDE if is_new and not cluster.applications and not is_check else ProbeTime.FIRST


class HostProbe:
    """A probe beside the other steps of a submit; a context manager that ends what is left of it."""

    def __init__(self, background: Executor) -> None:
        self._background = background
        self._cancelled = threading.Event()
        self._judge: Callable[[], None] = lambda: None

    def __enter__(self) -> HostProbe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._cancelled.set()

    def begin(self, config: JobConfig, client: Any, deadline: Deadline, progress: Progress) -> None:
        """Begin it. It is submitted when this returns: a queue that is short of room serves it first."""
        progress.say("checking a host")
        mine = deadline.within(_PROBE_SECONDS)
        started = _submit(config, client)
        asked = self._background.submit(_await_end, started, client, mine, self._cancelled.is_set)
        self._judge = lambda: _judge(config, asked.result(), mine, progress)

    def finish(self) -> None:
        """Return if the host has what the job's containers need there, or could not be asked in time.

        At once if no probe was begun, or it was finished before. Raises `BadConfiguration` naming what is wrong there,
        `Unavailable` if YARN cannot run an application at all.
        """
        judge, self._judge = self._judge, lambda: None
        judge()


def _judge(
    config: JobConfig, end: ended_applications.EndedApplication | str, mine: Deadline, progress: Progress
) -> None:
    """Print how a probe has ended; raises as `HostProbe.finish`."""
    if isinstance(end, str):
        progress.say(
            f"the hosts could not be checked: after {mine.seconds:.3g} s {end}; continuing without (--no-probe "
            "skips this check)"
        )
        return
    python = application.interpreter(config)
    found = _found(end)
    if found is not None:
        where = f"on host {end.host or found.host}"
        if found.wrong:
            raise BadConfiguration("\n".join(f"{each} ({where})" for each in found.wrong))
        progress.say(f"{python} {where}: Python {found.python}, standfast {found.standfast}")
    elif end.state == "FINISHED":
        # The master ran, but the interpreter did not run, or not to its end.
        raise BadConfiguration(f"job.python: {python} cannot be used:\n  {end}")
    elif end.state == "FAILED":
        raise Unavailable(f"YARN cannot run an application of this job:\n  {end}")
    else:
        progress.say(
            f"the hosts could not be checked: {end.application} was ended from outside; continuing without"
        )


def _submit(config: JobConfig, client: Any) -> str:
    """Submit the probing application; return its id."""
    question = {
        "standfast": on_host.version(),
        "modules": _MODULES,
        "needs_java": config.needs_spark,
        "state_dirs": config.state_dirs,
    }
    with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
        file = Path(scratch) / "question.json"
        file.write_text(json.dumps(question), encoding="utf-8")
        return str(client.submit(application.build_probe(config, (Path(on_host.__file__), file))))


def _await_end(
    started: str, client: Any, deadline: Deadline, is_cancelled: Callable[[], bool]
) -> ended_applications.EndedApplication | str:
    """Return how the probing application has ended, or a text that says how far it has come if it has not in time.

    However this ends, the application has ended or is killed.
    """

    def look() -> PollResult[ended_applications.EndedApplication | None]:
        found = ended_applications.ended_application(client, started)
        return PollResult(found is not None or is_cancelled(), found)

    end = None
    try:
        end = until(deadline, look).what
        return end or _come_to(yarn.report(client, started), started)
    finally:
        if end is None:
            yarn.kill(client, started)


def _come_to(report: Any | None, application: str) -> str:
    if report is None:
        return f"YARN does not know {application}"
    if str(report.state) == "RUNNING":
        return f"{application} runs on {report.host} and has not answered: that host, or its disk, is slow"
    return f"YARN has no container for {application} ({yarn.in_words(report)})"


def _found(end: ended_applications.EndedApplication) -> ProbeResult | None:
    """Return the host's report; None if there is none."""
    try:
        return msgspec.json.decode(end.diagnostics, type=ProbeResult)
    except msgspec.MsgspecError:
        return None
