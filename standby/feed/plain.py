"""The feed without Spark and JVM.

It gives the same guarantees as the Spark feed and passes the same contract suite. Its transform, if the job has one,
is a function pyarrow.Table → pyarrow.Table over the columns of `standby.feed.batches.rows_of`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.feed.batches import check_schema, rows_of
from standby.feed.functions import is_interrupt, transform_of
from standby.feed.input_feed import InputFeed, Transforming, mark_nothing
from standby.shared.clock import REAL, Clock
from standby.shared.errortext import first_line, kind_of
from standby.shared.wire import JobDefinition

_LOG: Final = logging.getLogger(__name__)


class PlainFeed(InputFeed):
    """A `standby.ports.Feed` whose transform runs in this process."""

    def __init__(
        self,
        config: JobConfig,
        job: JobDefinition,
        transforming: Transforming = mark_nothing,
        clock: Clock = REAL,
    ) -> None:
        """``transforming`` marks what the job's transform is running on. Raises like `transform_of`."""
        super().__init__(config, job, PlainTransform(config), transforming, clock)


class PlainTransform:
    """A `standby.feed.input_feed.RowTransform` in this process."""

    def __init__(self, config: JobConfig) -> None:
        self._name = config.transform
        self._function = transform_of(config)
        self._empty = rows_of(config.inputs, has_headers=config.input_headers).empty_table()

    def warm(self, recent: Callable[[], pa.Table | None]) -> None:
        """Run the transform over no rows."""
        del recent
        # pyarrow imports pandas, if installed, with its first array: this takes 370 ms, which would delay a
        # promotion.
        pa.array([], pa.binary())
        try:
            self.run(self._empty)
        except BaseException as error:
            if is_interrupt(error):
                raise
            # The job's own code has failed on empty input. A start on real input reports that, if it fails there, too.
            _LOG.debug("the transform failed while warming up", exc_info=error)

    def cancel_warm(self) -> None:
        """Do nothing: `warm` is short."""

    @property
    def is_warm(self) -> bool:
        """True: there is nothing to compile."""
        return True

    @property
    def run_seconds(self) -> float | None:
        """Zero: a small batch takes no measurable time."""
        return 0.0

    def run(self, rows: pa.Table) -> pa.Table:
        """Return the transformed rows. Raises what the function raises, and `BadConfiguration` for another result."""
        return rows if self._function is None else transformed(self._function, rows, self._name)

    def cancel(self) -> None:
        """Do nothing: a function of this process cannot be interrupted."""

    def close(self) -> None:
        """Do nothing."""

    @property
    def child_pids(self) -> tuple[int, ...]:
        """Empty: there is no child process."""
        return ()


def transformed(transform: Callable[[Any], Any], rows: pa.Table, name: str) -> pa.Table:
    """Return the result of ``transform`` for ``rows``. Raises `BadConfiguration` when it is not a table."""
    result = transform(rows)
    if not isinstance(result, pa.Table):
        raise BadConfiguration(
            f"task.transform: {name} returned a {type(result).__name__}; with task.feed=plain it is given "
            "a pyarrow.Table and must return one"
        )
    return result


def check_plain_transform(config: JobConfig, within_seconds: float = math.inf) -> None:
    """Raise `BadConfiguration` unless the job's transform keeps the reserved columns of an empty table.

    Its module has to be imported ``within_seconds``.
    """
    transform = transform_of(config, within_seconds)
    if transform is None:
        return
    try:
        rows = rows_of(config.inputs, has_headers=config.input_headers).empty_table()
        result = transformed(transform, rows, config.transform)
    except BadConfiguration:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise BadConfiguration(
            f"task.transform: {config.transform} raised {kind_of(error)} on an empty table: {first_line(error)}"
        ) from error
    check_schema(result.schema, config.inputs, config.transform)
