"""The orders job: every order goes out once with its customer, however the two topics are read together."""

from __future__ import annotations

import json
import random

import pytest

from examples.orders import orders, orders_plain
from standby.replica.outbox import Emitted
from tests.unit.examples.fakes import Record, Task, rows


def run(records: list[Record], size: int) -> list[Emitted]:
    """Return the outputs of a task after batches of ``size`` records."""
    task, found = Task(orders.enrich, ("customers", "waiting"), "orders-with-names"), list[Emitted]()
    for start in range(0, len(records), size):
        found += task.run(orders_plain.parse_table(rows(records[start : start + size])))
    return found


def order(number: int, customer: str) -> Record:
    body = {"id": f"o{number}", "amount": number, "currency": "EUR"}
    return ("orders", number, customer.encode(), json.dumps(body).encode())


def customer(number: int, name: str) -> Record:
    return ("customers", number, name.encode(), json.dumps({"name": name.upper()}).encode())


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_each_order_goes_out_once_in_its_customer_s_order_whichever_topic_is_ahead(size: int) -> None:
    draw = random.Random(7)
    customers = [customer(number, name) for number, name in enumerate("abcdefgh")]
    all_orders = [order(number, draw.choice("abcdefgh")) for number in range(200)]
    mixed = sorted([*customers, *all_orders], key=lambda each: (each[1] * 3 % 50, each[1]))
    for records in ([*customers, *all_orders], [*all_orders, *customers], mixed):
        found = run(records, size)
        read = [each for each in records if each[0] == "orders"]
        for name in "abcdefgh":
            bodies = [json.loads(each.value or b"") for each in found if each.key == name.encode()]
            assert {each["customer"] for each in bodies} == {name.upper()}
            sent = [each["order"] for each in bodies]
            expected = [f"o{each[1]}" for each in read if each[2] == name.encode()]
            assert sorted(sent) == sorted(expected)
            assert records is mixed or sent == expected


def test_an_order_of_a_customer_who_is_gone_waits_for_the_next_one_of_that_key() -> None:
    gone: Record = ("customers", 1, b"a", None)
    others = [order(1, "ab"), order(2, "a\0b")]
    records = [customer(0, "a"), gone, order(0, "a"), *others, customer(2, "a"), customer(3, "a")]
    (found,) = run(records, 2)  # the one after that does not get it again
    assert json.loads(found.value or b"") == {"order": "o0", "euros": 0.0, "customer": "A"}
