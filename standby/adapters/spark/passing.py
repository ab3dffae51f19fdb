"""Finds which columns of its rows a transform only passes on: these need not go through Spark.

For each row and column, Spark converts a value four times: from Arrow to a row of its own, between operators, and back
to Arrow. A transform uses few of its columns: a parsed value, perhaps a key. So Spark gets the columns that an
expression uses, and the row's number in the batch in place of its `_offset`; the columns that the transform passes on
are taken from the batch by that number, wherever a row was filtered or became several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from standby.adapters.spark.session import items_of

#: The column that has a row's number while the row is in Spark. A transform must return it as it is.
_NUMBER: Final = "_offset"

#: Operators whose rows are each made of one row of their input, and have its columns unless they say otherwise.
_ROW_BY_ROW: Final = ("Filter", "Generate", "Project", "SubqueryAlias", "View")


@dataclass(frozen=True, slots=True)
class Passing:
    """What becomes of the columns of the rows in a transform."""

    used: tuple[str, ...]
    """The input columns that Spark needs, in the order of the input."""
    made: tuple[tuple[str, str | None], ...]
    """Each column of the result: its name, and the input column that it is, or None if Spark makes it."""

    def sent(self, rows: pa.Table) -> pa.Table:
        """Return the columns of ``rows`` that Spark needs, with numbers in place of offsets."""
        numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        return rows.select(self.used).append_column(_NUMBER, numbers)

    def source(self, sent: DataFrame, columns: Sequence[tuple[str, str]]) -> DataFrame:
        """Return a frame for the transform, of the rows that were ``sent``, with all ``columns`` (name, type).

        The columns that it only passes on are empty there.
        """
        is_there = {*self.used, _NUMBER}
        return sent.selectExpr(
            *(name if name in is_there else f"cast(null as {kind}) as {name}" for name, kind in columns)
        )

    def narrowed(self, result: DataFrame) -> DataFrame:
        """Return the numbers of the transform's ``result``, and the columns of it that Spark makes."""
        # A result may have several columns of the same name.
        names = [f"c{index}" for index in range(len(self.made))]
        kept = [name for name, (_, passed) in zip(names, self.made, strict=True) if passed is None]
        return result.toDF(*names).select(names[self.made.index((_NUMBER, _NUMBER))], *kept)

    def restored(self, narrowed: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the transform's result for the batch ``rows``, of which Spark has returned ``narrowed``.

        Raises `MemoryError` for a result that is too large, as of rows that became several.
        """
        passed = rows.select(sorted({name for _, name in self.made if name is not None}))
        numbers = narrowed.column(0)
        if not np.array_equal(numbers.to_numpy(), np.arange(rows.num_rows)):
            try:
                passed = passed.take(numbers.combine_chunks())
            except pa.ArrowInvalid as error:
                # The values of a column are more than an array can have.
                raise MemoryError(f"the result of a batch is too large: {error}") from error
        made = iter(range(1, narrowed.num_columns))
        fields, columns = [], []
        for name, source in self.made:
            table, which = (narrowed, next(made)) if source is None else (passed, source)
            fields.append(table.schema.field(which).with_name(name))
            columns.append(table.column(which))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def passing_of(result: DataFrame, rows: DataFrame) -> Passing | None:
    """Return what becomes of the columns of ``rows`` in ``result``, which a transform has made of it.

    None if it uses offsets, or has an operator of which it is not known here what it does with rows.
    """
    if rows.sparkSession.conf.get("spark.sql.session.timeZone") != "UTC":
        # Spark would return the same times in this zone.
        return None
    root = _analyzed(rows)
    plan = _analyzed(result)
    inputs = {_id_of(each): str(each.name()) for each in items_of(root.output())}
    used: set[str] = set()
    node = plan
    while not node.fastEquals(root):
        if node.nodeName() not in _ROW_BY_ROW:
            return None
        for each in items_of(node.expressions()):
            if not _is_column(each):
                used.update(
                    inputs[_id_of(column)]
                    for column in items_of(each.references().toSeq())
                    if _id_of(column) in inputs
                )
        (node,) = items_of(node.children())
    made = tuple(
        (name, inputs.get(_id_of(column)))
        for name, column in zip(result.columns, items_of(plan.output()), strict=True)
    )
    if _NUMBER in used or (_NUMBER, _NUMBER) not in made:
        return None
    return Passing(tuple(name for name in inputs.values() if name in used), made)


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001


def _id_of(column: Any) -> int:
    # Spark gives each column that an expression makes an id of its own; what is passed on keeps its id.
    return int(column.exprId().id())


def _is_column(expression: Any) -> bool:
    return bool(expression.getClass().getSimpleName() == "AttributeReference")
