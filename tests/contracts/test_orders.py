"""The orders example over both feeds and real topics: a stream joined with a table, exact whatever comes first."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from examples.orders import orders, orders_plain
from standby.config import parse
from standby.errors import Transient
from standby.feed.make import make_feed
from standby.ports import Deliver, Feed, TaskBatch
from standby.replica.outbox import Outbox
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.fakes.task_state import TaskState
from tests.patience import PATIENCE_SECONDS, soon
from tests.topics import make_topics

TASK = TaskId("orders", "main", 0)
TRANSFORMS = {"plain": "examples.orders.orders_plain:parse_table", "spark": "examples.orders.orders:parse"}

#: Topic, key, value and time; two are no orders, and dropped.
RECORDS: list[tuple[str, str, Any, int]] = [
    ("customers", "ada", {"name": "Ada"}, 1_000),
    ("orders", "ada", {"id": "o1", "amount": 10, "currency": "USD"}, 2_000),
    ("orders", "bob", {"id": "o2", "amount": 5, "currency": "EUR"}, 2_500),
    ("customers", "ada", {"name": "Ada L."}, 3_000),
    ("orders", "ada", {"id": "o3", "amount": 2, "currency": "CHF"}, 4_000),
    ("orders", "ada", {"id": "x", "amount": 2, "currency": "XXX"}, 4_100),
    ("orders", "ada", "no order", 4_200),
    ("customers", "bob", {"name": "Bob"}, 5_000),
    ("orders", "bob", {"id": "o5", "amount": 1, "currency": "EUR"}, 7_500),
]


@pytest.mark.parametrize("kind", ["plain", pytest.param("spark", marks=pytest.mark.spark)])
def test_every_order_goes_out_once_with_its_customer(
    request: pytest.FixtureRequest, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "spark":
        request.getfixturevalue("shared_spark")
    names = {each: f"{each}-{uuid.uuid4().hex[:8]}" for each in ("customers", "orders")}
    for each in (orders, orders_plain):
        monkeypatch.setattr(each, "CUSTOMERS", names["customers"])
    write(kafka_bootstrap, names)
    ends = Offsets.of(*(sum(topic == each for topic, *_ in RECORDS) for each in ("customers", "orders")))
    config = parse(
        {
            "job.name": "orders",
            "task.inputs": f"{names['customers']},{names['orders']}",
            "task.outputs": "orders-with-names",
            "task.step": "examples.orders.orders:enrich",
            "task.transform": TRANSFORMS[kind],
            "task.feed": kind,
            "kafka.bootstrap.servers": kafka_bootstrap,
            "zookeeper.connect": "unused:1",
        }
    )
    definition = JobDefinition("orders", "r", {}, "none", f"group-{names['orders']}", 1)
    feed = make_feed(config, definition)
    state, found, done = TaskState("customers", "waiting"), Outbox(config.outputs), threading.Event()

    def deliver(batches: tuple[TaskBatch, ...]) -> None:
        for batch in batches:
            with state.batch() as stores:
                orders.enrich(batch.rows, stores, found)
            if batch.end == ends:
                done.set()

    try:
        start(feed, deliver)
        assert done.wait(PATIENCE_SECONDS), feed.failure
    finally:
        feed.close()
    told = {body["order"]: body for body in (json.loads(each.value or b"") for each in found.records)}
    assert sorted(told) == ["o1", "o2", "o3", "o5"]
    assert len(found.records) == len(told), "one comes twice"
    # Of Ada's both names the one that was read by then: the topics' batches may end anywhere.
    assert {each["customer"] for order, each in told.items() if order in ("o1", "o3")} <= {"Ada", "Ada L."}
    assert {order: each["customer"] for order, each in told.items() if order in ("o2", "o5")} == {
        "o2": "Bob",
        "o5": "Bob",
    }
    assert {order: each["euros"] for order, each in told.items()} == {"o1": 9, "o2": 5, "o3": 2.1, "o5": 1}
    assert state.of("waiting") == {}


def start(feed: Feed, deliver: Deliver) -> None:
    """Start it, again while a new topic's partition has no leader yet; as the kernel does."""

    def has_started() -> bool:
        try:
            feed.start({TASK: Offsets.of(0, 0)}, deliver)
        except Transient:
            return False
        return True

    soon(has_started, "every partition has a leader")


def write(bootstrap: str, names: dict[str, str]) -> None:
    make_topics(bootstrap, [NewTopic(each, 1, 1) for each in names.values()])
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, key, body, time_ms in RECORDS:
        value = None if body is None else json.dumps(body).encode()
        producer.produce(names[topic], value, key.encode(), 0, timestamp=1_700_000_000_000 + time_ms)
    assert producer.flush(PATIENCE_SECONDS) == 0
