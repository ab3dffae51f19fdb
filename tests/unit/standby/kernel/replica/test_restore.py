"""Where a replica's state comes from: the kernel as a whole, with real HTTP between its containers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standby.adapters.peers import connection
from standby.errors import Transient
from standby.kernel import probes
from standby.kernel.ports import Database, InUse, Profile
from standby.kernel.replica import restore
from standby.kernel.replica.runner import ReplicaRunner
from standby.kernel.restore.fetch import FETCHES, Scratch
from standby.kernel.restore.snapshots import SNAPSHOTS, NotNow, Offer
from standby.kernel.store import places
from standby.kernel.store.store import TaskStore, read_side_file
from standby.replica.lifecycle import Signal
from standby.replica.store.keys import prefix
from standby.replica.store.origin import DATABASE
from standby.shared.model import Phase, Role, TaskId
from standby.shared.naming import state_path
from standby.shared.peers import PeerAddress
from tests.fakes.peers import PeerNet, Provider, SilentPort, by_source
from tests.meanwhile import Hold
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS


@pytest.fixture
def lab(make_lab: MakeLab, net: PeerNet, tmp_path: Path, request: pytest.FixtureRequest) -> MemoryLab:
    """A lab with one state directory; a test may have so many as its parameter says."""
    directories = [str(tmp_path / f"disk-{each}") for each in range(getattr(request, "param", 1))]
    lab = make_lab(1, **{"job.restore.peer.min.records": "20", "job.state.dir": ",".join(directories)})
    lab.net = net
    return lab


def sources(container: MemoryContainer) -> dict[str, float]:
    return by_source(container.restores)


def failures(container: MemoryContainer) -> dict[str, float]:
    return by_source(container.restores, "standfast_restore_failures_total")


def asked(provider: Provider) -> int:
    return sum(each.method == "POST" for each in provider.requests)


def active_and_standby(lab: MemoryLab, records: int = 100) -> tuple[MemoryContainer, MemoryContainer]:
    """Start an active in a and a standby in b; by default with more than enough records."""
    lab.placed.placed, lab.placed.in_sync = {0: "a", 1: "b", 2: "c"}, (0, 1)
    active = lab.begun(records)
    return active, lab.container("b").stand_by()


def new_standby(lab: MemoryLab, epoch: int = 1) -> MemoryContainer:
    """Start one more standby, in c."""
    return lab.container("c").want(2, Role.STANDBY, epoch)


def restored(lab: MemoryLab, epoch: int = 1) -> MemoryContainer:
    """Start one more standby, in c, and wait until it has its state."""
    return new_standby(lab, epoch).await_phase(Phase.TAILING)


def test_a_new_standby_fetches_from_a_standby_and_follows_the_active(lab: MemoryLab, net: PeerNet) -> None:
    active, standby = active_and_standby(lab)
    # The first standby could only ask the active.
    assert sources(standby) == {"active": 1}
    assert asked(net.provider_of("a")) == 1
    new = restored(lab)
    assert sources(new) == {"standby": 1}
    assert asked(net.provider_of("a")) == 1, "the active was asked for nothing more"
    assert net.provider_of("b").snapshots.lent == 0
    active.process(50)
    new.eventually(lambda: new.status().lag_records == 0)
    # And it can take over from there.
    active.want(0, Role.STANDBY, 2)
    new.activate(2, 2).process(50)
    lab.assert_exact()


def test_a_short_changelog_is_replayed(lab: MemoryLab, net: PeerNet) -> None:
    _, standby = active_and_standby(lab, 3)
    assert sources(standby) == {"changelog": 1}
    assert net.provider_of("a").requests == []


def test_left_over_state_is_used_before_anybody_is_asked(lab: MemoryLab, net: PeerNet) -> None:
    _, standby = active_and_standby(lab)
    standby.close()
    before = asked(net.provider_of("a"))
    again = lab.container("b").stand_by()
    assert sources(again) == {"local": 1}
    assert asked(net.provider_of("a")) == before


def active_has_been(lab: MemoryLab) -> None:
    """Run an active alone, in a, until it has processed more than enough records, and close it."""
    lab.placed.placed, lab.placed.in_sync = {0: "a", 2: "c"}, (0,)
    lab.begun(100).close()


def test_an_active_gives_nothing_before_its_first_commit(lab: MemoryLab) -> None:
    active_has_been(lab)
    # It claims its next epoch, and has not committed the input that waits.
    passed, go_on = [0], threading.Event()

    def hold(point: str) -> None:
        passed[0] += point == probes.BEFORE_COMMIT
        if passed[0] > 1:
            go_on.wait(PATIENCE_SECONDS)

    lab.produce(10)
    lab.container("a", probe=hold).activate(0, 2).await_phase(Phase.ACTIVE)
    new = new_standby(lab, epoch=2)
    new.eventually(lambda: any("waiting for a replica" in each for each in new.details))
    assert sources(new) == {}
    go_on.set()
    new.await_phase(Phase.TAILING)
    assert sources(new) == {"active": 1}


def test_an_active_without_input_gives_what_it_has(lab: MemoryLab) -> None:
    active_has_been(lab)
    lab.container("a").activate(0, 2).await_phase(Phase.ACTIVE)
    assert sources(restored(lab, epoch=2)) == {"active": 1}


def nobody_gives(lab: MemoryLab, net: PeerNet) -> None:
    """One is registered no more, the other's port is closed."""
    del net.addresses["b"]
    net.provider_of("a").close()


def nothing_is_read(lab: MemoryLab, net: PeerNet) -> None:
    """Neither registrations nor records."""
    net.is_away = True


def changelog_was_made_again(lab: MemoryLab, net: PeerNet) -> None:
    """The provider does not know yet; the fetcher does."""
    lab.kafka.topic_ids["changelog"] = "made again"


def standby_gives_other_bytes(lab: MemoryLab, net: PeerNet) -> None:
    net.provider_of("b").change = lambda piece: bytes((piece[0] ^ 1,)) + piece[1:]


def both_give_other_bytes(lab: MemoryLab, net: PeerNet) -> None:
    for each in net.providers:
        each.change = lambda piece: bytes((piece[0] ^ 1,)) + piece[1:]


@pytest.mark.parametrize(
    ("hurt", "source", "failed"),
    [
        (nobody_gives, "changelog", {"active": 1, "standby": 1}),
        (nothing_is_read, "changelog", {"active": 1, "standby": 1}),
        (changelog_was_made_again, "changelog", {"active": 1, "standby": 1}),
        (standby_gives_other_bytes, "active", {"standby": 1}),
        (both_give_other_bytes, "changelog", {"active": 1, "standby": 1}),
    ],
)
def test_a_source_of_no_use_costs_its_turn_and_nothing_else(
    lab: MemoryLab,
    net: PeerNet,
    hurt: Callable[[MemoryLab, PeerNet], None],
    source: str,
    failed: dict[str, float],
) -> None:
    active_and_standby(lab)
    hurt(lab, net)
    new = restored(lab)
    assert sources(new) == {source: 1}
    assert failures(new) == failed
    assert all(each.snapshots.lent == 0 for each in net.providers), "what was of no use was given back"
    directory = Path(lab.config.state_dirs[0])
    left = (directory / state_path("cluster", "c", lab.tasks[0], "run")).parent / FETCHES
    assert {each.name for each in left.glob("*")} <= {"main.0.lock"}, "what was in vain takes no room"


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
def test_a_copy_that_is_complete_is_not_fetched_in_vain(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    """A broker is away for a moment, just when the copy is to be opened: what was fetched stays."""
    active, _ = active_and_standby(lab)
    # Nothing else brings the state.
    lab.kafka.starts["changelog", 0] = 1
    directory = Path(lab.config.state_dirs[0])
    place = directory / state_path("cluster", "c", lab.tasks[0], "run")
    answers, asked_for = lab.kafka.is_unanswered, list[str]()

    def is_unanswered(question: str) -> bool:
        # Other replicas' threads ask about the changelog, too.
        if question == "changelog_bounds" and place.is_dir() and not asked_for:
            asked_for.append(question)
            return True
        return answers(question)

    monkeypatch.setattr(lab.kafka, "is_unanswered", is_unanswered)
    if role is Role.ACTIVE:
        active.want(0, Role.STANDBY, 2)
        lab.name(2, 2)
    new = lab.container("c").want(2, role, 2).await_phase(Phase.TAILING, Phase.ACTIVE, Phase.FAILED)
    assert asked_for == ["changelog_bounds"]
    assert new.are(Phase.TAILING, Phase.ACTIVE), new.statuses()
    assert sources(new) == {"local": 1}


def test_a_state_of_another_run_is_not_given(lab: MemoryLab) -> None:
    active, _ = active_and_standby(lab)
    task = lab.tasks[0]
    assert isinstance(active.replicas.offer(task, "run"), Offer)
    with pytest.raises(NotNow, match="of run other is not held here"):
        active.replicas.offer(task, "other")
    with pytest.raises(NotNow, match="is not held here"):
        active.replicas.offer(TaskId(JOB, "main", 7), "run")


def fetched_in_part(lab: MemoryLab, net: PeerNet) -> MemoryContainer:
    """Return a new standby whose provider, the standby in b, has died when the half of its copy was there."""
    for number in range(20):
        lab.kafka.append("changelog", 0, prefix("counts") + b"large %d" % number, bytes(100_000))
    active_and_standby(lab)
    sent, hold = [0], Hold()

    def count(piece: bytes) -> None:
        sent[0] += len(piece)
        if sent[0] > 1_200_000:
            hold()

    net.provider_of("b").on_piece = count
    new = new_standby(lab)
    hold.await_reached()
    net.provider_of("b").close()
    hold.let_go()
    return new


def copy_size(lab: MemoryLab) -> int:
    """Return the bytes of a copy that is lent at the moment; it is one file."""
    directory = Path(lab.config.state_dirs[0])
    return max(each.stat().st_size for each in directory.rglob(f"{SNAPSHOTS}/*/{DATABASE}/*"))


def test_what_a_provider_that_died_has_given_counts_as_room_for_the_rest(
    lab: MemoryLab, net: PeerNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for one copy: without that the whole changelog would be replayed."""

    def room(place: Path) -> int:
        return restore._SPARE_BYTES + copy_size(lab) - Scratch(place).held_bytes

    monkeypatch.setattr(restore, "free_bytes", room)
    new = fetched_in_part(lab, net)
    new.await_phase(Phase.TAILING)
    assert sources(new) == {"active": 1}


@pytest.mark.parametrize(("first", "source"), [(0, "active"), (1, None)])
def test_state_that_is_too_old_makes_room_for_a_copy(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, first: int, source: str | None
) -> None:
    """It would be deleted for a replay of the whole changelog, too, but for nothing less than a replacement."""
    active, standby = active_and_standby(lab)
    standby.close()
    ballast = (
        Path(lab.config.state_dirs[0]) / state_path("cluster", "b", lab.tasks[0], "run") / DATABASE / "0.sst"
    )
    ballast.write_bytes(bytes(100_000))

    def room(place: Path) -> int:
        taken = 100_000 if ballast.exists() else 0
        return restore._SPARE_BYTES + copy_size(lab) - Scratch(place).held_bytes - taken

    monkeypatch.setattr(restore, "free_bytes", room)
    lab.kafka.starts["changelog", 0] = first
    lab.now_ms += 90_000_000
    active.process(1)  # its own state is known to be complete at this time, too
    again = lab.container("b").want(1, Role.STANDBY, 1)
    if source is not None:
        again.await_phase(Phase.TAILING)
        assert sources(again) == {source: 1}
    else:
        again.eventually(lambda: any("has lost its beginning" in each for each in again.details))
        assert ballast.exists()


@pytest.mark.parametrize("lab", [2], indirect=True)
def test_what_was_fetched_is_gone_on_with_where_it_lies(
    lab: MemoryLab, net: PeerNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though another disk has more room by then: there all of it would be fetched once more."""
    monkeypatch.setattr(places, "free_bytes", lambda place: (10 << 30) - Scratch(place).held_bytes)
    new = fetched_in_part(lab, net)
    new.await_phase(Phase.TAILING)
    assert sources(new) == {"active": 1}
    (held,) = new.replicas.held()
    place = held.place()
    assert place is not None
    assert place.is_relative_to(lab.config.state_dirs[0])


@pytest.fixture
def silence_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent provider is not given up: what continues did not wait for it."""
    monkeypatch.setattr(restore, "_SILENCE_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(restore, "_SILENCE_URGENT_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(connection, "_CONNECT_SECONDS", NEVER_SECONDS)


@pytest.mark.usefixtures("silence_has_no_end")
@pytest.mark.parametrize("where", ["file", "slot", "round", "silent"])
def test_closing_does_not_wait_for_what_is_fetched(lab: MemoryLab, net: PeerNet, where: str) -> None:
    active_and_standby(lab)
    reached, go_on = net.provider_of("b").hold_files()
    silent = SilentPort()
    new = lab.container("c")
    peers = net.peers_of("c")
    if where == "silent":
        for container in ("a", "b"):
            net.addresses[container] = PeerAddress(container, "127.0.0.1", silent.port)
        reached = silent.reached
    elif where == "round":
        # Busy: both providers lend as many copies as they may.
        for container in ("a", "b"):
            for _ in range(2):
                net.provider_of(container).snapshots._making += 1
        reached.set()
    elif where == "slot":
        peers = new.replicas._environment.peers  # type: ignore[assignment]
        for _ in range(2):
            peers.slots.take(2, lambda: False)
        reached.set()
    new.want(2, Role.STANDBY, 1)
    assert reached.wait(PATIENCE_SECONDS)
    new.eventually(lambda: bool(new.statuses()))
    if where == "round":
        new.eventually(lambda: any("waiting for a replica" in each for each in new.details))
    elif where == "slot":
        new.eventually(lambda: bool(peers.slots._changed._waiters))  # type: ignore[attr-defined]
    new.close()
    go_on.set()
    silent.close()


@pytest.mark.usefixtures("silence_has_no_end")
def test_a_promotion_does_not_wait_for_a_provider_that_is_silent(lab: MemoryLab, net: PeerNet) -> None:
    active, standby = active_and_standby(lab)
    silent = SilentPort()
    # The host of both was cut off, in the midst of it: nothing is refused, and nothing comes.
    new = lab.container("c")
    for container in ("a", "b"):
        net.addresses[container] = PeerAddress(container, "127.0.0.1", silent.port)
    new.want(2, Role.STANDBY, 1)
    assert silent.reached.wait(PATIENCE_SECONDS)
    standby.close()
    lab.name(2, 2)
    lab.placed.placed, lab.placed.in_sync = {2: "c"}, (2,)
    new.want(2, Role.ACTIVE, 2).await_phase(Phase.ACTIVE)
    active.want(0, Role.STANDBY, 2)
    new.process(30)
    lab.assert_exact()
    assert sources(new) == {"changelog": 1}
    silent.close()


def promoted_by_a_standby(
    lab: MemoryLab, former: MemoryContainer, new: MemoryContainer, then: Callable[[], None] = lambda: None
) -> None:
    """Lose the active, and promote the one in c, which gets its state from the standby in b."""
    former.close()
    lab.name(2, 2)
    lab.placed.placed, lab.placed.in_sync = {1: "b", 2: "c"}, (1, 2)
    new.want(2, Role.ACTIVE, 2)
    then()
    new.process(30)
    assert sources(new) == {"standby": 1}
    lab.assert_exact()


def test_a_promotion_goes_on_with_what_a_living_standby_gives(lab: MemoryLab, net: PeerNet) -> None:
    active, _ = active_and_standby(lab)
    reached, go_on = net.provider_of("b").hold_files()
    new = new_standby(lab)
    assert reached.wait(PATIENCE_SECONDS)
    promoted_by_a_standby(lab, active, new, go_on.set)


def test_a_promotion_does_not_wait_for_bandwidth(lab: MemoryLab, monkeypatch: pytest.MonkeyPatch) -> None:
    active, _ = active_and_standby(lab)
    new, reached = lab.container("c"), threading.Event()

    def take(amount: int, per_second: int) -> float:
        reached.set()
        return NEVER_SECONDS

    monkeypatch.setattr(new.replicas._environment.peers.rate_limiter, "take", take)  # type: ignore[union-attr]
    new.want(2, Role.STANDBY, 1)
    assert reached.wait(PATIENCE_SECONDS)
    promoted_by_a_standby(lab, active, new)


def test_a_busy_provider_is_waited_for(lab: MemoryLab, net: PeerNet) -> None:
    active_and_standby(lab)
    for container in ("a", "b"):
        net.provider_of(container).snapshots._making += 2
    new = new_standby(lab)
    new.eventually(lambda: any("waiting for a replica" in each for each in new.details))
    snapshots = net.provider_of("b").snapshots
    with snapshots._changed:
        snapshots._making -= 2
        snapshots._changed.notify_all()
    new.await_phase(Phase.TAILING)
    assert sources(new) == {"standby": 1}


def test_a_source_that_gave_other_bytes_is_not_asked_again_while_another_is_waited_for(
    lab: MemoryLab, net: PeerNet
) -> None:
    active_and_standby(lab)
    standby_gives_other_bytes(lab, net)
    busy = net.provider_of("a").snapshots
    busy._making += 2
    before = asked(net.provider_of("a"))
    new = new_standby(lab)
    new.eventually(lambda: asked(net.provider_of("a")) == before + 2)
    with busy._changed:
        busy._making -= 2
        busy._changed.notify_all()
    new.await_phase(Phase.TAILING)
    assert sources(new) == {"active": 1}
    assert failures(new) == {"standby": 1}


@pytest.mark.parametrize("lab", [2], indirect=True)
def test_a_state_that_was_refused_is_not_used_later_from_another_disk(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was past the end of the changelog, which has grown since: it had what the changelog has lost."""
    active, standby = active_and_standby(lab)
    standby.close()
    active.close()
    del lab.kafka.logs["changelog", 0][-2:]
    path = state_path("cluster", "b", lab.tasks[0], "run")
    refused, used = (Path(each) / path for each in lab.config.state_dirs)
    assert read_side_file(refused) is not None
    monkeypatch.setattr(places, "free_bytes", lambda place: (1 << 30) << (place == used))
    again = lab.container("b").stand_by()
    (held,) = again.replicas.held()
    assert held.place() == used
    assert read_side_file(refused) is None


def test_a_state_that_was_refused_is_not_used_by_a_later_attempt(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog has grown past its position meanwhile."""
    lab.begun(100).close()
    lost = lab.kafka.logs["changelog", 0][-2:]
    del lab.kafka.logs["changelog", 0][-2:]

    def fails_once(*means: Any) -> TaskStore:
        monkeypatch.undo()
        lab.kafka.logs["changelog", 0] += lost
        raise Transient("its broker is away")

    monkeypatch.setattr(restore, "open_empty", fails_once)
    again = lab.container("a").stand_by(0, 2)
    assert sources(again) == {"changelog": 1}


def test_who_can_give_is_waited_for_while_zookeeper_is_away(lab: MemoryLab) -> None:
    """The whole changelog was replayed, although a peer had the state."""
    active_and_standby(lab)
    lab.records.is_away = True
    new = new_standby(lab)
    new.eventually(lambda: "waiting for a replica that can give its state" in new.details)
    lab.records.is_away = False
    new.await_phase(Phase.TAILING)
    assert sources(new) == {"standby": 1}


def test_what_is_going_on_is_reported(lab: MemoryLab, net: PeerNet) -> None:
    active_and_standby(lab)
    reached, go_on = net.provider_of("b").hold_files()
    new = new_standby(lab)
    assert reached.wait(PATIENCE_SECONDS)
    assert new.status().detail == "fetching state from the standby at epoch 1: 0.0 of 0.0 MB"
    go_on.set()
    new.await_phase(Phase.TAILING)
    assert new.status().detail == "", "what was said is over"


@pytest.mark.parametrize(("seconds", "is_told_again"), [(1.9, False), (2.0, True)])
def test_progress_is_told_every_two_seconds(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, seconds: float, is_told_again: bool
) -> None:
    """A report of the container followed each piece that had come, up to ten a second."""
    active_and_standby(lab)
    lab.clock.hold()
    told: list[str] = []

    def tell(_: ReplicaRunner, what: str, is_progress: bool) -> None:
        told.append(what)
        lab.clock.advance(seconds)

    monkeypatch.setattr(ReplicaRunner, "_say", tell)
    new_standby(lab).await_phase(Phase.TAILING)
    assert (len(told) > 1) is is_told_again


def test_state_fetched_that_turns_out_bad_is_not_fetched_again(lab: MemoryLab, net: PeerNet) -> None:
    active_and_standby(lab)
    new = restored(lab)
    (held,) = new.replicas.held()
    held._reporting(held._run)(Signal.STATE_LOST, "for the test")
    new.eventually(lambda: sources(new) == {"standby": 1, "changelog": 1})
    new.await_phase(Phase.TAILING)


def test_state_that_turned_out_bad_is_not_used_again_although_it_cannot_be_deleted_yet(
    lab: MemoryLab,
) -> None:
    """Another process holds its database, or an error that somebody keeps."""
    refusals: list[InUse] = []

    def open_or_refuse(path: Path, profile: Profile) -> Database:
        if refusals:
            raise refusals.pop()
        return lab.disk.open(path, profile)

    container = lab.container("a", databases=open_or_refuse).activate()
    container.process(20)
    (held,) = container.replicas.held()
    refusals.append(InUse(Path("state"), "lock hold by current process"))
    held._reporting(held._run)(Signal.STATE_LOST, "a damaged block")
    container.eventually(lambda: not refusals and sum(sources(container).values()) == 2)
    container.await_phase(Phase.ACTIVE)
    assert sources(container) == {"changelog": 2}


def test_state_that_turned_out_bad_is_not_used_again_although_the_replica_is_revoked_at_once(
    lab: MemoryLab,
) -> None:
    container = lab.container("a").activate().process(20)
    (held,) = container.replicas.held()
    place, go_on = held.place(), threading.Event()
    held._worker.put(lambda: go_on.wait(PATIENCE_SECONDS) and None)
    held._reporting(held._run)(Signal.STATE_LOST, "a damaged block")
    container.eventually(lambda: container.phases == [Phase.OPENING])
    container.obey(())
    container.eventually(lambda: container.phases == [Phase.CLOSING])
    go_on.set()
    container.eventually(lambda: set(container.phases) <= {Phase.CLOSED})
    assert place is not None
    assert read_side_file(place) is None


def test_an_active_that_waits_for_its_state_waits_for_no_other_fetch(lab: MemoryLab, net: PeerNet) -> None:
    active, _ = active_and_standby(lab)
    new = lab.container("c")
    slots = new.replicas._environment.peers.slots  # type: ignore[union-attr]
    for _ in range(2):
        assert slots.take(2, lambda: False)
    new.want(2, Role.STANDBY, 1)
    new.eventually(lambda: bool(vars(slots._changed)["_waiters"]))
    promoted_by_a_standby(lab, active, new)
