"""What a change of a running job takes, what is refused, and where a rollback leads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from appmaster.changes.revisions import (
    KEPT,
    Update,
    codes,
    compare,
    grown,
    requested_settings,
    rollback,
    update,
)
from appmaster.records import JobRecord
from standby.config import parse
from standby.errors import BadConfiguration, StandfastError
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import JOB

FLAT = {**JOB, "job.name": "flights", "job.python": "/usr/bin/python3", "job.hotstandby.enabled": "true"}


def record(code: str = "aa", **more: str) -> JobRecord:
    flat = {**FLAT, **{key.replace("__", "."): value for key, value in more.items()}}
    return JobRecord(JobDefinition("flights", "run1", flat, "changelog", "group", 4, code=code))


def changed(base: JobRecord, settings: dict[str, str], code: str = "aa") -> Update:
    return update(base, {**requested_settings(base), **settings}, code)


def test_same_file_changes_nothing_nor_does_a_default_that_is_written_out() -> None:
    found = update(record(), FLAT, "aa")
    assert found.is_nothing
    assert found.record == record()
    assert compare(FLAT, {**FLAT, "job.container.count": "1", "cluster.name": "flights"}) == ()


def test_live_key_changes_what_is_asked_and_no_revision() -> None:
    found = changed(record(), {"job.hotstandby.replicationcount": "2"})
    assert not found.is_new_revision
    assert found.record.definition == record().definition
    assert found.record.former == ()
    assert parse(requested_settings(found.record)).replication_count == 2
    assert found.described() == ("job.hotstandby.replicationcount: 1 → 2 (live)",)


def test_key_that_containers_load_is_a_new_revision() -> None:
    for settings in (
        {"task.batch.max.records": "500"},
        {"kafka.linger.ms": "1"},
        {"spark.sql.shuffle.partitions": "2"},
        {"task.batch.max.records": "500", "job.hotstandby.replicationcount": "2"},
    ):
        found = changed(record(), settings)
        assert found.is_new_revision, settings
        assert (found.record.definition.revision, found.record.definition.code) == (2, "aa")
        assert found.record.former == (record().definition,)
        assert requested_settings(found.record) == found.record.definition.config == {**FLAT, **settings}
        assert {each.key for each in found.differences} == set(settings)
    found = changed(record(), {}, code="bb")
    assert (found.is_new_code, found.record.definition.code) == (True, "bb")
    assert found.described() == ("the job's modules have changed (restart)",)


def test_new_revision_takes_up_what_was_asked_live_before() -> None:
    live = changed(record(), {"job.hotstandby.replicationcount": "2"}).record
    found = changed(live, {"task.batch.max.records": "500"})
    assert [each.key for each in found.differences] == ["task.batch.max.records"]
    assert found.record.settings == {}
    assert parse(found.record.definition.config).replication_count == 2


def test_former_revisions_are_bounded_and_numbers_only_rise() -> None:
    present = record()
    for number in range(2, 9):
        present = changed(present, {}, code=f"c{number}").record
        assert present.definition.revision == number
    assert [each.revision for each in present.former] == [7, 6, 5, 4]
    assert len(present.former) == KEPT
    assert codes(present) == {"c4", "c5", "c6", "c7", "c8"}


def test_what_is_fixed_is_refused_all_at_once_with_the_way_out() -> None:
    with pytest.raises(BadConfiguration) as refused:
        changed(record(), {"task.stores": "a", "yarn.queue": "q", "task.batch.max.records": "5"})
    said = str(refused.value)
    assert "task.stores: default → a: " in said
    assert "standfast delete" in said
    assert "yarn.queue: default → q: `standfast submit --update`" in said
    assert "task.batch.max.records" not in said


def test_revision_that_was_never_active_is_rolled_back_under_a_new_number() -> None:
    with pytest.raises(BadConfiguration, match="no earlier revision"):
        rollback(record(), [1, 1])
    new = changed(record(), {"task.batch.max.records": "500"}, code="bb").record
    back = rollback(new, [1, 1, 0])
    assert back.definition == replace(record().definition, revision=3)
    assert [each.revision for each in back.former] == [2, 1]
    assert requested_settings(back) == FLAT


def test_only_stores_of_one_version_are_given_back_to_older_code_once_they_were_active() -> None:
    def changed_from(before: str, after: str) -> JobRecord:
        base = record(**({"task__stores__version": before} if before else {}))
        return changed(base, {"task.stores.version": after, "task.batch.max.records": "9"}).record

    for same in ("", "v1"):
        assert rollback(changed_from(same, same), [2, 2]).definition.revision == 3
    for before, after, kept in (
        ("v1", "v2", r"task\.stores\.version: v2"),
        ("", "v1", r"task\.stores\.version: v1"),
        ("v1", "", r"no task\.stores\.version"),
    ):
        told = f"revision 2 of flights has been active, .*`standfast update` .* with {kept}$"
        with pytest.raises(StandfastError, match=told) as refused:
            rollback(changed_from(before, after), [1, 2, 1])
        assert refused.value.exit_status == 1


def test_rollback_keeps_live_keys_and_added_tasks() -> None:
    live = {"task.batch.max.records": "500", "job.hotstandby.replicationcount": "2"}
    new = grown(changed(record(), live, code="bb").record, 6)
    assert {each.tasks for each in (new.definition, *new.former)} == {6}
    assert grown(new, 3) == new, "tasks are only ever added"
    back = rollback(new, [1])
    assert back.definition.tasks == 6
    assert back.definition.config == FLAT
    assert parse(requested_settings(back)).replication_count == 2
    assert parse(requested_settings(back)).batch_max_records == parse(FLAT).batch_max_records


def test_a_password_is_mentioned_but_not_shown() -> None:
    found = changed(record(kafka__sasl__password="old one"), {"kafka.sasl.password": "new one"})
    assert found.described() == ("kafka.sasl.password: *** → *** (restart)",)
    assert found.differences[0].after == "new one"
    assert "one" not in repr((found.record.definition, parse(found.record.definition.config)))
