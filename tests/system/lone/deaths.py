"""Deaths of an active in the kernel's lab: in the middle of a batch, and repeatedly under load."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from typing import Any

from standby.shared.model import Phase, ReplicaStatus, Role
from tests.kernel_lab import Child, Container, Lab

#: The fixture that starts kernels in processes of their own.
StartChild = Callable[..., Child]

#: The point of the deadly passing, its number, and more for `tests.fakes.kernel_child.Spec`.
Death = tuple[Any, ...]


def named(death: Death) -> str:
    """Return the name of a test's case."""
    return f"{death[0]} {death[1]} {len(death) - 2}"


def succeed_one_that_dies_in_a_batch(
    lab: Lab, start_child: StartChild, death: Death
) -> Collection[ReplicaStatus]:
    """Have a standby take over when the active dies there, and the dead one's disk come back; all must be exact.

    Returns how the successor's replicas were when all input was processed.
    """
    point, hit, more = (*death, {})[:3]
    doomed = start_child(lab, "host-a", kill_at=point, hit=hit, **more)
    lab.promote(doomed, 0, 1)
    with lab.local("host-b") as successor:
        successor.want(1, Role.STANDBY, 1)
        successor.await_phase(Phase.TAILING)
        lab.produce(900)
        assert doomed.await_death() == -signal.SIGKILL
        if more.get("hold_at"):
            assert sorted(offset > 0 for offset in lab.committed_offsets()) == [False, True]
        lab.promote(successor, 1, 2)
        lab.produce(300)
        successor.await_processed()
        statuses = successor.statuses().values()
        # The dead one's disk is worth something: it comes back, and only a tail is replayed.
        with lab.local("host-a") as returned:
            returned.want(0, Role.STANDBY, 2)
            returned.await_phase(Phase.TAILING)
    lab.assert_exact()
    lab.assert_local_state("host-a")
    lab.assert_local_state("host-b")
    return statuses


def take_over_and_die(
    lab: Lab,
    start_child: StartChild,
    keeper: Container,
    epoch: int,
    before_death: Callable[[], None] = lambda: None,
) -> None:
    """Have another process take all tasks over from ``keeper`` at ``epoch`` and be killed; the keeper succeeds it.

    ``before_death`` is called when the keeper follows it.
    """
    doomed = take_over(lab, start_child, keeper, epoch)
    doomed.await_all(lambda each: each.first_commit_ms is not None)
    keeper.await_phase(Phase.TAILING)
    before_death()
    doomed.send(signal.SIGKILL)
    succeed(lab, doomed, keeper, epoch + 1)


def take_over(lab: Lab, start_child: StartChild, keeper: Container, epoch: int, **death: object) -> Child:
    """Have another process take all tasks over from ``keeper`` at ``epoch``, and the keeper follow it; return it.

    ``death`` is where it dies by itself: ``kill_at`` and ``hit`` of `tests.fakes.kernel_child.Spec`.
    """
    doomed = start_child(lab, "host-a", **death)
    doomed.want(0, Role.STANDBY, epoch - 1)
    # The dead one's left-over state is worth something: it is back after a tail.
    doomed.await_phase(Phase.TAILING)
    lab.name(0, epoch, claimed=True)
    keeper.want(1, Role.STANDBY, epoch)
    doomed.want(0, Role.ACTIVE, epoch)
    return doomed


def succeed(lab: Lab, doomed: Child, keeper: Container, epoch: int) -> None:
    """Have ``keeper`` take over at ``epoch`` from a process that is dying, and commit."""
    assert doomed.await_death() == -signal.SIGKILL
    lab.promote(keeper, 1, epoch)
    keeper.await_all(lambda each: each.first_commit_ms is not None)


def process_the_rest(lab: Lab, epoch: int) -> None:
    """Have all input processed that came before the load ended; exactness is cumulative, and judged now."""
    lab.name(1, epoch, claimed=True)
    with lab.local("host-b") as keeper:
        keeper.want(1, Role.ACTIVE, epoch)
        keeper.await_processed()
    lab.assert_exact()
    lab.assert_local_state("host-b")
