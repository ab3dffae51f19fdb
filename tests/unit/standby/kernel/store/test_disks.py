"""Several state directories on disks of their own: one that fails costs neither the container nor the task."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import OWN, POSITION
from standby.replica.store.origin import DATABASE
from standby.shared.model import Phase, Role
from standby.shared.naming import state_path
from tests.fakes.peers import PeerNet
from tests.meanwhile import Hold
from tests.memory_lab import MakeLab, MemoryLab
from tests.patience import PATIENCE_SECONDS

Disks = tuple[Path, Path]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    """Two disks, the first with more room; they take memory only as they fill."""
    made = []
    for name, size in (("one", "640m"), ("two", "320m")):
        path = tmp_path / name
        path.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=False)
        if mounted.returncode:
            pytest.skip("this user may not mount a disk")
        made.append(path)
    yield made[0], made[1]
    for each in made:
        subprocess.run(["umount", "-l", each], check=True)


@pytest.fixture
def lab(disks: Disks, make_lab: MakeLab) -> MemoryLab:
    return make_lab(1, **{"job.state.dir": f"{disks[0]},{disks[1]}", "job.restore.peer.min.records": "20"})


def fill(disk: Path) -> None:
    """Leave no byte on the disk."""
    with pytest.raises(OSError, match="No space left"), (disk / "ballast").open("wb", buffering=0) as out:
        write_for_ever(out.write)


def write_for_ever(write: Callable[[bytes], int | None]) -> None:
    while True:
        write(b"\0" * (1 << 20))


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def where(lab: MemoryLab, disk: Path) -> Path:
    return disk / state_path("cluster", "a", lab.tasks[0], "run")


def contents(lab: MemoryLab, disk: Path) -> dict[bytes, bytes]:
    database = open_database(where(lab, disk) / DATABASE, Profile.SERVING)
    found = {key: value for key, value in database.items(b"") if key not in (POSITION, OWN)}
    database.close()
    return found


def test_a_disk_that_fails_moves_the_tasks_state_and_nothing_else(lab: MemoryLab, disks: Disks) -> None:
    """What fails of a disk: `tests/unit/standby/kernel/restore/test_snapshots.py`."""
    container = lab.container("a", databases=open_database).activate().process(100)
    assert where(lab, disks[0]).is_dir(), "the disk with more room"
    assert not where(lab, disks[1]).exists()
    # The replica is given up and opened again, in the same container. A disk that is written to cannot be made
    # read-only from outside.
    container.replicas.obey((), {"ledger": lab.definition})
    container.await_all(lambda each: each.phase is Phase.CLOSED)
    make_read_only(disks[0])
    container.activate(0, 2).process(100)
    assert container.replicas.broken is None
    container.close()
    assert contents(lab, disks[1]) == lab.changelog_content()
    lab.assert_exact()


def test_a_disk_that_gets_full_during_a_fetch_costs_neither_task_nor_container(
    lab: MemoryLab, disks: Disks, tmp_path: Path
) -> None:
    lab.placed.placed, lab.placed.in_sync = {0: "provider", 1: "a"}, (0,)
    net = PeerNet()
    provider = lab.container("provider", databases=open_database).activate().process(100)
    net.give("provider", provider.replicas.offer).on_piece = hold = Hold()
    taker = lab.container("a", databases=open_database, peers=net.peers_of("a")).want(1, Role.STANDBY, 1)
    hold.await_reached()
    fill(disks[0])
    hold.let_go()
    taker.await_phase(Phase.TAILING)
    # It is fetched once more, onto the other one.
    assert {labels[1] for labels, _ in next(iter(taker.restores.metrics())).values} == {"active"}
    assert where(lab, disks[1]).is_dir()
    assert taker.replicas.broken is None
    taker.close()
    provider.replicas.close(PATIENCE_SECONDS)
    net.close()
    assert contents(lab, disks[1]) == lab.changelog_content()
