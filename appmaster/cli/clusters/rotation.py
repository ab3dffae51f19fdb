"""Rotates the credentials of a whole cluster while its jobs run.

There are three steps, each taken when every process has followed the one before: all processes trust the new authority
in addition to the old one, and still show certificates of the old one; all show certificates of the new one; none
trusts the old one any more. So any two processes can communicate at any time, and an interrupted rotation is continued
by the same command. Whether a process has followed is found out by connecting to it, not from what it reports.

Once the certificates have expired, nobody accepts them: the first step could not be seen to be done, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from appmaster.adapters.credentials.keyring import Keyring
from appmaster.adapters.credentials.processes import ClusterProcess
from appmaster.adapters.zookeeper.credentials import ZooKeeperCredentials
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.waiting import PollResult, until
from standby.errors import StandfastError
from standby.security.credentials import Credentials
from standby.shared.roles import PeerRole

#: Roles of the processes that run.
_RUNNING = (PeerRole.MASTER, PeerRole.CONTAINER)


#: Returns why a process does not accept a client with these credentials, or is not trusted by it; empty: neither.
Try = Callable[[ClusterProcess, Credentials], str]


@dataclass(frozen=True, slots=True)
class RotationStep:
    """The credentials that all processes are given, and the test whether a process has followed."""

    said: str
    given: Mapping[PeerRole, Credentials]
    lags: Callable[[ClusterProcess], str]
    """Returns why a process has not followed yet; empty: it has."""


def steps(ring: Keyring, number: int, talk: Try) -> Iterator[RotationStep]:
    """Yield the steps of a rotation; the credentials are numbered from ``number`` on."""
    following = ring.next()
    old, new = ring.authorities(), following.authorities()

    def given(source: Keyring, trust: str, at: int) -> dict[PeerRole, Credentials]:
        return {role: _of(source, role, trust, at) for role in _RUNNING}

    def operator(source: Keyring, trust: str) -> Credentials:
        return _of(source, PeerRole.OPERATOR, trust, number)

    def still_trusted(process: ClusterProcess) -> str:
        why = talk(process, operator(following, new))
        if why:
            return why
        # This connection has to fail.
        return "" if talk(process, operator(ring, new)) else "still trusts the former authority"

    if not ring.has_expired:
        yield RotationStep(
            "every process trusts the new authority, too",
            given(ring, old + new, number),
            lambda process: talk(process, operator(following, old + new)),
        )
    yield RotationStep(
        "every process shows a new certificate",
        given(following, old + new, number + 1),
        lambda process: talk(process, operator(following, new)),
    )
    yield RotationStep(
        "no process trusts the former authority", given(following, new, number + 2), still_trusted
    )


def rotate(
    ring: Keyring,
    credentials: ZooKeeperCredentials,
    running: Callable[[], Sequence[ClusterProcess]],
    talk: Try,
    say: Callable[[str], None],
    deadline: Deadline,
) -> int:
    """Give a cluster, and ``ring``, other credentials; return the number under which they were given out.

    ``running`` returns the cluster's processes. Raises `StandfastError` naming those that have not followed in time;
    the same call continues from there.
    """
    if last := ring.resume():
        return last
    before = [
        ring.number,
        *(each.number for role in _RUNNING if (each := credentials.given(role)) is not None),
    ]
    number = max(before) + 1
    for step in steps(ring, number, talk):
        for role, each in step.given.items():
            credentials.give(role, each)
        _await(step, running, deadline)
        say(step.said)
    last = number + 2
    ring.finish(last)
    return last


def renew(ring: Keyring) -> int:
    """Give ``ring`` other credentials, of which nothing that exists has any; return their number."""
    last = ring.resume()
    if not last:
        last = ring.number + 1
        ring.next()
        ring.finish(last)
    return last


def _await(step: RotationStep, running: Callable[[], Sequence[ClusterProcess]], deadline: Deadline) -> None:
    def look() -> PollResult[dict[ClusterProcess, str]]:
        late = {each: why for each in sorted(running()) if (why := step.lags(each))}
        return PollResult(not late, late)

    late = until(deadline, look).what
    if late:
        reasons = "; ".join(f"{each}: {why}" for each, why in late.items())
        raise StandfastError(
            f"not true yet: {step.said}. {reasons}. The same command continues from there; end a process that is no "
            "longer needed"
        )


def _of(ring: Keyring, role: PeerRole, trust: str, number: int) -> Credentials:
    own = ring.pair(role)
    return Credentials(number, trust, own.certificate, own.key)
