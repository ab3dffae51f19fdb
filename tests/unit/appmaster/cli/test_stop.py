"""What `kill` and `delete` say of a job that does not end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient
from appmaster.cli.jobs.stop import Ending, held_up, undeploy
from appmaster.cli.launch.deadline import Deadline
from appmaster.cli.output import Progress
from standby.errors import StandfastError
from tests.patience import LOOK_SECONDS

WHY = "its tasks cannot be fenced: kafka.sasl.password: refused; that is tried again"


def client(**mine: Any) -> ClusterClient:
    """Return a client of a cluster in which the job stands as ``mine`` says, and another one runs."""
    job = {"job": "j", "is_wanted": False, "reasons": [], **mine}
    other = {"job": "other", "is_wanted": True, "status": "deployed"}
    record = SimpleNamespace(is_wanted=True)
    found = SimpleNamespace(
        cluster="shared",
        change=lambda *_, **__: None,
        info=lambda: {"jobs": [job, other]},
        status=dict,
        zookeeper=SimpleNamespace(jobs=SimpleNamespace(names=lambda: ["j", "other"], read=lambda _: record)),
    )
    return cast("ClusterClient", found)


@pytest.mark.parametrize(
    ("mine", "told"),
    [
        (
            {
                "status": "undeploying",
                "reasons": ["its tasks cannot be fenced: no right; that is tried again"],
            },
            "its tasks cannot be fenced: no right; that is tried again. The leader goes on",
        ),
        ({"status": "deployed", "is_wanted": True}, "no leader has taken it up. The leader goes on"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_job_that_does_not_end_is_told_with_what_its_end_waits_for(
    mine: dict[str, Any], told: str, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.cli.jobs.stop._ORDERLY_SECONDS", LOOK_SECONDS)
    deadline = Deadline(LOOK_SECONDS) if is_whole else None
    with pytest.raises(StandfastError) as raised:
        undeploy(
            "j", client(**mine), None, Ending(purge=True), progress=Progress(is_quiet=True), deadline=deadline
        )
    assert told in str(raised.value)
    assert "`standfast status j --cluster shared`" in str(raised.value)


def test_job_that_ends_in_time_leaves_the_cluster_to_the_others() -> None:
    ended = client(status="undeployed")
    assert undeploy("j", ended, None, Ending(), progress=Progress(is_quiet=True))


def test_why_a_job_does_not_end_is_told_with_what_to_do() -> None:
    said = held_up("flights", "shared", {"is_wanted": False, "reasons": [WHY]}, "")
    assert said.startswith(f"{WHY}. ")
    assert "`standfast kill flights --unfenced`" in said
    said = held_up("flights", "shared", {}, "an error that nobody foresaw: KeyError: 'x'")
    assert "the leader cannot lead it (an error that nobody foresaw: KeyError: 'x')" in said


def test_reasons_of_a_job_that_is_still_to_run_are_not_taken_for_those_of_its_end() -> None:
    for mine in ({"is_wanted": True, "reasons": ["waiting for a container"]}, {}):
        assert held_up("flights", "shared", mine, "").startswith("no leader has taken it up. ")


def test_to_end_it_unfenced_is_no_advice_where_something_else_is_waited_for() -> None:
    mine = {"is_wanted": False, "reasons": ["its containers have not all ended"]}
    assert "--unfenced" not in held_up("flights", "shared", mine, "")
