"""``standfast cells``: the cells of a cluster as ZooKeeper and YARN have them, and starting again those that ended.

A cell comes back as YARN's next attempt by itself; once its attempts are used up, or somebody has ended its
application, it is submitted anew by this command, while the others go on.

Exit status: 0 every cell runs; 1 some do not; 2 no such cluster, or the file is of another; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
import getpass
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from appmaster.adapters.kafka import now_ms
from appmaster.adapters.kazoo import ZooKeeper
from appmaster.cli import application, yarn
from appmaster.cli.jobfile import load
from appmaster.cli.output import Progress, print_json
from appmaster.cli.parsers import add_command
from appmaster.cli.stop import add_cluster_options, open_zookeeper
from appmaster.joining import of_the_cluster
from appmaster.records import CellRecord
from embedded import jars
from standby.config import JobConfig, parse
from standby.errors import BadConfiguration
from standby.feed.functions import job_code

#: So many times a cell's master is asked for again that came to a host which has one.
_TRIES: Final = 3


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``cells`` on the command line."""
    parser = add_command(
        subparsers, "cells", _cells, "list a cluster's cells; start again those that ended", __doc__
    )
    parser.add_argument("job", metavar="JOB", help="a job of the cluster")
    parser.add_argument(
        "--restore",
        type=Path,
        metavar="JOB.YAML",
        help="submit the cells that do not run anew, as this job file says",
    )
    add_cluster_options(parser)


def _cells(arguments: argparse.Namespace) -> int:
    progress = Progress(is_quiet=arguments.json)
    with open_zookeeper(arguments) as zookeeper, yarn.skein_client() as client:
        if not zookeeper.exists():
            raise BadConfiguration(f"there is no cluster {arguments.cluster or arguments.job}")
        if arguments.restore is not None:
            for number, started in restore(arguments.restore, zookeeper, client).items():
                progress.say(f"cell {number} is submitted as {started}")
        found = [_line(number, each, client, zookeeper) for number, each in zookeeper.cells().items()]
    if arguments.json:
        print_json(found)
    else:
        for each in found:
            print(
                f"cell {each['cell']}  {each['application'] or '-'}  {each['state']}  "
                f"attempt {each['attempt'] or '-'}  AM {each['address'] or '-'}  "
                f"candidate {each['candidate'] or 'none'}"
            )
    return 0 if all(each["is_running"] for each in found) else 1


def _line(number: int, record: CellRecord, client: Any, zookeeper: ZooKeeper) -> dict[str, Any]:
    leader = zookeeper.controller()
    candidate = next((each for each in zookeeper.candidates() if each.cell == number), None)
    return {
        "cell": number,
        "application": record.application,
        "is_running": yarn.is_running(client, record.application),
        "state": yarn.state(client, record.application),
        "attempt": record.attempt,
        "address": record.address,
        "candidate": candidate.candidate if candidate is not None else None,
        "lives": candidate.life if candidate is not None else None,
        "last_end": candidate.ended if candidate is not None else None,
        "leads": candidate is not None and leader is not None and leader.candidate == candidate.candidate,
    }


def restore(path: Path, zookeeper: ZooKeeper, client: Any) -> dict[int, str]:
    """Return cell → the application submitted for it, for every cell of the job file that does not run.

    Raises `BadConfiguration` when the file is of another cluster than the session's.
    """
    job = load(path, [])
    if zookeeper.job(job.config.job_name) is None:
        raise BadConfiguration(f"{path}: there is no job {job.config.job_name} in this cluster")
    present = zookeeper.cells()
    # As the cluster was started, whichever of its jobs this is the file of.
    settings = next((each.settings for each in present.values() if each.settings), {})
    config = parse({**job.flat, **settings})
    numbers = [
        each
        for each in range(1, config.cells + 1)
        if each not in present or not yarn.is_running(client, present[each].application)
    ]
    if not numbers:
        return {}
    topology = yarn.topology(config, client)
    with (
        job_code(job.directory, config.modules) as code,
        claimed(zookeeper, client, config, numbers) as claims,
    ):
        return dict(zip(numbers, submit(config, code, topology, claims, client), strict=True))


class Claims:
    """Cells that this process has claimed, and what it has submitted for them so far."""

    def __init__(self, zookeeper: ZooKeeper, claim: CellRecord) -> None:
        self._zookeeper = zookeeper
        self._claim = claim
        self.numbers: list[int] = []
        self.started: dict[int, str] = {}

    @property
    def is_closed(self) -> bool:
        """Whether the cluster's tree is closed to others."""
        return self._zookeeper.is_closed

    def others(self) -> list[str]:
        """Return the applications of the cells that are not claimed."""
        cells = self._zookeeper.cells().items()
        return [each.application for number, each in cells if number not in self.numbers]

    def take(self, number: int, former: CellRecord | None) -> bool:
        """Claim a cell in place of an ended one; return False when somebody was quicker."""
        is_mine = self._zookeeper.claim_cell(number, self._claim, replaces=former)
        if is_mine:
            self.numbers.append(number)
        return is_mine

    def submitted(self, number: int, started: str) -> str:
        """Take note of a cell's application; return it."""
        self.started[number] = started
        return started

    def complete(self, number: int) -> None:
        """Record a cell's application: its candidate waits for that."""
        record = msgspec.structs.replace(self._claim, application=self.started[number])
        self._zookeeper.put_cell(number, record)


@contextmanager
def claimed(zookeeper: ZooKeeper, client: Any, config: JobConfig, numbers: Iterable[int]) -> Iterator[Claims]:
    """Claim cells for the block; if that fails, they are as if nothing had been submitted.

    Their records keep what of ``config`` holds for every job of the cluster. Raises `BadConfiguration` when one of
    them runs, or is being submitted by somebody else.
    """
    claims = Claims(zookeeper, CellRecord("", now_ms(), getpass.getuser(), settings=of_the_cluster(config)))
    try:
        for number in numbers:
            former = zookeeper.cell(number)
            if former is not None and yarn.is_running(client, former.application):
                raise BadConfiguration(f"cell {number} of {config.cluster} runs as {former.application}")
            if not claims.take(number, former):
                raise BadConfiguration(f"somebody else is submitting cluster {config.cluster} at this moment")
        yield claims
    except BaseException:
        for started in claims.started.values():
            client.kill_application(started)
        for number in claims.numbers:
            zookeeper.drop_cell(number)
        raise


def submit(
    config: JobConfig,
    code: Path,
    topology: tuple[Sequence[str], Mapping[str, str]],
    claims: Claims,
    client: Any,
) -> tuple[str, ...]:
    """Submit an application for every claimed cell, their masters on different hosts if that can be had; return ids."""
    hosts, racks = topology
    if claims.is_closed:
        # As the tree is, where the file does not say: containers create their nodes without a look.
        config = replace(config, zookeeper_acl="digest")
    connector = jars.classpath("spark-kafka") if config.feed == "spark" else []

    def start(number: int) -> str:
        with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
            spec = application.build(
                config, hosts, code, connector, Path(scratch), yarn.hadoop_conf(), racks=racks, cell=number
            )
            return str(client.submit(spec))

    present = claims.others()
    taken = {yarn.master_host(client, each) for each in present if yarn.is_running(client, each)}
    for number, started in zip(claims.numbers, [start(each) for each in claims.numbers], strict=True):
        claims.submitted(number, started)
    for number in claims.numbers:
        is_choice = len(claims.numbers) + len(present) > 1 and len(racks) > 1
        if is_choice:
            found = apart(
                claims.started[number],
                taken,
                lambda number=number: claims.submitted(number, start(number)),  # type: ignore[misc]
                lambda each: yarn.master_host(client, each),
                client.kill_application,
            )
            taken.add(found)
        claims.complete(number)
    return tuple(claims.started.values())


def apart(
    started: str,
    taken: Container[str],
    again: Callable[[], str],
    host_of: Callable[[str], str],
    end: Callable[[str], None],
) -> str:
    """Return the host of a cell's master, after trying to have it on none of ``taken``.

    A host's loss would take two cells at once otherwise. YARN lets nobody say where a master is to run: one that
    came to a taken host is ended, and another asked for ``again``, some times. Where later attempts run is chance.
    """
    for _ in range(_TRIES):
        host = host_of(started)
        if host not in taken:
            return host
        end(started)
        started = again()
    return host_of(started)
