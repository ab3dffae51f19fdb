"""A task's local state: what is used again, what is wiped, what survives a crash."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from standby import sweep
from standby.adapters.rocksdict import open_database
from standby.errors import BrokenInvariant, CorruptState, Transient, Unavailable
from standby.kernel.ports import Database, OpenDatabase, Profile
from standby.kernel.probes import no_probe
from standby.kernel.store.directories import make_private
from standby.kernel.store.leftovers import find_leftovers, purge_run
from standby.kernel.store.store import TaskStore, open_existing, wipe_store, write_side_file
from standby.replica.store.origin import DATABASE, SIDE_FILE, BeginningLost, Origin, Position
from standby.shared.model import Leftover, TaskId
from standby.shared.naming import state_path
from tests.fakes.database import MemoryDisk
from tests.fakes.stores import open_store
from tests.patience import PATIENCE_SECONDS

NOW = 1_700_000_000_000
ORIGIN = Origin("job", "main", 0, "run", "changelog", "id", 3_600_000)
TASK = TaskId("job", "main", 0)


def opened(
    path: Path,
    database: OpenDatabase,
    end: int = 1000,
    first: int = 0,
    now: int = NOW,
    origin: Origin = ORIGIN,
) -> TaskStore:
    return open_store(path, origin, (first, end), now, database, no_probe)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def filled(path: Path, database: OpenDatabase) -> None:
    """Leave state at offset 10 behind, closed in order."""
    store = opened(path, database)
    store.apply([(b"k", b"v")], 10, NOW)
    store.close()


def test_nothing_begins_behind_what_the_changelog_has_lost(disk: MemoryDisk, tmp_path: Path) -> None:
    filled(tmp_path / "t", disk.open)
    before = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(BeginningLost, match="changelog-0 has lost its beginning: it begins at offset 11"):
        opened(tmp_path / "t", disk.open, first=11)
    assert sorted((tmp_path / "t").rglob("*")) == before != []
    # What reaches beyond that is whole.
    store = opened(tmp_path / "t", disk.open, first=10)
    assert store.get_many([b"k"]) == [b"v"]
    store.close()


def test_nothing_of_an_open_state_counts_as_left_over(disk: MemoryDisk, tmp_path: Path) -> None:
    """Where systemd-tmpfiles removes old files, it skips what is below a directory that it cannot lock."""
    store = opened(tmp_path / "t", disk.open)
    directory = os.open(tmp_path / "t", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    store.close()
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(directory)


def test_the_position_never_falls(disk: MemoryDisk, tmp_path: Path) -> None:
    store = opened(tmp_path / "t", disk.open)
    store.apply([], 10, NOW)
    with pytest.raises(BrokenInvariant):
        store.apply([], 9, NOW)
    store.apply([], 10, 0)
    assert store.position == Position(10, NOW), "what is known about the past is not forgotten"


@pytest.mark.parametrize(
    ("expected", "end", "later_ms", "flushed"),
    [
        (replace(ORIGIN, run="run-2"), 1000, 0, 10),
        (replace(ORIGIN, topic_id="made again"), 1000, 0, 10),
        (ORIGIN, 9, 0, 10),
        (ORIGIN, 1000, 3_300_000, 10),
        (ORIGIN, 1000, 0, 11),
    ],
    ids=["another run", "another topic", "past the end", "older than tombstones", "less than was flushed"],
)
def test_state_that_does_not_fit_is_wiped(
    disk: MemoryDisk, tmp_path: Path, expected: Origin, end: int, later_ms: int, flushed: int
) -> None:
    place, now = tmp_path / "t", NOW + later_ms
    filled(place, disk.open)
    write_side_file(place, ORIGIN.at(Position(flushed, NOW)))
    side_file = (place / SIDE_FILE).read_bytes()
    # It may stay for a while: where another disk is taken for the state that is made instead, or after a kill.
    for _ in range(2):
        with pytest.raises(CorruptState):
            open_existing(place, expected, (0, end), now, disk.open, no_probe)
        assert (place / SIDE_FILE).read_bytes() == side_file
    store = opened(place, disk.open, end=end, now=now, origin=expected)
    assert store.position == Position(0, now)
    assert store.get_many([b"k"]) == [None]
    store.close()
    # And what was made instead is used next time.
    again = opened(place, disk.open, end=end, now=now, origin=expected)
    assert again.position.offset == 0
    again.close()


def test_a_changed_retention_counts_from_now_on(disk: MemoryDisk, tmp_path: Path) -> None:
    filled(tmp_path / "t", disk.open)
    longer = replace(ORIGIN, retention_ms=36_000_000)
    store = opened(tmp_path / "t", disk.open, now=NOW + 3_300_000, origin=longer)
    assert store.position.offset == 10
    store.apply([], 11, NOW)
    store.close()
    assert json.loads((tmp_path / "t" / SIDE_FILE).read_text())["retention_ms"] == 36_000_000


@pytest.mark.parametrize("damage", ["no side file", "side file cut", "database gone", "database broken"])
def test_damage_leads_to_a_fresh_start(disk: MemoryDisk, tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "t", disk.open)
    side = tmp_path / "t" / SIDE_FILE
    match damage:
        case "no side file":
            side.unlink()
        case "side file cut":
            side.write_bytes(side.read_bytes()[:20])
        case "database gone":
            (tmp_path / "t" / DATABASE).rmdir()
        case _:
            disk.corrupt.add(tmp_path / "t" / DATABASE)

    def repaired(path: Path, profile: Profile) -> Database:
        # Broken files are gone with the directory.
        if not path.is_dir():
            disk.corrupt.discard(path)
        return disk.open(path, profile)

    store = opened(tmp_path / "t", repaired)
    assert store.position == Position(0, NOW)
    assert store.get_many([b"k"]) == [None]


def test_state_held_by_another_process_is_neither_opened_nor_wiped(disk: MemoryDisk, tmp_path: Path) -> None:
    holder = opened(tmp_path / "t", disk.open)
    holder.apply([(b"k", b"v")], 10, NOW)
    with pytest.raises(Transient, match="in use"):
        opened(tmp_path / "t", disk.open)
    with pytest.raises(Transient, match="in use"):
        opened(tmp_path / "t", disk.open, origin=replace(ORIGIN, run="run-2"))
    with pytest.raises(Transient, match="in use"):
        wipe_store(tmp_path / "t", disk.open)
    assert holder.get_many([b"k"]) == [b"v"]


def test_a_full_disk_is_unavailable_and_lets_go_of_the_lock(disk: MemoryDisk, tmp_path: Path) -> None:
    store = opened(tmp_path / "t", disk.open)
    disk.is_full = True
    with pytest.raises(Unavailable, match="no space"):
        store.apply([(b"k", b"v")], 10, NOW)
    assert store.position.offset == 0, "nothing of the batch is there"
    with pytest.raises(Unavailable):
        store.close()
    disk.is_full = False
    opened(tmp_path / "t", disk.open).close()


@pytest.mark.parametrize("what", ["database", "side file"])
def test_an_empty_state_that_cannot_be_written_lets_go_of_the_lock(
    disk: MemoryDisk, tmp_path: Path, what: str
) -> None:
    """And a replica that is opened again there, once there is room, does not wait for its own process."""
    in_the_way = tmp_path / "t" / SIDE_FILE

    def fail() -> None:
        disk.is_full = what == "database"
        if what == "side file":
            in_the_way.mkdir()

    disk.on_write = fail
    with pytest.raises(Unavailable):
        opened(tmp_path / "t", disk.open)
    disk.is_full = False
    disk.on_write = lambda: None
    if what == "side file":
        in_the_way.rmdir()
    opened(tmp_path / "t", disk.open).close()


@pytest.mark.parametrize("job", ["totals", "checksums", "corruptions", "no such files"])
def test_what_is_wrong_with_a_disk_is_not_known_by_the_name_of_a_job(tmp_path: Path, job: str) -> None:
    """RocksDB's messages have paths in them; state of a job with such a name would be wiped for a full disk."""
    place = tmp_path / job / DATABASE
    (place / "LOCK").mkdir(parents=True)
    with pytest.raises(Unavailable, match=f"{job}.*Is a directory"):
        open_database(place, Profile.SERVING)


def test_far_behind_it_loads_and_later_serves(disk: MemoryDisk, tmp_path: Path) -> None:
    store = opened(tmp_path / "t", disk.open, end=10_000_000)
    assert disk.profiles == [Profile.LOADING]
    store.apply([(b"k", b"v")], 10_000_000, NOW)
    store.serve()
    store.serve()
    assert disk.profiles == [Profile.LOADING, Profile.SERVING]
    assert (store.get_many([b"k"]), store.position.offset) == ([b"v"], 10_000_000)
    store.close()


def test_a_state_that_cannot_be_opened_to_serve_keeps_no_descriptor(disk: MemoryDisk, tmp_path: Path) -> None:
    """The directory stayed open until the process ended, one more each time."""

    def is_open(directory: Path) -> bool:
        return directory in {each.resolve() for each in Path("/proc/self/fd").iterdir()}

    store = opened(tmp_path / "t", disk.open, end=10_000_000)
    assert is_open(tmp_path / "t")
    store._open_database = Mock(side_effect=Unavailable("the disk is full"))
    with pytest.raises(Unavailable, match="the disk is full"):
        store.serve()
    with pytest.raises(Unavailable, match="the store is closed"):
        store.get_many([b"k"])
    store.close()
    assert not is_open(tmp_path / "t")
    opened(tmp_path / "t", disk.open).close()


def test_after_a_crash_the_state_is_that_of_the_last_flush_which_an_idle_store_does_often_enough(
    disk: MemoryDisk, tmp_path: Path
) -> None:
    """A replica at the end of a silent changelog for hours, then killed: its state is still young enough to be used."""
    store = opened(tmp_path / "t", disk.open)
    store.apply([(b"k", b"v")], 10, NOW)
    now = NOW
    for _ in range(400):
        now += 30_000
        store.caught_up(now)
        if store.is_flush_due(now):
            store.flush()
    store.apply([(b"k", b"not flushed")], 20, now)
    disk.cut_power()
    store = opened(tmp_path / "t", disk.open, now=now + 1000)
    assert (store.position.offset, store.get_many([b"k"])) == (10, [b"v"])


# ---- the real thing ----


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real state, 2,000 rows at offset 2,000 in files, to be copied."""
    path = tmp_path_factory.mktemp("real") / "t"
    store = opened(path, open_database, end=5000)
    for each in range(20):
        rows = [(b"key %d" % number, b"v" * 100) for number in range(each * 100, each * 100 + 100)]
        store.apply(rows, each * 100 + 100, NOW)
        store.flush()
    store.close()
    return path


@pytest.mark.parametrize("name", ["MANIFEST-*", "CURRENT", "*.sst"])
@pytest.mark.parametrize("how", ["emptied", "removed", "cut", "flipped"])
def test_damaged_files_never_give_wrong_state(left_behind: Path, tmp_path: Path, name: str, how: str) -> None:
    """Re-seeded, or refused when read; never a store that answers wrongly."""
    state = Path(shutil.copytree(left_behind, tmp_path / "t"))
    file = max((state / DATABASE).glob(name))
    data = file.read_bytes()
    match how:
        case "emptied":
            file.write_bytes(b"")
        case "removed":
            file.unlink()
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case _:
            middle = len(data) // 3
            file.write_bytes(data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :])
    store = opened(state, open_database, end=5000)
    if store.position.offset == 0:
        assert list(store.items(b"")) == [(b"\x00position", Position(0, NOW).encode())]
    else:
        assert store.position.offset == 2000
        try:
            rows = list(store.items(b"key"))
            values = store.get_many([b"key %d" % number for number in range(2000)])
        except Exception as error:  # noqa: BLE001 - an iterator raises what rocksdict has
            assert "Corruption" in str(error)  # noqa: PT017 - either is right
        else:
            assert len(rows) == 2000
            assert values == [b"v" * 100] * 2000
    store.close()


def test_left_over_state_is_found_without_opening_it(disk: MemoryDisk, tmp_path: Path) -> None:
    place = tmp_path / state_path("c", "host", TASK, "run")
    filled(place, disk.open)
    (place / DATABASE / "LOCK").touch()
    other = TaskId("job", "main", 1)
    filled_other = tmp_path / state_path("c", "other-host", other, "run")
    filled(filled_other, disk.open)

    def look(host: str = "host", now: int = NOW) -> tuple[Leftover, ...]:
        return find_leftovers([tmp_path, tmp_path / "missing"], "c", host, now)

    assert look() == (Leftover(TASK, "run", 10, NOW),)
    assert look(now=NOW + 3_300_000) == (), "older than the tombstones"
    assert look(host="nowhere") == ()
    (place / SIDE_FILE).write_text("broken")
    assert look() == ()


def test_state_of_a_deleted_run_is_removed_and_nothing_else(disk: MemoryDisk, tmp_path: Path) -> None:
    for run, partition in (("run", 0), ("run", 1), ("other", 0)):
        filled(tmp_path / state_path("c", "host", TaskId("job", "main", partition), run), disk.open)
    purge_run([tmp_path, tmp_path / "missing"], "c", "host", "job", "run")
    left = {
        path.relative_to(tmp_path).parts[3]
        for path in tmp_path.rglob("*")
        if len(path.relative_to(tmp_path).parts) > 3
    }
    assert left == {"other"}
    purge_run([tmp_path], "c", "host", "job", "other")
    assert list(tmp_path.iterdir()) == [], "the directories above are empty and go too"


def test_a_sweep_removes_state_beside_a_disk_that_fails_and_says_that_some_is_left(
    disk: MemoryDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name that is too long is an error for everybody, also for root.
    good, bad = str(tmp_path / "good"), str(tmp_path / ("x" * 300))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NM_HOST", "host")
    for directories, status in ((bad, good), 1), ((good,), 0):
        filled(Path(good, state_path("c", "host", TASK, "run")), disk.open)
        Path(sweep.FILE).write_bytes(msgspec.json.encode(sweep.Sweep(directories, "c", "job", "run")))
        assert sweep.main() == status
        assert not list(tmp_path.rglob(SIDE_FILE))


def test_state_that_two_processes_remove_at_once_is_removed(
    disk: MemoryDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / state_path("c", "host", TASK, "run")
    filled(place, disk.open)
    (place / "another").touch()
    unlink = os.unlink

    def unlinked_just_before(*path: Path, dir_fd: int | None = None) -> None:
        unlink(*path, dir_fd=dir_fd)
        raise FileNotFoundError

    monkeypatch.setattr(os, "unlink", unlinked_just_before)
    assert purge_run([tmp_path], "c", "host", "job", "run")
    assert list(tmp_path.iterdir()) == []


def test_state_whose_removal_is_cut_off_is_recognised_as_nobodys(
    disk: MemoryDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in (0, 1):
        filled(tmp_path / state_path("c", "host", TaskId("job", "main", partition), "run"), disk.open)
    monkeypatch.setattr("shutil.rmtree", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        purge_run([tmp_path], "c", "host", "job", "run")
    assert not list(tmp_path.rglob(SIDE_FILE))


def test_default_directory_goes_with_its_last_state_and_one_that_was_given_stays(
    disk: MemoryDisk, tmp_path: Path
) -> None:
    for mode, is_left in ((0o1777, False), (0o755, True)):
        above = tmp_path / f"{mode:o}"
        above.mkdir()
        above.chmod(mode)
        filled(above / "standfast-me" / state_path("c", "host", TASK, "run"), disk.open)
        purge_run([above / "standfast-me"], "c", "host", "job", "run")
        assert (above / "standfast-me").exists() == is_left
        assert not is_left or list((above / "standfast-me").iterdir()) == []


def test_directories_are_made_for_their_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "standfast" / "c" / "host")
    finally:
        os.umask(before)
    for each in ("standfast", "standfast/c", "standfast/c/host"):
        assert (tmp_path / each).stat().st_mode & 0o7777 == 0o700


def test_a_directory_is_made_although_others_remove_it_while_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    make = Path.mkdir

    def taken_away(path: Path, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        make(path, mode, exist_ok=exist_ok)
        made.append(path)
        if len(made) == 1:
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", taken_away)
    make_private(tmp_path / "a" / "b")
    assert made == [tmp_path / "a", tmp_path / "a", tmp_path / "a" / "b"]


def test_left_over_state_of_a_living_process_is_not_offered(tmp_path: Path) -> None:
    place = tmp_path / state_path("c", "host", TASK, "run")
    filled(place, open_database)
    hold = (
        "import sys; from pathlib import Path; from rocksdict import Rdict, Options\n"
        "db = Rdict(sys.argv[1], Options(raw_mode=True)); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(place / DATABASE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert find_leftovers([tmp_path], "c", "host", NOW) == ()
        purge_run([tmp_path], "c", "host", "job", "run")
        assert place.is_dir(), "its owner removes it"
        holder.kill()
    assert find_leftovers([tmp_path], "c", "host", NOW) == (Leftover(TASK, "run", 10, NOW),)


def test_it_closes_while_others_look_things_up(tmp_path: Path) -> None:
    store = opened(tmp_path / "t", open_database)
    store.apply([(b"k", b"v")], 10, NOW)
    enough, ends = threading.Semaphore(0), []

    def read() -> None:
        try:
            while True:
                assert store.look_up([b"k", b"other"] * 50)[:2] == [b"v", None]
                enough.release()
        except Unavailable as error:
            ends.append(str(error))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for each in readers:
        each.start()
    for _ in range(300):
        assert enough.acquire(timeout=PATIENCE_SECONDS)
    store.flush()
    store.apply([(b"l", b"w")], 11, NOW)
    # RocksDB's own wrapper would refuse to close under a reader, and keep the lock.
    store.close()
    for each in readers:
        each.join(PATIENCE_SECONDS)
    assert len(ends) == 3
    again = opened(tmp_path / "t", open_database)
    assert again.position.offset == 11
    again.close()
