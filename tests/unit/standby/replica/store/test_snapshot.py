"""What travels with a copy of state, and where it may come from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from standby.errors import CorruptState
from standby.replica.store.origin import Origin
from standby.replica.store.snapshot import Manifest, SnapshotFile, decode_manifest, resumable
from standby.replica.store.sources import Peer, StateSource, peers_of
from standby.shared.model import Role, TaskId, TaskRecord
from tests.cases import case

ORIGIN = Origin("job", "main", 3, "run", "changelog", "id", 3_600_000, 17, 1_700_000_000_000)
A, B, C = (SnapshotFile(f"00000{each}.sst", each, f"{each}" * 64) for each in (1, 2, 3))
MANIFEST = Manifest("lease", ORIGIN, Role.STANDBY, 4, (A, B, C))


def test_a_manifest_arrives_as_it_was_sent() -> None:
    assert decode_manifest(b"   " + MANIFEST.encode()) == MANIFEST
    assert MANIFEST.total_bytes == 6
    assert json.loads(MANIFEST.encode())["format"] == 1, "containers of other releases read it"
    empty = replace(MANIFEST, files=(replace(A, size=0),))
    assert decode_manifest(empty.encode()) == empty


def test_what_is_no_manifest_or_was_cut_short_is_refused() -> None:
    for path, value in (
        (("format",), 2),
        (("lease",), "../other"),
        (("epoch",), "4"),
        (("role",), "leader"),
        (("origin",), None),
        (("origin", "offset"), "17"),
        (("files", 0, "name"), "../../etc/passwd"),
        (("files", 0, "name"), ".hidden"),
        (("files", 0, "name"), "a/b"),
        (("files", 0, "name"), "000002.sst"),
        (("files", 0, "size"), -1),
        (("files", 0, "size"), 1.0),
        (("files", 0, "sha256"), "1" * 63),
        (("files",), 5),
    ):
        content: Any = json.loads(MANIFEST.encode())
        inner = content
        for each in path[:-1]:
            inner = inner[each]
        inner[path[-1]] = value
        with case(path, value), pytest.raises(CorruptState):
            decode_manifest(json.dumps(content).encode())
    for data in (b"", b"[]", b"{}", b"null", MANIFEST.encode()[:-9]):
        with case(data), pytest.raises(CorruptState):
            decode_manifest(data)


def test_only_files_of_the_same_digest_are_gone_on_with() -> None:
    changed = replace(B, sha256="f" * 64)
    now = replace(MANIFEST, lease="another", files=(A, changed, C))
    present = {A.name: 1, B.name: 2, C.name: 1, "old.sst": 9}
    assert resumable(MANIFEST, now, present) == ({A.name: 1, C.name: 1}, [B.name, "old.sst"])
    # Without knowing what they were meant to be, and where they are longer than that, nothing is kept.
    assert resumable(None, now, present) == ({}, sorted(present))
    assert resumable(MANIFEST, now, {A.name: 2}) == ({}, [A.name])


def record(**more: Any) -> TaskRecord:
    return TaskRecord(TaskId("job", "main", 3), active=1, epoch=4, **more)


def test_standbys_are_asked_before_the_active_and_those_in_sync_first() -> None:
    placed = {0: "c0", 1: "c1", 2: "c2", 3: "c3"}
    assert peers_of(record(placed=placed, in_sync=(1, 3)), "c0") == (
        Peer(3, "c3", StateSource.STANDBY),
        Peer(2, "c2", StateSource.STANDBY),
        Peer(1, "c1", StateSource.ACTIVE),
    )


def test_a_copy_that_moves_is_fetched_from_where_it_was_and_no_request_without_a_placement() -> None:
    moving = record(placed={1: "c1", 2: "old"}, in_sync=(1, 2), moving={2: "new"})
    assert [each.container for each in peers_of(moving, "new")] == ["old", "c1"]
    assert peers_of(None, "c0") == ()
    assert peers_of(record(placed={0: "c0"}), "c0") == ()
