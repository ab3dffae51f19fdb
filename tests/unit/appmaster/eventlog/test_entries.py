"""The catalogue of the event log; `tests.fakes.yarn` holds every entry of every scenario against it."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, get_origin, get_type_hints

from appmaster.eventlog.entries import (
    CATALOGUE,
    DECIDED,
    DecisionData,
    EntryKind,
    LogEntry,
    RequestData,
    entry_document,
)
from appmaster.planning.rules.table import STAGES
from appmaster.planning.state.actions import DecisionKind, Facts, FailoverPolicy, Outcome
from appmaster.planning.state.reasons import DecisionBasis, Loss, NoStandbyReason, Reason
from appmaster.planning.state.view import RequestKind
from docs.generate.waits import WAITS
from tests.scenarios.words import STEPS


def test_every_kind_of_entry_is_described_with_every_field_of_it() -> None:
    assert set(CATALOGUE) == set(EntryKind)
    for each in CATALOGUE.values():
        assert each.meaning.endswith(".")
        assert set(each.about) <= {known.name for known in fields(LogEntry)}
        for details in (each.details, Facts):
            described = get_type_hints(details, include_extras=True)
            told = {field.name for field in fields(details)} - {"facts"}
            assert all(get_origin(described[name]) is Annotated for name in told)


def test_entries_that_rules_waits_and_scenarios_name_are_in_the_catalogue() -> None:
    of_rules = {event for stage in STAGES for rule in stage.rules for event in rule.events}
    of_waits = {event for each in WAITS for event in each.events}
    assert of_rules | of_waits | set(STEPS.values()) <= {each.value for each in CATALOGUE}


def test_data_leaves_out_what_there_is_nothing_to_say_of() -> None:
    assert RequestData("j/main:0#1", RequestKind.ANY, outcome=Outcome.SURPLUS).as_data() == {
        "slot": "j/main:0#1",
        "kind": "any",
        "outcome": "surplus",
    }
    assert RequestData("j/main:0#1", RequestKind.ANY, waited_ms=0).as_data()["waited_ms"] == 0


def test_facts_of_a_decision_are_among_its_data_in_words() -> None:
    facts = Facts(
        rule="promote",
        in_sync=False,
        without=Reason(NoStandbyReason.RESTORING, "no standby was in sync"),
        policy=FailoverPolicy.PROMOTE,
    )
    entry = LogEntry(
        DECIDED[DecisionKind.FAILOVER],
        DecisionData(3, [3, 7], facts),
        job="j",
        reason=Reason(DecisionBasis.OTHER, "copy 0 is lost"),
        decision="2-1",
    )
    assert entry_document(entry, 1_700_000_000_000, 2) == {
        "at_ms": 1_700_000_000_000,
        "epoch": 2,
        "kind": "decided_failover",
        "job": "j",
        **dict.fromkeys(("task", "copy", "container", "host", "task_epoch")),
        "reason": "copy 0 is lost",
        "decision": "2-1",
        "data": {
            "processor": 3,
            "tasks": [3, 7],
            "rule": "promote",
            "in_sync": False,
            "without": "restoring: no standby was in sync",
            "policy": "promote",
        },
    }


def test_sentence_of_a_reason_is_its_kind_and_its_detail() -> None:
    for reason, said in (
        (Reason(Loss.PORT_REFUSED), "port-refused"),
        (Reason(Loss.SILENT, "no heartbeat"), "silent: no heartbeat"),
        (Reason(DecisionBasis.EMPTY_SLOT), "an empty slot"),
        (Reason(DecisionBasis.OTHER, "a move"), "a move"),
        (Reason(NoStandbyReason.NO_OTHER_COPY, "it becomes it"), "no other copy lives: it becomes it"),
    ):
        assert str(reason) == said
