"""The process of a container, from start to exit code: ports, registration, control loop, shutdown."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from standby.adapters.acceptor import REFUSED_CONNECTIONS
from standby.adapters.grpc import ControlStream
from standby.adapters.http_port import HttpPages
from standby.adapters.kafka.broker import connect
from standby.adapters.liveness import LivenessPort
from standby.adapters.logfiles import LogFiles
from standby.adapters.peers.client import open_sources
from standby.adapters.peers.code_reader import CodeReader
from standby.adapters.peers.lenders import Lenders
from standby.adapters.peers.server import PeerServer
from standby.adapters.processes import ProcessMeter, collect_garbage_rarely, end_children
from standby.adapters.prometheus import OF_PROCESS, metrics_and_health
from standby.adapters.rocksdict import open_database
from standby.adapters.tls import TlsCredentials
from standby.adapters.zookeeper.access import container_access, make_client
from standby.adapters.zookeeper.credentials import Renewal
from standby.adapters.zookeeper.membership import ZooKeeperMembership
from standby.adapters.zookeeper.pool import PoolMembership
from standby.adapters.zookeeper.reader import ANSWER_SECONDS, ZooKeeperReader
from standby.cluster import FILE, OFFER, ClusterConfig, load
from standby.code.jobcode import JobCode
from standby.config import JobConfig
from standby.control.effects import Quit
from standby.control.events import ControlEvent, Released, ReplicasChanged, Terminated
from standby.control.loop import ControlLoop
from standby.control.ports import FindLeftoverState, Ports
from standby.control.state import ControlPolicy, ControlState, RegistrationState
from standby.control.watchdog import Watchdog
from standby.errors import BadConfiguration, StandfastError
from standby.feed.functions import step_of
from standby.kernel.environment import Environment
from standby.kernel.marks import Marks
from standby.kernel.restore.fetch import Peers
from standby.ports import Feed, Replicas
from standby.process.ending import end_at_once
from standby.process.metrics import container_metrics
from standby.process.witness import IN_POOL, Witnessed, WitnessNote
from standby.security import credentials
from standby.shared import exits
from standby.shared.clock import REAL, Clock, have_ended
from standby.shared.errortext import summary_of
from standby.shared.metric import Samples
from standby.shared.model import NodeOffer
from standby.shared.naming import run_path
from standby.shared.peers import Routes
from standby.shared.probes import Probe, no_probe
from standby.shared.records import ContainerRecord, MemberRecord, decode_offer
from standby.shared.roles import PeerRole
from standby.shared.version import version
from standby.shared.wire import PROTOCOL, JobDefinition, encode_entry
from standby.threads.inbox import Inbox
from standby.threads.worker import Worker

if TYPE_CHECKING:
    from standby.adapters.spark.rehearsals import RehearsalNotes

_LOG: Final = logging.getLogger("standby.container")

#: How long a process of a pool that is asked to end waits until its actives are handed over, in milliseconds.
_LEAVE_MS: Final = 30_000

#: How long the process may take at its end to withdraw what it has lent, and to remove the state of deleted jobs, which
#: can be thousands of files. What is left is never used, and is deleted as a stray by a later process of the host.
_WITHDRAW_SECONDS: Final = 10.0
_PURGE_SECONDS: Final = 60.0

#: How long its last log lines may take: the disk of the logs may hang, too.
_LAST_SECONDS: Final = 10.0

#: A control loop without a turn for this long is unhealthy, in seconds.
_TURNS_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where YARN and Skein, or a node, have placed this process, from its environment."""

    container: str
    host: str
    """``NM_HOST``: the one identity of a host."""
    skein_id: str
    """Empty when Skein did not start it; in a pool, the claim once there is one."""
    log_dirs: tuple[str, ...]
    is_in_pool: bool = False
    """Whether it waits in a pool until the leader claims it."""
    offer: NodeOffer = field(default_factory=NodeOffer)
    """What it offers there."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The replicas, and the functions for state that earlier containers left on the host's disks."""

    replicas: Replicas
    find_leftovers: FindLeftoverState
    purge: Callable[[JobDefinition], None]
    """Removes the state of a deleted job from this host's disks."""
    routes: Routes = field(default_factory=dict)
    """The routes for peers."""
    close: Callable[[], None] = lambda: None
    """Withdraws what peers are still fetching; called after the replicas are closed."""
    metrics: Callable[[], Iterable[Samples]] = tuple
    """Its metrics beyond the replicas' statuses."""


#: Makes the kernel for a cluster; calls the function whenever a phase has changed.
MakeKernel = Callable[[ClusterConfig, Environment, Callable[[], None]], Kernel]


def read_place(environment: Mapping[str, str]) -> ContainerPlace:
    """Return the place from ``environment``. Raises `BadConfiguration` with each missing variable."""
    missing = [name for name in ("CONTAINER_ID", "NM_HOST") if not environment.get(name)]
    if missing:
        raise BadConfiguration(
            f"{' and '.join(missing)}: not in the environment; "
            "this process must be started by YARN through standfast submit, or by a node of a pool"
        )
    logs = tuple(each for each in environment.get("LOG_DIRS", "").split(",") if each)
    return ContainerPlace(
        environment["CONTAINER_ID"],
        environment["NM_HOST"],
        environment.get("SKEIN_CONTAINER_ID", ""),
        logs,
        is_in_pool=IN_POOL in environment,
        offer=decode_offer(environment.get(OFFER, "{}"), f"${OFFER}"),
    )


def log_to_stderr() -> None:
    """Log to stderr, with milliseconds; libraries log warnings and errors only."""
    line = logging.Formatter(
        "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    stderr = logging.StreamHandler()
    stderr.setFormatter(line)
    logging.basicConfig(level=logging.INFO, handlers=[stderr], force=True)
    for library in ("grpc", "py4j", "pyspark"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # Kazoo warns about every attempt to reconnect; the control loop logs what matters.
    logging.getLogger("kazoo").setLevel(logging.ERROR)


def run(
    directory: Path,
    environment: Mapping[str, str],
    make_kernel: MakeKernel,
    witnessed: Witnessed,
    probe: Probe = no_probe,
) -> int:
    """Run the container until it is to end; return the process's exit code (see `standby.shared.exits`).

    Raises `BadConfiguration` and `Unavailable` before anything is visible from outside.
    """
    place = read_place(environment)
    cluster = load(directory / FILE)
    LogFiles(cluster.log_max_bytes).start()
    bootstrap = credentials.load(directory)
    keys = TlsCredentials(bootstrap.credentials)
    # Before it waits in a pool: one that could not open them would be claimed, end, and be claimed again.
    liveness = LivenessPort(place.host, witnessed.port)
    server = HttpPages(place.host)
    peers = PeerServer(place.host, keys)
    inbox: Inbox[ControlEvent] = Inbox()
    access = container_access(
        bootstrap.secret,
        bootstrap.owner,
        is_closed=cluster.zookeeper_acl == "digest",
        tls=cluster.zookeeper_tls,
    )
    client = make_client(cluster.zookeeper, cluster.zookeeper_session_ms, access)
    Renewal(client, cluster.name, PeerRole.CONTAINER, keys)
    pool = PoolMembership(client, cluster.name, _member(place), partial(inbox.post, Released()))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_terminated, number.name, inbox, pool))
    if place.is_in_pool:
        client.start_async()
        pool.start()
        claim = pool.await_claim()
        if not claim:
            pool.leave()
            return exits.ORDERLY
        place = replace(place, skein_id=claim)
    record = ContainerRecord(
        *(place.container, place.skein_id, cluster.cell, place.host, liveness.port, server.port, os.getpid()),
        protocol=PROTOCOL,
        standfast=version(),
        log_dirs=place.log_dirs,
        peer_port=peers.port,
    )
    _LOG.info(
        "container %s (%s) of %s on %s, port %d, http port %d, peer port %d, pid %d",
        *(place.container, place.skein_id or "no Skein", cluster.name, place.host),
        *(liveness.port, server.port, peers.port, os.getpid()),
    )
    bundles = ZooKeeperReader(client, cluster.name, ANSWER_SECONDS)
    code = JobCode(directory, CodeReader(bundles, keys.client_context).read_code)
    membership = ZooKeeperMembership(client, cluster.name, record, inbox.post, probe)
    marks = Marks(lambda *entry: witnessed.note.leave(encode_entry(*entry)))
    reader = ZooKeeperReader(client, cluster.name)
    lenders = Lenders(place.container, reader, keys.client_context)
    # A node has its state directories to itself, which those that a job names may not be.
    state_dirs = cluster.state_dirs if cluster.is_pool else ()
    outside = Environment(
        cluster.name,
        place.host,
        reader,
        partial(_make_feed, code, marks, lenders, partial(_notes, cluster.name, place.host, state_dirs)),
        connect,
        partial(open_database, disk_call=witnessed.note.disk_call),
        step_of,
        load_code=code.load,
        peers=Peers(place.container, reader, open_sources(keys)),
        marks=marks,
        probe=probe,
        state_dirs=state_dirs,
    )
    kernel = make_kernel(cluster, outside, partial(inbox.post, ReplicasChanged()))
    meter = ProcessMeter()
    loop = ControlLoop(
        ControlState(
            record,
            ControlPolicy(cluster.orphan_timeout_ms, leave_timeout_ms=_LEAVE_MS if place.is_in_pool else 0),
        ),
        inbox,
        Ports(
            membership=membership,
            connect=partial(ControlStream, keys, cluster.heartbeat_interval_ms),
            replicas=kernel.replicas,
            find_leftovers=kernel.find_leftovers,
            rss_bytes=lambda: meter.figures.total_rss_bytes,
        ),
    )
    meter.start()
    gates = (server.gate, peers.gate)
    server.start(
        metrics_and_health(
            lambda: (*_metrics(loop, meter, kernel), REFUSED_CONNECTIONS.of(gates)), Health(loop).look
        )
    )
    peers.start(kernel.routes)
    watchdog = Watchdog(lambda: loop.turns, partial(_stuck, loop, witnessed.note))
    watchdog.start()
    membership.start()
    quit_ = run_loop(loop, marks)
    watchdog.stop()
    quit_ = finish(quit_, kernel, loop.state.jobs.values())
    REAL.later(_LAST_SECONDS, partial(end_process, quit_.code, witnessed.note))
    _say(quit_)
    if quit_.code != exits.BROKEN:
        loop.leave()
    return quit_.code


def run_loop(loop: ControlLoop, marks: Marks) -> Quit:
    """Return how the process is to end; an error of the loop is attributed to no code of a job."""
    try:
        return loop.run()
    except Exception:
        marks.forget()
        raise


def finish(quit_: Quit, kernel: Kernel, jobs: Iterable[JobDefinition], clock: Clock = REAL) -> Quit:
    """Do what is left to do on the host's disks; return how the process is to end.

    A disk that does not answer delays the end only for so long: the end releases what the process still holds. Nor does
    an error there keep the process from the rest of its end.
    """
    if quit_.code in (exits.BROKEN, exits.UNCLEAN):
        # The disk may be the reason. What was lent is deleted later, as after a crash.
        return quit_

    def purge() -> None:
        for each in jobs:
            kernel.purge(each)

    owed = [("withdrawing what was lent", kernel.close, _WITHDRAW_SECONDS)]
    if quit_.purge:
        owed.append(("removing the state", purge, _PURGE_SECONDS))
    undone = []
    for what, act, seconds in owed:
        done = Worker("disks").start().submit(act)
        if not have_ended(clock, (done,), seconds):
            undone.append(f"; {what} did not end within {seconds:.0f} s")
        elif (error := done.exception()) is not None:
            undone.append(f"; {what} failed: {summary_of(error)}")
    return Quit(exits.UNCLEAN, quit_.reason + "".join(undone)) if undone else quit_


def end_process(code: int, note: WitnessNote) -> NoReturn:
    """End the process now, its children first, without waiting for any thread of a library.

    ``note`` is read by the witness.
    """
    if code not in exits.PERHAPS_OF_CODE:
        note.end_in_order()
    end_at_once(code, (end_children, logging.shutdown, sys.stdout.flush, sys.stderr.flush), _LAST_SECONDS)


class Health:
    """The health of the control loop."""

    def __init__(self, loop: ControlLoop, clock: Clock = REAL) -> None:
        self._loop = loop
        self._clock = clock
        self._seen = (-1, 0.0)

    def look(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the loop has turned recently and is not closing, and the details."""
        turns, now = self._loop.turns, self._clock.monotonic()
        if turns != self._seen[0]:
            self._seen = (turns, now)
        state = self._loop.state
        turns_on = now - self._seen[1] < _TURNS_SECONDS
        facts = {
            "container": state.identity.container,
            "turns": turns_on,
            "registered": state.registration is RegistrationState.DONE,
            "incarnation": state.incarnation,
            "leader": str(state.leader) if state.leader else None,
            "led": state.is_led,
            "controller_epoch": state.epoch,
            "replicas": {str(each): state.statuses[each].phase.value for each in sorted(state.statuses)},
            "warm": state.is_warm,
            "closing": state.closing.reason if state.closing else None,
        }
        return turns_on and state.closing is None, facts


def _member(place: ContainerPlace) -> MemberRecord:
    return MemberRecord(
        *(place.container, place.host, os.getpid(), PROTOCOL, version()),
        offer=place.offer,
        since_ms=REAL.now_ms(),
    )


def _terminated(
    name: str, inbox: Inbox[ControlEvent], pool: PoolMembership, number: int, frame: FrameType | None
) -> None:
    """Have the process end (a signal handler), whether it waits for a claim or serves."""
    inbox.post(Terminated(name))
    pool.give_up()


def _make_feed(
    code: JobCode,
    marks: Marks,
    lenders: Lenders,
    notes_of: Callable[[JobConfig, JobDefinition], RehearsalNotes],
    config: JobConfig,
    job: JobDefinition,
) -> Feed:
    # Imported late, because Spark takes seconds to import: only containers with a replica pay for it.
    from standby.feed.make import make_feed

    return make_feed(
        *(config, job, code.directory_of(job), marks.transform, partial(lenders.find, job)),
        notes=notes_of(config, job),
    )


def _notes(
    cluster: str, host: str, state_dirs: tuple[str, ...], config: JobConfig, job: JobDefinition
) -> RehearsalNotes:
    """Return the notes about a job's run on the first disk of this host; ``state_dirs`` as in `Environment`."""
    from standby.adapters.spark.rehearsals import RehearsalNotes

    first, *_ = state_dirs or config.state_dirs
    return RehearsalNotes(Path(first), run_path(cluster, host, job.name, job.run))


def _metrics(loop: ControlLoop, meter: ProcessMeter, kernel: Kernel) -> Iterator[Samples]:
    yield from container_metrics(loop.state)
    yield from kernel.metrics()
    yield from (each.of(meter.figures) for each in OF_PROCESS)


def _say(quit_: Quit) -> None:
    meaning = exits.MEANINGS[quit_.code]
    level = logging.INFO if quit_.code == exits.ORDERLY else logging.ERROR
    _LOG.log(level, "exit code %d (%s): %s", quit_.code, meaning, quit_.reason)


def _stuck(loop: ControlLoop, note: WitnessNote) -> NoReturn:
    faulthandler.dump_traceback()
    # Logging may hang on the same cause as the loop: end the process in any case, with the code that says why.
    with suppress(RuntimeError):
        REAL.later(_LAST_SECONDS, partial(os._exit, exits.STUCK))
    _say(Quit(exits.STUCK, f"no turn after turn {loop.turns}; the stacks of all threads are above"))
    end_process(exits.STUCK, note)


def main(make_kernel: MakeKernel, witnessed: Witnessed, probe: Probe = no_probe) -> NoReturn:
    """Run the container, and end the process with its exit code; the outermost level."""
    # State, unpacked code and Spark's files are accessible to this user only, whatever library writes them.
    os.umask(0o077)
    log_to_stderr()
    collect_garbage_rarely()
    # Print a traceback after a crash in a C library.
    faulthandler.enable()
    # kill -USR1 prints the stacks of all threads.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        code = run(Path.cwd(), os.environ, make_kernel, witnessed, probe)
    except StandfastError as error:
        _LOG.log(logging.CRITICAL, "%s", error, exc_info=error.exit_status == 70)
        code = error.exit_status
    except Exception:  # noqa: BLE001 - the process's outermost level
        _LOG.critical("unexpected error", exc_info=True)
        code = exits.BROKEN
    end_process(code, witnessed.note)
