"""What is cleared from a host's state directories, and what is left alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from standby.adapters.rocksdict import open_database
from standby.errors import Transient
from standby.kernel import strays
from standby.kernel.ports import Profile
from standby.kernel.probes import no_probe
from standby.kernel.restore import fetch
from standby.kernel.restore.fetch import FETCHES, Scratch
from standby.kernel.restore.snapshots import LEASE, SNAPSHOTS
from standby.kernel.store.leftovers import find_leftovers
from standby.kernel.strays import Roots, StateInUse, Strays
from standby.replica.store.origin import DATABASE, SIDE_FILE, Origin
from standby.shared.model import TaskId
from standby.shared.naming import state_path
from tests.fakes.stores import open_store

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


class Host:
    """Two disks of one host, and the container that looks after them."""

    def __init__(self, directory: Path) -> None:
        self.disks = [directory / "one", directory / "two"]
        self.known = StateInUse({}, {"job": "run"})
        self.now_ms = NOW
        self.opening = threading.Lock()
        roots = Roots(tuple(self.disks), "cluster", "host")
        self.strays = Strays(roots, lambda: self.known, self.opening, lambda: self.now_ms, HOUR)

    def state(
        self,
        number: int = 0,
        offset: int = 10,
        run: str = "run",
        disk: int = 0,
        job: str = "job",
        topic_id: str = "id",
    ) -> Path:
        """Leave state behind, as of now."""
        task = TaskId(job, "main", number)
        directory = self.disks[disk] / state_path("cluster", "host", task, run)
        origin = Origin(job, "main", number, run, "changelog", topic_id, DAY)
        store = open_store(directory, origin, (0, 100), self.now_ms, open_database, no_probe)
        store.apply([(b"k", b"v")], offset, self.now_ms)
        store.close()
        for each in (directory, directory / SIDE_FILE, directory / DATABASE):
            self.date(each)
        return directory

    def date(self, path: Path) -> None:
        os.utime(path, ns=(self.now_ms * 1_000_000, self.now_ms * 1_000_000))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_state_that_may_be_of_use_is_left_alone(host: Host) -> None:
    kept = [host.state(0), host.state(1), host.state(0, job="not known here", run="any")]
    host.now_ms += 20 * HOUR
    assert host.strays.clear() == []
    assert all(each.is_dir() for each in kept)


def test_state_older_than_the_tombstones_goes_and_so_do_empty_directories(host: Host) -> None:
    old, other = host.state(0), host.state(0, job="another")
    host.now_ms += DAY
    kept = host.state(1)
    host.now_ms += HOUR
    assert set(host.strays.clear()) == {old, other}
    assert kept.is_dir()
    assert not other.parents[1].exists()
    assert host.disks[0].joinpath("cluster", "host").is_dir()


def test_state_of_a_run_that_is_over_and_what_has_no_known_owner_goes_after_the_delay(host: Host) -> None:
    old, unknown = host.state(0, run="before"), host.state(1)
    (unknown / SIDE_FILE).write_bytes(b"{")
    host.date(unknown / SIDE_FILE)
    host.now_ms += HOUR - 1
    assert host.strays.clear() == []
    host.now_ms += 1
    assert set(host.strays.clear()) == {old, unknown}


def test_directories_of_a_job_are_looked_through_as_well(host: Host, tmp_path: Path) -> None:
    host.disks.append(tmp_path / "of the job")
    old = host.state(0, run="before", disk=2)
    host.now_ms += HOUR
    assert host.strays.clear() == []
    host.known = StateInUse({}, {"job": "run"}, (host.disks[1], host.disks[2]))
    assert host.strays.clear() == [old]
    assert not list(host.disks[2].iterdir())


def test_state_of_another_changelog_is_no_fresher_one(host: Host) -> None:
    """The one that was given up had come further; which one it is shows only when it is opened."""
    kept = [host.state(offset=50, topic_id="given up"), host.state(offset=10, disk=1)]
    host.now_ms += 20 * HOUR
    assert host.strays.clear() == []
    assert all(each.is_dir() for each in kept)


def test_of_two_disks_the_fresher_state_is_kept(host: Host) -> None:
    fresh, stale = host.state(0, 20, disk=0), host.state(0, 10, disk=1)
    host.now_ms += HOUR
    (leftover,) = find_leftovers(host.disks, "cluster", "host", host.now_ms)
    assert leftover.position == 20
    assert host.strays.clear() == [stale]
    assert fresh.is_dir()


def test_what_is_held_here_is_never_touched_and_what_it_is_not_open_in_goes(host: Host) -> None:
    held, stale = host.state(0, 10, run="before", disk=0), host.state(0, 20, run="before", disk=1)
    task = TaskId("job", "main", 0)
    host.now_ms += 2 * DAY
    host.known = StateInUse({task: None}, {"job": "run"})
    assert host.strays.clear() == [], "it is being opened, one of them or the other"
    host.known = StateInUse({task: held}, {"job": "run"})
    assert host.strays.clear() == [stale]
    link = host.disks[0].with_name("link")
    link.symlink_to(host.disks[0])
    host.known = StateInUse({task: link / held.relative_to(host.disks[0])}, {"job": "run"})
    assert host.strays.clear() == []
    (held / SIDE_FILE).write_bytes(b"{")
    host.date(held / SIDE_FILE)
    host.now_ms += 2 * DAY
    assert host.strays.clear() == [], "also if its side file cannot be read"
    assert held.is_dir()


def test_the_own_lock_survives_the_look_at_it(host: Host) -> None:
    """POSIX: closing any descriptor of the file would drop it, and another process could open the database."""
    directory = host.state(0, run="before")
    database = open_database(directory / DATABASE, Profile.SERVING)
    host.now_ms += 2 * DAY
    host.known = StateInUse({TaskId("job", "main", 0): directory}, {"job": "run"})
    host.strays.clear()
    assert is_locked_for_others(directory / DATABASE / "LOCK")
    database.close()
    assert not is_locked_for_others(directory / DATABASE / "LOCK")


def is_locked_for_others(lock: Path) -> bool:
    """Ask from another process."""
    program = f"import fcntl; fcntl.lockf(open({str(lock)!r}, 'rb+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode != 0


def test_nothing_is_looked_at_while_a_database_is_opened(host: Host) -> None:
    directory = host.state(0, run="before")
    host.now_ms += 2 * HOUR

    @contextmanager
    def opening() -> Iterator[None]:
        # What was opened until the lock is free is held from now on.
        host.known = StateInUse({TaskId("job", "main", 0): None}, {"job": "run"})
        yield

    host.strays._opening = opening()  # type: ignore[assignment]
    assert host.strays.clear() == []
    assert directory.is_dir()


def test_what_another_process_has_open_stays(host: Host) -> None:
    directory = host.state(0, run="before")
    host.now_ms += 2 * HOUR
    program = (
        f"import fcntl, sys; f = open({str(directory / DATABASE / 'LOCK')!r}, 'rb+'); "
        "fcntl.lockf(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        assert host.strays.clear() == []
        assert directory.is_dir()
        other.communicate("")
    assert host.strays.clear() == [directory]


def test_copies_lent_by_a_dead_process_go_and_those_of_a_living_one_stay(host: Host) -> None:
    snapshots = host.state(0).parent / SNAPSHOTS
    for name in ("dead", "alive", "new"):
        (snapshots / name / DATABASE).mkdir(parents=True)
        (snapshots / name / LEASE).touch()
        host.date(snapshots / name / DATABASE)
        host.date(snapshots / name)
    host.now_ms += 61_000
    host.date(snapshots / "new")
    with (snapshots / "alive" / LEASE).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert host.strays.clear() == [snapshots / "dead"]
    assert sorted(each.name for each in snapshots.iterdir()) == ["alive", "new"]


def test_what_was_fetched_in_part_goes_when_it_is_not_continued(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(host.state(0).parent / "main.1")
    with scratch.locked():
        (scratch.directory / DATABASE).mkdir()
        host.date(scratch.directory / DATABASE)
        host.now_ms += 2 * HOUR
        assert host.strays.clear() == [], "somebody is at it"
    refused: list[str] = []

    def delete(directory: Path) -> None:
        with pytest.raises(Transient) as raised, scratch.locked():
            pass
        refused.append(str(raised.value))
        shutil.rmtree(directory)

    monkeypatch.setattr(strays, "shutil", SimpleNamespace(rmtree=delete))
    assert host.strays.clear() == [scratch.directory]
    assert len(refused) == 1, "no fetch begins while it is deleted"
    assert not (scratch.directory.parent / FETCHES).exists()


def test_the_lock_of_a_fetch_that_is_over_goes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch that has opened it before tries again: another one may lock a new file of that name."""
    scratch = Scratch(host.state(0).parent / "main.1")
    with scratch.locked():
        scratch.directory.rmdir()
    (lock,) = scratch.directory.parent.iterdir()
    host.date(lock)
    assert host.strays.clear() == []
    host.now_ms += 2 * HOUR

    def flock(file: IO[bytes], how: int) -> None:
        scratch.directory.rmdir()
        assert host.strays.clear() == [lock]
        fcntl.flock(file, how)

    monkeypatch.setattr(fetch, "fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock}))
    with pytest.raises(Transient, match="just deleted"), scratch.locked():
        pass
