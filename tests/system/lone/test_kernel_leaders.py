"""A partition without a leader on a real broker: of its task nothing is known, and of the others everything."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from embedded.cluster import LocalCluster
from standby.adapters.kafka.broker import connect
from standby.adapters.kafka.input import InputBounds
from standby.config import kafka_settings, parse
from standby.errors import Transient
from standby.kernel.active.topic_ids import TopicIdCheck
from standby.ports import InputAway
from standby.replica.identity import RunTopics
from standby.shared.model import Phase, ReplicaStatus, Role, TopicIdentity
from tests.kernel_lab import CLUSTER, Container, Lab
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.lone.second_broker import FIRST, SECOND, await_leaderless, second_broker


class LabOnTwoBrokers(Lab):
    """What belongs to the second of its two tasks lies on the second broker."""

    BROKERS = (FIRST, SECOND)


class LabOnFirst(Lab):
    """All is on the cluster's own broker."""

    BROKERS = (FIRST,)


def test_one_partition_without_a_leader_keeps_no_other_task_from_being_known(
    own_cluster: LocalCluster, tmp_path: Path
) -> None:
    have_coordinators(own_cluster, tmp_path / "before")
    with second_broker(own_cluster, tmp_path / "second") as second:
        lab = LabOnTwoBrokers(own_cluster.kafka_bootstrap, tmp_path)
        config = parse(lab.definition.config)
        broker = connect(CLUSTER, config, lab.definition)
        bounds = InputBounds(kafka_settings(config), lab.definition.group)
        with lab.local("host-a") as active, lab.local("host-b") as standby:
            lab.settle(active, standby)
            standby.await_all(lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
            second.kill()
            second.wait()
            end, input_end = of_task(standby, 0).end, of_task(active, 0).input_end
            lab.write([(b"0/k", b"value")])
            active.await_all(lambda one: one.replica.task.partition != 0 or is_past(one.input_end, input_end))
            standby.await_all(lambda one: one.replica.task.partition != 0 or is_past(one.end, end))
            # Its partitions are asked for in vain, at first of itself, and then of nobody; they never end at nothing.
            with pytest.raises(Transient):
                broker.changelog_ends((1,))
            await_leaderless(lab.admin, lab.definition.changelog, 1)
            with pytest.raises(Transient):
                broker.changelog_ends((1,))
            # What a feed asks before it starts names that one, and so leaves the other to be started.
            (topic,) = lab.inputs
            await_leaderless(lab.admin, topic, 1)
            with pytest.raises(InputAway) as away:
                bounds.check({(topic, 0): 0, (topic, 1): 0})
            assert away.value.partitions == {1}
            with lab.local("host-c") as late:
                late.want(2, Role.STANDBY, 1)
                for each in (standby, late):
                    each.await_all(lambda one: one.replica.task.partition != 0 or is_level(one, active))
                assert of_task(late, 1).phase is not Phase.TAILING
                assert of_task(standby, 1).end is None
        broker.close()


@pytest.mark.parametrize(("how", "number"), [(signal.SIGKILL, 3), (signal.SIGSTOP, 4)])
def test_topics_are_checked_although_the_broker_that_the_client_takes_for_the_controller_is_gone(
    own_cluster: LocalCluster, tmp_path: Path, how: signal.Signals, number: int
) -> None:
    with second_broker(own_cluster, tmp_path / "second", number) as second:
        lab = LabOnFirst(own_cluster.kafka_bootstrap, tmp_path, 1)
        broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
        changelog = lab.definition.changelog
        soon(lambda: changelog in broker.ask_topic_ids([changelog])(), "the brokers know the changelog")
        (before,) = broker.ask_topic_ids([changelog])().values()
        admin = broker._admin.present()
        # In each answer a broker names any one that counts as alive, which one that is gone does for some seconds.
        soon(lambda: admin.list_topics(changelog, PATIENCE_SECONDS).controller_id == number, "the second one")
        second.send_signal(how)
        if how is signal.SIGKILL:
            second.wait()
            soon(
                lambda: admin.list_topics(changelog, PATIENCE_SECONDS).controller_id == number, "it is named"
            )
        run = RunTopics(lab.definition.name, changelog, (), {changelog: TopicIdentity(before)})
        assert TopicIdCheck(broker, lambda: run, time.monotonic).changelog_id() == before
        broker.close()


def have_coordinators(cluster: LocalCluster, directory: Path) -> None:
    """Have Kafka make its own topics, for groups and for transactions, while there is one broker to place them on."""
    directory.mkdir()
    lab = Lab(cluster.kafka_bootstrap, directory, 1)
    with lab.local("host-a") as active:
        lab.promote(active, 0, 1)
        active.await_phase(Phase.ACTIVE)


def is_past(found: int | None, before: int | None) -> bool:
    """Return whether an end is known that has moved since."""
    return found is not None and found > (before or 0)


def of_task(container: Container, partition: int) -> ReplicaStatus:
    return next(each for each in container.statuses().values() if each.replica.task.partition == partition)


def is_level(status: ReplicaStatus, active: Container) -> bool:
    """Return whether a standby is in sync with all that the task's active has committed."""
    applied = of_task(active, status.replica.task.partition).applied
    assert applied is not None
    return status.phase is Phase.TAILING and status.lag_records == 0 and (status.applied or 0) >= applied
