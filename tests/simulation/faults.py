"""The faults: each begins at its moment and ends by itself, so that none is left after the last one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Final

from standby.control.events import Terminated
from tests.simulation.container import Container
from tests.simulation.job import NAME
from tests.simulation.pool import ProcessPool
from tests.simulation.process import Host, Process
from tests.simulation.world import World

#: Faults begin within this time, milliseconds.
WITHIN_MS = 12_000

MOST_FAULTS = 6


def suffer(world: World, only: Sequence[str] = ()) -> None:
    """Let faults of chance happen, until the last one has ended; ``only`` some kinds of them, if any are named."""
    clock = world.clock
    more = tuple(OF_SPARES) if world.has_spares else ()
    if world.is_pool:
        only = only or (*(each for each in FAULTS if each not in OF_YARN), *OF_POOL, *more)
    elif more:
        only = only or (*FAULTS, *more)
    for _ in range(clock.between(1, MOST_FAULTS)):
        name = clock.chance.choice(only or tuple(FAULTS))
        at, lasts = clock.between(0, WITHIN_MS), clock.between(*_LASTS.get(name, (0, 0)))
        clock.after(at, _begin, world, name, lasts)
        world.faults_until(at + lasts + 50)
    while clock.now_ms < world.faults_until_ms:
        world.run(world.faults_until_ms - clock.now_ms)


def _begin(world: World, name: str, lasts_ms: int) -> None:
    world.clock.tell("FAULT {} for {} ms", name, lasts_ms)
    world.log.append(name)
    end = (FAULTS | OF_POOL | OF_SPARES)[name](world)
    if end is not None:
        world.clock.after(lasts_ms, _end, world, name, end)


def _end(world: World, name: str, end: Callable[[], None]) -> None:
    world.clock.tell("fault {} is over", name)
    end()


End = Callable[[], None] | None


def _containers(world: World) -> list[Container]:
    return [each for each in world.containers.values() if each.is_alive]


def _some_container(world: World) -> Container | None:
    found = _containers(world)
    return world.clock.chance.choice(found) if found else None


def _some_host(world: World) -> Host:
    return world.clock.chance.choice(list(world.hosts.values()))


def _leader(world: World) -> Process | None:
    leader: Process | None = world.leader()
    return leader or (world.candidates[0] if world.candidates else None)


def _of_one(act: Callable[[Container], object]) -> Callable[[World], End]:
    """Return the fault that happens to one container, and needs no end."""

    def fault(world: World) -> End:
        container = _some_container(world)
        if container is not None:
            act(container)
        return None

    return fault


_kill_container: Final = _of_one(Container.kill)


def _kill_process(container: Container) -> None:
    """Have somebody, or the kernel for want of memory, kill a container's process and not its witness."""
    container.end_by(signal.SIGKILL, oom_kills=container.clock.between(0, 1))


def _fault_of_code(world: World) -> End:
    """End a process that runs the job's code, of itself; any process, where none does."""
    running = [each for each in world.containers.values() if each.is_alive and each.kernel.running()]
    process = world.clock.chance.choice(running) if running else _some_container(world)
    if process is not None:
        process.end_by(signal.SIGSEGV)
    return None


def _hang_promotion(world: World) -> End:
    """Have the next way to active hang that begins in some containers."""
    kernels = [
        each.kernel for each in world.containers.values() if each.is_alive and world.clock.happens(0.5)
    ]
    for each in kernels:
        each.hangs = True

    def end() -> None:
        for each in kernels:
            each.hangs = False

    return end


def _cut_from_kafka(world: World) -> End:
    """Cut a container off from the brokers, and from nothing else."""
    process = _some_container(world)
    if process is None or process.is_without_kafka:
        return None
    process.is_without_kafka = True
    world.clock.tell("{} is cut off from Kafka", process.name)

    def end() -> None:
        process.is_without_kafka = False

    return end


def _terminate(container: Container) -> None:
    container.post(Terminated("SIGTERM"))


def _break_kernel(container: Container) -> None:
    container.kernel.broken = "child process 7 is dead"


def _fail_store(container: Container) -> None:
    container.kernel.store_writes_fail = True


def _damage_state(container: Container) -> None:
    """Damage the database of some replica, perhaps of an active."""
    found = sorted(container.kernel.held.items())
    if found:
        _, held = container.clock.chance.choice(found)
        held.damage()


def _kill_leader(world: World) -> End:
    leader = _leader(world)
    if leader is not None:
        leader.kill()
    return None


def _lose_cell(world: World) -> End:
    """Kill a cell's AM, and with it everything that it started."""
    cell = world.clock.between(1, world.cells)
    if cell in world.yarn.attempts:
        world.lose_cell(cell, runs_on=False)
    return None


def _lose_master_host(world: World) -> End:
    """Lose the host of a cell's AM without a word: its containers elsewhere run on until YARN notices."""
    cell = world.clock.between(1, world.cells)
    host = world.master_hosts[cell - 1]
    if not host.is_up:
        return None
    host.is_up = False
    world.lose_cell(cell, runs_on=True)

    def end() -> None:
        host.is_up = True

    return end


def _stop_am(world: World) -> End:
    """Have a cell's AM stand still for longer than it goes unnoticed."""
    cell = world.clock.between(1, world.cells)
    if cell in world.yarn.silent:
        return None
    world.yarn.silent.add(cell)
    world.clock.after(1_000, world.list_changed)

    def end() -> None:
        world.yarn.silent.discard(cell)
        world.list_changed()

    return end


def _stop(process: Process | None) -> End:
    if process is None:
        return None
    process.stop()
    return process.resume


def _stop_host(world: World) -> End:
    """Stop everything on a host; it comes back, or dies after all."""
    host = _some_host(world)
    stopped = [each for each in _containers(world) if each.host is host]
    for each in stopped:
        each.stop()

    def end() -> None:
        dies = world.clock.happens(0.5)
        for each in stopped:
            if dies:
                each.kill()
            each.resume()

    return end


def _lose_host(world: World) -> End:
    host = _some_host(world)
    if not host.is_up:
        return None
    is_loud = world.clock.happens(0.5)
    world.clock.tell("{} is lost, {}", host.name, "its sockets closed" if is_loud else "without a word")
    host.is_up = is_loud
    for each in _containers(world):
        if each.host is host:
            each.kill()
    host.is_up = False
    world.yarn.node_lost(host)

    def end() -> None:
        host.is_up = True
        world.yarn.node_returned(host)

    return end


def _lose_node(world: World) -> End:
    host = _some_host(world)
    if not host.is_up or host.name not in world.yarn.nodes:
        return None
    world.clock.tell("the NodeManager of {} is lost", host.name)
    world.yarn.node_lost(host)
    return lambda: world.yarn.node_returned(host) if host.is_up else None


def _cut(world: World, host: Host) -> End:
    if host.is_cut:
        return None
    world.clock.tell("{} is cut off", host.name)
    world.cut(host, is_cut=True)

    def end() -> None:
        breaks = world.clock.happens(0.5)
        for each in [stream for candidate in world.candidates for stream in candidate.streams()]:
            if breaks and each.container.host is host:
                each.break_("connection reset")
        world.cut(host, is_cut=False)

    return end


def _break_streams(world: World) -> End:
    for candidate in world.candidates:
        for each in candidate.streams():
            if world.clock.happens(0.5):
                each.break_("connection reset")
    return None


def _lose_zookeeper(world: World) -> End:
    if world.zookeeper.is_away:
        return None
    world.zookeeper.go_away()
    return world.zookeeper.return_


def _shake_zookeeper(world: World) -> End:
    world.zookeeper.flakiness = 0.4

    def end() -> None:
        world.zookeeper.flakiness = 0.0

    return end


def _expire_session(world: World) -> End:
    sessions = world.zookeeper.sessions
    if sessions:
        world.zookeeper.expire(world.clock.chance.choice(sessions))
    return None


def _lose_kafka(world: World) -> End:
    def be_away(is_away: bool) -> None:
        for log in world.logs.values():
            log.is_away = is_away

    be_away(True)
    return lambda: be_away(False)


def _shake_kafka(world: World) -> End:
    def be_flaky(is_flaky: bool) -> None:
        for log in world.logs.values():
            log.is_flaky = is_flaky

    be_flaky(True)
    return lambda: be_flaky(False)


def _hang_transaction(world: World) -> End:
    for log in world.logs.values():
        log.hang(world.clock.between(300, 4_000))
    return None


def _fail_launches(world: World) -> End:
    host = _some_host(world)
    world.yarn.launches_fail_on.add(host.name)
    return lambda: world.yarn.launches_fail_on.discard(host.name)


def _fill_host(world: World) -> End:
    host = _some_host(world)
    capacity, host.capacity = host.capacity, 0

    def end() -> None:
        host.capacity = max(capacity, host.capacity)

    return end


def _slow_disk(world: World) -> End:
    """Slow down the disks of a host; if they are very slow, every container there waits for them as a whole."""
    host = _some_host(world)
    host.slowness = world.clock.between(5, 40)
    waiting = [each for each in _containers(world) if each.host is host and host.slowness > _VERY_SLOW]
    for each in waiting:
        world.clock.tell("{} waits for its disk", each.name)
        each.wait_for_disk()

    def end() -> None:
        host.slowness = 1
        for each in waiting:
            each.end_disk_wait()

    return end


#: A disk that is slower than so many times is one for which whole processes wait.
_VERY_SLOW: Final = 30

#: How many sizes of a job are tried.
_SIZES: Final = 1_000

#: Steps of replicas and leaders at which a fault may wait.
STEPS: Final = (
    "record read",
    "writer initialised",
    "offsets read",
    "drained",
    "claimed",
    "before commit",
    "after commit",
    "before a write",
    "after a write",
    "elected",
)


def _at_a_step(world: World) -> End:
    """Stop or kill the next process that comes to a step; a leader's write may wait in the network meanwhile."""
    clock = world.clock
    step, kind, lasts = clock.chance.choice(STEPS), clock.between(0, 3), clock.between(500, 7_000)

    def happen(process: Process) -> None:
        # One that waited for its step may outlast the time in which it waited.
        world.faults_until(clock.now_ms + lasts + 50)
        if kind == 0:
            process.kill()
        elif kind == 1 and not process.host.is_cut:
            world.cut(process.host, is_cut=True)
            clock.after(lasts, lambda: world.cut(process.host, is_cut=False))
        else:
            process.stop()
            clock.after(lasts, process.resume)

    world.traps[step] = happen

    def end() -> None:
        if world.traps.get(step) is happen:
            del world.traps[step]

    return end


# ---- what people do meanwhile ----


def _drain(world: World) -> End:
    host = _some_host(world)
    world.clock.tell("{} is drained", host.name)
    world.job.drained[host.name] = "drained"
    world.job_changed()

    def end() -> None:
        world.job.drained.pop(host.name, None)
        world.job_changed()

    return end


def _fail_over(world: World) -> End:
    leader = world.leader()
    if leader is not None:
        world.job.fail_over(leader, world.clock)
    return None


def _resize(world: World) -> End:
    job, clock = world.job, world.clock
    standbys = job.standbys
    for _ in range(_SIZES):
        if clock.happens(0.5):
            standbys = clock.between(0, min(2, len(world.hosts) - 1))
        least = 1 + standbys if job.is_mixed else 1
        containers = clock.between(least, max(least, 4))
        if world.fits(containers, standbys):
            break
    else:
        return None  # no size fits while most nodes of a pool are stopped
    job.containers, job.standbys = containers, standbys
    clock.tell("the job is to have {} containers, {} standbys", job.containers, job.standbys)
    world.job_changed()
    return None


def _upgrade(world: World) -> End:
    world.job.revision += 1
    world.clock.tell("the job is to run revision {}", world.job.revision)
    world.job_changed()
    return None


def _stop_at(step: str) -> Callable[[World], End]:
    """Return the fault that stops the next process at ``step`` for longer than its absence goes unnoticed.

    A container that wakes then has no leader for a while, and does not learn what happened meanwhile.
    """

    def fault(world: World) -> End:
        lasts = world.clock.between(3_100, 9_000)

        def happen(process: Process) -> None:
            world.faults_until(world.clock.now_ms + lasts + 50)
            process.stop()
            world.clock.after(lasts, process.resume)
            if process.name in world.containers:
                world.deaf_until_ms[process.name] = world.clock.now_ms + lasts + 2_000
                world.containers[process.name].break_stream("connection reset")

        world.traps[step] = happen
        return None

    return fault


def _soon(world: World, within_ms: int, fault: Callable[[World], End]) -> None:
    """Have a fault that needs no end happen within a time."""

    def happen() -> None:
        fault(world)

    delay_ms = world.clock.between(0, within_ms)
    world.clock.after(delay_ms, happen)
    world.faults_until(world.clock.now_ms + delay_ms + 50)


def _nodes(world: World, hosts: Sequence[Host], end_one: Callable[[Container], None]) -> End:
    """Stop the nodes of some hosts at once, and end what they run; they are started again together."""
    pool = world.yarn
    assert isinstance(pool, ProcessPool)
    stopped = [(each, pool.nodes_stopped(each)) for each in hosts]
    for each in _containers(world):
        if each.host in hosts:
            end_one(each)

    def end() -> None:
        for host, count in stopped:
            pool.nodes_started(host, count)

    return end


def _stop_nodes(world: World) -> End:
    """Stop nodes of some hosts as systemd does; others may start at the same moment."""
    hosts = [each for each in world.hosts.values() if world.clock.happens(0.5)]
    return _nodes(world, hosts, _terminate)


def _lose_pool(world: World) -> End:
    """Kill every process of the pool, and a while later, by chance, every master."""
    if world.clock.happens(0.5):
        _soon(world, 3_000, _lose_masters)
    return _nodes(world, list(world.hosts.values()), Container.kill)


def _lose_masters(world: World) -> End:
    for each in list(world.candidates):
        each.kill()
    return None


def _resize_under_fire(world: World) -> End:
    """Kill a process, and by chance the leader, while the job's model changes."""
    _resize(world)
    _soon(world, 800, _kill_container)
    if world.clock.happens(0.5):
        _soon(world, 800, _kill_leader)
    return None


def _kill_spare(world: World) -> End:
    leader = world.leader()
    held = leader.view.spares_of(NAME) if leader is not None else []
    found = [each for known in held if (each := world.containers.get(known.id)) is not None and each.is_alive]
    if found:
        world.clock.chance.choice(found).kill()
    return None


def _kill_two(world: World) -> End:
    """Kill a container, and soon after it another one: what replaces the first one may be hit, too."""
    _soon(world, 3_000, _kill_container)
    return _kill_container(world)


def _change_spares(world: World) -> End:
    world.job.spares = world.clock.between(0, 3)
    world.clock.tell("the job is to have {} spare containers", world.job.spares)
    world.job_changed()
    return None


FAULTS: Final[dict[str, Callable[[World], End]]] = {
    "kill a container": _kill_container,
    "fault at a step": _at_a_step,
    "fault at another step": _at_a_step,
    "fault at a third step": _at_a_step,
    "kill a process": _of_one(_kill_process),
    "fault of the job's code": _fault_of_code,
    "hang a promotion": _hang_promotion,
    "cut a container off from Kafka": _cut_from_kafka,
    "terminate a container": _of_one(_terminate),
    "break a kernel": _of_one(_break_kernel),
    "fail a store": _of_one(_fail_store),
    "damage a state": _of_one(_damage_state),
    "kill the leader": _kill_leader,
    "stop a container": lambda world: _stop(_some_container(world)),
    "lose a cell": _lose_cell,
    "lose a cell again": _lose_cell,
    "lose a master's host": _lose_master_host,
    "stop an AM": _stop_am,
    "stop the leader": lambda world: _stop(_leader(world)),
    "stop the leader for long": lambda world: _stop(_leader(world)),
    "stop a host": _stop_host,
    "lose a host": _lose_host,
    "lose a NodeManager": _lose_node,
    "cut a host off": lambda world: _cut(world, _some_host(world)),
    "cut the leader off": lambda world: _cut(world, leader.host) if (leader := _leader(world)) else None,
    "break streams": _break_streams,
    "lose ZooKeeper": _lose_zookeeper,
    "lose answers of ZooKeeper": _shake_zookeeper,
    "expire a session": _expire_session,
    "lose Kafka": _lose_kafka,
    "lose answers of Kafka": _shake_kafka,
    "hang a transaction": _hang_transaction,
    "fail launches": _fail_launches,
    "fill a host": _fill_host,
    "slow a disk": _slow_disk,
    "stop before a write": _stop_at("before a write"),
    "stop before the fence": _stop_at("record read"),
    "stop before closing": _stop_at("closing"),
    "drain a host": _drain,
    "fail over": _fail_over,
    "fail over again": _fail_over,
    "resize the job": _resize,
    "resize the job again": _resize,
    "upgrade": _upgrade,
}

#: What cannot happen to a pool.
OF_YARN: Final = frozenset(
    {
        "lose a cell",
        "lose a cell again",
        "lose a master's host",
        "stop an AM",
        "lose a NodeManager",
        "fail launches",
        "fill a host",
    }
)

#: What happens to a pool alone.
OF_POOL: Final[dict[str, Callable[[World], End]]] = {
    "stop nodes": _stop_nodes,
    "stop nodes again": _stop_nodes,
    "lose the whole pool": _lose_pool,
    "lose every master": _lose_masters,
    "resize the job under fire": _resize_under_fire,
}

#: What happens where the job has spare containers.
OF_SPARES: Final[dict[str, Callable[[World], End]]] = {
    "kill a spare container": _kill_spare,
    "kill two containers": _kill_two,
    "kill two containers again": _kill_two,
    "change the spare containers": _change_spares,
}

_LASTS: Final = {
    "stop nodes": (500, 8_000),
    "stop nodes again": (500, 8_000),
    "lose the whole pool": (500, 8_000),
    **{f"fault at {each} step": (1_000, 8_000) for each in ("a", "another", "a third")},
    "stop a container": (100, 8_000),
    "stop the leader": (400, 3_000),
    "stop the leader for long": (3_000, 8_000),
    "stop a host": (500, 8_000),
    "lose a host": (1_500, 8_000),
    "lose a master's host": (1_500, 8_000),
    "stop an AM": (500, 6_000),
    "lose a NodeManager": (1_000, 9_000),
    "cut a host off": (200, 6_000),
    "cut the leader off": (200, 6_000),
    "lose ZooKeeper": (200, 6_000),
    "lose answers of ZooKeeper": (500, 5_000),
    "lose Kafka": (200, 5_000),
    "lose answers of Kafka": (500, 4_000),
    "fail launches": (500, 6_000),
    "hang a promotion": (2_000, 8_000),
    "cut a container off from Kafka": (500, 9_000),
    "fill a host": (1_000, 8_000),
    "slow a disk": (1_000, 8_000),
    "drain a host": (1_000, 8_000),
}
