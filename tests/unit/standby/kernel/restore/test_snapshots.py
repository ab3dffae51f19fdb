"""A state that is given and fetched: a real database, real HTTP, and everything that may go wrong between."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from standby.adapters.peers.client import open_sources
from standby.adapters.rocksdict import open_database
from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.ports import SnapshotSource
from standby.kernel.probes import no_probe
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Scratch
from standby.kernel.restore.snapshots import LEASE_SECONDS, SNAPSHOTS, NotNow, Offer, Snapshots
from standby.kernel.store.places import by_free_space, open_found
from standby.kernel.store.store import TaskStore, open_existing
from standby.ports import PeerRefused
from standby.replica.store.origin import DATABASE, Origin
from standby.replica.store.snapshot import Manifest, decode_manifest
from standby.shared.model import Role, TaskId
from standby.shared.peers import PeerRequest
from standby.shared.roles import Caller, PeerRole
from standby.threads.worker import Worker
from tests.fakes.certificates import keys_of
from tests.fakes.clock import held
from tests.fakes.peers import PeerNet, Provider
from tests.fakes.stores import open_store
from tests.patience import A_MOMENT_SECONDS, NEVER_SECONDS, PATIENCE_SECONDS, soon

NOW = 1_700_000_000_000
TASK = TaskId("job", "main", 0)
ORIGIN = Origin("job", "main", 0, "run", "changelog", "id", 3_600_000)
END = 1_000_000


def nothing(*_: object) -> None:
    """Wait for nothing, report nothing."""


def opened(directory: Path) -> TaskStore | None:
    return open_existing(directory, ORIGIN, (0, END), NOW, open_database, no_probe)


def new_store(directory: Path) -> TaskStore:
    return open_store(directory, ORIGIN, (0, END), NOW, open_database, no_probe)


def fill(store: TaskStore, seed: int) -> None:
    """Put 8 MB that do not compress into a state, in several files."""
    noise = random.Random(seed)
    for offset in range(1, 5):
        store.apply([(b"%d/%d" % (offset, each), noise.randbytes(1000)) for each in range(2000)], offset, NOW)
        store.flush()


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled state, to be copied."""
    path = tmp_path_factory.mktemp("provider") / "task"
    store = new_store(path)
    fill(store, seed=7)
    store.close()
    return path


@pytest.fixture
def given(left_behind: Path, tmp_path: Path) -> Iterator[TaskStore]:
    store = new_store(Path(shutil.copytree(left_behind, tmp_path / "provider" / "task")))
    yield store
    store.close()


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path / "taker" / "task")


def install(scratch: Scratch, source: SnapshotSource, manifest: Manifest) -> None:
    with scratch.locked():
        scratch.fetch(source, manifest, nothing, nothing)
        scratch.install(manifest)


def lent_file(given: TaskStore, manifest: Manifest) -> Path:
    """Return where the biggest file of a copy is at the provider."""
    victim = max(manifest.files, key=lambda each: each.size)
    return given.directory.parent / SNAPSHOTS / manifest.lease / DATABASE / victim.name


@pytest.fixture
def provider(net: PeerNet, given: TaskStore) -> Provider:
    return net.give("provider", lambda task, run: offer(given))


def offer(store: TaskStore, rate: int = 0, concurrent: int = 2) -> Offer:
    return Offer(Role.STANDBY, 7, store.directory, store.checkpoint, rate, concurrent)


OpenSource = Callable[..., SnapshotSource]


@pytest.fixture
def open_source(net: PeerNet) -> Iterator[OpenSource]:
    """Return what connects to a provider; closed when the test is over."""
    connect, made = open_sources(keys_of(PeerRole.CONTAINER)), list[SnapshotSource]()

    def connected(silence_seconds: float = PATIENCE_SECONDS, *, is_urgent: bool = False) -> SnapshotSource:
        made.append(connect(net.addresses["provider"], silence_seconds, is_urgent=is_urgent))
        return made[-1]

    yield connected
    for each in made:
        each.close()


@pytest.fixture
def source(provider: Provider, open_source: OpenSource) -> SnapshotSource:
    return open_source()


def taken(source: SnapshotSource) -> Manifest:
    return decode_manifest(source.take(TASK, "run"))


def assert_same(directory: Path, given: TaskStore) -> None:
    """Compare byte for byte what is in both databases, the position with it."""
    store = opened(directory)
    assert store is not None
    assert list(store.items(b"")) == list(given.items(b""))
    store.close()


def test_what_arrives_is_what_was_given(
    given: TaskStore, source: SnapshotSource, provider: Provider, scratch: Scratch
) -> None:
    manifest = taken(source)
    assert (manifest.origin.offset, manifest.role, manifest.epoch) == (4, Role.STANDBY, 7)
    with scratch.locked():
        scratch.fetch(source, manifest, nothing, nothing)
        assert scratch.done_bytes == scratch.fetched_bytes == manifest.total_bytes > 8_000_000
        assert not scratch.final.exists(), "nothing is there before everything is"
        scratch.install(manifest)
    assert_same(scratch.final, given)
    source.release(manifest.lease)
    assert provider.snapshots.lent == 0
    assert list((given.directory.parent / SNAPSHOTS).iterdir()) == []


def test_a_state_its_copies_and_what_is_fetched_are_for_their_user_alone(
    net: PeerNet, open_source: OpenSource, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        store = new_store(tmp_path / "provider" / "task")
        net.give("provider", lambda task, run: offer(store))
        source = open_source()
        install(Scratch(tmp_path / "taker" / "task"), source, taken(source))
        # RocksDB makes its own directory itself.
        made = {each for each in tmp_path.rglob("*") if each.is_dir() and each.name != DATABASE}
        assert {each.stat().st_mode & 0o777 for each in made} == {0o700}, made
    finally:
        os.umask(before)
    store.close()


def break_off_after(provider: Provider, pieces: int, act: Callable[[], None]) -> None:
    left = [pieces]

    def count(_: bytes) -> None:
        left[0] -= 1
        if left[0] == 0:
            act()

    provider.on_piece = count


@pytest.mark.parametrize("comes_back", ["the connection", "another process with its disk"])
def test_a_source_that_dies_half_way_costs_only_the_rest(
    given: TaskStore,
    net: PeerNet,
    provider: Provider,
    open_source: OpenSource,
    scratch: Scratch,
    comes_back: str,
) -> None:
    source = open_source()
    manifest = taken(source)
    break_off_after(provider, 20, provider.cut_off if comes_back == "the connection" else provider.close)
    with scratch.locked(), pytest.raises(Transient):
        scratch.fetch(source, manifest, nothing, nothing)
    first = scratch.fetched_bytes
    assert 0 < first < manifest.total_bytes
    if comes_back == "the connection":
        # The copy is still lent: the file that broke off goes on where it did.
        again, lease = source, manifest
        provider.on_piece = nothing
    else:
        with pytest.raises(Transient):
            taken(source)
        net.give("provider", lambda task, run: offer(given))
        again = open_source()
        lease = taken(again)
        assert lease.lease != manifest.lease
    resumed = Scratch(scratch.final)
    install(resumed, again, lease)
    # Small files are made anew with each copy; those with the data are the same.
    assert resumed.fetched_bytes <= manifest.total_bytes - first + 300_000
    assert_same(scratch.final, given)


def test_a_copy_is_asked_for_while_what_is_there_already_is_read(
    source: SnapshotSource, provider: Provider, scratch: Scratch
) -> None:
    """Reading a large state takes longer than a copy is kept for which nobody asks, and so does each new attempt."""
    manifest = taken(source)
    with scratch.locked():
        scratch.fetch(source, manifest, nothing, nothing)
        provider.requests.clear()
        again = Scratch(scratch.final)
        again.fetch(source, manifest, nothing, nothing)
    assert (again.fetched_bytes, again.done_bytes) == (0, manifest.total_bytes)
    assert [each.path[-1] for each in provider.requests] == [each.name for each in manifest.files]


def test_what_was_damaged_here_between_two_attempts_is_fetched_again(
    given: TaskStore, source: SnapshotSource, scratch: Scratch
) -> None:
    manifest = taken(source)
    with scratch.locked():
        scratch.fetch(source, manifest, nothing, nothing)
        victim = max(manifest.files, key=lambda each: each.size)
        flip(scratch.directory / DATABASE / victim.name)
        again = Scratch(scratch.final)
        again.fetch(source, manifest, nothing, nothing)
        assert again.fetched_bytes == victim.size
        again.install(manifest)
    assert_same(scratch.final, given)


def flip(path: Path) -> None:
    """Flip a bit in the midst of a file; not in others that share its bytes."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_a_flipped_bit_at_the_provider_is_found_and_only_that_file_is_lost(
    given: TaskStore, source: SnapshotSource, scratch: Scratch
) -> None:
    manifest = taken(source)
    victim = lent_file(given, manifest)
    flip(victim)
    with scratch.locked(), pytest.raises(CorruptState, match=victim.name):
        scratch.fetch(source, manifest, nothing, nothing)
    assert not (scratch.directory / DATABASE / victim.name).exists()
    assert not scratch.final.exists()


def test_a_file_whose_size_changed_is_reported_at_once_or_spoils_nothing_behind_it(
    given: TaskStore, source: SnapshotSource, scratch: Scratch
) -> None:
    manifest = taken(source)
    victim = lent_file(given, manifest)
    data = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(data[:-1])
    # Not "timed out", as when the source counts as silent.
    with scratch.locked(), pytest.raises(Transient, match="IncompleteRead"):
        scratch.fetch(source, manifest, nothing, nothing)
    scratch.clear()
    victim.write_bytes(data + b"more" * 100_000)
    install(scratch, source, manifest)
    assert_same(scratch.final, given)


def test_a_fetcher_that_is_silent_loses_its_copy(
    given: TaskStore, source: SnapshotSource, provider: Provider
) -> None:
    provider.clock.hold()
    manifest = taken(source)
    for _ in range(2):
        provider.clock.advance(LEASE_SECONDS - 1)
        provider.clock.await_looks("snapshots")
        # Fetching keeps it.
        list(source.read(manifest.lease, "CURRENT", 0))
    provider.clock.advance(LEASE_SECONDS)
    soon(lambda: provider.snapshots.lent == 0, "it is taken back")
    with pytest.raises(PeerRefused, match="410"):
        list(source.read(manifest.lease, "CURRENT", 0))
    soon(lambda: not list((given.directory.parent / SNAPSHOTS).iterdir()), "nothing is left of it")


def test_a_copy_that_is_lent_just_before_the_next_look_is_waited_for_is_taken_back_too(
    given: TaskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would pin its files, and one of the places in line, until somebody else is lent one."""
    clock = held()
    snapshots = Snapshots(lambda task, run: offer(given), RestoreCounters(), clock)
    look, has_lent_again = snapshots.expire, threading.Event()

    def lend() -> None:
        assert list(snapshots.answer(request_of(TASK)).body)

    def look_and_lend() -> float | None:
        due = look()
        if due is None and not has_lent_again.is_set():
            lend()
            has_lent_again.set()
        return due

    monkeypatch.setattr(snapshots, "expire", look_and_lend)
    lend()
    clock.advance(LEASE_SECONDS)
    assert has_lent_again.wait(PATIENCE_SECONDS)
    clock.advance(LEASE_SECONDS)
    soon(lambda: snapshots.lent == 0, "the second copy is taken back")
    snapshots.close()


def test_no_more_copies_than_allowed_are_lent_and_the_next_in_line_has_one_as_soon_as_one_comes_back(
    source: SnapshotSource, open_source: OpenSource, provider: Provider
) -> None:
    provider.clock.hold()
    first, _ = taken(source), taken(source)
    other = open_source(NEVER_SECONDS)
    asked = Worker("fetcher").start().submit(lambda: other.take(TASK, "run", NEVER_SECONDS))
    soon(lambda: sum(each.method == "POST" for each in provider.requests) == 3, "the third one asks")
    source.release(first.lease)
    assert decode_manifest(asked.result(PATIENCE_SECONDS)).origin.offset == 4
    assert provider.snapshots.lent == 2
    provider.clock.hold("peer")
    for asked_for, waited in ((A_MOMENT_SECONDS, A_MOMENT_SECONDS), (NEVER_SECONDS, 10)):
        begun = provider.clock.monotonic()
        with pytest.raises(PeerRefused, match="as many copies as allowed") as refused:
            other.take(TASK, "run", asked_for)
        assert refused.value.is_soon
        assert provider.clock.monotonic() - begun == pytest.approx(waited, abs=0.001)


def test_an_active_that_waits_is_held_back_by_no_limit_of_the_provider(
    net: PeerNet, given: TaskStore, open_source: OpenSource, scratch: Scratch
) -> None:
    provider = net.give("provider", lambda task, run: offer(given, rate=1, concurrent=1))
    # A wait of the provider would be seen as time that has passed.
    provider.clock.hold("peer")
    begun = provider.clock.monotonic()
    standby, active = open_source(), open_source(is_urgent=True)
    taken(standby)
    with pytest.raises(PeerRefused, match="as many copies as allowed"):
        taken(standby)
    install(scratch, active, taken(active))
    assert provider.clock.monotonic() == begun
    assert_same(scratch.final, given)


@pytest.mark.parametrize("is_soon", [True, False])
def test_a_replica_that_cannot_give_says_why(net: PeerNet, open_source: OpenSource, is_soon: bool) -> None:
    def find(task: TaskId, run: str) -> Offer:
        raise NotNow(f"{task} of run {run}: not now", is_soon=is_soon)

    net.give("provider", find)
    with pytest.raises(PeerRefused, match=r"job/main\.0 of run run: not now") as refused:
        taken(open_source())
    assert refused.value.is_soon is is_soon


def test_a_copy_has_no_files_but_its_own(source: SnapshotSource) -> None:
    manifest = taken(source)
    for name in ("../lease", "..", "nothing.sst"):
        with pytest.raises(PeerRefused, match="404"):
            list(source.read(manifest.lease, name, 0))
    with pytest.raises(PeerRefused, match="416"):
        list(source.read(manifest.lease, "CURRENT", 10_000))


def test_a_provider_whose_disk_does_not_take_a_copy_lends_nothing(
    net: PeerNet, given: TaskStore, open_source: OpenSource
) -> None:
    def fail(_: Path) -> Origin:
        raise Unavailable("no space left on device")

    net.give("provider", lambda task, run: Offer(Role.STANDBY, 7, given.directory, fail, 0, 2))
    with pytest.raises(PeerRefused, match="no space left"):
        taken(open_source())
    assert list((given.directory.parent / SNAPSHOTS).iterdir()) == []
    assert net.providers[0].snapshots.lent == 0


def test_a_copy_that_is_made_while_its_container_ends_is_not_lent(given: TaskStore) -> None:
    def end(directory: Path) -> Origin:
        snapshots.close()
        return given.checkpoint(directory)

    lending = Offer(Role.STANDBY, 7, given.directory, end, 0, 2)
    snapshots = Snapshots(lambda task, run: lending, RestoreCounters(), held())
    with pytest.raises(Unavailable, match="the container ends"):
        snapshots.answer(request_of(TASK))
    assert list((given.directory.parent / SNAPSHOTS).iterdir()) == []


def test_a_manifest_that_is_cut_off_does_not_count_as_a_bad_copy(
    net: PeerNet, given: TaskStore, open_source: OpenSource
) -> None:
    def unreadable(directory: Path) -> Origin:
        (directory / "CURRENT").mkdir(parents=True)
        return ORIGIN

    net.give("provider", lambda task, run: Offer(Role.STANDBY, 7, given.directory, unreadable, 0, 2))
    with pytest.raises(Transient, match="cut off"):
        taken(open_source())


def test_a_fetcher_that_goes_away_during_the_summing_up_leaves_nothing_behind(
    given: TaskStore, provider: Provider
) -> None:
    answer = provider.snapshots._make(request_of(TASK))
    pieces = answer.body
    assert isinstance(pieces, Generator)
    next(pieces)
    assert provider.snapshots.lent == 1
    pieces.close()
    assert provider.snapshots.lent == 0


def request_of(task: TaskId) -> PeerRequest:
    query = {"job": task.job, "stage": task.stage, "partition": str(task.partition), "run": "run"}
    return PeerRequest(Caller(PeerRole.CONTAINER, "c"), "POST", ("snapshots",), query)


def test_files_that_were_summed_up_are_not_read_again(
    source: SnapshotSource, provider: Provider, given: TaskStore
) -> None:
    first = taken(source)
    before = dict(provider.snapshots._digests)
    source.release(first.lease)
    second = taken(source)
    assert provider.snapshots._digests == before
    assert [each for each in first.files if each.name.endswith(".sst")] == [
        each for each in second.files if each.name.endswith(".sst")
    ]


def test_a_source_that_was_called_off_asks_for_nothing_more(
    source: SnapshotSource, provider: Provider
) -> None:
    source.interrupt()
    with pytest.raises(Transient, match="cancelled"):
        taken(source)
    assert provider.requests == []


def test_two_processes_do_not_fetch_one_state_into_one_place(tmp_path: Path) -> None:
    first, second = Scratch(tmp_path / "task"), Scratch(tmp_path / "task")
    with first.locked(), pytest.raises(Transient, match="another process"), second.locked():
        pass
    with second.locked():
        pass


def test_what_a_provider_sends_is_throttled(net: PeerNet, given: TaskStore, open_source: OpenSource) -> None:
    clock = net.give("provider", lambda task, run: offer(given, rate=20_000_000)).clock
    clock.hold("peer")
    source = open_source()
    manifest = taken(source)
    begun = clock.monotonic()
    size = sum(len(piece) for each in manifest.files for piece in source.read(manifest.lease, each.name, 0))
    assert size == manifest.total_bytes
    # A tenth of a second's bytes go through at once.
    assert clock.monotonic() - begun == pytest.approx(size / 20_000_000 - 0.1)


# ---- disks ----


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MB of its own."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", path], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_full_disk_and_a_read_only_one_take_no_new_state(small_disk: Path, tmp_path: Path) -> None:
    roomy = tmp_path / "roomy"
    assert by_free_space([small_disk / "a/b", roomy / "a/b"], 4 << 20) == [roomy / "a/b", small_disk / "a/b"]
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert by_free_space([small_disk / "a/b", roomy / "a/b"]) == [roomy / "a/b"]
    with pytest.raises(Unavailable, match="no state can be written"):
        by_free_space([small_disk / "a/b"])


@pytest.mark.parametrize("fault", ["short", "full", "read-only"])
def test_state_on_a_disk_that_fails_is_not_gone_on_with_when_another_one_has_room(
    given: TaskStore, small_disk: Path, tmp_path: Path, fault: str
) -> None:
    store = new_store(small_disk / "task")
    store.apply([(b"k", b"v")], 9, NOW)
    store.close()
    places = [small_disk / "task", tmp_path / "roomy" / "task"]
    found = open_found(places, opened, 3 << 20)
    assert found is not None
    assert found.directory == small_disk / "task"
    found.close()
    if fault == "short":
        (small_disk / "ballast").write_bytes(b"x" * (4 << 20))
        found = open_found(places[:1], opened, 3 << 20)
        assert found is not None, "not to be able to write later is better than not to have the state now"
        found.close()
    elif fault == "full":
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "ballast").write_bytes(b"x" * (8 << 20))
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert open_found(places, opened, 3 << 20) is None
    assert by_free_space(places, 3 << 20)[0] == tmp_path / "roomy" / "task"


@pytest.mark.parametrize(("lacks", "is_used"), [(1, True), (0, False)])
def test_state_on_a_full_disk_is_gone_on_with_unless_another_one_has_room_for_it(
    given: TaskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int, is_used: bool
) -> None:
    """All of it would be restored on a disk that is full long before that."""
    given.close()
    size = sum(each.stat().st_size for each in (given.directory / DATABASE).iterdir())
    other = tmp_path / "other" / "task"
    rooms = {given.directory: 4095, other: 4096 + size - lacks}
    monkeypatch.setattr("standby.kernel.store.places.free_bytes", rooms.get)
    found = open_found([given.directory, other], opened, 4096)
    assert (found is not None) is is_used
    if found is not None:
        found.close()


def test_the_freshest_usable_state_of_several_disks_is_used(tmp_path: Path) -> None:
    places = [tmp_path / name / "task" for name in ("a", "b", "c")]
    for offset, place in enumerate(places, 1):
        store = new_store(place)
        store.apply([(b"k", b"%d" % offset)], offset, NOW)
        store.close()
    for freshest in (3, 2):
        found = open_found(places, opened)
        assert found is not None
        assert found.position.offset == freshest
        found.close()
        # The freshest one is broken: the next one will do.
        shutil.rmtree(places[2] / DATABASE)
        (places[2] / DATABASE).mkdir()


def test_a_lock_held_by_another_process_is_waited_for(given: TaskStore) -> None:
    with pytest.raises(Transient, match="in use"):
        open_found([given.directory], opened)
