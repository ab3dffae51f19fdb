"""The job: orders and customers in, orders with their customer out: a stream joined with a table.

Both topics are keyed by customer and have the same number of partitions, so an order and its customer reach the same
task. The table's newest records are in one store. An order that arrives before its customer waits in another store, so
the result does not depend on which topic is read first. README.md has the records and the rules.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from standby.state import BYTES, INT, tuple_of, typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from standby.api import Output, State

#: The table's topic.
CUSTOMERS = "customers"

#: A static table: what one unit of a currency is worth in euros.
RATES = {"EUR": 1.0, "USD": 0.9, "CHF": 1.05}


def parse(df: DataFrame) -> DataFrame:
    """Return one row per record with ``name``, or ``id`` and ``euros``; invalid orders are dropped.

    The join with a static table is made here, because every row is joined separately. The join of the two streams needs
    state, so the step makes it.
    """
    from pyspark.sql import functions as f

    rates = df.sparkSession.createDataFrame(list(RATES.items()), "currency STRING, rate DOUBLE")
    body = f.from_json(
        f.col("value").cast("string"), "name STRING, id STRING, amount DOUBLE, currency STRING"
    )
    # JSON's numbers may exceed a double, and Spark reads "NaN" as one; neither can be written as JSON again.
    is_amount = f.abs(f.col("euros")) < f.lit(float("inf"))
    return (
        df.withColumn("body", body)
        .join(f.broadcast(rates), f.col("body.currency") == rates["currency"], "left")
        .withColumn("euros", f.col("body.amount") * f.col("rate"))
        .where((f.col("_topic") == CUSTOMERS) | (f.col("body.id").isNotNull() & is_amount))
        .where("key IS NOT NULL")
        .select(*("_task", "_offset", "_topic", "timestamp", "key", "value", "body.name", "body.id", "euros"))
    )


def enrich(rows: pa.Table, state: State, out: Output) -> None:
    """Emit every order as soon as its customer is known, with the customer's name at that time."""
    customers = state["customers"]
    # By customer, and for each customer in the order of the stream.
    waiting = typed(state["waiting"], key=tuple_of(BYTES, INT), value=BYTES)
    names = ("_topic", "_offset", "key", "value", "name", "id", "euros")
    for topic, offset, key, value, name, order, euros in zip(
        *(rows[each].to_pylist() for each in names), strict=True
    ):
        if topic != CUSTOMERS:
            body = json.dumps({"order": order, "euros": round(euros, 2)}).encode()
            known = customers.get(key)
            if known is None:
                waiting.put((key, offset), body)
            else:
                out.emit(key, _joined(body, known))
        elif value is None:
            customers.delete(key)
        elif name is not None:
            customers.put(key, name.encode())
            for place, body in list(waiting.prefix((key,))):
                out.emit(key, _joined(body, name.encode()))
                waiting.delete(place)


def _joined(body: bytes, name: bytes) -> bytes:
    order: dict[str, Any] = json.loads(body)
    return json.dumps({**order, "customer": name.decode()}).encode()
