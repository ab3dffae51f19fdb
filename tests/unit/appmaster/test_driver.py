"""The leader's turns: what its clock tells the planner, and what one decision writes."""

from __future__ import annotations

from appmaster.driver import Driver
from appmaster.planning.state import actions as todo
from appmaster.planning.state.events import Elected, Event
from standby.shared.model import TaskId
from standby.threads.inbox import Inbox
from tests.fakes.yarn import FakeCluster


def test_a_leader_that_stood_still_listens_before_it_judges() -> None:
    now_ms = 1_000
    inbox: Inbox[Event] = Inbox()
    driver = Driver(inbox, lambda action, view: None, lambda entry, view: None, lambda: now_ms)
    driver.turn([Elected(1, now_ms, 0)])
    now_ms += 400
    driver.turn([])
    assert driver.view.listening_until_ms < now_ms, "a turn that is a little late is no stall"
    now_ms += 5_000
    driver.turn([])
    assert driver.view.listening_until_ms > now_ms


def test_a_failover_is_one_write_of_all_tasks_with_the_promoted_copy_alone_in_sync() -> None:
    cluster = FakeCluster()
    cluster.run(10_000)
    lost = cluster.active_process(0).skein_id
    before = {task: each.record for task, each in cluster.versions.items()}
    cluster.actions.clear()
    cluster.kill(lost)
    cluster.run(4_000)
    (failover, *_) = (each for each in cluster.actions if isinstance(each, todo.WriteRecords))
    after = {each.record.task: each.record for each in failover.changes}
    assert after.keys() == {TaskId("job", "main", 0), TaskId("job", "main", 2)}
    for task, record in after.items():
        assert (record.active, record.epoch, record.in_sync) == (1, before[task].epoch + 1, (1,))
