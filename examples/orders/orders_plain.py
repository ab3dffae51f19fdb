"""The job's transform for the feed without Spark: the same as `orders.parse`, on Arrow tables.

Use it with ``task.transform: orders_plain:parse_table``, ``task.feed: plain``, and both files in ``job.modules``.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa

#: As in `orders`; a module of a job can only import what `job.modules` lists, under its own name.
CUSTOMERS = "customers"
RATES = {"EUR": 1.0, "USD": 0.9, "CHF": 1.05}


def parse_table(rows: pa.Table) -> pa.Table:
    """Return the rows with ``name``, ``id`` and ``euros``; invalid orders are dropped."""
    kept, columns = list[int](), dict[str, list[Any]](name=[], id=[], euros=[])
    for number, (topic, key, value) in enumerate(
        zip(*(rows[each].to_pylist() for each in ("_topic", "key", "value")), strict=True)
    ):
        body = _body(value)
        name, order, euros = _text(body.get("name")), _text(body.get("id")), _euros(body)
        if key is None or (topic != CUSTOMERS and (order is None or euros is None)):
            continue
        kept.append(number)
        columns["name"].append(name)
        columns["id"].append(order)
        columns["euros"].append(euros)
    result = rows.take(pa.array(kept, pa.int64()))
    for name, kind in (("name", pa.string()), ("id", pa.string()), ("euros", pa.float64())):
        result = result.append_column(name, pa.array(columns[name], kind))
    return result


def _body(value: bytes | None) -> dict[str, Any]:
    try:
        body = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _text(value: Any) -> str | None:
    """Return a field as a string; Spark reads everything except null as a string."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    # Half of a surrogate pair has no UTF-8.
    return text.encode("utf-8", "replace").decode()


def _euros(body: dict[str, Any]) -> float | None:
    amount, currency = body.get("amount"), body.get("currency")
    rate = RATES.get(currency) if isinstance(currency, str) else None
    if rate is None or isinstance(amount, bool) or not isinstance(amount, int | float):
        return None
    try:
        euros = amount * rate
    except OverflowError:
        return None
    return euros if math.isfinite(euros) else None
