"""Directories whose paths YARN cannot take, under names that it can."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.machine.aliases import alias, remove_aliases
from embedded.registry import ID_FILE, cluster_directory, end


@pytest.fixture
def cluster_id() -> Iterator[str]:
    made = str(uuid.uuid4())
    yield made
    remove_aliases(made)


def test_a_plain_path_stays_as_it_is(cluster_id: str) -> None:
    path = Path("/var/lib/standfast-1.0/local_x+y=z@3/default")
    assert alias(cluster_id, "cluster", path) == path


def test_an_odd_path_has_a_plain_name_that_leads_to_it(cluster_id: str, tmp_path: Path) -> None:
    for odd in " \"'`$&;#?%,:\\*()[]{}<>|!~ü":
        path = tmp_path / f"a{odd}b"
        path.mkdir()
        (path / "file").write_text("there", encoding="ascii")
        plain = alias(cluster_id, "cluster", path)
        assert plain != path, odd
        assert alias(cluster_id, "again", plain) == plain, odd
        assert (plain / "file").read_text(encoding="ascii") == "there", odd


def test_a_name_leads_where_it_was_last_asked_to(cluster_id: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a b", tmp_path / "c d"
    link = alias(cluster_id, "java", first)
    assert alias(cluster_id, "java", first) == link
    assert alias(cluster_id, "java", second) == link
    assert link.readlink() == second


def test_the_end_of_a_cluster_removes_its_names_and_nothing_that_they_lead_to(
    cluster_id: str, tmp_path: Path
) -> None:
    jars = tmp_path / "the jars"
    jars.mkdir()
    environment = {"STANDFAST_HOME": str(tmp_path / "a home")}
    directory = cluster_directory("here", environment)
    directory.mkdir(parents=True)
    (directory / ID_FILE).write_text(cluster_id, encoding="ascii")
    link = alias(cluster_id, "cluster", directory)
    alias(cluster_id, "hadoop", jars)
    assert end("here", environment)
    assert not link.parent.exists()
    assert not directory.exists()
    assert jars.exists()
