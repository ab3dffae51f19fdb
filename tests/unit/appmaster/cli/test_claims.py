"""Cells that two submits want at the same time: one gets them, and the other one changes nothing of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from appmaster.adapters.zookeeper.cells import ZooKeeperCells
from appmaster.cli.launch.cells import Claims
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import Undo
from appmaster.records import CellRecord
from standby.errors import BadConfiguration, StandfastError
from standby.shared import naming
from tests.fakes.applications import Applications
from tests.fakes.jobs import job_config

#: Data, version and the session that it is of, by path.
Node = tuple[bytes, int, int]


class Session:
    """A session with a ZooKeeper that is a dictionary."""

    def __init__(self, nodes: dict[str, Node], number: int) -> None:
        self.nodes = nodes
        self.client_id = (number, b"")

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, makepath: bool) -> None:
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = (data, 0, self.client_id[0] if ephemeral else 0)

    def get(self, path: str, watch: object = None) -> tuple[bytes, Any]:
        if path not in self.nodes:
            raise NoNodeError
        data, version, owner = self.nodes[path]
        return data, SimpleNamespace(version=version, ephemeralOwner=owner)

    def get_children(self, path: str, watch: object = None) -> list[str]:
        below = (each.removeprefix(f"{path}/") for each in self.nodes if each.startswith(f"{path}/"))
        return [each for each in below if "/" not in each]

    def get_async(self, path: str, watch: object) -> Any:
        return SimpleNamespace(get=lambda timeout: self.get(path))

    def exists_async(self, path: str, watch: object) -> Any:
        return SimpleNamespace(get=lambda timeout: self.nodes.get(path))

    def set(self, path: str, data: bytes, version: int) -> None:
        if self.get(path)[1].version != version:
            raise BadVersionError
        self.nodes[path] = (data, version + 1, 0)

    def delete(self, path: str, version: int = -1) -> None:
        if version not in (-1, self.get(path)[1].version):
            raise BadVersionError
        del self.nodes[path]

    def close(self) -> None:
        for path in [path for path, (_, _, owner) in self.nodes.items() if owner == self.client_id[0]]:
            del self.nodes[path]


class Submit:
    """A submit of a cluster of two cells, on its way to YARN."""

    def __init__(self, nodes: dict[str, Node], number: int, application: str) -> None:
        self.session = Session(nodes, number)
        self.cells = ZooKeeperCells(self.session, "c")
        config = job_config(cluster__name="c")
        self.claims = Claims(SimpleNamespace(cells=self.cells), config)  # type: ignore[arg-type]
        self.claims.started = {1: f"{application}_1", 2: f"{application}_2"}
        self.undo = Undo(Progress(is_quiet=True))

    def claim(self, **running: str) -> None:
        self.claims.begin(self.undo)
        self.claims.take((1, 2), Applications(**running), self.undo)

    def complete(self) -> None:
        for number in (1, 2):
            self.claims.complete(number)
        self.claims.end()

    def fail(self) -> None:
        """End as a failed command does."""
        error = StandfastError("it failed")
        self.undo.__exit__(StandfastError, error, None)


@pytest.fixture
def submits() -> tuple[Submit, Submit]:
    nodes: dict[str, Node] = {}
    return Submit(nodes, 1, "first"), Submit(nodes, 2, "second")


def applications(of: Submit) -> list[str | None]:
    found = [of.cells.read(number) for number in (1, 2)]
    return [each.application if each is not None else None for each in found]


def test_cells_that_a_submit_is_making_are_refused_to_another_one(submits: tuple[Submit, Submit]) -> None:
    first, second = submits
    first.claim()
    with pytest.raises(
        BadConfiguration, match=r"submitting cluster c at this moment \(.* on .*, process \d+\)"
    ):
        second.claim()
    second.fail()
    assert applications(first) == ["", ""]
    first.complete()
    assert applications(first) == ["first_1", "first_2"]
    with pytest.raises(BadConfiguration, match="cell 1 of the cluster runs as first_1"):
        second.claim(first_1="RUNNING", first_2="RUNNING")
    second.fail()
    assert applications(first) == ["first_1", "first_2"]
    assert naming.submitting_path("c") not in first.session.nodes


def test_claim_of_a_submit_whose_session_has_ended_is_taken_over_and_left_to_its_new_owner(
    submits: tuple[Submit, Submit],
) -> None:
    first, second = submits
    first.claim()
    first.session.close()
    second.claim()
    # It was suspended only.
    with pytest.raises(StandfastError, match="another command has claimed or removed cell 1 of the cluster"):
        first.complete()
    removed: list[str] = []
    first.undo.on_failure("the topics", lambda: removed.append("the topics"))
    first.undo.on_failure("what the cells use", first.claims.confirm)
    first.undo.on_failure("the applications", lambda: removed.append("the applications"))
    first.fail()
    assert removed == ["the applications"], "the other one uses the topics"
    assert applications(second) == ["", ""]
    assert naming.submitting_path("c") in second.session.nodes
    second.complete()
    assert applications(second) == ["second_1", "second_2"]


def test_what_the_cells_used_stays_while_another_submit_begins(submits: tuple[Submit, Submit]) -> None:
    first, second = submits
    first.claim()
    first.complete()
    first.claims.end()
    second.claims.begin(second.undo)
    with pytest.raises(BadConfiguration, match="another command is submitting cluster c at this moment"):
        first.claims.confirm()


@pytest.mark.parametrize("former", [None, CellRecord("ended", "me")])
def test_failed_submit_restores_the_records_that_it_found(
    submits: tuple[Submit, Submit], former: CellRecord | None
) -> None:
    first, second = submits
    if former is not None:
        for number in (1, 2):
            assert first.cells.claim(number, former)
    first.claim(ended="FAILED")
    first.claims.complete(1)
    first.undo.on_failure("what the cells use", first.claims.confirm)
    first.fail()
    assert [first.cells.read(number) for number in (1, 2)] == [former, former]
    second.claim(ended="FAILED")


def test_request_whose_answer_was_lost_does_not_keep_a_submit_from_its_cells(
    submits: tuple[Submit, Submit],
) -> None:
    first, _ = submits
    assert first.cells.begin_submit("me") == ""
    assert first.cells.begin_submit("me") == ""


def test_claim_is_left_to_the_end_of_its_session_while_the_connection_is_lost(
    submits: tuple[Submit, Submit], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = submits
    first.cells.begin_submit("me")
    with monkeypatch.context() as lost:
        lost.setattr(first.session, "client_id", None)
        assert first.cells.begin_submit("me") == "me"
        first.cells.end_submit()
    assert naming.submitting_path("c") in first.session.nodes
    first.cells.end_submit()
    assert naming.submitting_path("c") not in first.session.nodes


def test_an_invalid_record_hides_no_other_cell_and_is_named(submits: tuple[Submit, Submit]) -> None:
    first, _ = submits
    cells = first.cells
    for number in (3, 2, 1):
        cells.claim(number, CellRecord(f"application_{number}"))
    first.session.nodes[naming.cell_path("c", 2)] = (b"{", 0, 0)
    first.session.nodes[f"{naming.cells_path('c')}/notes"] = (b"", 0, 0)
    found = cells.read_each()
    assert list(found) == [1, 2, 3]
    assert (found[1], found[3]) == (CellRecord("application_1"), CellRecord("application_3"))
    assert naming.cell_path("c", 2) in str(found[2])
    # What decides by all cells does not take a cell for absent.
    with pytest.raises(BadConfiguration, match=naming.cell_path("c", 2)):
        cells.read_all()
