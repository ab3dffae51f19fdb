"""What `kill` and `delete` say of a job that does not end."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient
from appmaster.changes.cluster_info import info
from appmaster.cli.launch.undeploy import Ending, held_up, undeploy
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.records import JobRecord, StatusRecord, encode
from standby.errors import StandfastError
from standby.shared.wire import JobDefinition
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


@pytest.mark.parametrize("is_whole", [True, False])
def test_job_that_does_not_end_is_told_with_what_its_end_waits_for(
    is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.cli.launch.undeploy._ORDERLY_SECONDS", LOOK_SECONDS)
    for mine, told in (
        ({"status": "undeploying", "reasons": [WHY]}, f"{WHY}. The leader goes on"),
        ({"status": "deployed", "is_wanted": True}, "no leader has taken it up. The leader goes on"),
    ):
        deadline = Deadline(LOOK_SECONDS) if is_whole else None
        progress = Progress(is_quiet=True)
        with pytest.raises(StandfastError) as raised:
            undeploy("j", client(**mine), None, Ending(purge=True), progress=progress, deadline=deadline)
        assert told in str(raised.value)
        assert "`standfast status j --cluster shared`" in str(raised.value)


def test_job_that_ends_in_time_leaves_the_cluster_to_the_others() -> None:
    ended = client(status="undeployed")
    assert undeploy("j", ended, None, Ending(), progress=Progress(is_quiet=True))


def ending(*reasons: str, is_unfenceable: bool | None) -> dict[str, Any]:
    """Return a job that is to end in the cluster's info, with the status that its leader has recorded."""
    job = JobRecord(JobDefinition("flights", "run1", {}, "changelog", "group", 4), is_wanted=False)
    status = json.loads(encode(StatusRecord("undeploying", reasons, is_unfenceable=is_unfenceable)))
    if is_unfenceable is None:
        del status["is_unfenceable"]  # of a leader that does not know the field
    nodes = {"jobs/flights": encode(job), "jobs/flights/status": json.dumps(status).encode()}
    (found,) = info("shared", nodes, 0)["jobs"]
    return cast("dict[str, Any]", found)


def test_why_a_job_does_not_end_is_told_with_what_to_do() -> None:
    # Whatever the words are.
    said = held_up("flights", "shared", ending("because", is_unfenceable=True), "")
    assert said.startswith("because. ")
    assert "If that is not to be had, see to it" in said
    assert "`standfast kill flights --unfenced`" in said
    assert "--unfenced" not in held_up("flights", "shared", ending(WHY, is_unfenceable=False), "")
    said = held_up("flights", "shared", {}, "an error that nobody foresaw: KeyError: 'x'")
    assert "the leader cannot lead it (an error that nobody foresaw: KeyError: 'x')" in said
    # Why a job that is to run does not is no reason why it does not end.
    for mine in ({"is_wanted": True, "reasons": ["waiting for a container"]}, {}):
        assert held_up("flights", "shared", mine, "").startswith("no leader has taken it up. ")


def test_where_nobody_says_whether_a_job_cannot_be_fenced_it_is_told_what_to_do_then() -> None:
    of_a_former_candidate = {"is_wanted": False, "reasons": [WHY]}
    for mine in (ending(WHY, is_unfenceable=None), of_a_former_candidate):
        said = held_up("flights", "shared", mine, "")
        assert said.startswith(f"{WHY}. ")
        assert "If its tasks cannot be fenced, see to it" in said
        assert "`standfast kill flights --unfenced`" in said
    assert "--unfenced" not in held_up("flights", "shared", ending(is_unfenceable=None), "")
