"""The job's transform for the feed without Spark: the same as `orders.parse`, over Arrow tables."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from examples.orders import orders


def parse_table(rows: pa.Table) -> pa.Table:
    """Return the rows with ``name``, ``id`` and ``euros``; orders that are none are dropped."""
    kept, columns = list[int](), dict[str, list[Any]](name=[], id=[], euros=[])
    for number, (topic, key, value) in enumerate(
        zip(*(rows[each].to_pylist() for each in ("_topic", "key", "value")), strict=True)
    ):
        body = _body(value)
        rate = orders.RATES.get(body.get("currency", ""))
        euros = body["amount"] * rate if rate is not None and "amount" in body else None
        if key is None or (topic != orders.CUSTOMERS and ("id" not in body or euros is None)):
            continue
        kept.append(number)
        columns["name"].append(body.get("name"))
        columns["id"].append(body.get("id"))
        columns["euros"].append(euros)
    result = rows.take(pa.array(kept, pa.int64()))
    for name, kind in (("name", pa.string()), ("id", pa.string()), ("euros", pa.float64())):
        result = result.append_column(name, pa.array(columns[name], kind))
    return result


def _body(value: bytes | None) -> dict[str, Any]:
    try:
        body = json.loads(value or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
