"""A candidate's code service on a directory in memory: what it does when a step fails, or something comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from appmaster.code.rules import Directory
from appmaster.code.service import CodeService
from appmaster.code.store import BundleStore
from standby.code import bundles
from standby.errors import BadConfiguration, Transient
from standby.shared.peers import BundleSource
from tests.fakes.clock import HandClock, held
from tests.patience import PATIENCE_SECONDS, soon
from tests.unit.appmaster.conftest import Died

DATA = b"abc" * 1000
DIGEST = bundles.digest_of(DATA)
ME = BundleSource("a", "h", 1)


class MemoryDirectory:
    """A `CodeDirectory` that says what the test sets."""

    def __init__(self, directory: Directory, clock: HandClock) -> None:
        self.directory = directory
        self._clock = clock
        self.announced: list[str] = []
        self.condemned: list[str] = []
        #: Called when a source's registration is to end.
        self.withdrawing: Callable[[], None] = lambda: None
        #: Called when the service looks.
        self.reading: Callable[[], None] = lambda: None
        self._changed: Callable[[], None] = lambda: None

    def say(self, directory: Directory | None = None) -> None:
        """Have the service look, and return once it has done what follows from it."""
        self.directory = directory or self.directory
        self._changed()
        self._clock.await_looks("code")

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def close(self) -> None:
        pass

    def read(self) -> Directory:
        self.reading()
        return self.directory

    def fresh(self, timeout_seconds: float) -> Directory:
        return self.directory

    def announce(self, bundle: str, source: BundleSource) -> None:
        self.announced.append(bundle)

    def withdraw(self, bundle: str, source: BundleSource) -> None:
        self.withdrawing()

    def revive(self, bundle: str) -> None:
        pass

    def condemn(self, bundle: str, epoch: int) -> None:
        self.condemned.append(bundle)
        raise BadConfiguration("/jobs/j: not a record of this version")

    def bury(self, bundle: str, version: int) -> bool:
        return True

    def activate(self, job: str, run: str, revision: int, epoch: int) -> None:
        raise AssertionError("no job waits")


class NoWay:
    """A distributor that gives nothing and takes everything."""

    def __init__(self) -> None:
        self.published: list[str] = []

    def publish(self, bundle: str, path: Path) -> None:
        self.published.append(bundle)

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        raise Transient("no candidate gives it")

    def forget(self, bundle: str, bury: Callable[[], bool]) -> None:
        bury()

    def interrupt(self) -> None:
        pass


class LateWay(NoWay):
    """Gives a bundle when it is asked for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        self.asked += 1
        if self.asked == 1:
            super().fetch(bundle, sources, part)
        part.write_bytes(DATA)


@contextmanager
def running(
    directory: MemoryDirectory, store: BundleStore, clock: HandClock, way: NoWay | None = None
) -> Iterator[CodeService]:
    service = CodeService(
        ME,
        store,
        directory,
        way or NoWay(),
        clock,
        sync_seconds=30,
        delete_delay_ms=1_000,
        fenced=lambda _: None,
    )
    service.start()
    yield service
    service.close()


def holding(directory: Path) -> BundleStore:
    (directory / DIGEST).write_bytes(DATA)
    return BundleStore(directory)


def test_what_cannot_be_deleted_is_not_tried_again_at_every_turn(tmp_path: Path) -> None:
    clock = held()
    directory = MemoryDirectory(Directory(frozenset({"a"}), {DIGEST: (ME,)}), clock)
    with running(directory, holding(tmp_path), clock) as service:
        service.lead(1)
        directory.say()
        assert directory.condemned == []
        clock.advance(1)
        soon(lambda: directory.condemned, "no job has named it for long")
        for _ in range(5):
            directory.say()
        assert directory.condemned == [DIGEST]
        clock.advance(0.25)
        soon(lambda: len(directory.condemned) == 2, "tried once more after a while")
        clock.advance(0.45)
        directory.say()
        assert len(directory.condemned) == 2, "and later each time"


def test_who_has_removed_what_was_just_uploaded_does_not_say_that_he_holds_it(tmp_path: Path) -> None:
    """The upload found the bundle here, complete, while it was on its way out: a job would be activated by it."""
    store, clock = holding(tmp_path), held()
    deleted = Directory(frozenset({"a"}), {DIGEST: (ME,)}, deleted={DIGEST: 1})
    directory = MemoryDirectory(deleted, clock)
    with running(directory, store, clock) as service:
        directory.say()
        directory.withdrawing = lambda: service.received(DIGEST)
        clock.advance(1)
        soon(lambda: not store.has(DIGEST), "after the delay it goes")
        directory.say(Directory(frozenset({"a"}), {DIGEST: ()}, deleted={DIGEST: 1}))
        assert service.view.held == frozenset()
        assert directory.announced == []


def test_what_could_not_be_had_is_fetched_later_reported_and_published(tmp_path: Path) -> None:
    clock, way = held(), LateWay()
    other = BundleSource("b", "h", 2)
    directory = MemoryDirectory(Directory(frozenset({"a", "b"}), {DIGEST: (other,)}), clock)
    with running(directory, BundleStore(tmp_path), clock, way) as service:
        soon(lambda: DIGEST in service.view.failures, "no candidate gives it")
        directory.say()
        assert way.asked == 1
        clock.advance(30)
        soon(lambda: directory.announced, "it came when it was asked for again")
        assert service.view.failures == {}
        soon(lambda: service.view.published == {DIGEST}, "others may have it from here")
        assert way.published == [DIGEST]


def test_part_that_nothing_is_added_to_is_removed_unless_it_is_fetched(tmp_path: Path) -> None:
    clock = held()
    given_up, grows, fetched = (digit * 64 for digit in "123")
    directory = MemoryDirectory(Directory(frozenset({"a"}), {fetched: ()}), clock)
    store = BundleStore(tmp_path)
    for each in (given_up, grows):
        store.append(each, 0, b"x")
    for each in (
        f"{given_up}.fetched",
        f"{given_up}.fetched._COPYING_",
        f"{fetched}.fetched",
        "something.else",
    ):
        (tmp_path / each).write_bytes(b"x")
    with running(directory, store, clock):
        directory.say()
        clock.advance(3_599)
        store.append(grows, 1, b"x")
        directory.say()
        assert len(list(tmp_path.iterdir())) == 6
        clock.advance(31)
        soon(lambda: not store.size(given_up), "an hour later")
        directory.say()
        assert {each.name for each in tmp_path.iterdir()} == {
            f"{grows}.part",
            f"{fetched}.fetched",
            "something.else",
        }
    assert store.append(given_up, 1, b"x") == 0, "whoever goes on with it sends it from its beginning"


def test_unexpected_error_ends_the_thread_and_so_the_candidate(tmp_path: Path, died: Died) -> None:
    clock = held()
    directory = MemoryDirectory(Directory(), clock)

    def fail() -> None:
        raise LookupError("planted")

    directory.reading = fail
    with running(directory, BundleStore(tmp_path), clock):
        thread = died.get(timeout=PATIENCE_SECONDS).thread
        assert thread is not None
        assert thread.name == "code"
