"""The applications of a cluster's cells: claimed in ZooKeeper, then submitted, with masters on different hosts."""

from __future__ import annotations

import os
import random
import socket
import tempfile
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from appmaster.adapters.credentials.keyring import require, user_name
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.changes.compatibility import cluster_settings
from appmaster.cli.launch import application
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.jobfile import environment_digest
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import Undo
from appmaster.records import CellRecord
from standby.code.bundles import Bundle
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError

#: How often a cell's master that started on another master's host is replaced. A try takes some two seconds.
_TRIES: Final = 8

#: On how many hosts a master is wished at most: they are in a variable of its environment.
_MOST_WISHED: Final = 32

#: The hosts that get their own service, and the rack of every host.
Topology = tuple[Sequence[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Launching:
    """How applications are submitted: the deadline, the progress output, and how it is undone."""

    deadline: Deadline
    progress: Progress
    undo: Undo
    last_check: Callable[[], None] = lambda: None
    """Called before the first of the submitted applications may do anything; raises `StandfastError` if none may."""


class Claims:
    """Cells that this process has claimed, and their applications submitted so far."""

    def __init__(self, zookeeper: ZooKeeper, config: JobConfig) -> None:
        """Claim nothing yet; the records will contain the settings of ``config`` that apply to the whole cluster."""
        self._zookeeper = zookeeper
        self._cluster = config.cluster
        self._claim = CellRecord(
            "",
            user_name(),
            settings=cluster_settings(config),
            claim=uuid.uuid4().hex,
            environment=environment_digest(config.python_archive),
        )
        self._former: dict[int, CellRecord | None] = {}
        self.started: dict[int, str] = {}

    @property
    def numbers(self) -> tuple[int, ...]:
        """The claimed cells."""
        return tuple(self._former)

    @property
    def is_closed(self) -> bool:
        """Whether the cluster's tree is closed to others."""
        return self._zookeeper.tree.is_closed

    def others(self) -> list[str]:
        """Return the applications of the cells that are not claimed."""
        cells = self._zookeeper.cells.read_all().items()
        return [each.application for number, each in cells if number not in self._former]

    def begin(self, undo: Undo) -> None:
        """Keep other commands from submitting cells of the cluster until `end`, or until this process ends.

        A claim that is found afterwards was abandoned. Raises `BadConfiguration` if another command does the same.
        """
        undo.on_failure("the claim to the cluster's cells", self.end)
        self._keep_others_out()

    def _keep_others_out(self) -> None:
        me = f"{user_name()} on {socket.gethostname()}, process {os.getpid()}"
        if holder := self._zookeeper.cells.begin_submit(me):
            raise BadConfiguration(
                f"another command is submitting cluster {self._cluster} at this moment ({holder}); "
                "try again once it has ended"
            )

    def end(self) -> None:
        """Let other commands submit cells of the cluster that do not run."""
        # The end of the session does the same, and nothing that follows depends on it.
        with suppress(StandfastError):
            self._zookeeper.cells.end_submit()

    def take(self, numbers: Iterable[int], client: Any, undo: Undo) -> None:
        """Claim cells for this process after `begin`; ``undo`` restores the records that are still this claim's.

        Raises `BadConfiguration` if one of them runs, or is being submitted by another command.
        """
        undo.on_failure("the cells' records", self._give_back)
        for number in numbers:
            former = self._zookeeper.cells.read(number)
            if former is not None and yarn.is_running(client, former.application):
                raise BadConfiguration(f"cell {number} of the cluster runs as {former.application}")
            if not self._zookeeper.cells.claim(number, self._claim, replaces=former):
                raise BadConfiguration(
                    f"another command is submitting cell {number} of the cluster at this moment"
                )
            self._former[number] = former

    def _give_back(self) -> None:
        for number, former in self._former.items():
            if former is None:
                self._zookeeper.cells.drop(number, self._claim.claim)
            else:
                self._replace(number, former)

    def confirm(self) -> None:
        """Raise `StandfastError` if another command has claimed one of the cells, or is about to.

        It uses what was created for them. Afterwards none can begin until `end`.
        """
        self._keep_others_out()
        for number in self._former:
            present = self._zookeeper.cells.read(number)
            if present is not None and present.claim != self._claim.claim:
                raise StandfastError(f"another command has claimed cell {number} of the cluster meanwhile")

    def complete(self, number: int) -> None:
        """Record a cell's application, for which its candidate waits.

        Raises `StandfastError` if the cell is claimed by another command by now.
        """
        record = msgspec.structs.replace(self._claim, application=self.started[number])
        if not self._replace(number, record):
            raise StandfastError(
                f"another command has claimed or removed cell {number} of the cluster meanwhile; try again"
            )

    def _replace(self, number: int, record: CellRecord) -> bool:
        """Replace a cell's record if it comes from this claim; return whether it does."""
        mine = self._claim.claim
        return self._zookeeper.cells.change(number, lambda present: record if present.claim == mine else None)


def check(config: JobConfig, bundle: Bundle, topology: Topology) -> None:
    """Raise `StandfastError` unless an application can be composed as `submit` does it; submits nothing."""
    with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
        _specification(config, bundle, topology, 1, Path(scratch), ())


def submit(
    config: JobConfig, bundle: Bundle, topology: Topology, claims: Claims, client: Any, launch: Launching
) -> tuple[str, ...]:
    """Submit an application for every claimed cell, with masters on different hosts if possible; return their ids.

    Waits for the masters' hosts no longer than the launch's deadline. Raises as the launch's last check, and as
    `Claims.complete`.
    """
    _, racks = topology
    present = claims.others()
    is_choice = len(claims.numbers) + len(present) > 1 and len(racks) > 1
    taken = {
        yarn.master_host(client, each, launch.deadline) for each in present if yarn.is_running(client, each)
    }
    # The tree's actual state, whatever the file says: containers create their nodes without checking it.
    config = replace(config, zookeeper_acl="digest" if claims.is_closed else "open")

    def start(number: int) -> str:
        with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
            index, count = claims.numbers.index(number), len(claims.numbers)
            wished = share_of(index, count, racks, taken, config.cluster) if is_choice else ()
            spec = _specification(config, bundle, topology, number, Path(scratch), wished)
            claims.started[number] = str(client.submit(spec))
            return claims.started[number]

    def end_all() -> None:
        started = tuple(claims.started.values())
        for each in started:
            yarn.kill(client, each)
        yarn.await_end(client, started, launch.deadline)

    launch.undo.on_failure("the applications", end_all)
    for number in claims.numbers:
        start(number)
    for number in claims.numbers:
        if is_choice:
            found = master_on_other_host(
                claims.started[number],
                taken,
                lambda number=number: start(number),  # type: ignore[misc]
                lambda each: yarn.master_host(client, each, launch.deadline),
                lambda each: yarn.kill(client, each),
            )
            if found and found in taken:
                launch.progress.say(
                    f"the master of cell {number} started on {found} {_TRIES + 1} times, where another cell's is: "
                    "the loss of this host ends both"
                )
            taken.add(found)
        # Until the cell's record is complete, its candidate waits. Masters start meanwhile.
        launch.last_check()
        claims.complete(number)
    claims.end()
    return tuple(claims.started.values())


def share_of(
    index: int, count: int, racks: Mapping[str, str], taken: Collection[str], cluster: str
) -> tuple[str, ...]:
    """Return the hosts on which YARN is to start the master number ``index`` of ``count``, if they have room.

    None of them is ``taken``, or another master's as long as there are enough: masters that are requested at once start
    on different hosts. Different clusters have different hosts, as far as possible. Empty: none is left, or the rack of
    a host is not known. Pure.
    """
    if not all(racks.values()):
        return ()
    free = sorted(set(racks) - set(taken))
    random.Random(cluster).shuffle(free)
    return tuple((free[index::count] or free)[:_MOST_WISHED])


def _specification(
    config: JobConfig,
    bundle: Bundle,
    topology: Topology,
    number: int,
    scratch: Path,
    wished: Collection[str],
) -> Any:
    """Return the application of a cell, with the hosts ``wished`` for its master.

    ``scratch`` must exist until it has been submitted.
    """
    hosts, racks = topology
    return application.build(
        config,
        hosts,
        bundle,
        scratch,
        yarn.hadoop_configuration(),
        require(config.cluster),
        racks=racks,
        cell=number,
        master_hosts=wished,
    )


def master_on_other_host(
    started: str,
    taken: Container[str],
    again: Callable[[], str],
    host_of: Callable[[str], str],
    end: Callable[[str], None],
) -> str:
    """Return the host of a cell's master, after trying to have it on none of the ``taken`` hosts.

    Otherwise a single host's loss could end two cells. YARN takes the hosts that are wished for a master as long as
    they have room, and may take another, so a master on a taken host is ended, and another is requested with
    ``again``, a few times. Where later attempts run is chance.
    """
    for _ in range(_TRIES):
        host = host_of(started)
        # Unknown hosts do not count: two masters on unknown hosts are not considered to share one.
        if not host or host not in taken:
            return host
        end(started)
        started = again()
    return host_of(started)
