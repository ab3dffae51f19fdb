"""The servers of a run: those that the job names, and embedded ones for those that it does not name."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from appmaster.adapters.credentials.keyring import VARIABLE
from appmaster.cli.run.view import RunView
from appmaster.cli.shared.jobfile import JobFile, load
from embedded.cluster import LocalCluster
from embedded.java import find_java
from embedded.registry import end_own
from standby.errors import BadConfiguration, StandfastError, Unavailable

#: The variables that name servers, and how people call these.
_SERVERS: Final = {"STANDFAST_KAFKA": "Kafka", "STANDFAST_ZOOKEEPER": "ZooKeeper"}

#: In place of an address that is not known yet; no host can have this name.
_NOT_NAMED: Final = "embedded.invalid:1"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run has its servers and its files."""

    variables: Mapping[str, str]
    """Of the servers that it has started, and its credentials."""
    directory: Path
    """For its files. It is removed with the run, unless it is kept."""
    mark: Mapping[str, str] = field(default_factory=dict)
    """By these variables a process belongs to the embedded servers, and ends with them."""
    is_kept: bool = False
    logs: tuple[Path, ...] = field(default=())
    """Directories with the logs of its processes."""
    is_foreign: bool = True
    """Whether what it leaves on one of its servers, of which the other may be embedded, would stay there."""


def read_job(path: Path, settings: Sequence[str], cluster: str | None) -> tuple[JobFile, frozenset[str]]:
    """Return the job, and the variables of the servers that neither it nor the environment names.

    Raises `BadConfiguration` as `load`.
    """
    environment = {**dict.fromkeys(_SERVERS, _NOT_NAMED), **{k: v for k, v in os.environ.items() if v}}
    job = load(path, settings, environment, cluster)
    return job, frozenset(name for name, value in _addresses(job).items() if value == _NOT_NAMED)


def _addresses(job: JobFile) -> dict[str, str]:
    return {"STANDFAST_KAFKA": job.config.kafka_bootstrap, "STANDFAST_ZOOKEEPER": job.config.zookeeper}


def require_java() -> None:
    """Raise `Unavailable` with the remedy if there is no Java for embedded servers and Spark."""
    find_java(os.environ)


@contextmanager
def place_of(
    job: JobFile, missing: frozenset[str], name: str, keep: Path | None, view: RunView
) -> Iterator[RunPlace]:
    """Start the servers that are missing, yield the place of a run, and remove what is not kept.

    After a `StandfastError` a copy of the logs stays, and ``view`` shows where. Raises `BadConfiguration` and
    `Unavailable`, for example if Java is missing or an embedded cluster of that name is up.
    """
    if missing and keep is not None:
        servers = " and ".join(_SERVERS[each] for each in sorted(missing))
        raise BadConfiguration(
            f"--keep: {servers} would be an embedded server, which ends with this command; keep servers running with "
            '`standfast local up --nodes 0`, then `eval "$(standfast local env)"`, and give the command again'
        )
    if missing:
        opened = _embedded(missing, name, view)
    elif keep is not None:
        opened = _kept(keep)
    else:
        opened = _temporary()
    with opened as place:
        given = _addresses(job)
        for variable, what in _SERVERS.items():
            address, origin = given[variable], ""
            if variable in missing:
                address, origin = place.variables[variable], " (embedded)"
            elif address == os.environ.get(variable, "").strip():
                # The terminal may have it from an embedded cluster that is gone.
                origin = f" (from ${variable})"
            view.say(f"{what}: {address}{origin}")
        try:
            yield place
        except StandfastError:
            view.say(f"logs: {place.directory / 'log' if place.is_kept else _saved(place)}")
            raise


@contextmanager
def _embedded(missing: frozenset[str], name: str, view: RunView) -> Iterator[RunPlace]:
    view.say(f"starting {' and '.join(_SERVERS[each] for each in sorted(missing))}")
    try:
        cluster = LocalCluster.start(
            name,
            nodes=0,
            brokers=int("STANDFAST_KAFKA" in missing),
            has_zookeeper="STANDFAST_ZOOKEEPER" in missing,
            is_temporary=True,
            show=view.progress,
        )
        variables = {
            each: value
            for each, value in cluster.additional_environment().items()
            if each in missing or each == VARIABLE
        }
        directory = cluster.directory / "run"
        yield RunPlace(
            variables,
            directory,
            cluster.mark,
            logs=(directory / "log", cluster.directory / "log"),
            is_foreign=missing != _SERVERS.keys(),
        )
    finally:
        # Whatever of it was started: an interrupt may come between its start and this block.
        end_own(name)


@contextmanager
def _kept(directory: Path) -> Iterator[RunPlace]:
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"--keep {directory}: {error.strerror}") from error
    yield RunPlace({VARIABLE: str(directory / "credentials")}, directory, is_kept=True)


@contextmanager
def _temporary() -> Iterator[RunPlace]:
    directory = Path(tempfile.mkdtemp(prefix="standfast-run-"))
    try:
        yield RunPlace({VARIABLE: str(directory / "credentials")}, directory, logs=(directory / "log",))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _saved(place: RunPlace) -> Path:
    """Return a new directory with a copy of the logs, which would be removed."""
    saved = Path(tempfile.mkdtemp(prefix="standfast-logs-"))
    for each in place.logs:
        with suppress(OSError, shutil.Error):
            shutil.copytree(each, saved, dirs_exist_ok=True)
    return saved
