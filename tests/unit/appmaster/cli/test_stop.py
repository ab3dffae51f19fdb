"""What `kill` and `delete` say of a job that does not end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient
from appmaster.cli.jobs.stop import undeploy
from appmaster.cli.launch.deadline import Deadline
from appmaster.cli.output import Progress
from standby.errors import StandfastError
from tests.patience import LOOK_SECONDS


def client(**mine: Any) -> ClusterClient:
    """Return a client of a cluster in which the job stands as ``mine`` says, and another one runs."""
    job = {"job": "j", "is_wanted": False, "reasons": [], **mine}
    other = {"job": "other", "is_wanted": True, "status": "deployed"}
    record = SimpleNamespace(is_wanted=True)
    found = SimpleNamespace(
        cluster="shared",
        change=lambda *_, **__: None,
        info=lambda: {"jobs": [job, other]},
        zookeeper=SimpleNamespace(jobs=SimpleNamespace(names=lambda: ["j", "other"], read=lambda _: record)),
    )
    return cast("ClusterClient", found)


@pytest.mark.parametrize(
    ("mine", "told"),
    [
        (
            {
                "status": "undeploying",
                "reasons": ["its tasks cannot be fenced, and it is tried again: no right"],
            },
            "its tasks cannot be fenced, and it is tried again: no right. The leader goes on",
        ),
        ({"status": "deployed"}, "no leader has taken it up. The leader goes on"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_job_that_does_not_end_is_told_with_what_its_end_waits_for(
    mine: dict[str, Any], told: str, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.cli.jobs.stop._ORDERLY_SECONDS", LOOK_SECONDS)
    deadline = Deadline(LOOK_SECONDS) if is_whole else None
    with pytest.raises(StandfastError) as raised:
        undeploy("j", client(**mine), None, purge=True, progress=Progress(is_quiet=True), deadline=deadline)
    assert told in str(raised.value)
    assert "`standfast status j --cluster shared`" in str(raised.value)


def test_job_that_ends_in_time_leaves_the_cluster_to_the_others() -> None:
    ended = client(status="undeployed")
    assert undeploy("j", ended, None, purge=False, progress=Progress(is_quiet=True))
