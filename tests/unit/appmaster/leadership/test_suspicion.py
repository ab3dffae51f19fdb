"""When a leader's silence is judged, by what its port and ZooKeeper show."""

from __future__ import annotations

from appmaster.leadership.suspicion import CALM_MS, PROCESS_LOST_MS, Beat, PortAnswer, Suspicion
from tests.cases import case

HOST_MS = 1_000

STEP_MS = 50


def lost_after(
    answer: PortAnswer,
    known_ms: int,
    *,
    host_ms: int = HOST_MS,
    has_beats: bool = False,
    epoch: int = 7,
    beat_epoch: int | None = None,
    gap_ms: int = 0,
) -> int | None:
    """Return how long after its last answer a leader is lost that was known for so long; None: not within a minute.

    Nobody looks for ``gap_ms`` after that answer.
    """
    suspicion = Suspicion(host_ms)
    for now in range(0, known_ms + 1, STEP_MS):
        assert not suspicion.is_lost(now, 7, PortAnswer.ACCEPTED, Beat(beat_epoch or 7, now))
    for now in range(known_ms + gap_ms + STEP_MS, known_ms + 60_000, STEP_MS):
        if suspicion.is_lost(now, epoch, answer, Beat(beat_epoch or epoch, now if has_beats else known_ms)):
            return now - known_ms
    return None


def test_verdict_waits_for_both_signs_and_longer_where_less_is_known() -> None:
    for said, found, expected in (
        ("a host", lost_after(PortAnswer.NONE, CALM_MS), HOST_MS),
        ("a process", lost_after(PortAnswer.ACCEPTED, CALM_MS), PROCESS_LOST_MS),
        ("a name that is not resolved", lost_after(PortAnswer.NOT_ASKED, CALM_MS), PROCESS_LOST_MS),
        ("cut off from this candidate alone", lost_after(PortAnswer.NONE, CALM_MS, has_beats=True), None),
        ("by its key", lost_after(PortAnswer.NONE, CALM_MS, host_ms=6_000), 6_000),
        ("a process, by its key", lost_after(PortAnswer.ACCEPTED, CALM_MS, host_ms=6_000), 6_000),
        ("a host, soon after a change", lost_after(PortAnswer.NONE, STEP_MS), PROCESS_LOST_MS),
        ("another leader", lost_after(PortAnswer.NONE, CALM_MS, epoch=8), PROCESS_LOST_MS),
        ("of a release without beats", lost_after(PortAnswer.NONE, CALM_MS, beat_epoch=2), None),
        (
            "by a candidate that stood still itself",
            lost_after(PortAnswer.NONE, CALM_MS, gap_ms=PROCESS_LOST_MS),
            PROCESS_LOST_MS + HOST_MS,
        ),
    ):
        with case(said):
            allowed = [None] if expected is None else range(expected, expected + 2 * STEP_MS + 1)
            assert found in allowed


def test_hosts_that_stall_again_and_again_cost_a_leader_each_half_minute_at_most() -> None:
    changes, epoch, now = 0, 7, 0
    suspicion = Suspicion(HOST_MS)
    while now < 10 * CALM_MS:
        # Each two seconds a leader's host stalls for longer than the time-out.
        is_stalled = now % 2_000 < HOST_MS + 300
        answer = PortAnswer.NONE if is_stalled else PortAnswer.ACCEPTED
        if suspicion.is_lost(now, epoch, answer, Beat(epoch, now - now % 2_000 if is_stalled else now)):
            changes, epoch = changes + 1, epoch + 1
        now += STEP_MS
    assert changes == 9
